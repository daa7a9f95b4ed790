//! The changes of a project's state, reported as they happen, for a backend that persists them, and the entries of the state that
//! its parts exchange.

use std::sync::Arc;

use crate::{
    clock::Now,
    model::{
        DeadLetter, Message, MessageId, ProjectId, Question, QuestionContent, QuestionId, RecipientStatus, SessionId,
        SessionName, SessionRecord, ShownYap, Transformed, Yap,
    },
    storage::{events::BlockHeader, records::Table, sessions::LastSign, tracking::SendResult},
};

/// Receives every change that must outlive the process, in order.
///
/// A lease is reported only by its delivery count: after a restart a leased message waits again. An open receipt is not
/// reported, because the message in the inbox implies it.
pub trait Journal {
    /// Whether it keeps the event log, so that the state does not.
    const KEEPS_EVENTS: bool;

    /// Receives one change.
    fn record(&mut self, change: Change<'_>);
}

/// The journal of the memory backend: it ignores every change, and the compiler removes the calls.
impl Journal for () {
    const KEEPS_EVENTS: bool = false;

    #[inline]
    fn record(&mut self, _: Change<'_>) {}
}

/// A change of a project's state.
#[derive(Debug)]
pub enum Change<'a> {
    /// A session was added, its record replaced, or its last sign of life kept.
    SessionPut {
        record: &'a SessionRecord,
        sign: Option<LastSign>,
    },
    /// The messages of its inbox are reported separately.
    SessionRemoved(SessionId),
    /// A message waits for a session, at the end of the queue of its priority.
    MessageQueued {
        session: SessionId,
        seq: u64,
        message: &'a Message,
        receipt: ReceiptKey,
        now: Now,
    },
    /// A message was delivered once more.
    MessageDelivered(&'a InboxEntry),
    /// The last delivery of a message does not count.
    DeliveryUndone(&'a InboxEntry),
    /// Lenses transformed a message for the delivery that was reported last.
    MessageTransformed(&'a InboxEntry, &'a Transformed),
    /// A message has left an inbox.
    MessageRemoved(&'a InboxEntry),
    /// A message was given up. `sequence` orders dead letters by the time at which that happened.
    DeadLetterKept { dead_letter: &'a DeadLetter, sequence: u64 },
    /// Redriven, or dropped as the oldest.
    DeadLetterRemoved(&'a DeadLetter),
    /// Other dead letters than before are reported.
    ReportProgress(ReportProgress),
    /// The status of a receipt is final.
    ReceiptFinal {
        key: ReceiptKey,
        message: MessageId,
        entry: &'a RecipientStatus,
    },
    /// A final receipt is forgotten, or open again.
    ReceiptRemoved(ReceiptKey),
    /// An idempotency key got a use.
    KeyPut {
        sender: SessionId,
        key: &'a str,
        /// When the key becomes free, in milliseconds since the Unix epoch.
        until_unix_ms: u64,
        key_use: &'a KeyUse,
    },
    /// An idempotency key is free.
    KeyRemoved { sender: SessionId, key: &'a str },
    /// The target of a message to another project is remembered.
    CrossProjectTargetPut { message: MessageId, target: &'a ProjectId },
    /// The target is forgotten.
    CrossProjectTargetRemoved(MessageId),
    /// A record was stored, or with None removed.
    Record {
        table: Table,
        key: &'a [u8],
        text: Option<&'a str>,
    },
    /// A question, a draft, or a yap.
    Desk(DeskChange<'a>),
    /// Events were recorded: the next part of a block.
    EventsWritten(WrittenEvents<'a>),
    /// A block was trimmed, which had been written in parts with these first indices.
    EventsTrimmed { block: u64, parts: &'a [u32] },
}

/// A change of what the desk keeps.
#[derive(Clone, Copy, Debug)]
pub enum DeskChange<'a> {
    /// A question is new. Its record follows.
    QuestionAsked {
        question: QuestionId,
        content: &'a QuestionContent,
    },
    /// A question has this record now.
    QuestionPut(&'a Question),
    /// A question is forgotten, with its content. Its drafts are reported separately.
    QuestionRemoved(QuestionId),
    /// A draft was stored.
    DraftPut {
        question: QuestionId,
        human: &'a SessionName,
        text: &'a str,
    },
    /// A draft is forgotten.
    DraftRemoved {
        question: QuestionId,
        human: &'a SessionName,
    },
    /// A yap is held for the order.
    YapHeld { number: u64, at_ms: u64, yap: &'a Yap },
    /// A held yap got its place. `last_at_ms` is the latest time that was shown.
    YapShown {
        number: u64,
        shown: &'a ShownYap,
        last_at_ms: u64,
    },
    /// A yap that was shown is forgotten.
    YapRemoved { seq: u64 },
}

/// A part of a block of the event log.
#[derive(Clone, Copy, Debug)]
pub struct WrittenEvents<'a> {
    /// The incarnation of the log.
    pub incarnation: u64,
    /// The number of the block.
    pub block: u64,
    /// The index of the first of these records in the block.
    pub first_index: u32,
    /// What the part contains.
    pub header: BlockHeader,
    pub records: &'a [u8],
}

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
