//! The stored form of a message, for stores outside this process.
//!
//! A version byte; a flags byte (1 has a recipient, 2 tracked, 4 has a time to live, 8 has an origin; the priority in
//! the two highest bits); the id and the sender, 16 bytes each; then what the flags announce: the recipient (16
//! bytes), the time to live (milliseconds, 8 bytes, big-endian), the origin (its length in one byte, its text). The
//! rest is the encoded envelope.

use std::time::Duration;

use uuid::Uuid;

use super::{Message, Priority, Progress};
use crate::{
    clock::millis,
    model::{MessageId, ProjectId, SessionId},
};

/// The version that this build writes and reads.
const VERSION: u8 = 1;

const HAS_RECIPIENT: u8 = 1;
const IS_TRACKED: u8 = 2;
const HAS_TTL: u8 = 4;
const HAS_ORIGIN: u8 = 8;
const PRIORITY_SHIFT: u8 = 6;

/// Why bytes are no stored message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredMessageError {
    #[error("stored message version {0}, expected {VERSION}")]
    Version(u8),
    #[error("not a stored message")]
    Malformed,
}

impl Message {
    /// The stored form, which [`Message::from_stored`] reads. It does not contain the delivery status.
    pub fn to_stored(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.body.len());
        self.write_stored(&mut out);
        out
    }

    /// Bytes of [`Message::to_stored`].
    pub fn stored_len(&self) -> usize {
        let recipient = self.recipient.map_or(0, |_| 16);
        let ttl = self.ttl.map_or(0, |_| 8);
        let origin = self.origin.as_ref().map_or(0, |origin| 1 + origin.as_str().len());
        2 + 16 + 16 + recipient + ttl + origin + self.body.len()
    }

    /// Appends the stored form.
    pub fn write_stored(&self, out: &mut Vec<u8>) {
        let flag = |flag, is_set| if is_set { flag } else { 0 };
        let flags = flag(HAS_RECIPIENT, self.recipient.is_some())
            | flag(IS_TRACKED, self.is_tracked())
            | flag(HAS_TTL, self.ttl.is_some())
            | flag(HAS_ORIGIN, self.origin.is_some());
        out.extend([VERSION, flags | (self.priority as u8) << PRIORITY_SHIFT]);
        out.extend(self.id.as_uuid().as_bytes());
        out.extend(self.sender.as_uuid().as_bytes());
        if let Some(recipient) = &self.recipient {
            out.extend(recipient.as_uuid().as_bytes());
        }
        if let Some(ttl) = self.ttl {
            out.extend(millis(ttl).to_be_bytes());
        }
        if let Some(origin) = &self.origin {
            // A project id has at most 63 bytes.
            out.push(origin.as_str().len() as u8);
            out.extend(origin.as_str().as_bytes());
        }
        out.extend(&self.body);
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`StoredMessageError::Version`] for another version, [`StoredMessageError::Malformed`] for bytes that are no
    /// stored message.
    pub fn from_stored(stored: &[u8]) -> Result<Self, StoredMessageError> {
        match stored.first() {
            Some(&VERSION) => read(stored).ok_or(StoredMessageError::Malformed),
            Some(&version) => Err(StoredMessageError::Version(version)),
            None => Err(StoredMessageError::Malformed),
        }
    }

    /// Whether the sender tracks the delivery status.
    pub fn is_tracked(&self) -> bool {
        self.as_sent().progress.status.is_some()
    }
}

fn read(stored: &[u8]) -> Option<Message> {
    let mut rest = stored.get(1..)?;
    let flags = *take(&mut rest, 1)?.first()?;
    let id = MessageId::from_uuid(uuid(&mut rest)?);
    let sender = SessionId::from_uuid(uuid(&mut rest)?);
    let has = |flag| flags & flag != 0;
    let recipient = if has(HAS_RECIPIENT) {
        Some(SessionId::from_uuid(uuid(&mut rest)?))
    } else {
        None
    };
    let ttl = if has(HAS_TTL) {
        let ms = take(&mut rest, 8)?.try_into().ok()?;
        Some(Duration::from_millis(u64::from_be_bytes(ms)))
    } else {
        None
    };
    let origin = if has(HAS_ORIGIN) {
        let len = usize::from(*take(&mut rest, 1)?.first()?);
        let text = std::str::from_utf8(take(&mut rest, len)?).ok()?;
        Some(ProjectId::parse(text).ok()?)
    } else {
        None
    };
    Some(Message {
        id,
        sender,
        origin,
        recipient,
        priority: Priority::ALL[usize::from(flags >> PRIORITY_SHIFT)],
        ttl,
        accepted_ns: 0,
        body: rest.to_vec(),
        layout: None,
        sent: None,
        progress: Progress::new(has(IS_TRACKED)),
    })
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

fn uuid(rest: &mut &[u8]) -> Option<Uuid> {
    Uuid::from_slice(take(rest, 16)?).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::{option, prelude::*};

    use super::*;
    use crate::{
        clock::Now,
        model::{Addressing, Headers, MessageIds, NewMessage, SessionRecord},
    };

    const NOW: Now = Now {
        unix_ms: 1_790_000_000_000,
        mono_ms: 5,
    };

    fn message(
        headers: &Headers,
        recipient: Option<SessionId>,
        origin: Option<ProjectId>,
        watched: bool,
    ) -> Arc<Message> {
        let sender = SessionRecord::unnamed();
        let to = recipient.map_or(Addressing::Broadcast, |_| Addressing::Direct);
        let project = ProjectId::default_project();
        let mut draft = NewMessage::new(&project, &sender, to, ("chat", "1.0.0"), r#"{"text":"hi"}"#, headers);
        if let Some(origin) = origin {
            draft = draft.with_origin(origin);
        }
        draft.seal(MessageIds::default().next(NOW), recipient, NOW, watched)
    }

    fn same(left: &Message, right: &Message) {
        let plain = |message: &Message| {
            let mut envelope = Vec::new();
            message.write(&mut envelope, 1);
            let Message {
                id,
                sender,
                origin,
                recipient,
                priority,
                ttl,
                ..
            } = message;
            let ids = (*id, *sender, origin.clone(), *recipient);
            (ids, *priority, *ttl, envelope, message.is_tracked())
        };
        assert_eq!(plain(left), plain(right));
    }

    #[test]
    fn the_bytes_of_a_stored_message_are_those_of_version_1() {
        let recipient = SessionId::generate();
        let headers = Headers {
            priority: Priority::Urgent,
            ttl_seconds: Some(2),
            ..Headers::default()
        };
        let origin = ProjectId::parse("acme").unwrap();
        let message = message(&headers, Some(recipient), Some(origin), true);
        let stored = message.to_stored();
        assert_eq!(stored[..2], [1, 0b1100_1111]);
        assert_eq!(stored[2..18], *message.id.as_uuid().as_bytes());
        assert_eq!(stored[18..34], *message.sender.as_uuid().as_bytes());
        assert_eq!(stored[34..50], *recipient.as_uuid().as_bytes());
        assert_eq!(stored[50..63], *b"\0\0\0\0\0\0\x07\xd0\x04acme");
        assert_eq!(stored[63..], message.body);
    }

    #[test]
    fn a_truncated_stored_message_is_malformed() {
        let headers = Headers {
            ttl_seconds: Some(2),
            ..Headers::default()
        };
        let origin = ProjectId::parse("acme").unwrap();
        let stored = message(&headers, Some(SessionId::generate()), Some(origin), false).to_stored();
        for len in 0..63 {
            assert_eq!(
                Message::from_stored(&stored[..len]).err(),
                Some(StoredMessageError::Malformed),
                "{len}"
            );
        }
        assert_eq!(
            Message::from_stored(&[2, 0]).err(),
            Some(StoredMessageError::Version(2))
        );
    }

    proptest! {
        #[test]
        fn a_stored_message_is_read_back(
            priority in prop::sample::select(&Priority::ALL[..]),
            ttl_seconds in option::of(1..=u64::MAX / 1000),
            is_direct: bool,
            origin in option::of("[a-z0-9]{1,63}"),
            watched: bool,
        ) {
            let headers = Headers { priority, ttl_seconds, ..Headers::default() };
            let recipient = is_direct.then(SessionId::generate);
            let origin = origin.map(|origin| ProjectId::parse(&origin).unwrap());
            let message = message(&headers, recipient, origin, watched);
            let stored = message.to_stored();
            same(&Message::from_stored(&stored).unwrap(), &message);
            prop_assert_eq!((message.stored_len(), message.is_tracked()), (stored.len(), watched));
        }

        #[test]
        fn arbitrary_bytes_are_refused_without_a_panic(bytes: Vec<u8>) {
            let _ = Message::from_stored(&bytes);
            let _ = Message::from_stored(&[&[1], &bytes[..]].concat());
        }
    }
}
