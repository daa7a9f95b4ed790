//! What changes in a store, said while it changes, for a backend that keeps it beyond the process.

use super::{inbox::Item, memory::idempotency::TakenBy, receipts::ReceiptKey};
use crate::{
    clock::Now,
    model::{DeadLetter, Message, MessageId, ProjectId, ProtocolRecord, RecipientStatus, SessionId, SessionRecord},
};

/// Hears of every change that must outlive the process, in the order in which they happen.
///
/// What is leased is no change but for the count of its deliveries: after a restart it waits again. Of an open receipt
/// nothing is said either, as the message in the inbox says all of it.
pub(super) trait Journal {
    fn note(&mut self, change: Change<'_>);
}

/// Nobody wants to know. The compiler leaves nothing of it.
impl Journal for () {
    #[inline]
    fn note(&mut self, _: Change<'_>) {}
}

#[derive(Debug)]
pub(super) enum Change<'a> {
    SessionPut(&'a SessionRecord),
    /// What its inbox held is said by itself.
    SessionRemoved(SessionId),
    ProtocolInserted(&'a ProtocolRecord),
    /// A message waits for a session, at the end of the queue of its priority.
    Queued {
        session: SessionId,
        seq: u64,
        message: &'a Message,
        receipt: ReceiptKey,
        now: Now,
    },
    Delivered(&'a Item),
    /// A message is in this inbox no more.
    Left(&'a Item),
    /// `death` orders the dead letters by when they died.
    LetterKept {
        letter: &'a DeadLetter,
        death: u64,
    },
    /// Redriven, or one too many.
    LetterForgotten(&'a DeadLetter),
    /// A receipt has come to its final status.
    Settled {
        key: ReceiptKey,
        message: MessageId,
        entry: &'a RecipientStatus,
    },
    /// One that was final is forgotten, or open again.
    ReceiptForgotten(ReceiptKey),
    KeyTaken {
        sender: SessionId,
        key: &'a str,
        /// When the key is free again, in milliseconds since the Unix epoch.
        until_unix_ms: u64,
        by: &'a TakenBy,
    },
    KeyFreed {
        sender: SessionId,
        key: &'a str,
    },
    Crossed {
        message: MessageId,
        target: &'a ProjectId,
    },
    CrossingForgotten(MessageId),
}
