//! What an envelope says besides its payload, for the line that announces waiting messages to an agent.

use serde::Deserialize;

use super::{Message, PAYLOAD, ReportChoice};

/// The text before the headers in an encoded envelope.
pub(super) const HEADERS: &[u8] = b",\"headers\":";

/// What an envelope says besides its payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvelopeSummary {
    /// The name of the sender; None if it has none.
    pub sender_name: Option<String>,
    pub protocol: String,
    /// How many messages led to this one.
    pub hops: u64,
    /// What the sender says about reports.
    pub report: Option<ReportChoice>,
    pub thread_id: Option<String>,
    pub subject: Option<String>,
}

impl Message {
    /// Reads what the envelope says besides its payload, without reading the payload.
    pub fn summary(&self) -> EnvelopeSummary {
        #[derive(Deserialize)]
        struct Head {
            sender_name: Option<String>,
            protocol_name: String,
        }
        #[derive(Deserialize)]
        struct Tail {
            headers: Said,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Said {
            hops: u64,
            report: Option<ReportChoice>,
            thread_id: Option<String>,
            subject: Option<String>,
        }
        // Neither text is within a string of an envelope: a quote there has a backslash before it.
        let head = find(&self.body, PAYLOAD).map(|at| object(b"", &self.body[..at]));
        let tail = rfind(&self.body, HEADERS).map(|at| object(b"{", &self.body[at + 1..]));
        let head = head.and_then(|text| serde_json::from_slice::<Head>(&text).ok());
        let tail = tail.and_then(|text| serde_json::from_slice::<Tail>(&text).ok());
        let (sender_name, protocol) = head.map_or_else(Default::default, |head| (head.sender_name, head.protocol_name));
        let Said {
            hops,
            report,
            thread_id,
            subject,
        } = tail.map_or_else(Said::default, |tail| tail.headers);
        EnvelopeSummary {
            sender_name,
            protocol,
            hops,
            report,
            thread_id,
            subject,
        }
    }
}

fn find(body: &[u8], wanted: &[u8]) -> Option<usize> {
    body.windows(wanted.len()).position(|window| window == wanted)
}

fn rfind(body: &[u8], wanted: &[u8]) -> Option<usize> {
    body.windows(wanted.len()).rposition(|window| window == wanted)
}

/// The members as an object.
fn object(before: &[u8], members: &[u8]) -> Vec<u8> {
    [before, members, b"}"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Now,
        model::{Addressing, Headers, MessageIds, NewMessage, ProjectId, SessionName, SessionRecord},
    };

    #[test]
    fn a_summary_ignores_what_the_payload_says() {
        let sender = SessionRecord {
            name: Some(SessionName::parse("ali\",\"payload\":ce").unwrap()),
            ..SessionRecord::unnamed()
        };
        let headers = Headers {
            correlation_id: Some(",\"headers\":{\"hops\":9}".to_owned()),
            hops: Some(3),
            report: Some(ReportChoice::None),
            subject: Some("\"lunch\"".to_owned()),
            ..Headers::default()
        };
        let payload = r#"{"headers":{"hops":7},"a":{"b":1,"headers":{"hops":8}},"payload":{}}"#;
        let project = ProjectId::default_project();
        let draft = NewMessage::new(
            &project,
            &sender,
            Addressing::Broadcast,
            ("chat", "1.2.0"),
            payload,
            &headers,
        );
        let now = Now {
            unix_ms: 1_790_000_086_399,
            mono_ms: 0,
        };
        let message = draft.seal(MessageIds::default().next(now), None, now, false);
        let expected = EnvelopeSummary {
            sender_name: Some("ali\",\"payload\":ce".to_owned()),
            protocol: "chat".to_owned(),
            hops: 3,
            report: Some(ReportChoice::None),
            thread_id: None,
            subject: Some("\"lunch\"".to_owned()),
        };
        assert_eq!(message.summary(), expected);
    }
}
