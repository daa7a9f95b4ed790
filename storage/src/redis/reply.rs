//! Takes the replies of the functions apart.

use actors::{
    model::{DeadLetterReason, DeliveryStatus, MessageId, ProjectId, SessionId},
    storage::{Depth, StoreError},
};
use deadpool_redis::redis::Value;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::error::Failure;

/// The answer to an operation that is queued.
pub(super) type PendingReply = oneshot::Receiver<Result<Reply, StoreError>>;

/// The parts of one reply, in their order.
#[derive(Debug)]
pub(super) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    /// # Errors
    /// The error that the operation reports instead of an array.
    pub fn new(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(parts) => Ok(Self(parts.into_iter())),
            Value::BulkString(text) if text.first() == Some(&b'!') => {
                let text = String::from_utf8_lossy(&text[1..]).into_owned();
                let code = text.split(' ').next().unwrap_or_default().to_owned();
                Err(Failure::from_server(&code, text).into())
            }
            other => Err(unexpected_kind(&other)),
        }
    }

    /// Copies the depth of the reply to an acknowledgement, with nothing acknowledged: for an earlier request that was
    /// merged into the same operation.
    pub fn depth_only(&self) -> Self {
        let depth = self.0.as_slice().get(1..3).unwrap_or_default();
        let parts = [&[Value::Int(0)], depth, &[Value::Int(0)]].concat();
        Self(parts.into_iter())
    }

    /// The next part.
    pub fn next(&mut self) -> Option<Value> {
        self.0.next()
    }

    fn part(&mut self) -> Result<Value, StoreError> {
        self.next().ok_or_else(|| unexpected_kind(&Value::Nil))
    }

    /// # Errors
    /// When the next part is not a number.
    pub fn int(&mut self) -> Result<i64, StoreError> {
        match self.part()? {
            Value::Int(number) => Ok(number),
            other => Err(unexpected_kind(&other)),
        }
    }

    /// # Errors
    /// When the next part is not a number, or below 0.
    pub fn len(&mut self) -> Result<usize, StoreError> {
        let number = self.int()?;
        usize::try_from(number).map_err(|_| unexpected_kind(&Value::Int(number)))
    }

    /// # Errors
    /// When the next part is not text.
    pub fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        into_bytes(self.part()?)
    }

    /// # Errors
    /// When the next part is not the id of a session.
    pub fn session(&mut self) -> Result<SessionId, StoreError> {
        parse_session(&self.bytes()?)
    }

    /// # Errors
    /// When the next part is not the id of a message.
    pub fn message(&mut self) -> Result<MessageId, StoreError> {
        parse_message(&self.bytes()?)
    }

    /// # Errors
    /// When the next two parts are not the number of messages that wait and of those in flight.
    pub fn depth(&mut self) -> Result<Depth, StoreError> {
        Ok(Depth {
            waiting: self.len()?,
            leased: self.len()?,
        })
    }

    /// # Errors
    /// When the next part is not a number as text, or below 0.
    pub fn number(&mut self) -> Result<u64, StoreError> {
        parse_number(&self.bytes()?)
    }

    /// # Errors
    /// When the next part is not a number of deliveries.
    pub fn deliveries(&mut self) -> Result<u32, StoreError> {
        Ok(u32::try_from(self.number()?).unwrap_or(u32::MAX))
    }

    /// None for a message that does not exist any longer.
    ///
    /// # Errors
    /// When the next part is neither text nor nil.
    pub fn optional_bytes(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.part()? {
            Value::Nil => Ok(None),
            text => into_bytes(text).map(Some),
        }
    }

    /// The remaining parts.
    ///
    /// # Errors
    /// When one of them is not such a record.
    pub fn records<T: serde::de::DeserializeOwned>(&mut self) -> Result<Vec<T>, StoreError> {
        let mut records = Vec::new();
        while let Some(record) = self.record()? {
            records.push(record);
        }
        Ok(records)
    }

    /// None at the end.
    ///
    /// # Errors
    /// When the next part is not such a record.
    pub fn record<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, StoreError> {
        self.next().map(|value| parse_json(&into_bytes(value)?)).transpose()
    }

    /// The remaining parts.
    ///
    /// # Errors
    /// When one of them is not the id of a project.
    pub fn projects(&mut self) -> Result<Vec<ProjectId>, StoreError> {
        self.0
            .by_ref()
            .map(|value| parse_project(&into_bytes(value)?))
            .collect()
    }

    /// Whether no part is left.
    pub fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }
}

/// The messages that the reply to an acknowledgement calls unknown.
pub(super) fn unknown_messages(reply: &Value) -> Vec<MessageId> {
    let Value::Array(parts) = reply else {
        return Vec::new();
    };
    let Some((Value::Int(len), rest)) = parts.get(3..).and_then(<[Value]>::split_first) else {
        return Vec::new();
    };
    let unknown = rest.iter().take(usize::try_from(*len).unwrap_or(0));
    unknown
        .filter_map(|id| match id {
            Value::BulkString(id) => parse_message(id).ok(),
            _ => None,
        })
        .collect()
}

/// These messages without the unknown ones. An id that was given twice is unknown the second time.
pub(super) fn without(messages: &[MessageId], mut unknown: Vec<MessageId>) -> impl Iterator<Item = MessageId> {
    messages.iter().copied().filter(move |message| {
        let found = unknown.iter().position(|other| other == message);
        found.map(|at| unknown.swap_remove(at)).is_none()
    })
}

/// Packed ids.
///
/// # Errors
/// When these are none.
pub(super) fn parse_messages(packed: &[u8]) -> Result<Vec<MessageId>, StoreError> {
    packed.chunks(16).map(parse_message).collect()
}

/// The bytes of a text or number.
pub(super) fn into_bytes(value: Value) -> Result<Vec<u8>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::Int(number) => Ok(number.to_string().into_bytes()),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        other => Err(unexpected_kind(&other)),
    }
}

/// Reads the id of a session, as text.
pub(super) fn parse_session(text: &[u8]) -> Result<SessionId, StoreError> {
    let parsed = std::str::from_utf8(text).ok().and_then(SessionId::parse);
    parsed.ok_or_else(|| unreadable("the id of a session"))
}

/// Reads the id of a message, as bytes.
pub(super) fn parse_message(bytes: &[u8]) -> Result<MessageId, StoreError> {
    let uuid = Uuid::from_slice(bytes).map_err(|_| unreadable("the id of a message"))?;
    Ok(MessageId::from_uuid(uuid))
}

/// Reads the id of a project.
pub(super) fn parse_project(text: &[u8]) -> Result<ProjectId, StoreError> {
    let parsed = std::str::from_utf8(text)
        .ok()
        .and_then(|text| ProjectId::parse(text).ok());
    parsed.ok_or_else(|| unreadable("the id of a project"))
}

/// Reads a number, as text.
pub(super) fn parse_number(text: &[u8]) -> Result<u64, StoreError> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| unreadable("a number"))
}

/// Reads a record.
pub(super) fn parse_json<T: serde::de::DeserializeOwned>(text: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(text).map_err(|error| unreadable(&format!("a record ({error})")))
}

/// The code of a status in receipts and results.
pub(super) const fn status_code(status: DeliveryStatus) -> char {
    match status {
        DeliveryStatus::Queued => 'q',
        DeliveryStatus::Delivered => 'd',
        DeliveryStatus::Acknowledged => 'a',
        DeliveryStatus::Expired => 'x',
        DeliveryStatus::DeadLettered(DeadLetterReason::Expired) => 'e',
        DeliveryStatus::DeadLettered(reason) => reason_code(reason),
    }
}

/// Reads the code of a status.
pub(super) fn parse_status(code: &[u8]) -> Result<DeliveryStatus, StoreError> {
    Ok(match code {
        b"q" => DeliveryStatus::Queued,
        b"d" => DeliveryStatus::Delivered,
        b"a" => DeliveryStatus::Acknowledged,
        b"x" => DeliveryStatus::Expired,
        b"e" => DeliveryStatus::DeadLettered(DeadLetterReason::Expired),
        other => DeliveryStatus::DeadLettered(parse_reason(other)?),
    })
}

/// The code of a reason in dead letters and their receipts.
pub(super) const fn reason_code(reason: DeadLetterReason) -> char {
    match reason {
        DeadLetterReason::Expired => 'x',
        DeadLetterReason::DeliveryLimit => 'l',
        DeadLetterReason::RecipientGone => 'g',
        DeadLetterReason::Rejected => 'r',
        DeadLetterReason::TransformFailed => 't',
    }
}

/// Reads the code of a reason.
pub(super) fn parse_reason(code: &[u8]) -> Result<DeadLetterReason, StoreError> {
    match code {
        b"x" => Ok(DeadLetterReason::Expired),
        b"l" => Ok(DeadLetterReason::DeliveryLimit),
        b"g" => Ok(DeadLetterReason::RecipientGone),
        b"r" => Ok(DeadLetterReason::Rejected),
        b"t" => Ok(DeadLetterReason::TransformFailed),
        _ => Err(unreadable("a status")),
    }
}

fn unexpected_kind(value: &Value) -> StoreError {
    unreadable(&format!("an answer of another kind ({value:?})"))
}

/// The error of data that this build cannot read.
pub(super) fn unreadable(what: &str) -> StoreError {
    StoreError::Unreachable(format!("what Redis holds cannot be read: {what}"))
}
