//! The bounds of lenses, each filled, and refused beyond it.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, eventually};

/// A version of `task` with one member, and what a registration adds to it.
fn task(version: &str, member: &str, more: Value) -> Value {
    let schema = json!({
        "type": "object", "properties": {member: {"type": "string"}}, "required": [member], "additionalProperties": false,
    });
    let mut wanted = json!({"name": "task", "version": version, "schema": schema});
    wanted
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().cloned().unwrap_or_default());
    wanted
}

fn with_lens(version: &str, member: &str, lens: &Value) -> Value {
    task(version, member, json!({"from": "1.0.0", "lens": lens}))
}

fn transforms(agent: &Agent, from: &str, to: &str, payload: Value) -> Value {
    let arguments = json!({"protocol_name": "task", "from_version": from, "to_version": to, "payload": payload});
    agent.calls("transform_message", arguments)
}

#[test]
fn a_lens_has_64_operations() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    alice.calls("register_protocol", task("1.0.0", "t0", json!({})));
    let renames = |len: usize| {
        let rename = |at: usize| json!({"op": "rename", "path": format!("/t{at}"), "to": format!("t{}", at + 1)});
        json!((0..len).map(rename).collect::<Vec<_>>())
    };
    alice.is_refused_as(
        "invalid_lens",
        "register_protocol",
        with_lens("2.0.0", "t65", &renames(65)),
    );
    alice.calls("register_protocol", with_lens("2.0.0", "t64", &renames(64)));
    let payload = transforms(&alice, "1.0.0", "2.0.0", json!({"t0": "dig"}))["payload"].clone();
    assert_eq!(payload, json!({"t64": "dig"}));
}

#[test]
fn a_lens_has_32_kib_and_a_result_four_times_the_payload_and_4_kib() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    alice.calls("register_protocol", task("1.0.0", "text", json!({})));
    let schema = json!({
        "type": "object", "properties": {"text": {"type": "string"}, "note": {"type": "string"}},
        "required": ["text", "note"], "additionalProperties": false,
    });
    let of_length = |len: usize| {
        let lens = |value: &str| json!([{"op": "add", "path": "/note", "value": value}]);
        let value = "x".repeat(len - lens("").to_string().len());
        let mut wanted = with_lens("2.0.0", "text", &lens(&value));
        wanted["schema"] = schema.clone();
        wanted
    };
    alice.is_refused_as("invalid_lens", "register_protocol", of_length(32 * 1024 + 1));
    alice.calls("register_protocol", of_length(32 * 1024));
    let of_bytes = |len: usize| json!({"text": "y".repeat(len)});
    let result = transforms(&alice, "1.0.0", "2.0.0", of_bytes(10 * 1024))["payload"].clone();
    assert!(result.to_string().len() > 40 * 1024, "the text and the note");
    let arguments = json!({
        "protocol_name": "task", "from_version": "1.0.0", "to_version": "2.0.0", "payload": of_bytes(9 * 1024),
    });
    let failed = alice.is_refused_as("transform_failed", "transform_message", arguments);
    assert_eq!(failed["detail"]["reason"], "too_large", "{failed}");
}

/// What is known of a lens is stored with it: here the names of members of which no rule proves that they fit.
#[test]
fn the_record_of_a_lens_has_128_kib() {
    /// As many as are named.
    const MEMBERS: usize = 32;
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let register = |name: &str, name_len: usize| {
        let wanted = |version: &str, pattern: &str| {
            let member = |at: usize| format!("{at:0name_len$}");
            let properties: serde_json::Map<_, _> = (0..MEMBERS)
                .map(|at| (member(at), json!({"type": "string", "pattern": pattern})))
                .collect();
            json!({"name": name, "version": version, "schema": {"type": "object", "properties": properties}})
        };
        alice.calls("register_protocol", wanted("1.0.0", "^[x]{9}$"));
        let mut next = wanted("2.0.0", "^[xx]{9}$");
        for (member, value) in [
            ("from", json!("1.0.0")),
            ("lens", json!([])),
            ("direction", json!("forward")),
            ("replace_lens", json!(true)),
        ] {
            next[member] = value;
        }
        let mut allows_loss = false;
        // The proof ends after 100 ms, and names fewer members then. Another lens is checked again.
        eventually("the proof ends in time", || {
            allows_loss = !allows_loss;
            next["allow_loss"] = json!(allows_loss);
            let call = json!({"name": "register_protocol", "arguments": next});
            let result = alice.request("tools/call", call).unwrap();
            let unproved = &result["structuredContent"]["lens"]["forward"]["unproved"];
            let is_complete = unproved.as_array().is_none_or(|unproved| unproved.len() == MEMBERS);
            is_complete.then(|| result["structuredContent"].clone())
        })
    };
    let known = register("fits", 3950)["lens"]["forward"].to_string().len();
    assert!((125 * 1024..128 * 1024).contains(&known), "{known}");
    let refused = register("too_large", 4080);
    assert_eq!(refused["code"], "forbidden", "{refused}");
    assert!(
        refused["message"].as_str().unwrap().contains("too many bytes"),
        "{refused}"
    );
}

fn version(at: usize) -> String {
    format!("{at}.0.0")
}

/// Registers this version with lenses from so many versions below it.
fn registers(agent: &Agent, at: usize, lenses: usize) {
    for from in at - lenses..at {
        let more = json!({"from": version(from), "lens": []});
        agent.calls("register_protocol", task(&version(at), "text", more));
    }
}

#[test]
fn a_protocol_has_128_lenses_and_a_broadcast_goes_to_each_of_its_versions() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    alice.calls("register_protocol", task(&version(1), "text", json!({})));
    // 36 lenses into versions 2 to 9, then 8 into each, and 4 into the last one.
    for at in 2..=21 {
        registers(&alice, at, if at == 21 { 4 } else { 8.min(at - 1) });
    }
    let another = task(&version(21), "text", json!({"from": version(1), "lens": []}));
    let refused = alice.is_refused_as("forbidden", "register_protocol", another.clone());
    assert!(refused["message"].as_str().unwrap().contains("128 lenses"), "{refused}");
    let mut replaced = task(
        &version(21),
        "text",
        json!({"from": version(20), "lens": [], "replace_lens": true}),
    );
    replaced["direction"] = json!("forward");
    assert_eq!(
        alice.calls("register_protocol", replaced.clone())["lens"]["revision"],
        2
    );
    replaced["direction"] = json!("both");
    assert_eq!(alice.calls("register_protocol", replaced)["lens"]["revision"], 3);

    let agents = broker.agents("a", 20);
    for (at, agent) in (2..).zip(&agents) {
        let capabilities = json!({"supported_protocols": {"task": [version(at)]}});
        agent.calls(
            "register_session",
            json!({"name": agent.name, "capabilities": capabilities}),
        );
    }
    let answer = alice.calls(
        "broadcast_message",
        json!({"protocol_name": "task", "protocol_version": version(1), "payload": {"text": "all"}}),
    );
    assert_eq!(
        (&answer["recipients"], &answer["failed"]),
        (&json!(20), &json!(0)),
        "{answer}"
    );
    let mut told: Vec<_> = answer["transforms"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["to"].clone())
        .collect();
    told.sort_by_key(ToString::to_string);
    let mut versions: Vec<_> = (2..=21).map(|at| json!(version(at))).collect();
    versions.sort_by_key(ToString::to_string);
    assert_eq!(told, versions);
    for (at, agent) in (2..).zip(&agents) {
        let seen = agent.reads(json!({"wait_seconds": 20}));
        assert_eq!(seen[0]["protocol_version"], version(at), "{seen:?}");
    }

    let path = format!("/api/v1/protocols/task/{}/lenses/{}", version(21), version(20));
    assert_eq!(broker.rest_with(&[], "DELETE", &path, &Value::Null).status, 204);
    alice.calls("register_protocol", another);
}

#[test]
fn a_complement_has_16_kib() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let schema = json!({
        "type": "object", "properties": {"text": {"type": "string"}, "note": {"type": "string"}},
        "required": ["text"], "additionalProperties": false,
    });
    alice.calls(
        "register_protocol",
        json!({"name": "task", "version": "1.0.0", "schema": schema}),
    );
    let mut dropping = with_lens("2.0.0", "text", &json!([{"op": "drop", "path": "/note"}]));
    dropping["allow_loss"] = json!(true);
    alice.calls("register_protocol", dropping);
    let noted = |len: usize| {
        transforms(
            &alice,
            "1.0.0",
            "2.0.0",
            json!({"text": "dig", "note": "n".repeat(len)}),
        )
    };
    let kept = noted(15_000);
    assert!(kept["complement"].to_string().len() > 15_000, "{kept}");
    let left_out = noted(17_000);
    assert_eq!(
        (&left_out["complement"], &left_out["loss"]),
        (&Value::Null, &json!(["/note"]))
    );
    let mut sent = json!({
        "recipient_id": "alice", "protocol_name": "task", "protocol_version": "2.0.0", "payload": {"text": "dug"},
        "headers": {"complement": kept["complement"]},
    });
    alice.calls("send_message", sent.clone());
    sent["headers"]["complement"] = json!({"x": "x".repeat(16 * 1024)});
    let error = alice.is_refused_as("invalid_argument", "send_message", sent);
    assert_eq!(error["detail"]["argument"], "headers.complement", "{error}");
}
