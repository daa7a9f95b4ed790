//! Projects: their records, keys, limits and grants, and messages from one to another.

mod cross_project;
mod grants;
mod keys;
mod limits;
mod records;

use serde_json::{Value, json};

use crate::support::{Agent, Broker, HttpAgent};

type ToolCall = Box<dyn Fn(&str, Value) -> Value>;

/// The tools on every transport, called with this key.
fn tool_callers(broker: &Broker, key: &str) -> [ToolCall; 4] {
    let headers = [("X-API-Key", key)];
    let legacy = Agent::legacy(broker.wire_with(&headers), "2025-11-25", &json!({}));
    let modern = Agent::modern(broker.wire_with(&headers), json!({}));
    let stateless = HttpAgent::modern_with(broker.address, json!({}), &headers);
    let resumable = HttpAgent::legacy_with(broker.address, "2025-11-25", json!({}), &headers);
    [
        Box::new(move |tool, arguments| legacy.calls(tool, arguments)),
        Box::new(move |tool, arguments| modern.calls(tool, arguments)),
        Box::new(move |tool, arguments| stateless.calls(tool, arguments)),
        Box::new(move |tool, arguments| resumable.calls(tool, arguments)),
    ]
}

fn get(broker: &Broker, key: &str, path: &str) -> (u16, Value) {
    let response = broker.rest(key, "GET", path, &Value::Null);
    (response.status, response.json())
}

/// Whether a key is accepted.
fn is_accepted(broker: &Broker, key: &str) -> bool {
    match get(broker, key, "/api/v1/projects").0 {
        200 => true,
        401 => false,
        other => panic!("{other}"),
    }
}
