//! Messages by their ids, and what became of them for each recipient.

use actors::{
    clock::rfc3339_text,
    model::{BrokerError, DeliveryStatus, MessageId, RecipientStatus},
};
use serde_json::{Value, json};

use super::arguments::Arguments;

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
    entry
}
