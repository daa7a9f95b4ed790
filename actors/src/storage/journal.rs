//! What changes in a store, said while it changes, for a backend that keeps it beyond the process.

use super::{inbox::InboxEntry, memory::idempotency::KeyUse, receipts::ReceiptKey};
use crate::{
    clock::Now,
    model::{DeadLetter, Message, MessageId, ProjectId, ProtocolRecord, RecipientStatus, SessionId, SessionRecord},
};

/// Hears of every change that must outlive the process, in the order in which they happen.
///
/// What is leased is no change but for the count of its deliveries: after a restart it waits again. Of an open receipt
/// nothing is said either, as the message in the inbox says all of it.
pub(super) trait Journal {
    fn record(&mut self, change: Change<'_>);
}

/// Nobody wants to know. The compiler leaves nothing of it.
impl Journal for () {
    #[inline]
    fn record(&mut self, _: Change<'_>) {}
}

#[derive(Debug)]
pub(super) enum Change<'a> {
    SessionPut(&'a SessionRecord),
    /// What its inbox held is said by itself.
    SessionRemoved(SessionId),
    ProtocolInserted(&'a ProtocolRecord),
    /// A message waits for a session, at the end of the queue of its priority.
    MessageQueued {
        session: SessionId,
        seq: u64,
        message: &'a Message,
        receipt: ReceiptKey,
        now: Now,
    },
    MessageDelivered(&'a InboxEntry),
    /// A message is in this inbox no more.
    MessageRemoved(&'a InboxEntry),
    /// `death` orders the dead letters by when they died.
    DeadLetterKept {
        dead_letter: &'a DeadLetter,
        sequence: u64,
    },
    /// Redriven, or one too many.
    DeadLetterRemoved(&'a DeadLetter),
    /// A receipt has come to its final status.
    ReceiptFinal {
        key: ReceiptKey,
        message: MessageId,
        entry: &'a RecipientStatus,
    },
    /// One that was final is forgotten, or open again.
    ReceiptRemoved(ReceiptKey),
    KeyPut {
        sender: SessionId,
        key: &'a str,
        /// When the key is free again, in milliseconds since the Unix epoch.
        until_unix_ms: u64,
        key_use: &'a KeyUse,
    },
    KeyRemoved {
        sender: SessionId,
        key: &'a str,
    },
    CrossProjectTargetPut {
        message: MessageId,
        target: &'a ProjectId,
    },
    CrossProjectTargetRemoved(MessageId),
}
