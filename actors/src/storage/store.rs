//! The store of one project, composed of one trait for each subject.
//!
//! A backend that several broker processes share implements [`ReplicatedStore`] as well, one that delivers messages by
//! itself [`PushStore`]. Callers ask for these parts; a backend that lacks one implements nothing of it.

use std::sync::Arc;

use uuid::Uuid;

use super::{
    claims::ClaimStore,
    dead_letters::DeadLetterStore,
    error::{Op, StoreError},
    events::EventStore,
    inboxes::{Acknowledge, Acknowledged, InboxStore, Lease},
    questions::QuestionStore,
    records::{Before, RecordPut, RecordStore, Table},
    replicated::{PushStore, ReplicatedStore},
    retention::Usage,
    sessions::SessionStore,
    tracking::TrackingStore,
    unswept::Unswept,
};
use crate::{
    clock::Now,
    model::{CallReceipt, MessageId, RecipientStatus, SessionId},
};

/// The store of one project.
///
/// Each operation is atomic. Operations on one session take effect in the order of their first poll; their answers may
/// arrive in another order. For each recipient, a message that `append` accepted is waiting, leased, acknowledged or a
/// dead letter: in exactly one of these states at any time.
pub trait Store:
    SessionStore
    + InboxStore
    + TrackingStore
    + DeadLetterStore
    + EventStore
    + QuestionStore
    + RecordStore
    + ClaimStore
    + Send
    + Sync
    + 'static
{
    /// True if every operation is ready at its first poll, on any thread, and cannot fail.
    fn is_synchronous(&self) -> bool;

    /// What a store offers that several broker processes share; None for a store of one process.
    fn replicated(&self) -> Option<&dyn ReplicatedStore>;

    /// Push delivery, for a store that leases messages as it accepts them; None if sessions must ask.
    fn push(&self) -> Option<&dyn PushStore>;

    /// Whether it was used since its last sweep. Queries may be no use, nor is what happens in a project without traffic.
    fn unswept(&self) -> Arc<Unswept>;

    /// The bytes that the project keeps, by kind.
    fn usage(&self) -> Op<Usage>;
}

impl dyn Store {
    /// True if other replicas change the same data: what this process remembers of the project may be out of date.
    pub fn is_shared(&self) -> bool {
        self.replicated().is_some()
    }

    /// This process as the holder of a claim. Of a store of one process it is always the same.
    pub fn own_holder(&self) -> Uuid {
        self.replicated()
            .map_or(Uuid::nil(), |shared| *shared.own_replica().as_uuid())
    }

    /// True if the store delivers by push.
    pub fn supports_push(&self) -> bool {
        self.push().is_some()
    }

    /// Removes a record if what is stored is `before`.
    pub fn remove(&self, table: Table, key: Vec<u8>, before: Before) -> Op<RecordPut> {
        self.put_if(table, key, before, None)
    }

    /// Removes the records of a table whose keys are not kept.
    ///
    /// # Errors
    /// The store fails; some may have been removed then.
    pub async fn retain(&self, table: Table, is_kept: impl Fn(&[u8]) -> bool) -> Result<(), StoreError> {
        for key in self.keys(table, Vec::new()).await? {
            if !is_kept(&key) {
                self.remove(table, key, Before::Any).await?;
            }
        }
        Ok(())
    }

    /// The status of a message for each recipient; None for an unknown message, or one whose receipt is forgotten.
    pub fn message_status(&self, message: MessageId, now: Now) -> Op<Option<Vec<RecipientStatus>>> {
        let statuses = self.message_statuses(vec![message], now);
        Box::pin(async move { Ok(statuses.await?.pop().flatten()) })
    }

    /// [`ReplicatedStore::lease_for_call`], or a plain lease: in one process the session knows which call took what.
    pub fn lease_for_call(
        &self,
        session: SessionId,
        receipt: CallReceipt,
        limit: usize,
        bytes_max: usize,
        now: Now,
    ) -> Op<Lease> {
        match self.replicated() {
            Some(shared) => shared.lease_for_call(session, receipt, limit, bytes_max, now),
            None => self.lease(session, None, limit, bytes_max, now),
        }
    }

    /// [`PushStore::acknowledge_written`], or a plain acknowledgement.
    pub fn acknowledge_written(&self, session: SessionId, messages: Vec<MessageId>, now: Now) -> Op<Acknowledged> {
        match self.push() {
            Some(push) => push.acknowledge_written(session, messages, now),
            None => self.acknowledge(session, Acknowledge::Ids(messages), now),
        }
    }
}
