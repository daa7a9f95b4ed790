//! What lenses do, as agents and programs ask it: `transform_message`, negotiations, and who speaks what.

use serde_json::{Value, json};

use super::assert_refused;
use crate::support::{Agent, Broker, Tenant};

/// Registers two versions of `ticket`, and a lens between them that drops a member.
fn with_lens(team: &Tenant<'_>) {
    let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let text = json!({"type": "string"});
    let first = object(json!({"title": text, "note": text}), json!(["title"]));
    let second = object(
        json!({"summary": {"type": "string", "maxLength": 1000}}),
        json!(["summary"]),
    );
    let lens = json!([{"op": "rename", "path": "/title", "to": "summary"}, {"op": "drop", "path": "/note"}]);
    let first = json!({"name": "ticket", "version": "1.0.0", "schema": first});
    assert_eq!(team.api("POST", "protocols", &first).status, 201);
    let second = json!({
        "name": "ticket", "version": "2.0.0", "schema": second, "from": "1.0.0", "lens": lens, "allow_loss": true,
    });
    let made = team.api("POST", "protocols", &second);
    assert_eq!(made.status, 201, "{made:?}");
}

fn arguments(from: &str, to: &str, payload: &Value) -> Value {
    json!({"protocol_name": "ticket", "from_version": from, "to_version": to, "payload": payload})
}

fn speaker(team: &Tenant<'_>, name: &str, versions: &Value) -> Agent {
    let agent = team.client();
    let capabilities = json!({"supported_protocols": {"ticket": versions}});
    agent.calls("register_session", json!({"name": name, "capabilities": capabilities}));
    agent
}

#[test]
fn a_payload_is_shown_in_another_version_and_comes_back_with_its_complement() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    with_lens(&team);
    let client = team.client();
    let payload = json!({"title": "Printer on fire", "note": "again"});
    let there = client.calls("transform_message", arguments("1.0.0", "2.0.0", &payload));
    let mut expected = json!({
        "payload": {"summary": "Printer on fire"}, "from": "1.0.0", "to": "2.0.0", "path": ["1.0.0", "2.0.0"],
        "class": "lossy", "loss": ["/note"], "defaulted": [],
    });
    expected["complement"] = there["complement"].clone();
    assert!(expected["complement"].is_object());
    assert_eq!(there, expected);
    let body = json!({"from_version": "1.0.0", "to_version": "2.0.0", "payload": payload});
    assert_eq!(team.api("POST", "protocols/ticket/transform", &body).json(), there);
    let mut back = arguments("2.0.0", "1.0.0", &there["payload"]);
    back["complement"] = there["complement"].clone();
    assert_eq!(client.calls("transform_message", back)["payload"], payload);
    // A payload as large as a message.
    let large = json!({"title": "x", "note": "y".repeat(2_000_000)});
    let shown = client.calls("transform_message", arguments("1.0.0", "2.0.0", &large));
    assert_eq!(shown["payload"], json!({"summary": "x"}));
}

#[test]
fn a_payload_that_is_not_transformed_is_refused_with_the_reason() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    with_lens(&team);
    let client = team.client();
    let refused = |code: &str, arguments: Value| client.is_refused_as(code, "transform_message", arguments);
    refused("payload_invalid", arguments("1.0.0", "2.0.0", &json!({"summary": "x"})));
    refused(
        "protocol_not_found",
        arguments("1.0.0", "3.0.0", &json!({"title": "x"})),
    );
    let failed = refused(
        "transform_failed",
        arguments("1.0.0", "2.0.0", &json!({"title": "x".repeat(1001)})),
    );
    assert_eq!(
        failed["detail"],
        json!({"from": "1.0.0", "to": "2.0.0", "reason": "does_not_fit"})
    );
    let third = json!({"name": "ticket", "version": "3.0.0", "schema": {"type": "object"}});
    assert_eq!(team.api("POST", "protocols", &third).status, 201);
    let apart = refused(
        "incompatible_protocol",
        arguments("1.0.0", "3.0.0", &json!({"title": "x"})),
    );
    assert_eq!(
        apart["detail"],
        json!({"protocol": "ticket", "version": "1.0.0", "to": "3.0.0"})
    );
    let body = json!({"from_version": "1.0.0", "to_version": "3.0.0", "payload": {"title": "x"}});
    assert_refused(
        &team.api("POST", "protocols/ticket/transform", &body),
        409,
        "incompatible_protocol",
    );
    let mut wrong = arguments("1.0.0", "2.0.0", &json!({"title": "x"}));
    wrong["complement"] = json!("x");
    refused("invalid_argument", wrong);
}

#[test]
fn sessions_between_whose_versions_lenses_lead_are_compatible() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    with_lens(&team);
    let (old, _new) = (
        speaker(&team, "old", &json!(["1.0.0"])),
        speaker(&team, "new", &json!(["2.0.0"])),
    );
    let found = old.calls("negotiate_capabilities", json!({"target_session_id": "new"}));
    assert_eq!(
        (&found["compatible"], &found["incompatibilities"]),
        (&json!(true), &json!([]))
    );
    let between = &found["by_lens"]["ticket"];
    assert_eq!(
        between["send"],
        json!({"class": "lossy", "steps": 1, "may_lose": ["/note"]})
    );
    assert_eq!(
        (&between["ours"], &between["theirs"]),
        (&json!("1.0.0"), &json!("2.0.0"))
    );
    assert!(
        found["suggestions"][0]
            .as_str()
            .unwrap()
            .starts_with("upgrade ticket from 1.0.0 to 2.x"),
        "{found}"
    );
    let rows = team.gets("compatibility")["rows"].take();
    assert_eq!(rows[0]["compatible"], true);
    assert_eq!(rows[0]["by_lens"], json!({"ticket": {"a": "1.0.0", "b": "2.0.0"}}));
}

#[test]
fn who_speaks_which_version_is_shown_with_its_lenses() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    with_lens(&team);
    let (old, new) = (
        speaker(&team, "old", &json!(["1.0.0", "2.0.0"])),
        speaker(&team, "new", &json!(["2.0.0"])),
    );
    old.calls(
        "send_message",
        json!({
            "recipient_id": "new", "protocol_name": "ticket", "protocol_version": "2.0.0", "payload": {"summary": "x"},
        }),
    );
    assert_eq!(
        new.calls("receive_messages", json!({}))["messages"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let usage = team.gets("protocols/ticket?window=1h");
    assert_eq!(usage["complete"], true);
    let [first, second] = [0, 1].map(|at| &usage["versions"][at]);
    assert_eq!(
        (&first["retirable"], &first["sessions"]),
        (&json!(true), &json!({"active": 1, "kept": 0, "only": 0}))
    );
    assert_eq!(
        (&second["retirable"], &second["sessions"]),
        (&json!(false), &json!({"active": 2, "kept": 0, "only": 2}))
    );
    assert_eq!(
        (&second["sent"], &second["delivered"]),
        (&json!(1), &json!({"as_sent": 1, "transformed": 0}))
    );
    assert_eq!(
        second["lenses"],
        json!([{"from": "1.0.0", "forward": "lossy", "backward": "exact"}])
    );
    assert_refused(
        &team.api("GET", "protocols/ticket?window=31d", &Value::Null),
        400,
        "invalid_argument",
    );
    assert_refused(
        &team.api("GET", "protocols/none", &Value::Null),
        404,
        "protocol_not_found",
    );
}
