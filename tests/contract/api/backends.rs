//! `/api/v1/backends` of a project to which administrators add servers at a URL. `tests/gateway` has what they serve.

use serde_json::{Value, json};

use super::{assert_refused, stranger};
use crate::support::{Broker, eventually, keys};

#[test]
fn an_added_backend_is_shown_changed_and_removed() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    assert_eq!(team.gets("backends"), json!({"backends": []}));
    let docs = json!({"name": "docs", "url": "http://localhost:9/mcp", "disabled": true});
    let added = team.api("POST", "backends", &docs);
    assert_eq!(added.status, 201, "{added:?}");
    assert_eq!(added.header("location"), Some("/api/v1/backends/docs"));
    let shown = added.json();
    assert_eq!(
        keys(&shown),
        [
            "address",
            "calls",
            "dropped",
            "failures",
            "name",
            "open_calls",
            "origin",
            "processes",
            "prompts",
            "resources",
            "since",
            "starts",
            "state",
            "tools",
            "waiting_calls"
        ]
    );
    assert_eq!(
        (&shown["origin"], &shown["state"], &shown["address"]),
        (&json!("added"), &json!("disabled"), &json!("http://localhost:9/mcp"))
    );
    assert_eq!(team.gets("backends"), json!({"backends": [shown]}));
    assert_refused(&team.api("POST", "backends", &docs), 409, "backend_exists");

    let url = json!({"url": "http://localhost:9/other"});
    let patched = team.api("PATCH", "backends/docs", &url).json();
    assert_eq!(
        (&patched["address"], &patched["state"]),
        (&json!("http://localhost:9/other"), &json!("disabled"))
    );
    let nothing = json!({"url": null});
    assert_refused(&team.api("PATCH", "backends/docs", &nothing), 400, "invalid_argument");
    assert_refused(&team.api("PUT", "backends/docs", &docs), 400, "invalid_argument");
    assert_eq!(team.api("PUT", "backends/docs", &url).status, 200);
    let is_off = || team.gets("backends/docs")["state"] == "disabled";
    assert!(!is_off());
    assert_eq!(team.api("POST", "backends/docs/disable", &Value::Null).status, 200);
    // A start that was under way ends first.
    eventually("it is disabled", || is_off().then_some(()));
    assert_eq!(team.api("POST", "backends/docs/enable", &Value::Null).status, 200);
    assert!(!is_off());

    let stranger = stranger(&broker);
    assert_eq!(team.gets_as(&stranger, "backends"), json!({"backends": []}));
    let of_stranger = team.api_as(&stranger, "DELETE", "backends/docs", &Value::Null);
    assert_refused(&of_stranger, 404, "backend_not_found");
    let removed = team.api("DELETE", "backends/docs", &Value::Null);
    assert_eq!((removed.status, removed.body.as_str()), (204, ""));
    assert_refused(
        &team.api("DELETE", "backends/docs", &Value::Null),
        404,
        "backend_not_found",
    );
    assert_eq!(team.gets("backends"), json!({"backends": []}));
}
