//! The fixture of the conformance cases: a project, three sessions and a clock.

use std::{fmt::Debug, sync::Arc, time::Duration};

use serde_json::Map;
use uuid::Uuid;

use super::super::{
    Acknowledge, Acknowledged, Append, Appended, Audience, Claim, Claimed, DeadLetterQuery, Depth, KeyReservation, Op,
    PutOutcome, PutSession, RecipientRefusal, Release, Released, Storage, Store,
};
use crate::{
    clock::Now,
    model::{
        Addressing, BudgetFull, DeadLetter, DeadLetterReason, DeliveryStatus, Headers, Message, MessageId, MessageIds,
        NewMessage, Owner, Priority, ProjectId, SessionId, SessionRecord, WakePreference,
    },
};

/// The capacity of every inbox, in messages.
pub const CAPACITY: usize = 100;
/// The delivery limit of every release and claim.
pub const DELIVERY_LIMIT: u32 = 3;

/// A new project in which alice, bob and carol are sessions, and a clock that only moves by [`World::pass`].
pub struct World {
    pub project: ProjectId,
    pub store: Arc<dyn Store>,
    pub alice: SessionId,
    pub bob: SessionId,
    pub carol: SessionId,
    pub now: Now,
    ids: MessageIds,
}

/// Awaits an operation that must succeed.
pub async fn done<T: Debug>(operation: Op<T>) -> T {
    operation.await.expect("the operation succeeds")
}

/// The id of a project that no other case uses.
pub fn fresh_project() -> ProjectId {
    ProjectId::parse(&format!("test-{}", Uuid::new_v4().simple())).expect("a valid project id")
}

/// The record of a session without a name.
pub fn record(id: SessionId) -> SessionRecord {
    SessionRecord {
        id,
        name: None,
        capabilities: Arc::default(),
        metadata: Map::new(),
        aliases: Vec::new(),
        connected_at_ms: 1,
        owner: Owner::anonymous(),
        holder: crate::model::Holder::default(),
        wake: WakePreference::default(),
    }
}

/// Accepted by all recipients, with this queue length.
pub fn accepted(queue_len: usize) -> Appended {
    Appended::accepted_by_all(queue_len)
}

/// Refused because each of these inboxes contains `capacity` messages.
pub fn full(sessions: &[SessionId], capacity: usize) -> Appended {
    Appended::refused_by_all(sessions, RecipientRefusal::Full(BudgetFull::queue_messages(capacity)))
}

/// The depth of an inbox.
pub fn depth(waiting: usize, leased: usize) -> Depth {
    Depth { waiting, leased }
}

impl World {
    /// Puts the three sessions into a new project.
    pub async fn new(storage: &dyn Storage) -> Self {
        let project = fresh_project();
        let world = Self {
            store: storage.open(&project),
            project,
            alice: SessionId::generate(),
            bob: SessionId::generate(),
            carol: SessionId::generate(),
            now: crate::clock::now(),
            ids: MessageIds::default(),
        };
        for id in [world.alice, world.bob, world.carol] {
            world.puts_session(record(id)).await;
        }
        world
    }

    /// Puts a session; panics if the store refuses it.
    pub async fn puts_session(&self, record: SessionRecord) {
        let outcome = done(self.store.put_session(record, PutSession::default())).await;
        assert_eq!(outcome, PutOutcome::Stored);
    }

    /// All sessions, ordered by id.
    pub async fn sessions(&self) -> Vec<SessionRecord> {
        let mut sessions = done(self.store.sessions()).await.sessions;
        sessions.sort_unstable_by_key(|record| record.id);
        sessions
    }

    /// Removes a session without a condition. Returns the number of dead letters that it leaves.
    pub async fn removes(&self, session: SessionId, reason: DeadLetterReason) -> usize {
        let removed = done(self.store.remove_session(session, reason, None, self.now)).await;
        removed.expect("removed without a condition")
    }

    /// Moves both clocks.
    pub fn pass(&mut self, time: Duration) {
        let ms = crate::clock::millis(time);
        self.now.unix_ms += ms;
        self.now.mono_ms += ms;
    }

    /// A message from alice that is not sent yet.
    pub fn message(&self, recipient: Option<SessionId>, headers: &Headers) -> Arc<Message> {
        self.seal(self.alice, recipient, headers, false)
    }

    /// A message that is not sent yet.
    pub fn seal(
        &self,
        sender: SessionId,
        recipient: Option<SessionId>,
        headers: &Headers,
        is_tracked: bool,
    ) -> Arc<Message> {
        let to = recipient.map_or(Addressing::Broadcast, |_| Addressing::Direct);
        let draft = NewMessage::new(&self.project, &record(sender), to, ("chat", "1.0.0"), "{}", headers);
        draft.seal(self.ids.next(self.now), recipient, self.now, is_tracked)
    }

    /// An append of a message from alice to one session.
    pub fn direct(&self, to: SessionId, headers: &Headers) -> Append {
        append(self.message(Some(to), headers), Audience::One(to))
    }

    /// An append of a broadcast from alice.
    pub fn broadcast(&self, to: &[SessionId]) -> Append {
        append(self.message(None, &Headers::default()), Audience::Many(to.into()))
    }

    /// Appends one message.
    pub async fn append(&self, append: Append) -> Appended {
        let mut answers = done(self.store.append(vec![append], self.now)).await;
        assert_eq!(answers.len(), 1, "one answer for one message");
        answers.remove(0)
    }

    /// Reserves an idempotency key.
    pub async fn reserves(&self, sender: SessionId, key: &str, target: &ProjectId) -> KeyReservation {
        done(self.store.reserve_key(sender, key.to_owned(), target.clone(), self.now)).await
    }

    /// Sends a message from alice.
    pub async fn sends(&self, to: SessionId) -> MessageId {
        self.sends_with(to, Headers::default()).await
    }

    /// Sends a message with a priority.
    pub async fn sends_urgently(&self, to: SessionId, priority: Priority) -> MessageId {
        let headers = Headers {
            priority,
            ..Headers::default()
        };
        self.sends_with(to, headers).await
    }

    /// Sends a message with a time to live.
    pub async fn sends_for(&self, to: SessionId, ttl_seconds: u64) -> MessageId {
        let headers = Headers {
            ttl_seconds: Some(ttl_seconds),
            ..Headers::default()
        };
        self.sends_with(to, headers).await
    }

    async fn sends_with(&self, to: SessionId, headers: Headers) -> MessageId {
        let append = self.direct(to, &headers);
        let id = append.message.id;
        match self.append(append).await {
            Appended::Accepted { refused, .. } => assert_eq!(refused, []),
            other => panic!("{other:?}"),
        }
        id
    }

    /// Sends a message with this text in its payload.
    pub async fn sends_text(&self, to: SessionId, text: &str) -> MessageId {
        let (sender, payload) = (record(self.alice), format!(r#"{{"text":"{text}"}}"#));
        let draft = NewMessage::new(
            &self.project,
            &sender,
            Addressing::Direct,
            ("chat", "1.0.0"),
            &payload,
            &Headers::default(),
        );
        let message = draft.seal(self.ids.next(self.now), Some(to), self.now, false);
        let id = message.id;
        self.append(append(message, Audience::One(to))).await;
        id
    }

    /// Sends a message whose sender is a session of another project, with alice's id.
    pub async fn sends_from(&self, origin: &ProjectId, to: SessionId) -> MessageId {
        let (sender, protocol, headers) = (record(self.alice), ("chat", "1.0.0"), Headers::default());
        let draft =
            NewMessage::new(origin, &sender, Addressing::Direct, protocol, "{}", &headers).with_origin(origin.clone());
        let message = draft.seal(self.ids.next(self.now), Some(to), self.now, false);
        let id = message.id;
        match self.append(append(message, Audience::One(to))).await {
            Appended::Accepted { refused, .. } => assert_eq!(refused, []),
            other => panic!("{other:?}"),
        }
        id
    }

    /// Sends several messages.
    pub async fn sends_many(&self, to: SessionId, count: usize) -> Vec<MessageId> {
        let mut sent = Vec::new();
        for _ in 0..count {
            sent.push(self.sends(to).await);
        }
        sent
    }

    /// Sends a message to `to` that exceeds the delivery limit and becomes a dead letter.
    pub async fn sends_dead_letter(&self, to: SessionId) -> MessageId {
        let id = self.sends(to).await;
        loop {
            assert_eq!(self.leases(to, 1).await, [id], "nothing else waits");
            if self.releases_all(to).await.dead == 1 {
                return id;
            }
        }
    }

    /// Leases messages without a claim.
    pub async fn leases(&self, session: SessionId, limit: usize) -> Vec<MessageId> {
        self.leases_counted(session, limit)
            .await
            .into_iter()
            .map(|(id, _)| id)
            .collect()
    }

    /// Leases messages; returns each with its delivery count.
    pub async fn leases_counted(&self, session: SessionId, limit: usize) -> Vec<(MessageId, u32)> {
        let leased = done(self.store.lease(session, None, limit, usize::MAX, self.now)).await;
        leased
            .deliveries
            .iter()
            .map(|delivery| (delivery.message.id, delivery.count))
            .collect()
    }

    /// Releases leased messages.
    pub async fn releases(&self, session: SessionId, which: Release) -> Released {
        done(self.store.release(session, which, DELIVERY_LIMIT, self.now)).await
    }

    /// Releases all leased messages by claiming the session.
    pub async fn releases_all(&self, session: SessionId) -> Released {
        self.claims(session, Claim::generate()).await.released
    }

    /// Claims a session.
    pub async fn claims(&self, session: SessionId, claim: Claim) -> Claimed {
        done(self.store.claim_session(session, claim, DELIVERY_LIMIT, self.now)).await
    }

    /// Acknowledges messages.
    pub async fn acknowledges(&self, session: SessionId, ids: &[MessageId]) -> Acknowledged {
        done(self.store.acknowledge(session, Acknowledge::Ids(ids.into()), self.now)).await
    }

    /// The depth of an inbox.
    pub async fn depth(&self, session: SessionId) -> Depth {
        done(self.store.depth(session)).await
    }

    /// The status of a message for each recipient, ordered by session.
    pub async fn statuses(&self, id: MessageId) -> Vec<(SessionId, DeliveryStatus)> {
        let known = done(self.store.message_status(id, self.now)).await;
        let mut all: Vec<_> = known
            .into_iter()
            .flatten()
            .map(|entry| (entry.session, entry.status))
            .collect();
        all.sort_unstable_by_key(|(session, _)| *session);
        all
    }

    /// All dead letters.
    pub async fn dead_letters(&self) -> Vec<DeadLetter> {
        done(self.store.dead_letters(DeadLetterQuery {
            limit: usize::MAX,
            ..DeadLetterQuery::default()
        }))
        .await
        .dead_letters
    }

    /// All dead letters: message, recipient and reason.
    pub async fn dead(&self) -> Vec<(MessageId, SessionId, DeadLetterReason)> {
        let dead_letters = self.dead_letters().await;
        dead_letters
            .iter()
            .map(|dead| (dead.message.id, dead.recipient, dead.reason))
            .collect()
    }
}

/// An append with [`CAPACITY`].
pub fn append(message: Arc<Message>, audience: Audience) -> Append {
    Append {
        message,
        audience,
        queue_capacity: CAPACITY,
        idempotency_key: None,
        roster_version: None,
    }
}
