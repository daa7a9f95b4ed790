//! The entries of a project's state that its parts exchange and a journal receives.

use std::sync::Arc;

use crate::{
    model::{Message, ProjectId, SessionId},
    storage::tracking::SendResult,
};

/// The deadline of a message without a time to live.
pub const NO_DEADLINE: u64 = u64::MAX;

/// A message in the inbox of one recipient.
#[derive(Debug)]
pub struct InboxEntry {
    /// The message, shared by all recipients.
    pub message: Arc<Message>,
    /// The receipt of this recipient.
    pub receipt: ReceiptKey,
    /// When the time to live ends, in milliseconds of the monotonic clock; [`NO_DEADLINE`] without one.
    pub deadline_ms: u64,
    /// How often the message has been delivered.
    pub deliveries: u32,
    /// The position among messages of equal priority. A released message keeps it.
    pub seq: u64,
}

/// The position of one recipient's entry among all receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReceiptKey {
    /// The number of the receipt, in the order of acceptance.
    pub receipt: u64,
    /// The index of the recipient in the receipt.
    pub recipient_index: u32,
}

/// An idempotency key belongs to its sender.
pub type Key = (SessionId, Arc<str>);

/// What an idempotency key refers to.
#[derive(Clone, Debug)]
pub enum KeyUse {
    /// The first result of a send.
    SendResult(SendResult),
    /// A message to another project, which may have accepted it; only that project knows.
    Reservation {
        target: ProjectId,
        /// More than one send has found the key reserved, so the refusal of one of them does not free it.
        is_repeated: bool,
    },
}

/// Which dead letters are reported to their senders. The sequences are those of the dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportProgress {
    /// Those before this sequence are reported.
    pub reported: u64,
    /// Those before this one are being reported.
    pub claimed: Option<u64>,
}
