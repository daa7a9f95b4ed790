//! The instructions of backends, in the handshakes of both eras.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, introduction, tool_names},
    support::Agent,
};

/// What comes after the instructions of the broker in both handshakes.
fn instructions(gateway: &Gateway) -> String {
    tool_names(&gateway.legacy());
    let legacy = gateway.wire().request("initialize", introduction()).unwrap();
    let modern = gateway.modern_http().request("server/discover", json!({})).unwrap();
    assert_eq!(legacy["instructions"], modern["instructions"]);
    assert_eq!(modern["cacheScope"], "private", "not every caller may use backends");
    let text = legacy["instructions"].as_str().unwrap();
    assert!(text.starts_with("This broker connects you"), "{text}");
    text.split_once("\n\n# ")
        .map(|(_, rest)| rest.to_owned())
        .unwrap_or_default()
}

#[test]
fn those_of_all_backends_are_shown_in_the_order_of_names() {
    let gateway = Plan::new()
        .backend("two", &["--era", "modern"])
        .backend("one", &["--instructions", "Ask for one thing."])
        .backend_with("quiet", &[], "instructions = false")
        .backend("silent", &["--instructions", "  "])
        .start();
    assert_eq!(
        instructions(&gateway),
        "one\n\nAsk for one thing.\n\n# two\n\nUse the fake tools."
    );
}

#[test]
fn long_ones_are_cut_on_a_character() {
    let long = "ü".repeat(3_000);
    let plan = ["a", "b", "c", "d", "e"]
        .iter()
        .fold(Plan::new(), |plan, name| plan.backend(name, &["--instructions", &long]));
    let text = instructions(&plan.start());
    assert!(text.len() <= 8 * 1024 && text.len() > 8 * 1024 - 200, "{}", text.len());
    let parts: Vec<_> = text.split("\n\n# ").collect();
    assert_eq!(parts.len(), 4, "there is no room for the last one");
    for part in parts {
        assert!(part.ends_with("ü…"), "{part}");
    }
}

#[test]
fn an_observer_gets_none() {
    let gateway = Gateway::of_team();
    let team = gateway.project("team", &json!({}));
    team.client().gets("fake__echo", json!({}));
    let observer = team.new_key_with_scope("observer");
    let discover = |key: &str, path: &str| -> Value {
        let http = team.http_modern_as(key);
        let asked = http.asks("server/discover", json!({})).with_path(path);
        asked.sent().answer_to(&json!(1)).unwrap()["instructions"].take()
    };
    let shown = |text: Value| text.to_string().contains("Use the fake tools.");
    for path in ["/mcp", "/mcp/fake"] {
        assert!(shown(discover(&team.key, path)), "{path}");
        assert!(!shown(discover(&observer, path)), "{path}");
    }
    assert!(discover(&observer, "/mcp/fake").is_null());
    let client: Agent = team.client_as(&observer);
    assert!(!tool_names(&client).iter().any(|name| name.starts_with("fake")));
}
