//! Dead letters: pages of their list, and redrives.

use std::collections::HashSet;

use actors::{
    clock::rfc3339_text,
    model::{BrokerError, DeadLetter, MessageId, SessionId},
    project::{Page, ProjectHandle, RedriveRequest},
    storage::RedriveRefusal,
};
use rest::messages::{RedriveFailure, Redriven};

use super::messages::parse_ids;
use common::json::{page::JsonPage, write_json};

/// Dead letters of a page, unless the caller sets a limit.
pub const PAGE_LEN: usize = 50;
/// Largest number of dead letters of a page.
pub const PAGE_LEN_MAX: usize = 500;

/// Parses the cursor of a page: the message and the recipient of its last entry.
///
/// # Errors
/// `InvalidArgument` for another text.
pub fn parse_cursor(text: &str) -> Result<(MessageId, SessionId), BrokerError> {
    text.split_once('_')
        .and_then(|(message, session)| Some((MessageId::parse(message)?, SessionId::parse(session)?)))
        .ok_or_else(|| BrokerError::invalid("cursor", "not a cursor of this list"))
}

/// A page as JSON text, of the dead letters that `is_shown` selects. `write_message` writes the envelope of each.
pub fn page(
    project: &ProjectHandle,
    page: &Page<DeadLetter>,
    is_shown: impl Fn(&DeadLetter) -> bool,
    write_message: impl Fn(&mut Vec<u8>, &DeadLetter),
) -> Vec<u8> {
    let mut text = JsonPage::new("dead_letters");
    let read = page.items.iter().take_while(|letter| {
        !is_shown(letter)
            || text.push_with(|out| {
                out.extend_from_slice(b"{\"message\":");
                write_message(out, letter);
                out.extend_from_slice(b",\"session_id\":");
                write_json(out, &letter.recipient);
                out.extend_from_slice(b",\"session_name\":");
                write_json(out, &project.recipient_name(letter));
                out.extend_from_slice(b",\"reason\":");
                write_json(out, &letter.reason);
                out.extend_from_slice(b",\"at\":");
                write_json(out, &rfc3339_text(letter.at_ms));
                out.extend_from_slice(b",\"deliveries\":");
                write_json(out, &letter.deliveries);
                out.push(b'}');
            })
    });
    let read = read.count();
    let more = page.more || read < page.items.len();
    let last = page.items[..read].last().filter(|_| more);
    text.finish(last.map(|last| format!("{}_{}", last.message.id, last.recipient)))
}

/// The dead letters that a caller wants to be sent again.
pub struct Redrive {
    messages: Vec<MessageId>,
    unknown: Vec<String>,
}

impl Redrive {
    /// Reads the ids of the messages. A malformed or repeated one counts as unknown.
    ///
    /// # Errors
    /// `InvalidArgument` for too many.
    pub fn new(ids: Vec<String>) -> Result<Self, BrokerError> {
        let (mut messages, mut unknown) = parse_ids(ids)?;
        // A message may have a dead letter per recipient, so a repeated id would multiply the cost.
        let mut seen = HashSet::new();
        messages.retain(|message| {
            let is_first = seen.insert(*message);
            if !is_first {
                unknown.push(message.to_string());
            }
            is_first
        });
        Ok(Self { messages, unknown })
    }

    /// Sends them again: to their recipients, or to another one.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn run(self, project: &ProjectHandle, recipient: Option<SessionId>) -> Result<Redriven, BrokerError> {
        let Self { messages, mut unknown } = self;
        let done = project.redrive(RedriveRequest { messages, recipient }).await?;
        unknown.extend(done.unknown.iter().map(MessageId::to_string));
        let failures = done.refused.iter().map(|(message, refusal)| RedriveFailure {
            message_id: message.to_string(),
            code: match refusal {
                RedriveRefusal::RecipientGone => "session_not_found".to_owned(),
                RedriveRefusal::QueueFull => "queue_full".to_owned(),
            },
        });
        Ok(Redriven {
            redriven: done.sent.len() as u64,
            unknown,
            failures: failures.collect(),
        })
    }
}
