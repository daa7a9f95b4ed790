//! Dead letters: messages that were given up, listed, reported and redriven.

use super::error::Op;
use crate::{
    clock::Now,
    model::{DeadLetter, DeadLetterReason, MessageId, PAGE_BYTES_MAX, ProjectId, SessionId},
};

/// The dead letters of a project.
pub trait DeadLetterStore {
    /// A page of dead letters, ordered by message id, which is by age, and then by recipient.
    fn dead_letters(&self, query: DeadLetterQuery) -> Op<DeadLetterPage>;

    /// Sends dead letters again, to their recipient or to another session: at the end of the queue, with no deliveries
    /// counted and a new time to live. A recipient that has a copy of a broadcast already gets no second one.
    /// `queue_capacity` is in messages.
    fn redrive(
        &self,
        messages: Vec<MessageId>,
        recipient: Option<SessionId>,
        queue_capacity: usize,
        now: Now,
    ) -> Op<Redriven>;

    /// The number of dead letters.
    fn dead_letter_count(&self) -> Op<usize>;

    /// The next dead letters that no report has named, in the order in which they were given up. Until
    /// [`Self::mark_reported`] they are the same ones with the same [`Unreported::until`], without those that were redriven
    /// or dropped meanwhile. The caller has a claim of [`REPORTS`], so that no other one sends the same reports.
    fn unreported(&self) -> Op<Unreported>;

    /// Notes that the dead letters up to this [`Unreported::until`] are reported. Does nothing if another caller has done
    /// so.
    fn mark_reported(&self, until: u64) -> Op<()>;
}

/// The thing that a replica claims while it reports dead letters.
pub const REPORTS: &str = "@reports";

/// Dead letters of one [`DeadLetterStore::unreported`], at most.
pub const REPORT_LEN_MAX: usize = 100;

/// Bytes of their envelopes, at most, unless the first is larger.
pub const REPORT_BYTES_MAX: usize = 1 << 20;

/// Dead letters that no report has named.
#[derive(Clone, Debug, Default)]
pub struct Unreported {
    /// Identifies these dead letters, for [`DeadLetterStore::mark_reported`]; None if there is nothing to report. It names
    /// the same dead letters at every replica, and is not used for others later.
    pub until: Option<u64>,
    /// At most [`REPORT_LEN_MAX`] dead letters, the oldest first.
    pub dead_letters: Vec<DeadLetter>,
}

/// Selects a page of dead letters.
#[derive(Clone, Debug)]
pub struct DeadLetterQuery {
    /// Only dead letters with this reason.
    pub reason: Option<DeadLetterReason>,
    /// Only messages that came from this other project.
    pub origin: Option<ProjectId>,
    /// Only dead letters after this message and recipient; that dead letter need not exist any longer.
    pub after: Option<(MessageId, SessionId)>,
    /// The largest number of dead letters.
    pub limit: usize,
    /// The largest sum of the envelopes' bytes. The page ends before the first dead letter that does not fit
    /// ([`DeadLetterPage::blocked`]).
    pub bytes_max: usize,
}

impl Default for DeadLetterQuery {
    fn default() -> Self {
        Self {
            reason: None,
            origin: None,
            after: None,
            limit: 0,
            bytes_max: PAGE_BYTES_MAX,
        }
    }
}

impl DeadLetterQuery {
    /// True if a dead letter passes the filters. The position and the size of the page are not considered.
    pub fn matches(&self, dead_letter: &DeadLetter) -> bool {
        self.reason.is_none_or(|reason| dead_letter.reason == reason)
            && self
                .origin
                .as_ref()
                .is_none_or(|origin| dead_letter.message.origin.as_ref() == Some(origin))
    }
}

/// A page of dead letters.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterPage {
    /// The dead letters in order.
    pub dead_letters: Vec<DeadLetter>,
    /// The dead letter before which the page ended because it exceeded the bytes.
    pub blocked: Option<BlockedDeadLetter>,
}

/// The first dead letter that did not fit into a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedDeadLetter {
    /// Its message.
    pub message: MessageId,
    /// Its recipient.
    pub recipient: SessionId,
    /// The bytes of its envelope; see [`envelope_bytes`](super::envelope_bytes).
    pub bytes: usize,
}

/// The result of [`DeadLetterStore::redrive`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redriven {
    /// Each message with the session for which it waits now and the number of messages that wait there.
    pub sent: Vec<(MessageId, SessionId, usize)>,
    /// Messages that are not among the dead letters.
    pub unknown: Vec<MessageId>,
    /// Messages that stay dead letters, with the reason.
    pub refused: Vec<(MessageId, RedriveRefusal)>,
}

/// Why a dead letter was not sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedriveRefusal {
    /// The recipient is not in the store.
    RecipientGone,
    /// The inbox of the recipient has no room.
    QueueFull,
}
