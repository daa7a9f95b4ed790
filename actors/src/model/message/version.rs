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
    #[must_use]
    pub fn complement(&self) -> Option<&'a str> {
        self.complement.map(RawValue::get)
    }
}

/// Where the parts of an envelope begin and end, in bytes.
struct Places {
    name: (usize, usize),
    version: (usize, usize),
    payload: (usize, usize),
}

impl Message {
    /// The message as it was sent: another one if this is its form in another version.
    #[must_use]
    pub fn as_sent(&self) -> &Self {
        self.sent.as_deref().unwrap_or(self)
    }

    /// Whether this is the form of that message, and not of another copy of it.
    #[must_use]
    pub fn is_form_of(&self, message: &Arc<Self>) -> bool {
        self.sent.as_ref().is_some_and(|sent| Arc::ptr_eq(sent, message))
    }

    /// The protocol and the payload. None for an envelope that another build has written in another way.
    #[must_use]
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
    #[must_use]
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
    #[must_use]
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

    /// Neither text that is searched for is within a string of an envelope: a quote there has a backslash before it.
    fn places(&self) -> Option<Places> {
        let body = &*self.body;
        let (payload, tail) = if let Some(layout) = &self.layout {
            (layout.payload as usize, layout.tail as usize)
        } else {
            let at = memchr::memmem::find(body, PAYLOAD)?;
            (at + PAYLOAD.len(), memchr::memmem::rfind(body, HEADERS)?)
        };
        let version_to = payload.checked_sub(PAYLOAD.len() + 1)?;
        let version = quote_before(body, version_to)?;
        let name_to = version.checked_sub(VERSION.len())?;
        if body.get(name_to..version)? != VERSION || tail < payload {
            return None;
        }
        Some(Places {
            name: (quote_before(body, name_to)?, name_to),
            version: (version, version_to),
            payload: (payload, tail),
        })
    }
}

/// The place behind the last quote before this one.
fn quote_before(body: &[u8], at: usize) -> Option<usize> {
    Some(body.get(..at)?.iter().rposition(|byte| *byte == b'"')? + 1)
}
