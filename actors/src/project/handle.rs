use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::sync::{oneshot, watch};

use super::{
    Directory, Project, ProtocolDefinition, Registered, Registration, SessionQuery, Settings, messages::Register,
};
use crate::{
    clock::now,
    model::{
        BrokerError, CapabilityFilter, ConnectionId, DeadLetter, DeadLetterReason, Draft, Headers, MessageId,
        ProjectId, ProtocolRecord, RecipientStatus, SessionId, SessionStatus, Status, To,
    },
    negotiate::{self, MatrixRow, Negotiation, RequiredProtocol},
    registry::{Admit, Catalog, DiscoverPage, DiscoverQuery, Protocol, Registry},
    router::{Answer, Audience, Route, Router, Submission, Target},
    session::{
        AcknowledgeMessages, Attach, Connection, Detach, Disconnect, GiveBack, Member, ReceiveCall, ReceiveMessages,
        ReceiveMode, Received, Subscribe, Unwatch, Watch, Writable, Written,
    },
    storage::{Acknowledge, Acknowledged, Outcome, Redriven, Store},
    supervise::{Address, Node},
};

/// The verbs of a project: what every surface calls. Cheap to clone; needs no lock and, for what only looks, no
/// actor.
#[derive(Clone)]
pub struct ProjectHandle(Arc<Parts>);

/// What a project is made of, joined where it starts.
pub(super) struct Parts {
    pub id: ProjectId,
    pub settings: Settings,
    pub project: Address<Project>,
    pub registry: Address<Registry>,
    pub router: Address<Router>,
    pub directory: Arc<Directory>,
    pub catalog: Arc<Catalog>,
    pub store: Arc<dyn Store>,
}

/// Some of a list, and whether there is more.
#[derive(Clone, Debug)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub more: bool,
}

/// What a sender says about a message, before it is checked.
pub struct Envelope<'a> {
    pub protocol_name: &'a str,
    pub protocol_version: &'a str,
    /// The text of a JSON value.
    pub payload: &'a str,
    pub headers: &'a Headers,
    /// Follow the status beyond the first answer.
    pub watched: bool,
}

pub struct ReceiveRequest {
    pub limit: usize,
    pub wait: Duration,
    pub mode: ReceiveMode,
}

pub struct RedriveRequest {
    pub messages: Vec<MessageId>,
    /// None: to whom they were for.
    pub recipient: Option<SessionId>,
}

impl ProjectHandle {
    pub(super) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    pub fn id(&self) -> &ProjectId {
        &self.0.id
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// This project and its actors as data.
    pub fn observe(&self) -> Node {
        let Parts {
            project,
            registry,
            router,
            directory,
            ..
        } = &*self.0;
        let sessions = directory.all();
        let children = [registry.pulse().node(Vec::new()), router.pulse().node(Vec::new())]
            .into_iter()
            .chain(sessions.iter().map(|member| member.address.pulse().node(Vec::new())))
            .collect();
        project.pulse().node(children)
    }

    // Sessions

    /// Makes a session, or resumes the one that holds the name, or changes the caller's own.
    pub async fn register(&self, registration: Registration) -> Result<Registered, BrokerError> {
        let (reply, answer) = oneshot::channel();
        self.0.project.tell(Register { registration, reply })?;
        answer.await.unwrap_or(Err(BrokerError::unavailable()))
    }

    pub fn session(&self, id: SessionId) -> Result<Arc<Member>, BrokerError> {
        self.0.directory.by_id(id).ok_or(BrokerError::SessionNotFound)
    }

    /// The session an address means: an id, a name, or `name@project` with this project.
    pub fn resolve(&self, address: &str) -> Result<Arc<Member>, BrokerError> {
        if let Some(member) = self.0.directory.by_name(address) {
            return Ok(member);
        }
        if let Some(id) = SessionId::parse(address) {
            return self.session(id);
        }
        match address.rsplit_once('@') {
            Some((name, project)) if project == self.0.id.as_str() => self.resolve(name),
            _ => Err(BrokerError::SessionNotFound),
        }
    }

    pub fn status(&self, member: &Member) -> SessionStatus {
        member.status(self.0.settings.presence, now())
    }

    pub fn list_sessions(&self, query: &SessionQuery) -> Page<Arc<Member>> {
        let (items, more) = self.0.directory.list(query, now());
        Page { items, more }
    }

    /// The session leaves; returns how many messages wait for it.
    pub async fn disconnect(&self, member: &Member) -> Result<usize, BrokerError> {
        member.address.ask(Disconnect).await
    }

    /// The connection is gone. What it had not acknowledged waits again.
    pub fn detach(&self, member: &Member, message: Detach) {
        self.tell(member, member.address.tell(message));
    }

    /// This connection is the session's live one from now on; an older one is closed as taken over.
    pub fn attach(&self, member: &Member, connection: Arc<dyn Connection>) {
        self.join(member, connection, false);
    }

    /// The same for one that was it before, and only if there is no other by now: else it is taken over itself.
    pub fn reattach(&self, member: &Member, connection: Arc<dyn Connection>) {
        self.join(member, connection, true);
    }

    fn join(&self, member: &Member, connection: Arc<dyn Connection>, reclaims: bool) {
        let attach = Attach {
            connection: Some(connection),
            named: member.record.name.is_some(),
            reclaims,
        };
        self.tell(member, member.address.tell(attach));
    }

    /// Tells `connection`, beside the live one, of changes of the inbox. Nothing is pushed to it.
    pub fn watch(&self, member: &Member, connection: Arc<dyn Connection>) {
        let watch = Watch {
            connection: Some(connection),
        };
        self.tell(member, member.address.tell(watch));
    }

    pub fn unwatch(&self, member: &Member, connection: ConnectionId) {
        self.tell(member, member.address.tell(Unwatch { connection }));
    }

    pub fn subscribe(&self, member: &Member, message: Subscribe) {
        self.tell(member, member.address.tell(message));
    }

    /// These messages were written to the socket of the member's connection.
    ///
    /// Where that acknowledges them and the store answers at once, they are acknowledged here and now: the session
    /// hears of it only if something waits for the room in its window.
    pub fn written(&self, member: &Member, message: Written) {
        let store = &self.0.store;
        if !store.answers_at_once() || !member.vitals.acknowledged_by_writes_of(message.connection) {
            return self.tell(member, member.address.tell(message));
        }
        let op = store.acknowledge(member.record.id, Acknowledge::Ids(message.messages), now());
        if let Some(Ok(done)) = op.now_or_never() {
            for message in &done.watched {
                message.progress.reach(Status::Acknowledged);
            }
            member.vitals.set_depth(done.depth);
            if done.depth.waiting > 0 {
                self.tell(
                    member,
                    member.address.tell(crate::session::Nudge { until_handled: None }),
                );
            }
        }
    }

    pub fn writable(&self, member: &Member, message: Writable) {
        self.tell(member, member.address.tell(message));
    }

    fn tell(&self, member: &Member, told: Result<(), BrokerError>) {
        if told.is_err() {
            tracing::warn!(project = %self.0.id, session = %member.record.id, "a session's mailbox is full or gone");
        }
    }

    // Protocols

    /// Checks a definition and takes it in.
    pub async fn register_protocol(&self, definition: ProtocolDefinition) -> Result<Arc<Protocol>, BrokerError> {
        let ProtocolDefinition {
            name,
            version,
            schema,
            capabilities,
            metadata,
            registered_by,
        } = definition;
        if self.0.catalog.get(name.as_str(), &version.to_string()).is_some() {
            return Err(BrokerError::ProtocolExists { name, version });
        }
        let registered_at_ms = now().unix_ms;
        let record = ProtocolRecord {
            name,
            version,
            schema,
            capabilities,
            metadata,
            registered_at_ms,
            registered_by,
        };
        let protocol = Protocol::compile(Arc::new(record))?;
        let (reply, answer) = oneshot::channel();
        self.0.registry.tell(Admit { protocol, reply })?;
        answer.await.unwrap_or(Err(BrokerError::unavailable()))
    }

    pub fn protocol(&self, name: &str, version: &str) -> Result<Arc<Protocol>, BrokerError> {
        self.0
            .catalog
            .get(name, version)
            .ok_or_else(|| BrokerError::ProtocolNotFound {
                name: name.chars().take(80).collect(),
                version: version.chars().take(80).collect(),
            })
    }

    pub fn discover_protocols(&self, query: &DiscoverQuery) -> Result<DiscoverPage, BrokerError> {
        self.0.catalog.discover(query)
    }

    pub fn protocols_len(&self) -> usize {
        self.0.catalog.len()
    }

    pub fn negotiate(&self, ours: &Member, theirs: &Member, required: &[RequiredProtocol]) -> Negotiation {
        negotiate::negotiate(&ours.record.capabilities, &theirs.record.capabilities, required)
    }

    pub fn compatibility_matrix(&self, members: &[Arc<Member>]) -> Vec<MatrixRow> {
        let sessions: Vec<_> = members
            .iter()
            .map(|member| (member.record.id, &member.record.capabilities))
            .collect();
        negotiate::matrix(&sessions)
    }

    // Messages

    /// Checks a message for one recipient and encodes it. Nothing is accepted yet.
    pub fn direct(&self, sender: &Member, recipient: &str, envelope: &Envelope<'_>) -> Result<Submission, BrokerError> {
        let protocol = self.protocol(envelope.protocol_name, envelope.protocol_version)?;
        let member = match self.resolve(recipient) {
            Ok(member) => member,
            // It may have been sent while the recipient was there: then the first result is the answer.
            Err(error) if envelope.headers.idempotency_key.is_some() => {
                return self.submission(sender, To::Many, &protocol, envelope, Target::Nobody(error));
            }
            Err(error) => return Err(error),
        };
        let record = &protocol.record;
        if !member.record.capabilities.accepts(&record.name, &record.version) {
            return Err(BrokerError::IncompatibleProtocol {
                recipient: recipient.to_owned(),
                name: record.name.clone(),
                version: record.version.clone(),
                speaks: spoken(&member),
            });
        }
        self.submission(sender, To::One, &protocol, envelope, Target::One(member))
    }

    /// Checks a message for everyone a filter lets through and encodes it. Nothing is accepted yet.
    pub fn broadcast(
        &self,
        sender: &Member,
        filter: CapabilityFilter,
        envelope: &Envelope<'_>,
    ) -> Result<Submission, BrokerError> {
        let protocol = self.protocol(envelope.protocol_name, envelope.protocol_version)?;
        let target = Target::Many(Box::new(Audience {
            sender: sender.record.id,
            filter,
            protocol: protocol.record.name.clone(),
            version: protocol.record.version.clone(),
        }));
        self.submission(sender, To::Many, &protocol, envelope, target)
    }

    fn submission(
        &self,
        sender: &Member,
        to: To,
        protocol: &Protocol,
        envelope: &Envelope<'_>,
        target: Target,
    ) -> Result<Submission, BrokerError> {
        protocol.schema.validate(envelope.payload)?;
        let named = (envelope.protocol_name, envelope.protocol_version);
        let draft = Draft::new(
            &self.0.id,
            &sender.record,
            to,
            named,
            envelope.payload,
            envelope.headers,
        );
        let idempotency_key = envelope.headers.idempotency_key.clone();
        Ok(Submission {
            draft,
            target,
            idempotency_key,
            watched: envelope.watched,
        })
    }

    /// Hands messages to the router, in this order. The answers come together.
    pub fn submit(&self, submissions: Vec<Submission>) -> Result<oneshot::Receiver<Vec<Answer>>, BrokerError> {
        let (reply, answers) = oneshot::channel();
        self.0.router.tell(Route { submissions, reply })?;
        Ok(answers)
    }

    /// Waits until the message has come as far as `goal`, or is final, or the time is over; returns where it is.
    pub async fn follow(&self, mut status: watch::Receiver<Status>, goal: Status, timeout: Duration) -> Status {
        let reached = |status: &Status| {
            status.is_final() || *status == goal || (goal == Status::Queued && *status == Status::Delivered)
        };
        // Both ends of the wait look at the same thing: where the message is then.
        let _ = tokio::time::timeout(timeout, status.wait_for(reached)).await;
        *status.borrow_and_update()
    }

    /// Keeps the first result of a send for its idempotency key.
    pub async fn settle_outcome(&self, sender: SessionId, key: String, outcome: Outcome) -> Result<(), BrokerError> {
        Ok(self.0.store.settle_outcome(sender, key, outcome).await?)
    }

    /// Takes messages out of an inbox. Dropping the future ends the wait and loses nothing.
    pub async fn receive(&self, member: &Member, request: ReceiveRequest) -> Result<Received, BrokerError> {
        self.receive_as(&ReceiveCall::default(), member, request).await
    }

    /// The same for a caller that may give the call up even later; see [`Self::give_back`].
    pub async fn receive_as(
        &self,
        call: &ReceiveCall,
        member: &Member,
        request: ReceiveRequest,
    ) -> Result<Received, BrokerError> {
        let ReceiveRequest { limit, wait, mode } = request;
        let (reply, answer) = oneshot::channel();
        member.address.tell(ReceiveMessages {
            call: call.clone(),
            limit,
            wait,
            mode,
            reply,
        })?;
        let mut unanswered = Unanswered {
            project: self,
            member,
            call: Some(call),
        };
        let received = answer.await.unwrap_or(Err(BrokerError::unavailable()));
        unanswered.call = None;
        received
    }

    /// A caller of `receive` does not want, or never got, what it was returned: unless it was acknowledged it waits
    /// again. What is asked of the session after this finds it so.
    pub fn give_back(&self, member: &Member, call: &ReceiveCall) {
        call.give_up();
        self.tell(member, member.address.tell(GiveBack { call: call.clone() }));
    }

    pub async fn acknowledge(&self, member: &Member, which: Acknowledge) -> Result<Acknowledged, BrokerError> {
        let (reply, answer) = oneshot::channel();
        member.address.tell(AcknowledgeMessages {
            which,
            reply: Some(reply),
        })?;
        answer.await.unwrap_or(Err(BrokerError::unavailable()))
    }

    /// As [`Self::acknowledge`], for those who do not wait for an answer.
    pub fn acknowledge_unheard(&self, member: &Member, which: Acknowledge) {
        self.tell(member, member.address.tell(AcknowledgeMessages { which, reply: None }));
    }

    pub async fn message_status(&self, message: MessageId) -> Result<Option<Vec<RecipientStatus>>, BrokerError> {
        Ok(self.0.store.message_status(message, now()).await?)
    }

    pub async fn dead_letters(
        &self,
        reason: Option<DeadLetterReason>,
        after: Option<(MessageId, SessionId)>,
        limit: usize,
    ) -> Result<Page<DeadLetter>, BrokerError> {
        let mut items = self.0.store.dead_letters(reason, after, limit + 1).await?;
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(Page { items, more })
    }

    pub async fn redrive(&self, request: RedriveRequest) -> Result<Redriven, BrokerError> {
        let RedriveRequest { messages, recipient } = request;
        let done = self
            .0
            .store
            .redrive(messages, recipient, self.0.settings.queue_capacity, now())
            .await?;
        let recipients: BTreeSet<_> = done.sent.iter().map(|&(_, session, _)| session).collect();
        for &(_, session, waiting) in &done.sent {
            if let Some(member) = self.0.directory.by_id(session) {
                member.vitals.set_waiting(waiting);
            }
        }
        for member in recipients
            .into_iter()
            .filter_map(|session| self.0.directory.by_id(session))
        {
            self.tell(
                &member,
                member.address.tell(crate::session::Nudge { until_handled: None }),
            );
        }
        Ok(done)
    }

    #[cfg(feature = "faults")]
    pub fn addresses(&self) -> (&Address<Project>, &Address<Registry>, &Address<Router>) {
        (&self.0.project, &self.0.registry, &self.0.router)
    }
}

/// The answer of a session may be on its way when its caller lets go.
struct Unanswered<'a> {
    project: &'a ProjectHandle,
    member: &'a Member,
    call: Option<&'a ReceiveCall>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            self.project.give_back(self.member, call);
        }
    }
}

fn spoken(member: &Member) -> Vec<String> {
    let protocols = &member.record.capabilities.supported_protocols;
    protocols
        .iter()
        .flat_map(|(name, versions)| versions.iter().map(move |version| format!("{name} {version}")))
        .collect()
}
