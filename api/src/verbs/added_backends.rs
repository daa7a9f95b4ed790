//! The backends that administrators add to a project: their tables from JSON, and their changes.

use actors::{
    gateway::GatewayHandle,
    model::{BackendName, BrokerError},
    project::ProjectHandle,
    storage::BACKEND_TABLE_BYTES_MAX,
};
use serde_json::{Map, Value, json};

use super::arguments::Arguments;

/// The keys of a table.
pub type Table = Map<String, Value>;

fn gateway(project: &ProjectHandle) -> Result<&GatewayHandle, BrokerError> {
    project.gateway().ok_or(BrokerError::unavailable())
}

/// The table that the arguments are which were not taken yet.
///
/// # Errors
/// `payload_too_large`, or `invalid_argument` for one that is no JSON.
pub fn table_of(arguments: Arguments<'_>) -> Result<Table, BrokerError> {
    let limit = BACKEND_TABLE_BYTES_MAX;
    if arguments.bytes() > limit {
        return Err(BrokerError::PayloadTooLarge { limit });
    }
    arguments.rest()
}

/// Adds a backend. Returns once it is stored and served.
///
/// # Errors
/// As [`GatewayHandle::add_backend`].
pub async fn add(project: &ProjectHandle, name: &str, table: Table) -> Result<(), BrokerError> {
    let name = BackendName::parse(name)?;
    let table = Value::Object(table).to_string();
    gateway(project)?.add_backend(&name, &table).await
}

/// Replaces the table of an added backend. Returns once it is stored and served.
///
/// # Errors
/// As [`GatewayHandle::change_backend`].
pub async fn replace(project: &ProjectHandle, name: &str, table: Table) -> Result<(), BrokerError> {
    let table = Value::Object(table).to_string();
    let replaced = gateway(project)?.change_backend(name, |_| Ok(Some(table.clone())));
    replaced.await
}

/// Changes some keys of an added backend (RFC 7396). Returns once that is stored and served.
///
/// # Errors
/// As [`GatewayHandle::change_backend`].
pub async fn merge(project: &ProjectHandle, name: &str, patch: Table) -> Result<(), BrokerError> {
    let patch = Value::Object(patch);
    let merged = gateway(project)?.change_backend(name, |stored| {
        // What is stored was written from an object.
        let mut table = serde_json::from_str(stored).map_err(|_| BrokerError::unavailable())?;
        check_secrets(&table, &patch)?;
        merge_patch(&mut table, patch.clone());
        Ok(Some(table.to_string()))
    });
    merged.await
}

/// Switches an added backend off or on.
///
/// # Errors
/// As [`GatewayHandle::change_backend`].
pub async fn switch(project: &ProjectHandle, name: &str, is_disabled: bool) -> Result<(), BrokerError> {
    let patch = Map::from_iter([("disabled".to_owned(), json!(is_disabled))]);
    merge(project, name, patch).await
}

/// Removes an added backend. Returns once that is stored.
///
/// # Errors
/// As [`GatewayHandle::change_backend`].
pub async fn remove(project: &ProjectHandle, name: &str) -> Result<(), BrokerError> {
    gateway(project)?.change_backend(name, |_| Ok(None)).await
}

/// Checks that a patch does not send stored headers to another server: who makes it need not know them.
///
/// # Errors
/// `invalid_argument`: it does.
fn check_secrets(table: &Value, patch: &Value) -> Result<(), BrokerError> {
    let is_other = patch.get("url").is_some_and(|url| table.get("url") != Some(url));
    let are_kept = table.get("headers").is_some() && !patch.get("headers").is_some_and(Value::is_null);
    if is_other && are_kept {
        let reason = "they would go to another url: set them to null, or replace the backend by PUT";
        return Err(BrokerError::invalid("headers", reason));
    }
    Ok(())
}

/// Applies a merge patch. It is as deep as the JSON of a request may be.
fn merge_patch(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(members) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            members.remove(&key);
        } else {
            merge_patch(members.entry(key).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_sends_no_stored_header_elsewhere() {
        let table = json!({"url": "http://a", "headers": {"Authorization": "x"}, "call_timeout": "5s"});
        for (patch, is_allowed) in [
            (json!({"call_timeout": "6s"}), true),
            (json!({"url": "http://a", "headers": {"X": "y"}}), true),
            (json!({"url": "http://b", "headers": null}), true),
            (json!({"url": "http://b"}), false),
            (json!({"url": "http://b", "headers": {"X": "y"}}), false),
        ] {
            assert_eq!(check_secrets(&table, &patch).is_ok(), is_allowed, "{patch}");
        }
        assert!(check_secrets(&json!({"url": "http://a"}), &json!({"url": "http://b"})).is_ok());
    }

    #[test]
    fn a_patch_replaces_adds_and_removes_members() {
        // The examples of RFC 7396, appendix A.
        for (mut target, patch, merged) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            merge_patch(&mut target, patch);
            assert_eq!(target, merged);
        }
    }
}
