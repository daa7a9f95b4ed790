//! A message as the broker lists it, and tables of messages.

use serde::Deserialize;

use super::names::Names;
use super::texts::status_style;
use crate::output::Output;
use crate::short::prefix;
use crate::table::Table;

/// The most messages of a page.
pub const PAGE_LEN_MAX: usize = 500;

/// A message of a list, as the broker shows it.
#[allow(clippy::struct_field_names, reason = "the names are those of the API")]
#[derive(Debug, Deserialize)]
pub struct Message {
    pub message_id: String,
    pub sender_id: String,
    pub sender_name: Option<String>,
    pub recipient_id: Option<String>,
    pub timestamp: String,
    pub protocol_name: String,
    pub protocol_version: String,
    #[serde(default)]
    pub headers: Headers,
    pub payload: Option<serde_json::Value>,
    /// The first words of the payload, if the broker keeps it and the key may read it.
    pub excerpt: Option<String>,
    pub status: Option<String>,
    pub recipients: Option<Counts>,
}

/// The headers that are shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Headers {
    pub priority: Option<String>,
    pub ttl_seconds: Option<u64>,
    pub thread_id: Option<String>,
    pub subject: Option<String>,
    pub correlation_id: Option<String>,
    pub reply_to: Option<String>,
}

/// How many recipients have each status.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Counts {
    pub queued: u64,
    pub delivered: u64,
    pub acknowledged: u64,
    pub expired: u64,
    pub dead_lettered: u64,
}

impl Message {
    /// The name of the sender, or else its id.
    pub fn sender(&self) -> &str {
        self.sender_name.as_deref().unwrap_or(&self.sender_id)
    }

    /// The name or id of the recipient, or `all` for a broadcast.
    pub fn recipient<'a>(&'a self, names: &'a Names) -> &'a str {
        self.recipient_id.as_deref().map_or("all", |id| names.of(id))
    }

    /// Protocol and version.
    pub fn protocol(&self) -> String {
        format!("{} {}", self.protocol_name, self.protocol_version)
    }

    /// The subject and the first words.
    pub fn words(&self) -> String {
        let subject = self.headers.subject.as_deref();
        // With a subject, JSON adds nothing for a reader.
        let words = self
            .excerpt
            .as_deref()
            .filter(|words| subject.is_none() || !words.starts_with('{'));
        let texts = [subject, words];
        let texts: Vec<&str> = texts.into_iter().flatten().collect();
        texts.join(": ")
    }

    /// The status, or for a broadcast the number of recipients with each.
    pub fn progress(&self) -> String {
        if let Some(status) = &self.status {
            return status.clone();
        }
        let Some(counts) = &self.recipients else {
            return "forgotten".to_owned();
        };
        let parts = [
            ("queued", counts.queued),
            ("delivered", counts.delivered),
            ("acknowledged", counts.acknowledged),
            ("expired", counts.expired),
            ("dead_lettered", counts.dead_lettered),
        ];
        let parts = parts.iter().filter(|(_, count)| *count > 0);
        let parts: Vec<_> = parts.map(|(status, count)| format!("{count} {status}")).collect();
        if parts.is_empty() {
            "no recipient".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

/// Messages as a table.
pub fn table(output: &Output, messages: &[Message], names: &Names, with_payload: bool) -> Table {
    let len = output.id_len(messages.iter().map(|message| message.message_id.as_str()));
    let mut headings = vec![output.age_heading(), "FROM", "TO", "PROTOCOL", "STATUS", "MESSAGE"];
    headings.push(if with_payload { "PAYLOAD" } else { "TEXT" });
    let mut table = Table::new(&headings);
    for message in messages {
        let plain = anstyle::Style::new();
        let (at, protocol, progress) = (output.age(&message.timestamp), message.protocol(), message.progress());
        let words = message.words();
        let payload = message.payload.as_ref().map_or_else(String::new, ToString::to_string);
        let mut cells = vec![
            (at.as_str(), plain),
            (message.sender(), plain),
            (message.recipient(names), plain),
            (protocol.as_str(), plain),
            (progress.as_str(), status_style(&progress)),
            (prefix(&message.message_id, len), plain),
        ];
        cells.push((if with_payload { &payload } else { &words }, plain));
        table.styled_row(cells);
    }
    table
}
