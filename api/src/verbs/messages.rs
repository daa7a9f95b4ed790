//! Messages by their ids, and what became of them for each recipient.

use std::sync::Arc;

use actors::{
    clock::rfc3339_text,
    model::{
        BrokerError, DeliveryStatus, Message, MessageId, NOTE_CHARACTERS_MAX, Outcome, OutcomeKind, ProtocolName,
        RecipientStatus,
    },
    project::ProjectHandle,
    storage::Acknowledge,
};
use serde_json::{Value, json};

use super::arguments::Arguments;
use common::json::{
    scan::{self, ScanError},
    write_json,
};

/// Ids that one call names.
pub const IDS_LEN_MAX: usize = 10_000;
/// Bytes of their JSON: 39 per id, with room for white space.
pub const IDS_BYTES_MAX: usize = 64 * IDS_LEN_MAX;

/// The argument `message_ids`.
///
/// # Errors
/// `InvalidArgument` if it is absent, too long, or no list of strings.
pub fn read_ids(arguments: &mut Arguments<'_>) -> Result<Vec<String>, BrokerError> {
    let texts = arguments.optional_within::<Vec<String>>("message_ids", IDS_BYTES_MAX)?;
    texts.ok_or_else(|| BrokerError::invalid("message_ids", "required"))
}

/// Parses message ids; returns malformed ones separately.
///
/// # Errors
/// `InvalidArgument` for more than [`IDS_LEN_MAX`].
pub fn parse_ids(texts: Vec<String>) -> Result<(Vec<MessageId>, Vec<String>), BrokerError> {
    if texts.len() > IDS_LEN_MAX {
        return Err(BrokerError::invalid("message_ids", format!("at most {IDS_LEN_MAX}")));
    }
    let mut unknown = Vec::new();
    let ids = texts
        .into_iter()
        .filter_map(|text| {
            let id = MessageId::parse(&text);
            if id.is_none() {
                unknown.push(text);
            }
            id
        })
        .collect();
    Ok((ids, unknown))
}

/// Writes the envelope of a message as a JSON object; without its payload unless `with_payload`.
pub fn write_envelope(out: &mut Vec<u8>, message: &Message, deliveries: u32, with_payload: bool) {
    if with_payload {
        return message.write(out, deliveries);
    }
    let mut whole = Vec::with_capacity(message.encoded_len(deliveries));
    message.write(&mut whole, deliveries);
    let text = String::from_utf8(whole).unwrap_or_default();
    out.push(b'{');
    // The broker encoded the envelope, so it is an object.
    let _ = scan::members::<ScanError>(&text, |name, value| {
        if name != "payload" {
            if !out.ends_with(b"{") {
                out.push(b',');
            }
            write_json(out, &name);
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
        Ok(())
    });
    out.push(b'}');
}

/// The JSON text of the payload.
pub fn payload_text(message: &Message) -> Option<String> {
    if let Some(fragments) = message.fragments() {
        return String::from_utf8(fragments.payload.to_vec()).ok();
    }
    member(&envelope_text(message)?, "payload")
}

/// Whether a message is of this protocol.
pub fn is_of_protocol(message: &Message, protocol: &ProtocolName) -> bool {
    let text = match message.fragments() {
        Some(fragments) => {
            let head = std::str::from_utf8(fragments.head).ok();
            head.map(|head| format!("{{\"sender_name\":{head}}}"))
        }
        None => envelope_text(message),
    };
    let name = text.and_then(|text| member(&text, "protocol_name"));
    name.is_some_and(|name| name.trim_matches('"') == protocol.as_str())
}

fn envelope_text(message: &Message) -> Option<String> {
    let mut whole = Vec::with_capacity(message.encoded_len(0));
    message.write(&mut whole, 0);
    String::from_utf8(whole).ok()
}

/// The JSON text of a member of an object that the broker has encoded.
fn member(object: &str, wanted: &str) -> Option<String> {
    let mut found = None;
    let _ = scan::members::<ScanError>(object, |name, value| {
        if name == wanted {
            found = Some(value.to_owned());
        }
        Ok(())
    });
    found
}

/// What became of a message for one recipient.
pub fn recipient_json(recipient: &RecipientStatus) -> Value {
    let mut entry = json!({
        "session_id": recipient.session,
        "status": recipient.status.as_str(),
        "at": rfc3339_text(recipient.at_ms),
    });
    match recipient.status {
        DeliveryStatus::DeadLettered(reason) => entry["reason"] = json!(reason),
        DeliveryStatus::Expired => entry["reason"] = json!("expired"),
        _ => {}
    }
    if let Some(outcome) = &recipient.outcome {
        entry["outcome"] = json!(outcome.kind);
        if !outcome.note.is_empty() {
            entry["note"] = json!(outcome.note);
        }
    }
    if let Some(transformed) = &recipient.transformed {
        entry["transformed"] = json!(transformed);
    }
    entry
}

/// Messages that one call acknowledges with an outcome: each keeps the note.
pub const CONCLUDED_LEN_MAX: usize = 100;

/// The arguments `outcome` and `note`; None without an outcome.
///
/// # Errors
/// `InvalidArgument` for an unknown outcome, a note without an outcome, and a note that is too long.
pub fn read_outcome(arguments: &mut Arguments<'_>) -> Result<Option<Arc<Outcome>>, BrokerError> {
    let kind = arguments.text("outcome")?;
    let note = arguments.text("note")?.unwrap_or_default();
    let Some(kind) = kind else {
        return if note.is_empty() {
            Ok(None)
        } else {
            Err(BrokerError::invalid(
                "note",
                "needs an outcome: done, blocked or rejected",
            ))
        };
    };
    let kind =
        OutcomeKind::of_recipient(&kind).ok_or_else(|| BrokerError::invalid("outcome", "done, blocked or rejected"))?;
    if note.chars().count() > NOTE_CHARACTERS_MAX {
        return Err(BrokerError::invalid(
            "note",
            format!("at most {NOTE_CHARACTERS_MAX} characters"),
        ));
    }
    Ok(Some(Outcome::new(kind, &note)))
}

/// What `acknowledge_messages` acknowledges.
///
/// # Errors
/// `InvalidArgument` for more than [`CONCLUDED_LEN_MAX`] messages with an outcome.
pub fn acknowledgement_of(ids: Vec<MessageId>, outcome: Option<Arc<Outcome>>) -> Result<Acknowledge, BrokerError> {
    match outcome {
        None => Ok(Acknowledge::Ids(ids)),
        Some(_) if ids.len() > CONCLUDED_LEN_MAX => {
            let reason = format!("at most {CONCLUDED_LEN_MAX} with an outcome");
            Err(BrokerError::invalid("message_ids", reason))
        }
        Some(outcome) => Ok(Acknowledge::Concluded(ids, outcome)),
    }
}

/// The last wakes of a recipient while the message waited: `[{at, rung, result}]`, the oldest first. None if there is none.
pub fn wakes_json(project: &ProjectHandle, message: MessageId, recipient: &RecipientStatus) -> Option<Value> {
    let member = project.directory().by_id(recipient.session)?;
    let until_ms = match recipient.status {
        DeliveryStatus::Queued => u64::MAX,
        _ => recipient.at_ms,
    };
    let wakes = member.shared.wakes().between(message.accepted_ms(), until_ms);
    let wakes: Vec<_> = wakes
        .iter()
        .map(|wake| json!({"at": rfc3339_text(wake.at_ms), "rung": wake.rung, "result": wake.result}))
        .collect();
    (!wakes.is_empty()).then(|| json!(wakes))
}
