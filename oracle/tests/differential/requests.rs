//! The valid requests, which `mutations` then changes.

use mcp_broker_oracle::sdk::{PROMPT, READ_RESOURCE, SUBSCRIBED_RESOURCE};
use serde_json::{Value, json};
use test_client::{
    http::Request,
    mcp::{self, LEGACY, MODERN},
};

/// Placeholder for the id of a session that is opened for the request.
pub const SESSION: &str = "{session}";
/// Placeholder for the origin of a page that the server itself serves.
pub const ORIGIN: &str = "{origin}";
/// A tool that both servers have.
const TOOL: &str = "list_sessions";

/// A request and the session that it needs.
#[derive(Clone)]
pub struct Draft {
    pub request: Request,
    /// The protocol version of the session to open first.
    pub session: Option<&'static str>,
}

/// Every valid request, by its name.
pub fn all() -> Vec<(String, Draft)> {
    let mut all = Vec::new();
    for (method, params) in methods() {
        let request = mcp::modern(&json!(7), method, params.clone());
        all.push((format!("modern {method}"), Draft { request, session: None }));
    }
    for (name, message) in [
        (
            "a notification",
            mcp::notification("notifications/cancelled", &json!({"requestId": 5})),
        ),
        (
            "an unknown notification",
            mcp::notification("notifications/unknown", &json!({})),
        ),
        ("a response", json!({"jsonrpc": "2.0", "id": 7, "result": {}})),
        (
            "an error",
            json!({"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}}),
        ),
    ] {
        let mut request = mcp::modern(&json!(7), "x", json!({}));
        if let Some(method) = message["method"].as_str() {
            request.set("Mcp-Method", method);
        } else {
            request.remove("Mcp-Method");
        }
        request.body = message.to_string().into_bytes();
        all.push((format!("modern {name}"), Draft { request, session: None }));
    }
    for method in ["GET", "DELETE"] {
        let headers = [("Accept", "text/event-stream"), ("MCP-Protocol-Version", MODERN)];
        let request = Request::new(method, "/mcp", &headers, "");
        all.push((format!("modern {method}"), Draft { request, session: None }));
    }
    for version in [
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        LEGACY,
        MODERN,
        "2099-01-01",
        "",
    ] {
        let request = mcp::initialize(&json!(7), version);
        all.push((format!("initialize {version:?}"), Draft { request, session: None }));
    }
    all.extend(in_session(LEGACY, &methods()));
    // The revision with batches; one method of each kind.
    let few = [
        "server/discover",
        "tools/call",
        "resources/read",
        "resources/subscribe",
        "ping",
        "unknown/method",
    ];
    let few: Vec<_> = methods()
        .into_iter()
        .filter(|(method, _)| few.contains(method))
        .collect();
    all.extend(in_session("2025-03-26", &few));
    all
}

fn in_session(version: &'static str, methods: &[(&str, Value)]) -> Vec<(String, Draft)> {
    let mut all = Vec::new();
    let mut add = |name: &str, request: Request| {
        let draft = Draft {
            request,
            session: Some(version),
        };
        all.push((format!("{version} {name}"), draft));
    };
    for (method, params) in methods {
        let message = mcp::request(&json!(7), method, params);
        add(method, mcp::legacy(version, SESSION, &message));
    }
    let mut again = mcp::initialize(&json!(7), version);
    again.add("Mcp-Session-Id", SESSION);
    add("initialize again", again);
    for (name, message) in [
        (
            "initialized again",
            mcp::notification("notifications/initialized", &json!({})),
        ),
        (
            "a notification",
            mcp::notification("notifications/cancelled", &json!({"requestId": 5})),
        ),
        (
            "an unknown notification",
            mcp::notification("notifications/unknown", &json!({})),
        ),
        (
            "roots/list_changed",
            mcp::notification("notifications/roots/list_changed", &json!({})),
        ),
        ("a response", json!({"jsonrpc": "2.0", "id": 7, "result": {}})),
        (
            "an error",
            json!({"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}}),
        ),
    ] {
        add(name, mcp::legacy(version, SESSION, &message));
    }
    for method in ["GET", "DELETE"] {
        let mut request = mcp::legacy(version, SESSION, &Value::Null);
        method.clone_into(&mut request.method);
        request.set("Accept", "text/event-stream");
        request.remove("Content-Type");
        request.body.clear();
        add(method, request);
    }
    all
}

/// Methods of both eras, of one era, and of neither.
fn methods() -> Vec<(&'static str, Value)> {
    let notifications = json!({"toolsListChanged": true, "resourceSubscriptions": [SUBSCRIBED_RESOURCE]});
    vec![
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("tools/call", json!({"name": TOOL, "arguments": {}})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": READ_RESOURCE})),
        ("resources/subscribe", json!({"uri": SUBSCRIBED_RESOURCE})),
        ("resources/unsubscribe", json!({"uri": SUBSCRIBED_RESOURCE})),
        ("subscriptions/listen", json!({"notifications": notifications})),
        ("ping", json!({})),
        ("logging/setLevel", json!({"level": "info"})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": PROMPT})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": PROMPT}, "argument": {"name": "name", "value": ""}}),
        ),
        ("tasks/get", json!({"taskId": "x"})),
        ("tasks/cancel", json!({"taskId": "x"})),
        ("tasks/list", json!({})),
        ("roots/list", json!({})),
        ("unknown/method", json!({})),
        ("Tools/List", json!({})),
        ("notifications/initialized", json!({})),
    ]
}
