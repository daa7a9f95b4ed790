//! What a verb refused, as callers of every surface are told it.

use actors::{
    clock::millis,
    model::{BrokerError, Side, Wall},
};
use serde_json::{Value, json};

/// The error object of the contract, section 7. The one place where a refusal becomes words for a client.
pub fn error_object(error: &BrokerError) -> Value {
    let mut object = json!({"code": error.code(), "message": error.to_string()});
    let detail = error_detail(error);
    if !detail.is_null() {
        object["detail"] = detail;
    }
    if let Some(retry_after) = error.retry_after() {
        object["retry_after_ms"] = json!(millis(retry_after));
    }
    object
}

/// What a refusal tells beside its words; null for nothing.
pub fn error_detail(error: &BrokerError) -> Value {
    match error {
        BrokerError::PayloadInvalid { failures } => {
            let failures: Vec<_> = failures
                .iter()
                .map(|failure| json!({"path": failure.path, "reason": failure.reason}))
                .collect();
            json!({"failures": failures})
        }
        BrokerError::IncompatibleProtocol {
            recipient,
            name,
            version,
            speaks,
        } => {
            json!({"recipient": recipient, "protocol": name, "version": version, "speaks": speaks})
        }
        BrokerError::QueueFull { limit } | BrokerError::PayloadTooLarge { limit } => json!({"limit": limit}),
        BrokerError::InvalidArgument { field, .. } => json!({"argument": field}),
        BrokerError::ProtocolNotFound { name, version } => json!({"name": name, "version": version}),
        BrokerError::ProtocolExists { name, version } => json!({"name": name, "version": version}),
        BrokerError::ProjectExists { id } => json!({"project_id": id}),
        BrokerError::CrossProjectDisabled { side } => json!({"project": match side {
            Side::Own => "own",
            Side::Target => "target",
        }}),
        BrokerError::CrossProjectForbidden { wall } => json!({"missing": match wall {
            Wall::Permission => "permission",
            Wall::Protocol => "protocol",
        }}),
        _ => Value::Null,
    }
}
