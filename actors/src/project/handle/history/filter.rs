//! Which messages of the event log a list shows.

use std::borrow::Cow;

use super::parties::SessionSet;
use crate::model::{
    AcceptedMessage, DeliveryStatus, Headers, MessageId, Owner, Priority, ProtocolName, RecipientStatus, SessionId,
};

/// Selects messages of the list.
#[derive(Clone, Debug, Default)]
pub struct MessageFilter {
    /// Only messages that this session sent or got.
    pub session: Option<SessionId>,
    /// Only messages with this status for some recipient.
    pub status: Option<StatusFilter>,
    /// Only messages with this header, and the message with this id if it has neither this header nor a thread.
    pub correlation_id: Option<String>,
    /// Only messages of this thread: those with this header, and the message with this id if it has no such header.
    pub thread_id: Option<String>,
    /// Only messages of the sender with this id, or with this name when it sent.
    pub from: Option<String>,
    /// Only messages accepted at this time or later, in milliseconds since the Unix epoch.
    pub since_ms: Option<u64>,
    /// Only messages accepted before this time, in milliseconds since the Unix epoch.
    pub until_ms: Option<u64>,
    /// Only messages of this protocol.
    pub protocol: Option<ProtocolName>,
    /// No messages of this protocol.
    pub except_protocol: Option<&'static str>,
    /// Only messages with this priority.
    pub priority: Option<Priority>,
    /// Only messages with this text, in lower case, in their subject, in the name of their sender or of a recipient other
    /// than `session`, in the name of their protocol or in their correlation id.
    pub text: Option<String>,
    /// The text may also be in a string of the payload, if the log keeps payloads.
    pub is_payload_searched: bool,
    /// Only messages that a session of this owner sent or got.
    pub visible_to: Option<Owner>,
}

/// A status of a message, without the reason of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFilter {
    Queued,
    Delivered,
    Acknowledged,
    Expired,
    DeadLettered,
}

impl StatusFilter {
    /// Whether a status is this one.
    pub const fn matches(self, status: DeliveryStatus) -> bool {
        matches!(
            (self, status),
            (Self::Queued, DeliveryStatus::Queued)
                | (Self::Delivered, DeliveryStatus::Delivered)
                | (Self::Acknowledged, DeliveryStatus::Acknowledged)
                | (Self::Expired, DeliveryStatus::Expired)
                | (Self::DeadLettered, DeliveryStatus::DeadLettered(_))
        )
    }
}

impl MessageFilter {
    /// Whether a message is selected, apart from its status. `named` are the sessions whose names have the text.
    pub(super) fn selects(&self, accepted: &AcceptedMessage, named: Option<&SessionSet>) -> bool {
        self.session
            .is_none_or(|session| accepted.sender == session || accepted.recipients.may_contain(session))
            && self.selects_thread(accepted)
            && self.selects_sender(accepted)
            && self.selects_headers(accepted)
            && self.selects_protocol(accepted)
            && self.selects_text(accepted, named)
    }

    fn selects_protocol(&self, accepted: &AcceptedMessage) -> bool {
        if self.protocol.is_none() && self.except_protocol.is_none() {
            return true;
        }
        accepted.parse_head().is_some_and(|head| {
            let name = head.protocol_name.as_str();
            self.protocol.as_ref().is_none_or(|wanted| name == wanted.as_str()) && self.except_protocol != Some(name)
        })
    }

    fn selects_headers(&self, accepted: &AcceptedMessage) -> bool {
        if self.correlation_id.is_none() && self.priority.is_none() {
            return true;
        }
        accepted.parse_headers().is_some_and(|headers| {
            self.priority.is_none_or(|wanted| headers.priority == wanted)
                && self.selects_correlation(accepted.message, &headers)
        })
    }

    fn selects_correlation(&self, message: MessageId, headers: &Headers) -> bool {
        let Some(wanted) = &self.correlation_id else {
            return true;
        };
        match (&headers.correlation_id, &headers.thread_id) {
            (Some(own), _) => own == wanted,
            (None, None) => MessageId::parse(wanted) == Some(message),
            (None, Some(_)) => false,
        }
    }

    fn selects_thread(&self, accepted: &AcceptedMessage) -> bool {
        let Some(wanted) = &self.thread_id else { return true };
        accepted.parse_thread_id().map_or_else(
            || MessageId::parse(wanted) == Some(accepted.message),
            |own| own == *wanted,
        )
    }

    fn selects_sender(&self, accepted: &AcceptedMessage) -> bool {
        let Some(from) = &self.from else { return true };
        SessionId::parse(from) == Some(accepted.sender)
            || accepted
                .parse_head()
                .is_some_and(|head| head.sender_name.as_ref() == Some(from))
    }

    fn selects_text(&self, accepted: &AcceptedMessage, named: Option<&SessionSet>) -> bool {
        let Some(text) = &self.text else { return true };
        let contains = |word: &str| word.to_lowercase().contains(text);
        if named.is_some_and(|named| named.sent_or_got(accepted)) {
            return true;
        }
        let is_sender_searched = self.session != Some(accepted.sender);
        let in_head = accepted.parse_head().is_some_and(|head| {
            contains(&head.protocol_name) || is_sender_searched && head.sender_name.is_some_and(|name| contains(&name))
        });
        in_head
            || accepted.parse_headers().is_some_and(|headers| {
                let texts = [headers.subject, headers.correlation_id];
                texts.into_iter().flatten().any(|own| contains(&own))
            })
            || self.is_payload_searched
                && accepted
                    .payload
                    .as_ref()
                    .is_some_and(|payload| string_contains(payload, text))
    }

    pub(super) fn selects_status(&self, recipients: Option<&[RecipientStatus]>) -> bool {
        let Some(status) = self.status else { return true };
        // Of the messages of one session its own copy counts, unless it is the sender.
        let of_session = |recipient: &&RecipientStatus| self.session == Some(recipient.session);
        let recipients = recipients.unwrap_or_default();
        let own = recipients.iter().find(of_session);
        match own {
            Some(own) => status.matches(own.status),
            None => recipients.iter().any(|recipient| status.matches(recipient.status)),
        }
    }
}

/// Whether a string of this JSON text, escapes resolved, has the text, which is in lower case. Names of members do not
/// count. The time is linear in the length of the JSON text, which is valid: the broker has checked it.
fn string_contains(json: &str, text: &str) -> bool {
    let mut rest = json;
    while let Some((_, behind_quote)) = rest.split_once('"') {
        let mut is_escaped = false;
        let end = behind_quote.bytes().position(|byte| {
            let is_end = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        });
        let Some((string, behind)) = end.and_then(|end| behind_quote.split_at_checked(end)) else {
            return false;
        };
        rest = &behind[1..];
        if !rest.trim_start().starts_with(':') && resolve_escapes(string).to_lowercase().contains(text) {
            return true;
        }
    }
    false
}

/// The text of a JSON string, given without its quotes.
fn resolve_escapes(string: &str) -> Cow<'_, str> {
    if !string.contains('\\') {
        return Cow::Borrowed(string);
    }
    serde_json::from_str(&format!("\"{string}\"")).map_or(Cow::Borrowed(string), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_in_every_string_of_a_payload_and_in_no_name_or_number() {
        let payload = r#"{"key":"Plain","list":[1.5,null,true,{"deep":"\u00c4pfel \"und\" \nBirnen"}],"n":-12345,"m":1e400,"key" : "last\\\\"}"#;
        for text in ["plain", "lai", "äpfel", "\"und\"", "\nbirnen", "last\\"] {
            assert!(string_contains(payload, text), "{text}");
        }
        for text in ["key", "deep", "12345", "null", "\\u00c4", "Plain"] {
            assert!(!string_contains(payload, text), "{text}");
        }
        assert!(!string_contains("{\"cut\":\"pla", "pla"), "no JSON");
    }
}
