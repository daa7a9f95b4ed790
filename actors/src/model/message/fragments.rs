//! The parts of an encoded envelope that the event log keeps as they are.

use super::{Message, PAYLOAD, TIMESTAMP_AT};
use crate::model::EnvelopeFragments;

/// The places in the encoded envelope at which its parts begin, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The value of `sender_name`.
    pub sender_name: u32,
    /// The payload.
    pub payload: u32,
    /// Everything behind the payload.
    pub tail: u32,
}

impl Message {
    /// The parts of the envelope that the event log keeps; None for a message that was read back from a store.
    #[must_use]
    pub fn fragments(&self) -> Option<EnvelopeFragments<'_>> {
        let Layout {
            sender_name,
            payload,
            tail,
        } = self.layout?;
        let (payload, tail) = (payload as usize, tail as usize);
        Some(EnvelopeFragments {
            head: self.body.get(sender_name as usize..payload - PAYLOAD.len())?,
            payload: self.body.get(payload..tail)?,
            tail: self.body.get(tail..)?,
        })
    }

    /// The time of day in the `timestamp` of the envelope, in milliseconds.
    #[must_use]
    pub fn time_of_day_ms(&self) -> u64 {
        let text = &self.body[TIMESTAMP_AT + 11..TIMESTAMP_AT + 23];
        let number = |digits: &[u8]| {
            let digits = digits.iter().map(|digit| u64::from(digit.wrapping_sub(b'0')));
            digits.fold(0, |sum: u64, digit| sum.wrapping_mul(10).wrapping_add(digit))
        };
        let minutes = number(&text[..2]).wrapping_mul(60).wrapping_add(number(&text[3..5]));
        let seconds = minutes.wrapping_mul(60).wrapping_add(number(&text[6..8]));
        seconds.wrapping_mul(1000).wrapping_add(number(&text[9..]))
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        clock::Now,
        model::{
            Addressing, Capabilities, Draft, Headers, Holder, MessageIds, Owner, ProjectId, SessionId, SessionName,
            SessionRecord,
        },
    };

    #[test]
    fn the_fragments_are_the_envelope_around_the_payload() {
        let sender = SessionRecord {
            id: SessionId::generate(),
            name: Some(SessionName::parse("ali\"ce").unwrap()),
            capabilities: Capabilities::default(),
            metadata: serde_json::Map::new(),
            connected_at_ms: 0,
            owner: Owner::anonymous(),
            holder: Holder::default(),
        };
        let (project, payload) = (ProjectId::default_project(), r#"{"text":"hi"}"#);
        for to in [Addressing::Direct, Addressing::Broadcast] {
            let draft = Draft::new(&project, &sender, to, ("chat", "1.2.0"), payload, &Headers::default());
            let now = Now {
                unix_ms: 1_790_000_086_399,
                mono_ms: 0,
            };
            let recipient = (to == Addressing::Direct).then(SessionId::generate);
            let message = draft.seal(MessageIds::default().next(now), recipient, now, false);
            let parts = message.fragments().unwrap();
            let head = br#""ali\"ce","protocol_name":"chat","protocol_version":"1.2.0""#;
            assert_eq!(parts.head, head);
            assert_eq!(parts.payload, payload.as_bytes());
            assert_eq!(parts.tail, br#","headers":{"priority":"normal"}"#);
            assert_eq!(message.time_of_day_ms(), now.unix_ms % 86_400_000);
        }
    }
}
