//! The history of messages: writes the envelopes that the event log keeps.

use actors::{
    model::{AcceptedMessage, BrokerError, LoggedRecipients, MessageId, excerpt},
    project::{EnvelopePage, ProjectHandle},
    storage::EventPosition,
};

use super::messages::payload_text;
use common::json::{page::JsonPage, write_json};

/// Bytes of a payload that a page of envelopes shows; a larger one is left out.
pub const PAYLOAD_LEN_MAX: usize = 256 << 10;

/// The argument `cursor` of a list of messages.
///
/// # Errors
/// `InvalidArgument` for another text.
pub fn parse_cursor(text: &str) -> Result<EventPosition, BrokerError> {
    text.parse()
        .map_err(|_| BrokerError::invalid("cursor", "not a cursor of this list"))
}

/// The text of the payload, if the log or the store keeps it.
///
/// # Errors
/// `unavailable`.
pub async fn payload_of(project: &ProjectHandle, accepted: &AcceptedMessage) -> Result<Option<String>, BrokerError> {
    if let Some(payload) = &accepted.payload {
        return Ok(Some(payload.clone()));
    }
    let kept = project.kept_message(accepted.message).await?;
    Ok(kept.and_then(|message| payload_text(&message)))
}

/// Bytes of payloads that one page of excerpts reads, unless its last message has more.
pub const EXCERPTS_READ_MAX: usize = 4 << 20;

/// The first words of payloads, for one page.
#[derive(Default)]
pub struct Excerpts {
    read: usize,
}

impl Excerpts {
    /// The first words of a message, if the log or the store keeps its payload.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn of(
        &mut self,
        project: &ProjectHandle,
        accepted: &AcceptedMessage,
    ) -> Result<Option<String>, BrokerError> {
        if let Some(payload) = &accepted.payload {
            return Ok(Some(excerpt(payload)));
        }
        self.of_kept(project, accepted.message).await
    }

    /// The first words of a message, if the store keeps it.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn of_kept(
        &mut self,
        project: &ProjectHandle,
        message: MessageId,
    ) -> Result<Option<String>, BrokerError> {
        if self.is_full() {
            return Ok(None);
        }
        let kept = project.kept_message(message).await?;
        let payload = kept.and_then(|message| payload_text(&message));
        self.read += payload.as_ref().map_or(0, String::len);
        Ok(payload.as_deref().map(excerpt))
    }

    /// Whether the page has read as much as it may.
    pub const fn is_full(&self) -> bool {
        self.read >= EXCERPTS_READ_MAX
    }
}

/// Appends the envelope with the member `recipient_name`: the name that its only recipient has now.
pub fn write_envelope(out: &mut Vec<u8>, project: &ProjectHandle, accepted: &AcceptedMessage, payload: Option<&str>) {
    accepted.write_envelope(project.id(), payload, out);
    out.pop();
    let recipient = match accepted.recipients {
        LoggedRecipients::One(session) => project.session(session),
        LoggedRecipients::Many(_) => None,
    };
    out.extend_from_slice(b",\"recipient_name\":");
    write_json(out, &recipient.and_then(|member| member.record.name.clone()));
    out.push(b'}');
}

/// Writes a page of envelopes: `{messages, payloads_kept, next_cursor}`. With `with_payloads` it has the payloads that are kept and have
/// at most [`PAYLOAD_LEN_MAX`] bytes.
///
/// # Errors
/// `unavailable`.
pub async fn write_page(
    project: &ProjectHandle,
    page: &EnvelopePage,
    with_payloads: bool,
) -> Result<Vec<u8>, BrokerError> {
    let mut text = JsonPage::new("messages").with("payloads_kept", &project.settings().keeps_payloads);
    let mut shown = None;
    for (position, accepted) in &page.messages {
        let payload = if with_payloads {
            payload_of(project, accepted).await?
        } else {
            None
        };
        let payload = payload.filter(|payload| payload.len() <= PAYLOAD_LEN_MAX);
        if !text.push_with(|out| write_envelope(out, project, accepted, payload.as_deref())) {
            return Ok(text.finish(shown));
        }
        shown = Some(position.to_string());
    }
    Ok(text.finish(page.next.map(|position| position.to_string())))
}
