//! A broker in the process of the test, and a connection that records what its session does.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix_rt::{Arbiter, System};
use actors::{
    broker::{Broker, BrokerHandle, BrokerSettings},
    model::{
        BrokerError, ConnectionId, Grant, Headers, MessageId, NewProject, Owner, PresenceTimeouts, ProjectConfig,
        ProjectId, ProtocolMetadata, ProtocolName, Rungs, SessionId, SessionName, Wake,
    },
    policy::DeskSettings,
    project::{
        PreparedSend, ProjectHandle, ProjectSettings, ProtocolDefinition, ReceiveRequest, Registered, Registrant,
        Registration, SendRequest, SessionQuery,
    },
    registry::WorkBudget,
    router::{RouteAnswer, Routed, Submission},
    session::{
        AckMode, CloseReason, Connection, Member, PushMode, ReadReservation, ReceiveMode, ReceivedMessages, Subscribe,
    },
    storage::{Delivery, Storage, memory::MemoryStorage},
    supervise::{ActorNode, RestartPolicy},
};
use tokio::sync::watch;

/// The time limit of every wait. Only a failing test reaches it.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The protocol of all messages.
pub const CHAT: &str = "chat";
pub const VERSION: &str = "1.0.0";
/// Push with manual acknowledgement.
pub const MANUAL: PushMode = PushMode {
    window: 16,
    ack: AckMode::Manual,
};

/// The thread on which the actors of the project run.
#[derive(Clone, Copy, Debug)]
pub enum ActorThread {
    /// The thread of the test: the actors see everything that the test does between two awaits at once.
    Test,
    /// A thread of their own.
    Own,
}

/// Settings under which no timer fires while a test runs.
pub fn settings() -> ProjectSettings {
    ProjectSettings {
        queue_capacity: 1000,
        sessions_max: 25_000,
        queue_warning: 0.9,
        delivery_limit: 1000,
        heartbeat_interval: Duration::from_secs(10),
        presence: PresenceTimeouts {
            stale_after: Duration::from_mins(10),
            disconnect_after: Duration::from_mins(20),
        },
        session_retention: Duration::from_hours(24),
        payload_len_max: 10 * 1024 * 1024,
        keeps_payloads: false,
        desk: DeskSettings::default(),
        gateway: None,
        restarts: RestartPolicy {
            restarts_max: 1000,
            window: Duration::from_mins(1),
            backoff: Duration::from_millis(1),
            backoff_max: Duration::from_millis(2),
        },
    }
}

pub fn broker_settings(project: ProjectSettings) -> BrokerSettings {
    BrokerSettings {
        project,
        key_rate_limit: 0,
        multi_project: true,
        projects_max: 1000,
    }
}

/// The submission for the router of the sender's own project. Panics on a message to another project.
pub fn local_submission(dispatch: PreparedSend) -> Submission {
    match dispatch {
        PreparedSend::Local(submission) => submission,
        PreparedSend::CrossProject(_) => panic!("a message to another project"),
    }
}

/// Runs a test in an actor system of its own.
pub fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce() -> F) {
    System::new().block_on(async {
        let test = tokio::time::timeout(2 * TEST_TIMEOUT, test());
        test.await.expect("the test ends in time");
    });
}

/// Awaits a future and panics after [`TEST_TIMEOUT`].
pub async fn within_deadline<T>(what: &str, awaited: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, awaited)
        .await
        .unwrap_or_else(|_| panic!("timed out: {what}"))
}

#[derive(Clone)]
pub struct World {
    pub broker: BrokerHandle,
    pub project: ProjectHandle,
    given_up: watch::Receiver<bool>,
}

impl World {
    pub async fn new(settings: ProjectSettings, threads: ActorThread) -> Self {
        Self::on_storage(Arc::new(MemoryStorage::default()), settings, threads).await
    }

    pub async fn on_storage(storage: Arc<dyn Storage>, settings: ProjectSettings, threads: ActorThread) -> Self {
        let world = Self::on_shared_storage(storage, settings, threads).await;
        world.register_protocol(CHAT).await.unwrap();
        world
    }

    /// Starts over a store in which [`CHAT`] is registered already, or is registered later.
    pub async fn on_shared_storage(storage: Arc<dyn Storage>, settings: ProjectSettings, threads: ActorThread) -> Self {
        let arbiter = match threads {
            ActorThread::Test => Arbiter::current(),
            // The thread ends with the actix system.
            ActorThread::Own => Arbiter::new().handle(),
        };
        let (given_up, gave_up) = watch::channel(false);
        let broker = Broker::start(broker_settings(settings), storage, vec![arbiter], move || {
            given_up.send_replace(true);
        });
        let project = broker.project(&ProjectId::default_project()).await.unwrap();
        Self {
            broker,
            project,
            given_up: gave_up,
        }
    }

    /// Creates a project of the same broker and registers [`CHAT`] in it.
    pub async fn other_project(&self, id: &str, config: ProjectConfig) -> Self {
        self.broker.create_project(new_project(id, config)).await.unwrap();
        let project = self.broker.project(&project_id(id)).await.unwrap();
        let neighbour = self.with_project(project);
        neighbour.register_protocol(CHAT).await.unwrap();
        neighbour
    }

    /// The same broker with this project.
    pub fn with_project(&self, project: ProjectHandle) -> Self {
        Self {
            project,
            ..self.clone()
        }
    }

    pub async fn register_protocol(&self, name: &str) -> Result<(), BrokerError> {
        self.register_schema(name, serde_json::json!({ "type": "object" }))
            .await
    }

    pub async fn register_schema(&self, name: &str, schema: serde_json::Value) -> Result<(), BrokerError> {
        let definition = ProtocolDefinition {
            name: ProtocolName::parse(name).unwrap(),
            version: semver::Version::parse(VERSION).unwrap(),
            schema,
            capabilities: BTreeSet::new(),
            metadata: ProtocolMetadata::default(),
            by: Registrant {
                is_admin: true,
                ..Registrant::default()
            },
            lens: None,
            dry_run: false,
        };
        self.project.register_protocol(definition).await.map(drop)
    }

    /// Waits until an actor that the broker cannot do without has exceeded its restart limit.
    pub async fn await_giving_up(&self) {
        let mut gave_up = self.given_up.clone();
        within_deadline("giving up", gave_up.wait_for(|&gave_up| gave_up))
            .await
            .unwrap();
    }

    pub fn has_given_up(&self) -> bool {
        *self.given_up.borrow()
    }

    /// The project that is served now, possibly restarted.
    pub async fn current_project(&self) -> ProjectHandle {
        within_deadline("the project is served", async {
            loop {
                let project = self.broker.project(self.project.id()).await.unwrap();
                if !project.is_killed() {
                    return project;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    /// This world with the project that is served now.
    pub async fn reopened(mut self) -> Self {
        self.project = self.current_project().await;
        self
    }

    pub async fn try_register(
        &self,
        name: &str,
        line: Option<&Arc<RecordingConnection>>,
    ) -> Result<Registered, BrokerError> {
        self.register_as(&Owner::anonymous(), name, line).await
    }

    /// Registers a session for this owner.
    pub async fn register_as(
        &self,
        owner: &Owner,
        name: &str,
        line: Option<&Arc<RecordingConnection>>,
    ) -> Result<Registered, BrokerError> {
        let registration = Registration {
            name: Some(SessionName::parse(name).unwrap()),
            owner: owner.clone(),
            connection: line.map(|line| Arc::clone(line) as _),
            ..Registration::default()
        };
        self.project.register(registration).await
    }

    /// Registers a session of this name, with or without a connection.
    pub async fn register(&self, name: &str, line: Option<&Arc<RecordingConnection>>) -> Arc<Member> {
        self.try_register(name, line).await.unwrap().member
    }

    /// Registers a session without a name.
    pub async fn register_nameless(&self, line: Option<&Arc<RecordingConnection>>) -> Arc<Member> {
        let registration = Registration {
            connection: line.map(|line| Arc::clone(line) as _),
            ..Registration::default()
        };
        self.project.register(registration).await.unwrap().member
    }

    pub fn subscribe(&self, member: &Member, line: &RecordingConnection, push: Option<PushMode>) {
        self.project.subscribe(
            member,
            Subscribe {
                connection: line.id(),
                inbox_changes: false,
                push,
            },
        );
    }

    /// Registers a session whose connection takes pushed messages; acknowledge them with [`World::acknowledge`].
    pub async fn register_with_push(&self, name: &str) -> (Arc<Member>, Arc<RecordingConnection>) {
        let line = RecordingConnection::new();
        let member = self.register(name, Some(&line)).await;
        self.subscribe(&member, &line, Some(MANUAL));
        (member, line)
    }

    pub fn direct_submission(&self, sender: &Arc<Member>, to: &str) -> Result<Submission, BrokerError> {
        Ok(local_submission(
            self.project.prepare_direct(sender, to, &envelope(false)).known()?,
        ))
    }

    pub fn broadcast_submission(&self, sender: &Arc<Member>) -> Result<Submission, BrokerError> {
        let filter = actors::model::CapabilityFilter::default();
        self.project.prepare_broadcast(sender, filter, &envelope(false)).known()
    }

    /// Submits messages to the router and waits for the answers.
    pub async fn submit(&self, submissions: Vec<Submission>) -> Result<Vec<RouteAnswer>, BrokerError> {
        let answers = self.project.submit(submissions)?;
        answers.await.map_err(|_| BrokerError::unavailable())
    }

    /// Sends one tracked message, which must be accepted.
    pub async fn send(&self, sender: &Arc<Member>, to: &str) -> Routed {
        let submission = local_submission(
            self.project
                .prepare_direct(sender, to, &envelope(true))
                .known()
                .unwrap(),
        );
        let mut answers = self.submit(vec![submission]).await.unwrap();
        answers.pop().unwrap().unwrap()
    }

    pub async fn send_many(&self, sender: &Arc<Member>, to: &str, count: usize) -> Vec<MessageId> {
        let submissions = (0..count)
            .map(|_| self.direct_submission(sender, to).unwrap())
            .collect();
        let answers = self.submit(submissions).await.unwrap();
        answers
            .into_iter()
            .map(|answer| answer.unwrap().result.message)
            .collect()
    }

    pub async fn receive(
        &self,
        member: &Member,
        wait: Duration,
        mode: ReceiveMode,
    ) -> Result<ReceivedMessages, BrokerError> {
        let request = ReceiveRequest {
            limit: 20,
            wait,
            mode,
            ..ReceiveRequest::default()
        };
        self.project.receive(member, request).await
    }

    /// Leases the waiting messages without acknowledging them: only their delivery count changes.
    pub async fn read_inbox(&self, member: &Member) -> Vec<MessageId> {
        let received = self.receive(member, Duration::ZERO, ReceiveMode::Manual).await.unwrap();
        ids(&received.deliveries)
    }

    pub async fn acknowledge(&self, member: &Member, messages: Vec<MessageId>) {
        let which = actors::storage::Acknowledge::Ids(messages);
        self.project.acknowledge(member, which).await.unwrap();
    }

    /// The node of this actor in the tree of `observe`.
    pub fn node(&self, kind: &str, name: &str) -> ActorNode {
        let tree = self.broker.observe();
        let mut open = vec![&tree];
        while let Some(node) = open.pop() {
            if node.kind == kind && node.name == name {
                return node.clone();
            }
            open.extend(&node.children);
        }
        panic!("no {kind} {name} in {tree:?}");
    }

    pub fn session_node(&self, member: &Member) -> ActorNode {
        self.node("session", &member.record.id.to_string())
    }

    /// The restarts of every restarted actor: kind, name, count.
    pub fn restarts(&self) -> Vec<(&'static str, String, u32)> {
        let mut restarts = Vec::new();
        let mut open = vec![self.broker.observe()];
        while let Some(node) = open.pop() {
            if node.restarts > 0 {
                restarts.push((node.kind, node.name, node.restarts));
            }
            open.extend(node.children);
        }
        restarts
    }

    pub fn sessions_len(&self) -> usize {
        let all = SessionQuery {
            status: None,
            protocol: None,
            feature: None,
            text: None,
            limit: usize::MAX,
            after: None,
        };
        self.project.list_sessions(&all).items.len()
    }
}

pub fn project_id(id: &str) -> ProjectId {
    ProjectId::parse(id).unwrap()
}

pub fn new_project(id: &str, config: ProjectConfig) -> NewProject {
    NewProject {
        id: project_id(id),
        name: id.to_owned(),
        description: None,
        tags: BTreeSet::new(),
        config,
    }
}

/// A grant for these protocols (empty: all) with this limit of messages per minute.
pub fn grant_of(protocols: &[&str], message_rate_limit: u32) -> Grant {
    let protocols = protocols.iter().map(|name| ProtocolName::parse(name).unwrap());
    Grant {
        protocols: protocols.collect(),
        message_rate_limit,
        granted_at_ms: 1,
    }
}

pub fn envelope(watched: bool) -> SendRequest<'static> {
    static HEADERS: std::sync::LazyLock<Headers> = std::sync::LazyLock::new(Headers::default);
    SendRequest {
        protocol_name: CHAT,
        protocol_version: VERSION,
        payload: "{\"text\":\"hi\"}",
        headers: &HEADERS,
        tracked: watched,
        keeps_for_unknown: false,
        work: WorkBudget::default(),
        trace: None,
    }
}

pub fn ids(deliveries: &[Delivery]) -> Vec<MessageId> {
    deliveries.iter().map(|delivery| delivery.message.id).collect()
}

/// A connection that records what its session does.
pub struct RecordingConnection {
    id: ConnectionId,
    room: AtomicUsize,
    /// Bytes that all reservations together may have.
    budget: AtomicUsize,
    seen: Mutex<Recorded>,
    changes: watch::Sender<()>,
}

#[derive(Clone, Default)]
pub struct Recorded {
    pub pushed: Vec<Delivery>,
    pub inbox_changes: usize,
    pub closed: Vec<CloseReason>,
}

impl RecordingConnection {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            id: ConnectionId::next(),
            room: AtomicUsize::new(usize::MAX),
            budget: AtomicUsize::new(usize::MAX),
            seen: Mutex::default(),
            changes: watch::Sender::new(()),
        })
    }

    pub fn set_room(&self, room: usize) {
        self.room.store(room, Ordering::SeqCst);
    }

    /// From now on, all reservations together get at most so many bytes.
    pub fn set_budget(&self, budget: usize) {
        self.budget.store(budget, Ordering::SeqCst);
    }

    pub fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn close_reasons(&self) -> Vec<CloseReason> {
        self.recorded().closed.clone()
    }

    /// Waits until the record fulfils a condition.
    pub async fn await_recorded(&self, what: &str, fulfilled: impl Fn(&Recorded) -> bool) {
        let mut changes = self.changes.subscribe();
        within_deadline(what, async {
            while !fulfilled(&self.recorded()) {
                changes.changed().await.unwrap();
            }
        })
        .await;
    }

    /// Waits until exactly these messages were pushed, in this order.
    pub async fn sees(&self, expected: &[MessageId]) {
        self.await_recorded("the messages", |seen| seen.pushed.len() >= expected.len())
            .await;
        assert_eq!(ids(&self.recorded().pushed), expected);
    }

    pub async fn closes_with(&self, why: CloseReason) {
        self.await_recorded("its end", |seen| !seen.closed.is_empty()).await;
        assert_eq!(self.close_reasons(), [why]);
    }

    /// Takes the messages that were pushed since the last call.
    pub fn take_pushed(&self) -> Vec<Delivery> {
        std::mem::take(&mut self.recorded().pushed)
    }

    fn record(&self, note: impl FnOnce(&mut Recorded)) {
        note(&mut self.recorded());
        self.changes.send_replace(());
    }
}

impl Connection for RecordingConnection {
    fn id(&self) -> ConnectionId {
        self.id
    }

    fn reserve(self: Arc<Self>, bytes: usize) -> Option<ReadReservation> {
        let left = self.budget.load(Ordering::SeqCst).checked_sub(bytes)?;
        if bytes > self.room.load(Ordering::SeqCst) {
            return None;
        }
        self.budget.store(left, Ordering::SeqCst);
        Some(ReadReservation::default())
    }

    fn push(&self, deliveries: &[Delivery]) {
        self.record(|seen| seen.pushed.extend_from_slice(deliveries));
    }

    fn notify_inbox_changed(&self) {
        self.record(|seen| seen.inbox_changes += 1);
    }

    fn wakes_by(&self) -> Rungs {
        Rungs::default()
    }

    fn wake(&self, _: SessionId, _: &Wake) {}

    fn close(&self, why: CloseReason) {
        self.record(|seen| seen.closed.push(why));
    }

    fn ends_with_client(&self) -> bool {
        false
    }
}
