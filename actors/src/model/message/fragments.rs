//! The parts of an encoded envelope that the event log keeps as they are.

/// The text before the payload in an encoded envelope.
pub(super) const PAYLOAD: &[u8] = b",\"payload\":";

/// The places in an encoded envelope at which its parts begin, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The value of `sender_name`.
    pub sender_name: u32,
    /// The payload.
    pub payload: u32,
    /// Everything behind the payload.
    pub tail: u32,
}

/// The parts of an encoded envelope that the event log keeps as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeFragments<'a> {
    /// From the value of `sender_name` up to the payload: `"ali",…,"protocol_version":"1.0.0"`.
    pub head: &'a [u8],
    /// The JSON text of the payload.
    pub payload: &'a [u8],
    /// Everything behind the payload: `,"headers":{…}`.
    pub tail: &'a [u8],
    /// The time of day in the `timestamp`, in milliseconds.
    pub time_of_day_ms: u64,
}

impl Layout {
    /// The parts of an envelope; `timestamp` is the text of its time.
    pub fn fragments<'a>(&self, body: &'a [u8], timestamp: &[u8]) -> Option<EnvelopeFragments<'a>> {
        let (payload, tail) = (self.payload as usize, self.tail as usize);
        Some(EnvelopeFragments {
            head: body.get(self.sender_name as usize..payload - PAYLOAD.len())?,
            payload: body.get(payload..tail)?,
            tail: body.get(tail..)?,
            time_of_day_ms: time_of_day_ms(timestamp),
        })
    }
}

/// Reads `hh:mm:ss.mmm` from a text of RFC 3339.
fn time_of_day_ms(timestamp: &[u8]) -> u64 {
    let number = |digits: &[u8]| {
        let digits = digits.iter().map(|digit| u64::from(digit.wrapping_sub(b'0')));
        digits.fold(0, |sum, digit| sum * 10 + digit)
    };
    let [.., h0, h1, _, m0, m1, _, s0, s1, _, a, b, c, _] = timestamp else {
        return 0;
    };
    let minutes = number(&[*h0, *h1]) * 60 + number(&[*m0, *m1]);
    (minutes * 60 + number(&[*s0, *s1])) * 1000 + number(&[*a, *b, *c])
}

#[cfg(test)]
mod tests {
    use crate::{
        clock::Now,
        model::{Addressing, Headers, MessageIds, NewMessage, ProjectId, SessionId, SessionName, SessionRecord},
    };

    #[test]
    fn the_fragments_are_the_envelope_around_the_payload() {
        let sender = SessionRecord {
            name: Some(SessionName::parse("ali\"ce").unwrap()),
            ..SessionRecord::unnamed()
        };
        let (project, payload) = (ProjectId::default_project(), r#"{"text":"hi"}"#);
        for to in [Addressing::Direct, Addressing::Broadcast] {
            let draft = NewMessage::new(&project, &sender, to, ("chat", "1.2.0"), payload, &Headers::default());
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
            assert_eq!(parts.time_of_day_ms, now.unix_ms % 86_400_000);
        }
    }
}
