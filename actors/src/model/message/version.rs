//! A message in another version of its protocol: what its recipient gets instead of the payload as sent.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Message, PAYLOAD, Progress, TransformRule, summary::HEADERS};

/// The text between the name of the protocol and its version in an encoded envelope.
const VERSION: &[u8] = b"\",\"protocol_version\":\"";

/// The protocol and the payload of a message, as they are written in its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageText<'a> {
    pub protocol_name: &'a str,
    pub protocol_version: &'a str,
    pub payload: &'a str,
}

/// What the sender of a message says about its transformation.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct TransformHeaders<'a> {
    #[serde(default)]
    pub transform: TransformRule,
    #[serde(borrow, default)]
    complement: Option<&'a RawValue>,
}

impl<'a> TransformHeaders<'a> {
    /// The text of the header `complement`.
    pub fn complement(&self) -> Option<&'a str> {
        self.complement.map(RawValue::get)
    }
}

/// Where the protocol of an envelope begins and ends, and where the payload begins, in bytes.
struct ProtocolPlaces {
    name: (usize, usize),
    version: (usize, usize),
    payload: usize,
}

/// Where the parts of an envelope begin and end, in bytes.
struct Places {
    name: (usize, usize),
    version: (usize, usize),
    payload: (usize, usize),
}

impl Message {
    /// The message as it was sent: another one if this is its form in another version.
    pub fn as_sent(&self) -> &Self {
        self.sent.as_deref().unwrap_or(self)
    }

    /// Whether this is the form of that message, and not of another copy of it.
    pub fn is_form_of(&self, message: &Arc<Self>) -> bool {
        self.sent.as_ref().is_some_and(|sent| Arc::ptr_eq(sent, message))
    }

    /// The protocol and its version, as they are written in the envelope, with what is between them: equal for two messages of
    /// one version. Reads nothing behind the beginning of the payload. None for an envelope that another build has written in
    /// another way.
    #[must_use]
    pub fn protocol_bytes(&self) -> Option<&[u8]> {
        let ProtocolPlaces { name, version, .. } = self.protocol_places()?;
        self.body.get(name.0..version.1)
    }

    /// The name of the protocol, and the version. As [`Self::protocol_bytes`].
    #[must_use]
    pub fn protocol(&self) -> Option<(&str, &str)> {
        let ProtocolPlaces { name, version, .. } = self.protocol_places()?;
        let text = |(from, to)| std::str::from_utf8(self.body.get(from..to)?).ok();
        Some((text(name)?, text(version)?))
    }

    /// The protocol and the payload. None for an envelope that another build has written in another way.
    pub fn text(&self) -> Option<MessageText<'_>> {
        let Places { name, version, payload } = self.places()?;
        let text = |(from, to)| std::str::from_utf8(self.body.get(from..to)?).ok();
        Some(MessageText {
            protocol_name: text(name)?,
            protocol_version: text(version)?,
            payload: text(payload)?,
        })
    }

    /// What the sender says about the transformation of the message.
    pub fn transform_headers(&self) -> TransformHeaders<'_> {
        let tail = self
            .places()
            .and_then(|places| self.body.get(places.payload.1 + HEADERS.len()..));
        let mut headers = tail.map(serde_json::Deserializer::from_slice);
        let headers = headers.as_mut().map(TransformHeaders::deserialize);
        headers.and_then(Result::ok).unwrap_or_default()
    }

    /// The form of this message for recipients of another version: everything stays but the version and the payload.
    /// `transformed` is the text of the member of this name, an object.
    pub fn in_version(self: &Arc<Self>, version: &str, payload: &str, transformed: &str) -> Option<Self> {
        const TRANSFORMED: &[u8] = b",\"transformed\":";
        let places = self.places()?;
        let (head, tail) = (self.body.get(..places.version.0)?, self.body.get(places.payload.1..)?);
        let parts = [
            head,
            version.as_bytes(),
            b"\"",
            PAYLOAD,
            payload.as_bytes(),
            TRANSFORMED,
            transformed.as_bytes(),
            tail,
        ];
        Some(Self {
            id: self.id,
            sender: self.sender,
            origin: self.origin.clone(),
            recipient: self.recipient,
            priority: self.priority,
            ttl: self.ttl,
            accepted_ns: self.accepted_ns,
            body: parts.concat(),
            layout: None,
            sent: Some(Arc::clone(self)),
            progress: Progress::new(false),
        })
    }

    fn places(&self) -> Option<Places> {
        let ProtocolPlaces { name, version, payload } = self.protocol_places()?;
        let tail = match &self.layout {
            Some(layout) => layout.tail as usize,
            None => memchr::memmem::rfind(&self.body, HEADERS)?,
        };
        (payload <= tail).then_some(Places {
            name,
            version,
            payload: (payload, tail),
        })
    }

    /// Neither text that is searched for is within a string of an envelope: a quote there has a backslash before it.
    fn protocol_places(&self) -> Option<ProtocolPlaces> {
        let body = &*self.body;
        let payload = match &self.layout {
            Some(layout) => layout.payload as usize,
            None => memchr::memmem::find(body, PAYLOAD)? + PAYLOAD.len(),
        };
        let version_to = payload.checked_sub(PAYLOAD.len() + 1)?;
        let version = quote_before(body, version_to)?;
        let name_to = version.checked_sub(VERSION.len())?;
        if body.get(name_to..version)? != VERSION {
            return None;
        }
        Some(ProtocolPlaces {
            name: (quote_before(body, name_to)?, name_to),
            version: (version, version_to),
            payload,
        })
    }
}

/// The place behind the last quote before this one.
fn quote_before(body: &[u8], at: usize) -> Option<usize> {
    Some(body.get(..at)?.iter().rposition(|byte| *byte == b'"')? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::now,
        model::{
            Addressing, Headers, MessageIds, NewMessage, ProjectId, SessionId, SessionName, SessionRecord,
            StoredMessage, TraceContext,
        },
    };

    const PAYLOAD_TEXT: &str = r#"{"payload":{},"headers":{"transform":"never"},"a":"\",\"headers\":"}"#;

    fn message() -> Arc<Message> {
        let sender = SessionRecord {
            name: Some(SessionName::parse("ali\",\"payload\":ce").unwrap()),
            ..SessionRecord::unnamed()
        };
        let headers = Headers {
            transform: Some(TransformRule::Lossless),
            complement: serde_json::from_str(r#"{ "x": 1.0,"headers":{"hops":0} }"#).unwrap(),
            ..Headers::default()
        };
        let project = ProjectId::default_project();
        let protocol = ("chat", "1.2.0-rc.1+b");
        let draft = NewMessage::new(&project, &sender, Addressing::Direct, protocol, PAYLOAD_TEXT, &headers);
        let draft = draft.with_trace(&TraceContext::recorded(7, 9, None));
        draft.seal(
            MessageIds::default().next(now()),
            Some(SessionId::generate()),
            now(),
            true,
        )
    }

    /// The message as another process reads it.
    fn restored(message: &Message) -> Message {
        Message::restore(StoredMessage {
            id: message.id,
            sender: message.sender,
            origin: None,
            recipient: message.recipient,
            priority: message.priority,
            ttl: None,
            body: message.body().to_vec(),
        })
    }

    #[test]
    fn a_form_differs_in_version_payload_and_what_was_done() {
        let own = message();
        for sent in [Arc::new(restored(&own)), own] {
            let text = sent.text().unwrap();
            assert_eq!((text.protocol_name, text.protocol_version), ("chat", "1.2.0-rc.1+b"));
            assert_eq!(text.payload, PAYLOAD_TEXT);
            assert_eq!(sent.protocol(), Some(("chat", "1.2.0-rc.1+b")));
            let bytes = b"chat\",\"protocol_version\":\"1.2.0-rc.1+b";
            assert_eq!(sent.protocol_bytes(), Some(&bytes[..]));
            let headers = sent.transform_headers();
            assert_eq!(headers.transform, TransformRule::Lossless);
            assert_eq!(
                headers.complement(),
                Some(r#"{ "x": 1.0, "headers":{"hops":0} }"#),
                "as it was written"
            );
            let form = sent.in_version("2.0.0", r#"{"b":2}"#, r#"{"loss":[]}"#).unwrap();
            let read = |message: &Message| {
                let mut out = Vec::new();
                message.write(&mut out, 3);
                assert_eq!(out.len(), message.encoded_len(3));
                serde_json::from_slice::<serde_json::Value>(&out).unwrap()
            };
            let mut expected = read(&sent);
            expected["protocol_version"] = "2.0.0".into();
            expected["payload"] = serde_json::json!({"b": 2});
            expected["transformed"] = serde_json::json!({"loss": []});
            assert_eq!(read(&form), expected);
            assert_eq!(form.trace(), sent.trace());
            assert_eq!(form.summary(), sent.summary());
            assert!(form.is_form_of(&sent) && std::ptr::eq(form.as_sent(), Arc::as_ptr(&sent)));
            assert_eq!(form.is_tracked(), sent.is_tracked());
        }
    }
}
