//! The history of messages: writes the envelopes that the event log keeps.

use actors::{
    model::{AcceptedMessage, BrokerError, LoggedRecipients},
    project::{EnvelopePage, ProjectHandle},
    storage::EventPosition,
};

use super::messages::payload_text;
use crate::json::{page::JsonPage, write_json};

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
