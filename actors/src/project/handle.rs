mod dead_letters;

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all, try_join_all},
};
use tokio::sync::{oneshot, watch};

use super::{
    Directory, PolicyLimits, Project, ProjectPolicy, ProjectSettings, Projects, ProtocolDefinition, Registered,
    Registration, SessionQuery,
    cross_project::CrossProjectSend,
    messages::{ApplyFrame, CloseProject, NamedById, Register, RequestResync},
    resync::KnownSeq,
};
use crate::{
    bridge::{DeliveryBatch, Frame},
    clock::now,
    model::{
        Addressing, BrokerError, CallReceipt, CapabilityFilter, ConnectionId, CrossProjectSide, DeliveryStatus, Draft,
        Headers, MessageId, MissingSession, Owner, PAGE_BYTES_MAX, ProjectId, ProjectRecord, ProtocolRecord,
        RecipientStatus, SessionId, SessionStatus,
    },
    negotiate::{self, MatrixRow, Negotiation, RequiredProtocol},
    registry::{
        Catalog, Compiler, DiscoverPage, DiscoverQuery, Protocol, RegisterProtocol, RegisteredProtocol, Registry,
        Schema, WorkBudget,
    },
    router::{AudienceQuery, Recipients, Route, RouteAnswer, Router, Submission},
    session::{
        AcknowledgeMessages, AnswerWritten, Attach, CancelReceive, CloseReason, Connection, Detach, Disconnect,
        KillSession, Member, MessagesWritten, ReadAt, ReadBudget, ReceiveCall, ReceiveMessages, ReceiveMode,
        ReceiveOutcome, ReceivedMessages, Subscribe, UnboundedReads, Unwatch, Watch, Writable,
    },
    storage::{Acknowledge, Acknowledged, Redriven, SendResult, Store},
    supervise::{ActorNode, Address},
};

/// How long a frame may be under way before the store is asked instead.
const FRAME_TIMEOUT: Duration = Duration::from_millis(500);

/// How long looking at the store may take, which may have to wait for another look.
const RESYNC_TIMEOUT: Duration = Duration::from_secs(2);

/// The verbs of a project: what every surface calls. Cheap to clone; needs no lock and, for what only looks, no
/// actor.
#[derive(Clone)]
pub struct ProjectHandle(Arc<Parts>);

/// What a project is made of, joined where it starts.
pub(super) struct Parts {
    pub id: ProjectId,
    pub settings: ProjectSettings,
    pub project: Address<Project>,
    pub registry: Address<Registry>,
    pub router: Address<Router>,
    pub directory: Arc<Directory>,
    pub policy: Arc<ProjectPolicy>,
    pub catalog: Arc<Catalog>,
    pub compiler: Arc<Compiler>,
    pub store: Arc<dyn Store>,
    pub known_seq: KnownSeq,
    pub projects: Weak<Projects>,
}

/// Some of a list, and whether there is more.
#[derive(Clone, Debug)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub more: bool,
}

/// What a sender says about a message, before it is checked.
pub struct SendRequest<'a> {
    pub protocol_name: &'a str,
    pub protocol_version: &'a str,
    /// The text of a JSON value.
    pub payload: &'a str,
    pub headers: &'a Headers,
    /// Follow the status beyond the first answer.
    pub tracked: bool,
    /// It was tried before, and refused: it has counted against what may go to another project.
    pub tried: bool,
    /// What came of looking what other replicas have done; None when that was not done yet.
    pub looked: Option<Result<(), BrokerError>>,
    /// What checking the payload may take.
    pub work: WorkBudget,
}

/// A message that is checked, and where it goes.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every message stays at home, and is not to be allocated for the rest"
)]
pub enum PreparedSend {
    /// To the router of the sender's project.
    Local(Submission),
    /// To another project: [`ProjectHandle::cross`].
    CrossProject(Box<CrossProjectSend>),
}

#[derive(Default)]
pub struct ReceiveRequest {
    pub limit: usize,
    pub wait: Duration,
    pub mode: ReceiveMode,
    /// Of an earlier result: exactly what it names is acknowledged.
    pub receipt: Option<CallReceipt>,
    pub read_at: ReadAt,
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

    pub fn settings(&self) -> &ProjectSettings {
        &self.0.settings
    }

    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// What the project is and may, now.
    pub fn limits(&self) -> Arc<PolicyLimits> {
        self.0.policy.limits()
    }

    pub fn record(&self) -> Arc<ProjectRecord> {
        Arc::clone(&self.limits().record)
    }

    pub(crate) fn update_record(&self, record: Arc<ProjectRecord>) {
        self.0.policy.update(record);
    }

    /// Takes so many requests of all that the project may make.
    ///
    /// # Errors
    /// When there will be as many.
    pub fn take_requests(&self, count: u32) -> Result<(), Duration> {
        self.0.policy.take_requests(count)
    }

    /// Requests of all its callers together that are taken with the next: their cost was not known before.
    pub fn charge_requests(&self, count: u32) {
        self.0.policy.limits().charge_requests(count);
    }

    /// Ends its sessions and its actors; answered when the sessions have ended. Its record says that it is closed.
    pub(crate) fn close(&self) -> oneshot::Receiver<()> {
        let (done, closed) = oneshot::channel();
        self.0.project.report(CloseProject { done });
        closed
    }

    /// Its actors end, for this reason, and what is in the store is for others.
    pub(crate) fn kill(&self, why: CloseReason) {
        self.0.policy.kill(why);
        for member in self.0.directory.all() {
            member.address.report(KillSession { why });
        }
        self.0.project.report(KillSession { why });
    }

    /// Whether the project was deleted.
    pub fn is_closed(&self) -> bool {
        self.0.policy.is_closed()
    }

    /// Whether another subtree has taken over, or will.
    pub fn is_killed(&self) -> bool {
        self.kill_reason().is_some()
    }

    /// Why another subtree has taken over, or will.
    pub fn kill_reason(&self) -> Option<CloseReason> {
        self.0.policy.kill_reason()
    }

    /// This project and its actors as data.
    pub fn observe(&self) -> ActorNode {
        let Parts {
            project,
            registry,
            router,
            directory,
            ..
        } = &*self.0;
        let sessions = directory.all();
        let children = [registry.metrics().node(Vec::new()), router.metrics().node(Vec::new())]
            .into_iter()
            .chain(sessions.iter().map(|member| member.address.metrics().node(Vec::new())))
            .collect();
        project.metrics().node(children)
    }

    // Replicas

    /// Whether other replicas work on the same project, so that something may have been done there that is not known
    /// here yet.
    pub fn is_shared(&self) -> bool {
        self.0.store.is_shared()
    }

    pub(crate) fn apply_frame(&self, frame: Frame, own: bool) {
        self.0.project.report(ApplyFrame { frame, own });
    }

    /// Gives sessions what the store has handed over for them.
    pub(crate) fn deliver(&self, parcel: &DeliveryBatch) {
        match self.0.store.decode_batch(parcel) {
            Ok(handed) => {
                for handed in handed {
                    // A session that has ended since has left it to the store.
                    if let Some(member) = self.0.directory.by_id(handed.session) {
                        member.address.report(handed);
                    }
                }
            }
            Err(error) => {
                tracing::warn!(project = %self.0.id, %error, "what was handed over cannot be read: it is looked up");
                self.request_resync();
            }
        }
    }

    pub(crate) fn request_resync(&self) {
        self.0.project.report(RequestResync { done: None });
    }

    /// Waits until everything is known here that was done anywhere before this was called.
    ///
    /// # Errors
    /// `unavailable`, when that is not to be found out.
    pub async fn wait_until_current(&self) -> Result<(), BrokerError> {
        let serial = self.0.store.last_frame_seq().await?;
        let mut known = self.0.known_seq.subscribe();
        let heard = known.wait_for(|known| *known >= Some(serial));
        if tokio::time::timeout(FRAME_TIMEOUT, heard).await.is_ok() {
            return Ok(());
        }
        // Nobody tells: it is looked up. What is asked for then is no older than this.
        let (done, looked) = oneshot::channel();
        self.0.project.report(RequestResync { done: Some(done) });
        match tokio::time::timeout(RESYNC_TIMEOUT, looked).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(BrokerError::unavailable()),
        }
    }

    /// The same for those of these other projects, too, to which this one may send.
    ///
    /// # Errors
    /// As of [`Self::catch_up`].
    pub async fn wait_until_current_with(&self, others: &BTreeSet<ProjectId>) -> Result<(), BrokerError> {
        let terms = self.limits();
        let granted = others.iter().filter(|id| terms.record.grants.contains_key(*id));
        let abroad: Vec<_> = granted.filter_map(|id| self.other_project(id)).collect();
        try_join_all(abroad.iter().chain([self]).map(Self::wait_until_current)).await?;
        Ok(())
    }

    // Sessions

    /// Makes a session, or resumes the one that holds the name, or changes the caller's own.
    pub async fn register(&self, registration: Registration) -> Result<Registered, BrokerError> {
        let (reply, answer) = oneshot::channel();
        self.0.project.tell(Register { registration, reply })?;
        answer.await.unwrap_or(Err(BrokerError::unavailable()))
    }

    /// The session that an id means as an address: any of its incarnations means the same inbox.
    pub fn session(&self, id: SessionId) -> Option<Arc<Member>> {
        let directory = &self.0.directory;
        directory.by_id(id).or_else(|| directory.by_id(id.durable()))
    }

    /// The session of this id, for its owner to act as it: to any other caller it is not there.
    ///
    /// # Errors
    /// `session_taken_over` when another caller has registered the session since this id was given out.
    pub fn own_session(&self, id: SessionId, owner: &Owner) -> Result<Arc<Member>, BrokerError> {
        let member = self
            .session(id)
            .filter(|member| member.record.owner == *owner)
            .ok_or_else(|| MissingSession::own(&id.to_string()))?;
        if member.record.holder_id() != id {
            return Err(BrokerError::SessionTakenOver);
        }
        Ok(member)
    }

    /// A caller names this session by its id: one that registers it next must be told apart from this one.
    pub fn note_named_by_id(&self, member: &Member) {
        if !member.record.holder.by_id {
            self.0.project.report(NamedById(member.record.id));
        }
    }

    /// The session an address means: an id, a name, or `name@project` with this project. Every caller of this may list
    /// the sessions of this project, so a refusal names those that the address resembles.
    pub fn resolve(&self, address: &str) -> Result<Arc<Member>, BrokerError> {
        self.find(address).ok_or_else(|| {
            let similar = self.0.directory.similar(self.strip_own_project(address));
            MissingSession::other(address, similar).into()
        })
    }

    fn find(&self, address: &str) -> Option<Arc<Member>> {
        let address = self.strip_own_project(address);
        self.0
            .directory
            .by_name(address)
            .or_else(|| self.session(SessionId::parse(address)?))
    }

    /// An address without this project behind it.
    fn strip_own_project<'a>(&self, address: &'a str) -> &'a str {
        match address.rsplit_once('@') {
            Some((local, project)) if project == self.0.id.as_str() => local,
            _ => address,
        }
    }

    pub fn status(&self, member: &Member) -> SessionStatus {
        member.status(self.0.settings.presence, now())
    }

    pub fn list_sessions(&self, query: &SessionQuery) -> Page<Arc<Member>> {
        let (items, more) = self.0.directory.list(query, now());
        Page { items, more }
    }

    /// Has the vitals of these sessions tell how many messages wait for them. Where the store answers at once they do, and
    /// nothing is done; false then. Else they tell what was answered last, which others may have changed since, or which
    /// was overtaken by another answer.
    pub async fn refresh_waiting(&self, members: &[Arc<Member>]) -> bool {
        if self.0.store.is_synchronous() {
            return false;
        }
        let counts = members.iter().map(|member| {
            let begun = member.shared.begin_recount();
            let depth = self.0.store.depth(member.record.id);
            async move {
                if let Ok(depth) = depth.await {
                    member.shared.finish_recount(begun, depth.waiting);
                }
            }
        });
        join_all(counts).await;
        true
    }

    /// The same for one session, begun at once and ended by whoever holds the future; None where its vitals are known to
    /// tell what the store has. It goes to the store together with what is asked of it next.
    pub fn refresh_waiting_if_unknown(&self, member: &Arc<Member>) -> Option<BoxFuture<'static, ()>> {
        if self.0.store.is_synchronous() || member.shared.is_waiting_current() {
            return None;
        }
        let (project, member) = (self.clone(), Arc::clone(member));
        Some(Box::pin(async move {
            project.refresh_waiting(&[member]).await;
        }))
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
        self.attach_with(member, connection, false);
    }

    /// The same for one that was it before, and only if there is no other by now: else it is taken over itself.
    pub fn reattach(&self, member: &Member, connection: Arc<dyn Connection>) {
        self.attach_with(member, connection, true);
    }

    fn attach_with(&self, member: &Member, connection: Arc<dyn Connection>, reclaims: bool) {
        let attach = Attach {
            connection: Some(connection),
            named: member.record.name.is_some(),
            is_reattach: reclaims,
            keeps_leases: false,
            incarnation: None,
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
    pub fn flushed(&self, member: &Member, message: MessagesWritten) {
        let store = &self.0.store;
        if !store.is_synchronous() || !member.shared.is_auto_acked(message.connection) {
            return self.tell(member, member.address.tell(message));
        }
        let op = store.acknowledge(member.record.id, Acknowledge::Ids(message.messages), now());
        if let Some(Ok(done)) = op.now_or_never() {
            for message in &done.tracked {
                message.progress.advance_to(DeliveryStatus::Acknowledged);
            }
            member.shared.set_depth(done.depth);
            if done.depth.waiting > 0 {
                self.tell(member, member.address.tell(crate::session::Nudge { barrier: None }));
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

    /// Checks a definition and takes it in, unless the identical one is there.
    pub async fn register_protocol(&self, definition: ProtocolDefinition) -> Result<RegisteredProtocol, BrokerError> {
        let ProtocolDefinition {
            name,
            version,
            schema,
            capabilities,
            metadata,
            registered_by,
        } = definition;
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
        if let Some(there) = self.0.catalog.get(record.name.as_str(), &record.version.to_string()) {
            return RegisteredProtocol::existing(&there.record, &record);
        }
        Schema::check_admits_objects(&record.schema)?;
        let protocol = self.0.compiler.compile(Arc::new(record)).await?;
        let (reply, answer) = oneshot::channel();
        let len_max = self.record().config.max_protocols;
        self.0.registry.tell(RegisterProtocol {
            protocol,
            len_max,
            reply,
        })?;
        answer.await.unwrap_or(Err(BrokerError::unavailable()))
    }

    pub fn protocol(&self, name: &str, version: &str) -> Result<Arc<Protocol>, BrokerError> {
        self.0
            .catalog
            .get(name, version)
            .ok_or_else(|| BrokerError::ProtocolNotFound {
                name: name.chars().take(80).collect(),
                version: version.chars().take(80).collect(),
                versions: self.0.catalog.versions(name, BrokerError::VERSIONS_LEN_MAX),
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

    /// One pair of `compatibility_matrix`.
    pub fn compare(&self, a: &Member, b: &Member) -> MatrixRow {
        let (a, b) = (&a.record, &b.record);
        negotiate::compare(a.id, &a.capabilities, b.id, &b.capabilities)
    }

    // Messages

    /// Checks a message for one recipient and encodes it. Nothing is accepted yet.
    pub fn prepare_direct(
        &self,
        sender: &Member,
        recipient: &str,
        envelope: &SendRequest<'_>,
    ) -> Result<PreparedSend, BrokerError> {
        if let Some((address, project)) = recipient.rsplit_once('@')
            && project != self.0.id.as_str()
        {
            return self.prepare_cross_project(sender, address, project, envelope);
        }
        let protocol = self.protocol(envelope.protocol_name, envelope.protocol_version)?;
        let target = self.target(self.resolve(recipient), envelope)?;
        if let Recipients::One(member) = &target {
            check_speaks(member, recipient, &protocol.record, supported_versions)?;
        }
        protocol.schema.validate_within(&envelope.work, envelope.payload)?;
        Ok(PreparedSend::Local(self.submission(sender, target, envelope)))
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// Another project of the broker, if it is open.
    fn other_project(&self, id: &ProjectId) -> Option<Self> {
        self.0.projects.upgrade().and_then(|neighbours| neighbours.get(id))
    }

    /// The same for a recipient in another project. What is refused is refused in the order of the contract, section 6,
    /// and before anything is looked up there.
    fn prepare_cross_project(
        &self,
        sender: &Member,
        address: &str,
        project: &str,
        envelope: &SendRequest<'_>,
    ) -> Result<PreparedSend, BrokerError> {
        let terms = self.limits();
        let Ok(target) = ProjectId::parse(project) else {
            return Err(terms.record.no_such_target());
        };
        let abroad = self.other_project(&target);
        let theirs = abroad.as_ref().map(Self::record);
        terms
            .record
            .check_send_to(&target, theirs.as_deref(), envelope.protocol_name)?;
        if !envelope.tried {
            terms
                .take_cross_project(&target)
                .map_err(|retry_after| BrokerError::RateLimited { retry_after })?;
        }
        let abroad = abroad.ok_or(BrokerError::CrossProjectDisabled {
            side: CrossProjectSide::Target,
        })?;
        // The contract of either side holds where there is one; a recipient is promised its own.
        let (name, version) = (envelope.protocol_name, envelope.protocol_version);
        let (ours, theirs) = (self.0.catalog.get(name, version), abroad.0.catalog.get(name, version));
        let protocol = match theirs.as_ref().or(ours.as_ref()) {
            Some(protocol) => protocol,
            None => &self.protocol(name, version)?,
        };
        let found = abroad.find(address);
        let found = found.ok_or_else(|| BrokerError::from(MissingSession::remote(address)));
        let found = abroad.target(found, envelope)?;
        if let Recipients::One(member) = &found {
            check_speaks(member, address, &protocol.record, |_| Vec::new())?;
        }
        for protocol in [&ours, &theirs].into_iter().flatten() {
            protocol.schema.validate_within(&envelope.work, envelope.payload)?;
        }
        let mut submission = self.submission(sender, found, envelope);
        submission.draft = submission.draft.with_origin(self.0.id.clone());
        Ok(PreparedSend::CrossProject(Box::new(CrossProjectSend {
            target: abroad,
            sender: sender.record.id,
            submission,
        })))
    }

    fn target(
        &self,
        found: Result<Arc<Member>, BrokerError>,
        envelope: &SendRequest<'_>,
    ) -> Result<Recipients, BrokerError> {
        let unknown = match found {
            Ok(member) => return Ok(Recipients::One(member)),
            Err(unknown) => unknown,
        };
        let is_looked_for = envelope.looked.is_some() || !self.is_shared();
        if envelope.headers.idempotency_key.is_none() || !is_looked_for {
            return Err(unknown);
        }
        // It may have been sent while the recipient was there: then the first result is the answer.
        let looked = envelope.looked.clone().unwrap_or(Ok(()));
        Ok(Recipients::Missing(looked.err().unwrap_or(unknown)))
    }

    /// Checks a message for everyone a filter lets through and encodes it. Nothing is accepted yet.
    pub fn prepare_broadcast(
        &self,
        sender: &Member,
        filter: CapabilityFilter,
        envelope: &SendRequest<'_>,
    ) -> Result<Submission, BrokerError> {
        let protocol = self.protocol(envelope.protocol_name, envelope.protocol_version)?;
        let target = Recipients::Many(Box::new(AudienceQuery {
            sender: sender.record.id,
            filter,
            protocol: protocol.record.name.clone(),
            version: protocol.record.version.clone(),
        }));
        protocol.schema.validate_within(&envelope.work, envelope.payload)?;
        Ok(self.submission(sender, target, envelope))
    }

    fn submission(&self, sender: &Member, target: Recipients, envelope: &SendRequest<'_>) -> Submission {
        let to = match target {
            Recipients::One(_) => Addressing::Direct,
            Recipients::Many(_) | Recipients::Missing(_) => Addressing::Broadcast,
        };
        let named = (envelope.protocol_name, envelope.protocol_version);
        let draft = Draft::new(
            &self.0.id,
            &sender.record,
            to,
            named,
            envelope.payload,
            envelope.headers,
        );
        Submission {
            draft,
            target,
            idempotency_key: envelope.headers.idempotency_key.clone(),
            is_tracked: envelope.tracked,
        }
    }

    /// Hands messages to the router, in this order. The answers come together.
    pub fn submit(&self, submissions: Vec<Submission>) -> Result<oneshot::Receiver<Vec<RouteAnswer>>, BrokerError> {
        if self.0.policy.is_closed() {
            return Err(BrokerError::ProjectNotFound);
        }
        let (reply, answers) = oneshot::channel();
        self.0.router.tell(Route { submissions, reply })?;
        Ok(answers)
    }

    /// Waits until the message has come as far as `goal`, or is final, or the time is over; returns where it is.
    pub async fn wait_for_status(
        &self,
        mut status: watch::Receiver<DeliveryStatus>,
        goal: DeliveryStatus,
        timeout: Duration,
    ) -> DeliveryStatus {
        let reached = |status: &DeliveryStatus| {
            status.is_final()
                || *status == goal
                || (goal == DeliveryStatus::Queued && *status == DeliveryStatus::Delivered)
        };
        // Both ends of the wait look at the same thing: where the message is then.
        let _ = tokio::time::timeout(timeout, status.wait_for(reached)).await;
        *status.borrow_and_update()
    }

    /// Keeps the first result of a send for its idempotency key.
    pub async fn complete_send_result(
        &self,
        sender: SessionId,
        key: String,
        outcome: SendResult,
    ) -> Result<(), BrokerError> {
        Ok(self.0.store.update_send_result(sender, key, outcome).await?)
    }

    /// Takes messages out of an inbox, for a caller in this process, which has them when this returns. Dropping the future
    /// ends the wait and loses nothing.
    pub async fn receive(&self, member: &Member, request: ReceiveRequest) -> Result<ReceivedMessages, BrokerError> {
        let call = ReceiveCall::default();
        let read_at = ReadAt::now();
        let received = self
            .receive_for_call(
                &call,
                member,
                ReceiveRequest { read_at, ..request },
                Arc::new(UnboundedReads),
            )
            .await;
        call.mark_written();
        received
    }

    /// The same for a caller that has the messages when their answer is written ([`ReceiveCall::written`]), and may give
    /// the call up even later; see [`Self::give_back`]. Messages are read when `room` has room for them: a page, or one
    /// message that is larger.
    pub async fn receive_for_call(
        &self,
        call: &ReceiveCall,
        member: &Member,
        request: ReceiveRequest,
        room: Arc<dyn ReadBudget>,
    ) -> Result<ReceivedMessages, BrokerError> {
        let ReceiveRequest {
            limit,
            wait,
            mode,
            receipt,
            read_at,
        } = request;
        let until_ms = (!wait.is_zero()).then(|| now().mono_after(wait));
        let (mut bytes_max, mut asks_again) = (PAGE_BYTES_MAX, false);
        loop {
            let (reply, answer) = oneshot::channel();
            member.address.tell(ReceiveMessages {
                call: call.clone(),
                limit,
                bytes_max,
                budget: Arc::clone(&room),
                until_ms,
                is_retry: asks_again,
                mode,
                receipt,
                read_at,
                incarnation: member.record.holder.incarnation,
                reply,
            })?;
            let mut unanswered = ReturnOnDrop {
                project: self,
                member,
                call: Some(call),
            };
            let served = answer.await.unwrap_or(Err(BrokerError::unavailable()));
            unanswered.call = None;
            match served? {
                ReceiveOutcome::Messages(received) => return Ok(received),
                ReceiveOutcome::NeedsReservation(bytes) => {
                    bytes_max = bytes.max(PAGE_BYTES_MAX);
                    room.reserve(bytes_max).await;
                    asks_again = true;
                }
            }
        }
    }

    /// A caller of `receive` does not want, or never got, what it was returned: unless it was acknowledged it waits
    /// again. What is asked of the session after this finds it so.
    pub fn return_unclaimed(&self, member: &Member, call: &ReceiveCall) {
        call.cancel();
        self.tell(member, member.address.tell(CancelReceive { call: call.clone() }));
    }

    /// The answer to a caller of `receive` that has no lasting connection is written: it may ask for more elsewhere.
    pub fn note_answered(&self, member: &Member, call: &ReceiveCall) {
        if self.is_shared() {
            self.tell(member, member.address.tell(AnswerWritten { call: call.clone() }));
        }
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
    pub fn acknowledge_without_reply(&self, member: &Member, which: Acknowledge) {
        self.tell(member, member.address.tell(AcknowledgeMessages { which, reply: None }));
    }

    /// Where a message stands for each of its recipients, in this project or in the one it was sent to.
    pub async fn message_status(&self, message: MessageId) -> Result<Option<Vec<RecipientStatus>>, BrokerError> {
        if let Some(known) = self.0.store.message_status(message, now()).await? {
            return Ok(Some(known));
        }
        let Some(target) = self.0.store.cross_project_target(message).await? else {
            return Ok(None);
        };
        let abroad = self.other_project(&target);
        let Some(abroad) = abroad else { return Ok(None) };
        let mut known = abroad.0.store.message_status(message, now()).await?;
        if let Some(recipients) = &mut known {
            // Whom it was sent to comes first; whom the other project has sent it to since is not told.
            recipients.truncate(1);
        }
        Ok(known)
    }

    pub async fn dead_letter_count(&self) -> Result<usize, BrokerError> {
        Ok(self.0.store.dead_letter_count().await?)
    }

    pub async fn redrive(&self, request: RedriveRequest) -> Result<Redriven, BrokerError> {
        let RedriveRequest { messages, recipient } = request;
        let done = self
            .0
            .store
            .redrive(messages, recipient, self.limits().queue_capacity, now())
            .await?;
        let recipients: BTreeSet<_> = done.sent.iter().map(|&(_, session, _)| session).collect();
        for &(_, session, waiting) in &done.sent {
            if let Some(member) = self.0.directory.by_id(session) {
                member.shared.set_waiting(waiting);
            }
        }
        for member in recipients
            .into_iter()
            .filter_map(|session| self.0.directory.by_id(session))
        {
            self.tell(&member, member.address.tell(crate::session::Nudge { barrier: None }));
        }
        Ok(done)
    }

    #[cfg(feature = "faults")]
    pub fn actor_addresses(&self) -> (&Address<Project>, &Address<Registry>, &Address<Router>) {
        (&self.0.project, &self.0.registry, &self.0.router)
    }
}

/// Refuses a message that the recipient could not read. `speaks` is what the sender is told that it can.
fn check_speaks(
    member: &Member,
    recipient: &str,
    protocol: &ProtocolRecord,
    speaks: fn(&Member) -> Vec<String>,
) -> Result<(), BrokerError> {
    if member.record.capabilities.accepts(&protocol.name, &protocol.version) {
        return Ok(());
    }
    Err(BrokerError::IncompatibleProtocol {
        recipient: recipient.to_owned(),
        name: protocol.name.clone(),
        version: protocol.version.clone(),
        speaks: speaks(member),
    })
}

/// The answer of a session may be on its way when its caller lets go.
struct ReturnOnDrop<'a> {
    project: &'a ProjectHandle,
    member: &'a Member,
    call: Option<&'a ReceiveCall>,
}

impl Drop for ReturnOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            self.project.return_unclaimed(self.member, call);
        }
    }
}

fn supported_versions(member: &Member) -> Vec<String> {
    let protocols = &member.record.capabilities.supported_protocols;
    protocols
        .iter()
        .flat_map(|(name, versions)| versions.iter().map(move |version| format!("{name} {version}")))
        .collect()
}
