//! A message without a protocol: a text of the built-in protocol `text`, which every session speaks.

use serde_json::{Value, json};

use crate::support::{Agent, Broker};

/// An agent that declares another protocol alone.
fn picky(broker: &Broker, name: &str) -> Agent {
    let capabilities = json!({"supported_protocols": {"note": ["1.0.0"]}});
    let arguments = json!({"name": name, "capabilities": capabilities});
    broker.client().registered_with(&arguments)
}

/// The payloads that wait, each of which is a text.
fn texts_of(agent: &Agent) -> Vec<Value> {
    let read = agent.reads(json!({"acknowledge": "immediate", "wait_seconds": 20}));
    let payload = |message: Value| {
        assert_eq!(
            (&message["protocol_name"], &message["protocol_version"]),
            (&json!("text"), &json!("1.0.0")),
            "{message}"
        );
        message["payload"].clone()
    };
    read.into_iter().map(payload).collect()
}

#[test]
fn hello_takes_a_recipient_and_a_text() {
    let broker = Broker::without_timeouts();
    let (alice, bob) = (broker.agent("alice"), picky(&broker, "bob"));
    let hello = "hello, \"bob\" \u{1F44B}\n{}";
    for message in [
        json!({"payload": hello}),
        json!({"payload": {"text": "a member more", "mood": "fine"}}),
        json!({"payload": "named", "protocol_name": "text"}),
        json!({"payload": "named whole", "protocol_name": "text", "protocol_version": "1.0.0"}),
        json!({"payload": "left out", "protocol_name": null, "protocol_version": ""}),
    ] {
        let mut message = message;
        message["recipient_id"] = json!("bob");
        assert_eq!(alice.calls("send_message", message)["status"], "queued");
    }
    let expected = json!([
        {"text": hello}, {"text": "a member more", "mood": "fine"}, {"text": "named"}, {"text": "named whole"},
        {"text": "left out"},
    ]);
    assert_eq!(json!(texts_of(&bob)), expected);
    let sent = alice.calls("broadcast_message", json!({"payload": "to all"}));
    assert_eq!(
        (&sent["recipients"], &sent["skipped"]),
        (&json!(1), &json!(0)),
        "{sent}"
    );
    assert_eq!(texts_of(&bob), [json!({"text": "to all"})]);
}

#[test]
fn every_session_speaks_it_without_declaring_it() {
    let broker = Broker::without_timeouts();
    let (alice, bob) = (broker.agent("alice"), picky(&broker, "bob"));
    picky(&broker, "carol");
    let wanted = |version: &str| json!({"target_session_id": "carol", "required_protocols": [{"name": "text", "version": version}]});
    for agent in [&alice, &bob] {
        let agreed = agent.calls("negotiate_capabilities", wanted("^1"));
        assert_eq!(
            (&agreed["compatible"], &agreed["supported_protocols"]["text"]),
            (&json!(true), &json!("1.0.0")),
            "{agreed}"
        );
        assert_eq!(agent.calls("negotiate_capabilities", wanted("^2"))["compatible"], false);
    }
    let listed = alice.calls("list_sessions", json!({"protocol": "text"}));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 3);
    let filter = |version: &str| json!({"payload": "x", "capability_filter": {"protocols": {"text": version}}});
    for (version, recipients) in [("^1", 2), ("^2", 0)] {
        assert_eq!(
            alice.calls("broadcast_message", filter(version))["recipients"],
            recipients
        );
    }
    let found = alice.calls("discover_protocols", json!({"name": "text", "include_schema": true}));
    let found = &found["protocols"][0];
    assert_eq!(
        (&found["version"], &found["schema"]["required"]),
        (&json!("1.0.0"), &json!(["text"])),
        "{found}"
    );
    // As all built-in protocols, it is in no list.
    assert!(
        !alice
            .calls("discover_protocols", json!({}))
            .to_string()
            .contains("\"text\"")
    );
}

#[test]
fn what_is_no_text_is_refused() {
    let broker = Broker::without_timeouts();
    let (alice, _bob) = (broker.agent("alice"), broker.agent("bob"));
    Broker::register_note_protocol(&alice);
    let refused = |code: &str, message: Value| {
        let mut message = message;
        message["recipient_id"] = json!("bob");
        alice.is_refused_as(code, "send_message", message)
    };
    for payload in [json!({}), json!({"text": 7}), json!(7), json!(["hi"])] {
        let error = refused("payload_invalid", json!({"payload": payload}));
        assert!(!error["detail"]["failures"].as_array().unwrap().is_empty(), "{error}");
    }
    let error = refused("invalid_argument", json!({"payload": "x", "protocol_name": "note"}));
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .starts_with("protocol_version: required"),
        "{error}"
    );
    let error = refused("invalid_argument", json!({"payload": "x", "protocol_version": "1.0.0"}));
    assert!(error["message"].as_str().unwrap().contains("plain text"), "{error}");
    // A bare text is for this protocol alone.
    let note = json!({"payload": "x", "protocol_name": "note", "protocol_version": "1.0.0"});
    refused("payload_invalid", note);
    let other = json!({"payload": "x", "protocol_name": "text", "protocol_version": "2.0.0"});
    assert_eq!(
        refused("protocol_not_found", other)["detail"]["versions"],
        json!(["1.0.0"])
    );
    let own = json!({"name": "text", "version": "3.0.0", "schema": {}});
    let error = alice.is_refused_as("forbidden", "register_protocol", own);
    assert!(
        error["message"].as_str().unwrap().contains("every session speaks it"),
        "{error}"
    );
}

#[test]
fn a_refusal_of_another_protocol_names_the_way_out() {
    let broker = Broker::without_timeouts();
    let (alice, _bob) = (broker.agent("alice"), picky(&broker, "bob"));
    let call = json!({"name": "call", "version": "1.0.0", "schema": {"type": "object"}});
    alice.calls("register_protocol", call);
    let message = json!({"recipient_id": "bob", "protocol_name": "call", "protocol_version": "1.0.0", "payload": {}});
    let error = alice.is_refused_as("incompatible_protocol", "send_message", message);
    assert!(
        error["message"].as_str().unwrap().ends_with("send without a protocol"),
        "{error}"
    );
}

#[test]
fn the_sender_of_a_text_is_told_of_its_dead_letter() {
    let broker = Broker::without_timeouts();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice.calls("send_message", json!({"recipient_id": "bob", "payload": "no"}));
    let read = bob.reads(json!({"acknowledge": "manual"}));
    let rejection = json!({"message_ids": [read[0]["message_id"]], "outcome": "rejected"});
    bob.calls("acknowledge_messages", rejection);
    let report = alice.reads(json!({"wait_seconds": 20}));
    assert_eq!(report[0]["protocol_name"], "delivery-report", "{report:?}");
    assert_eq!(report[0]["payload"]["messages"][0]["protocol_name"], "text");
}

#[test]
fn a_text_goes_to_another_project() {
    let broker = Broker::secured();
    let open = json!({"allow_cross_project": true});
    let (here, there) = (broker.project("here", &open), broker.project("there", &open));
    here.allow_sending_to("there", &json!({}));
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    alice.calls("send_message", json!({"recipient_id": "bob@there", "payload": "hello"}));
    assert_eq!(texts_of(&bob), [json!({"text": "hello"})]);
    alice.is_refused_as(
        "payload_invalid",
        "send_message",
        json!({"recipient_id": "bob@there", "payload": {}}),
    );
    here.allow_sending_to("there", &json!({"allowed_protocols": ["note"]}));
    let refused = json!({"recipient_id": "bob@there", "payload": "hello"});
    alice.is_refused_as("cross_project_forbidden", "send_message", refused);
}
