//! What a recipient says of a message when it acknowledges it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::DeadLetterReason;

/// Characters of a note.
pub const NOTE_CHARACTERS_MAX: usize = 1000;

/// Bytes of a note that take the room of one receipt.
const NOTE_BYTES_PER_RECEIPT: usize = 64;

words! {
    /// How the recipient's work on a message ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    #[schema(as = Outcome)]
    pub enum OutcomeKind {
        Done = "done",
        /// The recipient cannot continue with it.
        Blocked = "blocked",
        /// The recipient does not do it: the message becomes a dead letter.
        Rejected = "rejected",
        /// Lenses could not transform it for the recipient, or were not allowed to: it becomes a dead letter. Only the broker
        /// gives this outcome.
        TransformFailed = "transform_failed",
    }
}

impl OutcomeKind {
    /// What a recipient can say.
    pub const OF_RECIPIENTS: [Self; 3] = [Self::Done, Self::Blocked, Self::Rejected];

    /// What a recipient says with this name.
    pub fn of_recipient(text: &str) -> Option<Self> {
        Self::OF_RECIPIENTS.into_iter().find(|kind| kind.as_str() == text)
    }

    /// The number in stored receipts. It must not change.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => b'd',
            Self::Blocked => b'b',
            Self::Rejected => b'r',
            Self::TransformFailed => b't',
        }
    }

    /// Why a message with this outcome becomes a dead letter; None if it is acknowledged.
    pub const fn dead_letter_reason(self) -> Option<DeadLetterReason> {
        match self {
            Self::Done | Self::Blocked => None,
            Self::Rejected => Some(DeadLetterReason::Rejected),
            Self::TransformFailed => Some(DeadLetterReason::TransformFailed),
        }
    }
}

/// The outcome of a message for one recipient, kept with its receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub kind: OutcomeKind,
    /// What the recipient adds; empty for nothing. At most [`NOTE_CHARACTERS_MAX`].
    pub note: Box<str>,
}

impl Outcome {
    /// An outcome.
    pub fn new(kind: OutcomeKind, note: &str) -> Arc<Self> {
        Arc::new(Self {
            kind,
            note: note.into(),
        })
    }

    /// The room that it takes besides its receipt, counted in receipts.
    pub fn receipts_len(&self) -> usize {
        1 + self.note.len() / NOTE_BYTES_PER_RECEIPT
    }

    /// The stored form: the code of the kind, and the note.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + self.note.len());
        bytes.push(self.kind.code());
        bytes.extend_from_slice(self.note.as_bytes());
        bytes
    }

    /// Reads the stored form. None if it is not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Arc<Self>> {
        let (code, note) = bytes.split_first()?;
        let kind = OutcomeKind::ALL.into_iter().find(|kind| kind.code() == *code)?;
        Some(Self::new(kind, std::str::from_utf8(note).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_stored_form_is_read_back(kind in prop::sample::select(&OutcomeKind::ALL[..]), note in ".{0,40}") {
            let outcome = Outcome::new(kind, &note);
            prop_assert_eq!(Outcome::from_bytes(&outcome.to_bytes()), Some(outcome));
            let is_of_recipients = OutcomeKind::OF_RECIPIENTS.contains(&kind);
            prop_assert_eq!(OutcomeKind::of_recipient(kind.as_str()), is_of_recipients.then_some(kind));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Some(outcome) = Outcome::from_bytes(&bytes) {
                prop_assert_eq!(outcome.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn the_longest_note_takes_the_room_of_few_receipts() {
        let longest = "\u{1f980}".repeat(NOTE_CHARACTERS_MAX);
        assert_eq!(Outcome::new(OutcomeKind::Blocked, &longest).receipts_len(), 63);
        assert_eq!(Outcome::new(OutcomeKind::Done, "").receipts_len(), 1);
    }
}
