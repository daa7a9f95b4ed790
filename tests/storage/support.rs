//! Shared by the tests of storages.

use std::{future::Future, sync::Arc, time::Duration};

use actors::{
    clock::{Now, now},
    model::{
        Addressing, Capabilities, DeliveryStatus, Headers, Message, MessageId, MessageIds, NewMessage, Owner,
        ProjectId, SessionId, SessionRecord, WakePreference,
    },
    storage::{
        Acknowledge, Acknowledged, Append, Appended, Audience, Claim, Lease, Op, PutOutcome, PutSession, Storage, Store,
    },
};
use storage::redis::{ConnectError, RedisSettings, RedisStorage};

pub use crate::support::{Proxy, Redis, RedisCluster};

/// The time limit of every wait. Far more than it takes.
pub use test_client::wait::WAIT_TIMEOUT;
pub const DELIVERY_LIMIT: u32 = 3;

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(future)
}

pub async fn connect(url: impl Into<String>) -> Result<RedisStorage, ConnectError> {
    RedisStorage::connect(RedisSettings::new(url)).await
}

pub async fn storage(url: impl Into<String>) -> Arc<dyn Storage> {
    Arc::new(connect(url).await.unwrap())
}

/// Polls until `ask` returns a value.
pub async fn eventually<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "timed out");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A project as one replica sees it.
pub struct ReplicaView {
    pub project: ProjectId,
    pub store: Arc<dyn Store>,
    /// The sender of all messages.
    pub sender: SessionRecord,
    ids: MessageIds,
}

impl ReplicaView {
    pub fn of(storage: &dyn Storage, project: &str) -> Self {
        let project = ProjectId::parse(project).unwrap();
        Self {
            store: storage.open(&project),
            project,
            sender: record(None),
            ids: MessageIds::default(),
        }
    }

    pub async fn join(&self) -> SessionId {
        let record = record(None);
        let id = record.id;
        assert_eq!(self.put(record).await, PutOutcome::Stored);
        id
    }

    pub async fn put(&self, record: SessionRecord) -> PutOutcome {
        self.store.put_session(record, PutSession::default()).await.unwrap()
    }

    pub fn message(&self, to: Option<SessionId>, headers: &Headers, watched: bool) -> Arc<Message> {
        self.message_with(to, "{}", headers, watched)
    }

    pub fn message_with(&self, to: Option<SessionId>, payload: &str, headers: &Headers, watched: bool) -> Arc<Message> {
        self.message_at(now(), to, payload, headers, watched)
    }

    fn message_at(
        &self,
        now: Now,
        to: Option<SessionId>,
        payload: &str,
        headers: &Headers,
        watched: bool,
    ) -> Arc<Message> {
        let kind = to.map_or(Addressing::Broadcast, |_| Addressing::Direct);
        let draft = NewMessage::new(&self.project, &self.sender, kind, ("chat", "1.0.0"), payload, headers);
        draft.seal(self.ids.next(now), to, now, watched)
    }

    pub fn direct(&self, to: SessionId) -> Append {
        append(self.message(Some(to), &Headers::default(), false), Audience::One(to))
    }

    /// Messages for one session, all of one moment: only such messages form one segment.
    pub fn directs(&self, to: SessionId, len: usize) -> Vec<Append> {
        let now = now();
        let message = || self.message_at(now, Some(to), "{}", &Headers::default(), false);
        (0..len).map(|_| append(message(), Audience::One(to))).collect()
    }

    /// Sends a message and drops it.
    pub async fn send(&self, to: SessionId) -> MessageId {
        let append = self.direct(to);
        let id = append.message.id;
        assert!(matches!(self.append(append).await, Appended::Accepted { .. }));
        id
    }

    pub async fn append(&self, append: Append) -> Appended {
        self.store.append(vec![append], now()).await.unwrap().remove(0)
    }

    pub fn lease(&self, session: SessionId) -> Op<Lease> {
        self.store.lease(session, None, 100, usize::MAX, now())
    }

    /// Leases messages; returns their ids and delivery counts.
    pub async fn lease_ids(&self, session: SessionId) -> Vec<(MessageId, u32)> {
        let leased = self.lease(session).await.unwrap();
        let deliveries = leased.deliveries.iter();
        deliveries
            .map(|delivery| (delivery.message.id, delivery.count))
            .collect()
    }

    pub fn acknowledge(&self, session: SessionId, ids: &[MessageId]) -> Op<Acknowledged> {
        self.store.acknowledge(session, Acknowledge::Ids(ids.to_vec()), now())
    }

    pub async fn claim(&self, session: SessionId) -> Claim {
        let claim = Claim::generate();
        let claimed = self
            .store
            .claim_session(session, claim, DELIVERY_LIMIT, now())
            .await
            .unwrap();
        assert!(claimed.epoch > 0);
        claim
    }

    pub async fn statuses(&self, id: MessageId) -> Vec<DeliveryStatus> {
        let known = self.store.message_status(id, now()).await.unwrap();
        known.into_iter().flatten().map(|recipient| recipient.status).collect()
    }

    pub async fn depth(&self, session: SessionId) -> (usize, usize) {
        let depth = self.store.depth(session).await.unwrap();
        (depth.waiting, depth.leased)
    }
}

pub fn record(name: Option<&str>) -> SessionRecord {
    SessionRecord {
        id: SessionId::generate(),
        name: name.map(|name| actors::model::SessionName::parse(name).unwrap()),
        capabilities: Arc::new(Capabilities::default()),
        metadata: serde_json::Map::new(),
        aliases: Vec::new(),
        connected_at_ms: 1,
        owner: Owner::anonymous(),
        holder: actors::model::Holder::default(),
        wake: WakePreference::default(),
    }
}

pub fn append(message: Arc<Message>, audience: Audience) -> Append {
    Append {
        message,
        audience,
        queue_capacity: 1000,
        idempotency_key: None,
        roster_version: None,
    }
}
