//! The local transports of a process: their clients, what the broker says of itself, and the request to end it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use actors::{
    clock::{now, rfc3339_text},
    gateway::GatewayHandle,
    idle,
    locked::Locked,
    model::SessionStatus,
    session::Member,
};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, futures::Notified};

use super::names;
use crate::transport::TransportContext;
use api::{
    auth::Identity,
    mcp::{
        Exposure, Service, backend_instructions,
        lists::ListViewer,
        rpc::{INVALID_REQUEST, RpcError},
    },
};
use common::user_broker::{
    build_id,
    hello::{Agent, COMMAND, ConnectionStatus, Hello, HelloResult, Status},
    meet, own_protocol, running_version, started_at,
};

/// Names that are tried for one agent: many more than the clients of a usual broker.
const NAMES_TRIED_MAX: usize = 10_000;

/// Reads what an operator should look at, in one sentence each.
pub type WarningTexts = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// What is known of the broker when it starts.
#[derive(Clone)]
pub struct LocalFacts {
    /// The address of the HTTP server.
    pub http: Option<String>,
    /// The name of the storage.
    pub storage: String,
    /// Clients at once.
    pub clients_max: usize,
    /// The broker ends when it has no clients, or for a newer version.
    pub ends_when_idle: bool,
    /// A client has to bring a key.
    pub requires_key: bool,
    pub warnings: WarningTexts,
}

/// The local transports of the process.
pub struct LocalService {
    /// What all transports share.
    pub context: TransportContext,
    pub facts: LocalFacts,
    started_at: &'static str,
    state: Locked<State>,
    is_retiring: AtomicBool,
    retired: Notify,
    /// A client acts as a session.
    session_bound: Notify,
}

#[derive(Default)]
struct State {
    next_id: u64,
    clients: BTreeMap<u64, Client>,
    /// A newer version that is installed.
    upgrade: Option<String>,
}

/// One connection.
#[derive(Default)]
struct Client {
    pid: Option<u32>,
    /// It uses the FIFOs, and takes no place of the socket.
    is_fifo: bool,
    since: String,
    hello: Option<Hello>,
    /// The name that the broker gave.
    given_name: Option<String>,
    /// The id of lists: the one that acts is known to the client alone.
    session_id: Option<String>,
    session_name: Option<String>,
}

impl LocalService {
    /// The service before its first client.
    pub fn new(context: TransportContext, facts: LocalFacts) -> Arc<Self> {
        Arc::new(Self {
            context,
            facts,
            started_at: started_at(),
            state: Locked::default(),
            is_retiring: AtomicBool::new(false),
            retired: Notify::new(),
            session_bound: Notify::new(),
        })
    }

    /// Adds a client, whose process is `pid`, unless `clients_max` are connected.
    pub fn try_enter(self: &Arc<Self>, pid: Option<u32>) -> Option<ClientEntry> {
        let state = self.state.lock();
        let len = state.clients.values().filter(|client| !client.is_fifo).count();
        (len < self.facts.clients_max).then(|| self.add(state, pid, false))
    }

    /// Adds the client of the FIFOs, of which there is one.
    pub fn enter_fifo(self: &Arc<Self>) -> ClientEntry {
        self.add(self.state.lock(), None, true)
    }

    fn add(self: &Arc<Self>, mut state: MutexGuard<'_, State>, pid: Option<u32>, is_fifo: bool) -> ClientEntry {
        let id = state.next_id;
        state.next_id += 1;
        let client = Client {
            pid,
            is_fifo,
            since: rfc3339_text(now().unix_ms),
            ..Client::default()
        };
        state.clients.insert(id, client);
        ClientEntry {
            service: Arc::clone(self),
            id,
        }
    }

    /// Asks the process to end as SIGTERM does.
    pub fn retire(&self) {
        self.is_retiring.store(true, Ordering::Relaxed);
        self.retired.notify_one();
    }

    /// Waits until the process is asked to end.
    pub async fn retired(&self) {
        self.retired.notified().await;
    }

    /// Ends when a client that acts as another session than before has been noted.
    pub fn session_bound(&self) -> Notified<'_> {
        self.session_bound.notified()
    }

    /// Whether a client of a newer version has connected.
    pub fn has_upgrade(&self) -> bool {
        self.state.lock().upgrade.is_some()
    }

    /// Whether a client is connected to the socket, identified or not.
    pub fn has_socket_clients(&self) -> bool {
        self.state.lock().clients.values().any(|client| !client.is_fifo)
    }

    /// What the broker says of itself.
    pub fn status(&self) -> Status {
        let warnings = (self.facts.warnings)();
        let state = self.state.lock();
        let connection = |client: &Client| ConnectionStatus {
            pid: client.hello.as_ref().map(|hello| hello.pid).or(client.pid),
            kind: client.hello.as_ref().map(|hello| hello.kind.clone()),
            agent: client.hello.as_ref().and_then(|hello| hello.agent.clone()),
            since: client.since.clone(),
            session_id: client.session_id.clone(),
            name: client.session_name.clone(),
        };
        Status {
            pid: std::process::id(),
            version: running_version().to_owned(),
            build: build_id().to_owned(),
            started_at: self.started_at.to_owned(),
            http: self.facts.http.clone(),
            storage: self.facts.storage.clone(),
            upgrade: state.upgrade.clone(),
            connections: state.clients.values().map(connection).collect(),
            warnings,
        }
    }
}

/// The entry of one client. It is removed on drop.
pub struct ClientEntry {
    service: Arc<LocalService>,
    id: u64,
}

impl ClientEntry {
    /// The local transports of the process.
    pub fn service(&self) -> &Arc<LocalService> {
        &self.service
    }

    /// Answers the hello of a client, of which there is one: finding a name reads all sessions.
    ///
    /// # Errors
    /// The client has said hello before, or speaks a protocol that this broker does not.
    pub fn hello(&self, hello: Hello, identity: &Identity) -> Result<HelloResult, RpcError> {
        let connections = self.service.context.connections.len();
        let mut state = self.service.state.lock();
        if state.clients.get(&self.id).is_some_and(|client| client.hello.is_some()) {
            let message = "Invalid Request: a connection has one hello";
            return Err(RpcError::new(INVALID_REQUEST, message));
        }
        // A call or a task under way counts as another client: it would be cut.
        let others = connections.saturating_sub(1).max(usize::from(idle::is_kept_awake()));
        let meeting = meet(&hello, state.upgrade.clone(), others).map_err(|refused| {
            let message = "Invalid Request: this broker speaks another version of the local protocol";
            RpcError::new(INVALID_REQUEST, message).with_data(json!(refused))
        })?;
        // A command only asks: the broker makes no room for a program that starts none.
        if hello.kind != COMMAND {
            state.upgrade.clone_from(&meeting.upgrade);
        }
        let name = hello
            .agent
            .as_ref()
            .and_then(|agent| state.name_for(self.id, agent, identity));
        let client = state.clients.entry(self.id).or_default();
        client.given_name.clone_from(&name);
        client.hello = Some(hello);
        drop(state);
        // The program that runs a broker without `idle_shutdown` decides when it ends.
        if meeting.retires && self.service.facts.ends_when_idle {
            self.service.retire();
        }
        let service = &self.service.context.service;
        Ok(HelloResult {
            protocol: own_protocol(),
            protocols: [own_protocol(); 2],
            version: running_version().to_owned(),
            build: build_id().to_owned(),
            pid: std::process::id(),
            started_at: self.service.started_at.to_owned(),
            http: self.service.facts.http.clone(),
            connections,
            retiring: self.service.is_retiring.load(Ordering::Relaxed),
            upgrade: meeting.upgrade,
            lists: own_lists(service, identity),
            name,
            backend_instructions: backend_instructions::of_shown(identity, &Exposure::All),
        })
    }

    /// The client acts as this session from now on.
    pub fn set_session(&self, member: Option<&Member>) {
        let mut state = self.service.state.lock();
        if let Some(client) = state.clients.get_mut(&self.id) {
            client.session_id = member.map(|member| member.record.id.to_string());
            client.session_name = member.and_then(|member| member.record.name.as_ref().map(ToString::to_string));
        }
        drop(state);
        self.service.session_bound.notify_waiters();
    }
}

/// What the lists of a client depend on. A front that has other lists, or the same ones without those of backends, asks the
/// broker.
fn own_lists(service: &Service, identity: &Identity) -> String {
    let digest = ListViewer::of(service, identity, false).digest().to_owned();
    if identity.project.gateway().is_some_and(GatewayHandle::has_backends) {
        format!("{digest}+backends")
    } else {
        digest
    }
}

impl Drop for ClientEntry {
    fn drop(&mut self) {
        self.service.state.lock().clients.remove(&self.id);
    }
}

impl State {
    /// The name for an agent that asks for one: that of its conversation if it had one, else the first that no other
    /// conversation uses. The former name of a session leads to the present one.
    fn name_for(&self, own_id: u64, agent: &Agent, identity: &Identity) -> Option<String> {
        let wanted = agent.auto_name.as_deref()?;
        let sessions = identity.project.directory();
        let own_sessions = sessions.all().into_iter().rev();
        let earlier = own_sessions
            .filter(|member| member.record.owner == *identity.owner() && is_of(agent, &member.record.metadata))
            .find_map(|member| member.record.name.as_ref().map(ToString::to_string));
        if earlier.is_some() {
            return earlier;
        }
        let others = self.clients.iter().filter(|(id, _)| **id != own_id);
        let given: Vec<_> = others
            .filter(|(_, client)| !client.is_of(agent))
            .filter_map(|(_, client)| client.given_name.as_deref())
            .collect();
        let present_name = |name: &str| {
            let holder = sessions.by_name_or_alias(name);
            holder.and_then(|member| member.record.name.as_ref().map(ToString::to_string))
        };
        let chosen = names::choose(wanted, NAMES_TRIED_MAX, |name| {
            let is_free = sessions.by_name_or_alias(name).is_none_or(|member| {
                let record = &member.record;
                // One without a connection may be in use by calls over HTTP.
                let is_in_use = member.shared.is_connected()
                    || record.holder.by_id && identity.project.status(&member) != SessionStatus::Disconnected;
                record.owner == *identity.owner() && !record.is_human() && !is_in_use
            });
            is_free && !given.contains(&name) && present_name(name).is_none_or(|name| !given.contains(&&*name))
        });
        chosen.map(|name| present_name(&name).unwrap_or(name))
    }
}

impl Client {
    /// Whether this is a connection of the same conversation.
    fn is_of(&self, agent: &Agent) -> bool {
        let own = self.hello.as_ref().and_then(|hello| hello.agent.as_ref());
        own.is_some_and(|own| {
            own.conversation.is_some() && (&own.conversation, &own.product) == (&agent.conversation, &agent.product)
        })
    }
}

/// Whether a session was registered by an agent for the same conversation.
fn is_of(agent: &Agent, metadata: &Map<String, Value>) -> bool {
    let text = |key| metadata.get(key).and_then(Value::as_str);
    agent.conversation.is_some()
        && text("conversation") == agent.conversation.as_deref()
        && text("product") == agent.product.as_deref()
}
