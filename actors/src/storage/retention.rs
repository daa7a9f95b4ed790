//! How much a store keeps, and how it counts bytes. Every backend counts in the same way, so that they refuse the same
//! messages.

use std::time::Duration;

use crate::model::Message;

/// Bytes that each copy of a message costs in addition to its envelope: its entries in the inbox, the receipts and the
/// deadlines.
pub const COPY_BYTES: usize = 128;

/// Bytes that each question costs in addition to its record, its content and its drafts: its entries in the indexes.
pub const QUESTION_BYTES: usize = 256;

/// The bytes of a message that count against a budget: its envelope at the first delivery.
pub fn envelope_bytes(message: &Message) -> usize {
    message.encoded_len(1)
}

/// The bytes that a project keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Waiting, leased and dead messages: each envelope once, plus [`COPY_BYTES`] for each recipient.
    pub messages: usize,
    /// Dead letters alone, counted in the same way.
    pub dead_letters: usize,
    /// Records of sessions.
    pub sessions: usize,
    /// Idempotency keys with their results.
    pub idempotency_keys: usize,
    /// Questions to people, open and closed, with their contents and the drafts of their answers.
    pub questions: usize,
}

/// How much the store of a project keeps. Lengths are in items, `_bytes_max` in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Receipts, one for each message and recipient. The oldest final ones are forgotten.
    pub receipts_len_max: usize,
    /// Dead letters. The oldest are dropped.
    pub dead_letters_len_max: usize,
    /// Idempotency keys. The oldest are forgotten.
    pub idempotency_keys_len_max: usize,
    /// How long an idempotency key is remembered.
    pub idempotency_window: Duration,
    /// Messages to other projects whose target is remembered. The oldest are forgotten.
    pub cross_project_targets_len_max: usize,
    /// Entries of the audit log: of each project, separately for what was done and what was refused.
    pub audit_len_max: usize,
    /// Bytes of the messages that wait for one session or are leased to it. Beyond it messages are refused.
    pub queue_bytes_max: usize,
    /// Bytes of the project's waiting and leased messages, counted as in [`Usage::messages`]. Beyond it messages are
    /// refused.
    pub waiting_bytes_max: usize,
    /// Bytes of dead letters. The oldest are dropped.
    pub dead_letters_bytes_max: usize,
    /// Bytes of the messages of all projects together, where the broker holds them in memory. Beyond it messages are
    /// refused.
    pub messages_bytes_max: usize,
    /// Bytes of idempotency keys and their results. The oldest are forgotten.
    pub idempotency_keys_bytes_max: usize,
    /// Bytes of the records of sessions. Beyond it sessions are refused.
    pub sessions_bytes_max: usize,
    /// Bytes of the questions to people, with their contents and the drafts of their answers. The oldest closed ones are
    /// forgotten; when the open ones alone need more than half, questions are refused.
    pub questions_bytes_max: usize,
    /// Closed questions. The oldest are forgotten.
    pub closed_questions_len_max: usize,
    /// How long a closed question is kept.
    pub questions_retention: Duration,
    /// How long the event log keeps what happened. Zero: it records nothing of messages.
    pub history_window: Duration,
    /// Whether the event log keeps the payloads of messages.
    pub history_payloads: bool,
    /// Accepted messages in the event log. The oldest events are dropped.
    pub history_messages_max: usize,
    /// Bytes of the event log. The oldest events are dropped.
    pub events_bytes_max: usize,
    /// Bytes of the event logs of all projects together, where the broker holds them in memory. The oldest events of the
    /// project that grows are dropped.
    pub all_events_bytes_max: usize,
}

const MIB: usize = 1024 * 1024;

/// How long events are kept that are about no message, while messages are not recorded.
const OTHER_EVENTS_WINDOW: Duration = Duration::from_hours(24);

impl Retention {
    /// Whether the event log records what happens to messages.
    pub const fn records_messages(&self) -> bool {
        !self.history_window.is_zero()
    }

    /// How long the event log keeps events.
    pub const fn events_window(&self) -> Duration {
        if self.records_messages() {
            self.history_window
        } else {
            OTHER_EVENTS_WINDOW
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            receipts_len_max: 200_000,
            dead_letters_len_max: 10_000,
            idempotency_keys_len_max: 1_000_000,
            idempotency_window: Duration::from_hours(24),
            cross_project_targets_len_max: 200_000,
            audit_len_max: 10_000,
            queue_bytes_max: 32 * MIB,
            waiting_bytes_max: 96 * MIB,
            dead_letters_bytes_max: 32 * MIB,
            messages_bytes_max: 192 * MIB,
            idempotency_keys_bytes_max: 16 * MIB,
            sessions_bytes_max: 16 * MIB,
            questions_bytes_max: 64 * MIB,
            closed_questions_len_max: 10_000,
            questions_retention: Duration::from_hours(30 * 24),
            history_window: Duration::from_hours(24),
            history_payloads: false,
            history_messages_max: 100_000,
            events_bytes_max: 32 * MIB,
            all_events_bytes_max: 256 * MIB,
        }
    }
}
