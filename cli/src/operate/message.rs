//! How messages are shown.

use rest::messages::{Envelope, ListedMessage};

use super::names::Names;
use super::texts::status_style;
use crate::output::Output;
use crate::short::prefix;
use crate::table::Table;

/// The most messages of a page.
pub const PAGE_LEN_MAX: usize = 500;

/// The name or id of the recipient, or `all` for a broadcast.
pub fn recipient<'a>(message: &'a Envelope, names: &'a Names) -> &'a str {
    message.recipient_id.as_deref().map_or("all", |id| names.of(id))
}

/// The subject and the first words.
pub fn words(message: &ListedMessage) -> String {
    let subject = message.headers.subject.as_deref();
    // With a subject, JSON adds nothing for a reader.
    let words = message
        .excerpt
        .as_deref()
        .filter(|words| subject.is_none() || !words.starts_with('{'));
    let texts = [subject, words];
    let texts: Vec<&str> = texts.into_iter().flatten().collect();
    texts.join(": ")
}

/// The status, or for a broadcast the number of recipients with each.
pub fn progress(message: &ListedMessage) -> String {
    if let Some(status) = &message.status {
        return status.clone();
    }
    let Some(counts) = &message.recipients else {
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

/// Messages as a table.
pub fn table(output: &Output, messages: &[ListedMessage], names: &Names, with_payload: bool) -> Table {
    let len = output.id_len(messages.iter().map(|message| message.message_id.as_str()));
    let mut headings = vec![output.age_heading(), "FROM", "TO", "PROTOCOL", "STATUS", "MESSAGE"];
    headings.push(if with_payload { "PAYLOAD" } else { "TEXT" });
    let mut table = Table::new(&headings);
    for message in messages {
        let plain = anstyle::Style::new();
        let (at, protocol, progress) = (output.age(&message.timestamp), message.protocol(), progress(message));
        let words = words(message);
        let payload = message.payload.as_ref().map_or_else(String::new, ToString::to_string);
        let mut cells = vec![
            (at.as_str(), plain),
            (message.sender(), plain),
            (recipient(message, names), plain),
            (protocol.as_str(), plain),
            (progress.as_str(), status_style(&progress)),
            (prefix(&message.message_id, len), plain),
        ];
        cells.push((if with_payload { &payload } else { &words }, plain));
        table.styled_row(cells);
    }
    table
}
