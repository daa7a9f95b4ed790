//! The filter of the log, changed while the broker runs.

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Broker, Response, TIMEOUTS_OFF, eventually};

fn secured() -> Broker {
    Broker::secured_with(&[&TIMEOUTS_OFF[..], &["--log-format=json", "--log-level=info"]].concat())
}

fn changes(broker: &Broker, body: &Value) -> Response {
    broker.rest(ADMIN_KEY, "PUT", "/api/v1/log-level", body)
}

fn shown(broker: &Broker) -> Value {
    broker.rest(ADMIN_KEY, "GET", "/api/v1/log-level", &Value::Null).json()
}

fn debug_lines(broker: &Broker) -> usize {
    broker
        .log()
        .lines()
        .filter(|line| line.contains("\"level\":\"DEBUG\""))
        .count()
}

/// Registers two sessions by one connection, of which the second is logged at level debug.
fn causes_debug_lines(broker: &Broker) {
    let agent = broker.agent("first");
    agent.calls("register_session", json!({"name": "second"}));
}

#[test]
fn an_operator_changes_the_filter_and_the_audit_says_so() {
    let broker = secured();
    assert_eq!(shown(&broker), json!({"filter": "info", "configured": "info"}));
    causes_debug_lines(&broker);
    assert_eq!(debug_lines(&broker), 0);
    let changed = changes(&broker, &json!({"filter": "warn,mcp_broker=debug"}));
    assert_eq!(
        (changed.status, changed.json()["filter"].clone()),
        (200, json!("warn,mcp_broker=debug"))
    );
    causes_debug_lines(&broker);
    eventually("a line at level debug", || (debug_lines(&broker) > 0).then_some(()));
    assert_eq!(changes(&broker, &json!({"filter": "info"})).status, 200);
    let page = eventually("the audit", || {
        let path = "/api/v1/audit?action=log_level.change";
        let page = broker.rest(ADMIN_KEY, "GET", path, &Value::Null).json();
        (page["entries"].as_array().is_some_and(|entries| entries.len() == 2)).then_some(page)
    });
    let entry = &page["entries"][1];
    assert_eq!(
        (&entry["target"], &entry["outcome"]),
        (&json!("warn,mcp_broker=debug"), &json!("done")),
        "{page}"
    );
}

#[test]
fn a_filter_for_a_time_ends_by_itself() {
    let broker = secured();
    let changed = changes(&broker, &json!({"filter": "debug", "for_seconds": 1})).json();
    assert_eq!(
        (&changed["filter"], &changed["configured"]),
        (&json!("debug"), &json!("info"))
    );
    assert!(changed["until"].is_string(), "{changed}");
    let is_back = json!({"filter": "info", "configured": "info"});
    eventually("the configured filter", || (shown(&broker) == is_back).then_some(()));
    // A later change is not ended by an earlier one.
    changes(&broker, &json!({"filter": "debug", "for_seconds": 1}));
    changes(&broker, &json!({"filter": "warn", "for_seconds": 3600}));
    assert_eq!(shown(&broker)["filter"], "warn");
}

#[test]
fn what_is_no_filter_is_refused_and_changes_nothing() {
    let broker = secured();
    for (body, named) in [
        (json!({"filter": "loud"}), "filter"),
        (json!({"filter": ""}), "filter"),
        (json!({"filter": "info,[request]=debug"}), "filter"),
        (json!({"filter": format!("info,{}=debug", "x".repeat(1024))}), "filter"),
        (json!({"filter": "info", "for_seconds": 0}), "for_seconds"),
        (json!({"filter": "info", "for_seconds": 86_401}), "for_seconds"),
        (json!({"filter": "info", "forever": true}), "forever"),
        (json!({}), "filter"),
    ] {
        let refused = changes(&broker, &body);
        assert_eq!(refused.problem(), (400, "invalid_argument".to_owned()), "{body}");
        assert!(
            refused.json()["detail"].as_str().unwrap().contains(named),
            "{}",
            refused.json()
        );
    }
    assert_eq!(shown(&broker), json!({"filter": "info", "configured": "info"}));
}
