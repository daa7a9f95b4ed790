//! A session has one caller: another one that registers its name takes it over, and the earlier one is told.

use serde_json::{Value, json};

use crate::support::{Broker, HttpAgent, eventually, texts};

fn register(caller: &HttpAgent, name: &str) -> Value {
    caller.calls("register_session", json!({"name": name}))
}

/// Calls a tool in an HTTP session that is opened for this call and deleted after it.
fn call_in_own_session(broker: &Broker, tool: &str, arguments: Value) -> Value {
    let caller = HttpAgent::legacy(broker.address, "2025-11-25", json!({}));
    let result = caller.calls(tool, arguments);
    caller.delete_request().answered();
    result
}

fn expect_refusal_in_own_session(broker: &Broker, code: &str, tool: &str, arguments: Value) {
    let caller = HttpAgent::legacy(broker.address, "2025-11-25", json!({}));
    caller.is_refused_as(code, tool, arguments);
    caller.delete_request().answered();
}

#[test]
fn a_second_stateless_caller_of_a_name_fences_the_first() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let first = broker.http_modern("bob");
    let durable = first.listed().unwrap();
    let sent = alice.sends("hi").to("bob").id;
    assert_eq!(texts(&first.reads(json!({}))), ["hi"]);

    let second = HttpAgent::modern(broker.address, json!({}));
    let registered = register(&second, "bob");
    assert_eq!(
        (&registered["resumed"], &registered["was_active"]),
        (&json!(true), &json!(true))
    );
    assert!(registered["last_seen_seconds"].as_f64().unwrap() >= 0.0);
    let second = broker.http_modern("bob");
    for (tool, arguments) in [
        ("heartbeat", json!({})),
        ("receive_messages", json!({})),
        ("acknowledge_messages", json!({"message_ids": [sent]})),
        ("disconnect_session", json!({})),
        ("negotiate_capabilities", json!({"target_session_id": "alice"})),
        (
            "send_message",
            json!({
                "recipient_id": "alice", "protocol_name": "note", "protocol_version": "1.0.0",
                "payload": {"text": "from the fenced caller"},
            }),
        ),
    ] {
        first.is_refused_as("session_taken_over", tool, arguments);
    }
    // A message that the first caller had not acknowledged is redelivered to the second.
    let again = second.reads(json!({}));
    assert_eq!((texts(&again), &again[0]["delivery_count"]), (vec!["hi"], &json!(2)));
    second.calls("acknowledge_messages", json!({"message_ids": [sent]}));
    assert_eq!(alice.status_of(&sent), "acknowledged");

    // Others see the same session, by whichever id they know it.
    let listed = alice.calls("list_sessions", json!({"status": "all"}));
    let rows = listed["sessions"].as_array().unwrap().iter();
    let rows: Vec<_> = rows.filter(|session| session["name"] == "bob").collect();
    assert_eq!((rows.len(), &rows[0]["session_id"]), (1, &json!(durable)));
    for address in ["bob", &durable, second.session.as_deref().unwrap()] {
        let sent = alice.sends(address).to(address);
        assert_eq!(alice.recipient_statuses(&sent.id)[0]["session_id"], durable.as_str());
        assert_eq!(texts(&second.reads(json!({"acknowledge": "immediate"}))), [address]);
    }
    alice.sees_nothing();

    // The first caller may take it back; then the second is told.
    let back = register(&first, "bob");
    assert_eq!(back["resumed"], true);
    let mut first = first;
    first.session = Some(back["session_id"].as_str().unwrap().to_owned());
    assert_eq!(first.calls("heartbeat", json!({}))["status"], "active");
    second.is_refused_as("session_taken_over", "heartbeat", json!({}));
}

#[test]
fn a_wait_of_a_fenced_caller_ends_and_takes_no_message() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let first = broker.http_modern("bob");
    let mut waiting = first.call("receive_messages", json!({"wait_seconds": 100})).sent();
    // Whether the broker reads the wait before or after the registration, it takes no message.
    let second = broker.http_modern("bob");
    let result = waiting.answer_to(&json!(1)).unwrap();
    assert_eq!(result["structuredContent"]["code"], "session_taken_over", "{result}");
    let sent = alice.sends("hi").to("bob").id;
    let read = second.reads(json!({"wait_seconds": 20}));
    assert_eq!(read[0]["message_id"], sent.as_str());
    assert_eq!(read[0]["delivery_count"], 1);
}

#[test]
fn a_caller_that_registers_its_own_session_again_keeps_its_leases() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.http_modern("bob");
    let sent = alice.sends("hi").to("bob").id;
    bob.reads(json!({"acknowledge": "manual"}));
    for arguments in [
        json!({"name": "bob"}),
        json!({"capabilities": {"supported_features": ["new"]}}),
    ] {
        let again = bob.calls("register_session", arguments);
        assert_eq!(again["session_id"], bob.session.as_deref().unwrap());
        assert_eq!((&again["resumed"], &again["name"]), (&json!(true), &json!("bob")));
    }
    assert_eq!(alice.status_of(&sent), "delivered");
    // By registering the name of another session it becomes that session.
    let carol = broker.http_modern("carol");
    assert_eq!(register(&bob, "carol")["was_active"], true);
    carol.is_refused_as("session_taken_over", "heartbeat", json!({}));
}

#[test]
fn a_disconnected_holder_is_fenced_and_the_answer_says_that_it_was_inactive() {
    let broker = Broker::with_fast_disconnect();
    let alice = broker.agent("alice");
    let first = broker.http_modern("bob");
    first.calls("disconnect_session", json!({}));
    assert_eq!(alice.presence_of("bob").as_deref(), Some("disconnected"));
    let second = HttpAgent::modern(broker.address, json!({}));
    let registered = register(&second, "bob");
    assert_eq!(
        (&registered["resumed"], &registered["was_active"]),
        (&json!(true), &json!(false))
    );
    assert!(registered["last_seen_seconds"].is_number());
    first.is_refused_as("session_taken_over", "heartbeat", json!({}));
    // A new session has no last contact.
    let new = register(&second, "newcomer");
    assert_eq!(
        (&new["was_active"], new.get("last_seen_seconds")),
        (&json!(false), None)
    );
}

#[test]
fn connections_and_stateless_callers_take_each_other_over() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let caller = broker.http_modern("bob");
    let connected = broker.agent("bob");
    caller.is_refused_as("session_taken_over", "heartbeat", json!({}));
    alice.sends("1").to("bob");
    connected.sees(["1"]);
    let caller = broker.http_modern("bob");
    connected.wire.closes_with(4001);
    alice.sends("2").to("bob");
    assert_eq!(
        texts(&caller.reads(json!({"limit": 1, "acknowledge": "immediate"}))),
        ["1"]
    );
    let resumable = broker.http_legacy("bob");
    caller.is_refused_as("session_taken_over", "heartbeat", json!({}));
    assert_eq!(texts(&resumable.reads(json!({"acknowledge": "immediate"}))), ["2"]);
}

#[test]
fn a_client_with_one_http_session_per_call_reads_and_acknowledges() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let registered = call_in_own_session(&broker, "register_session", json!({"name": "bob"}));
    let session = &registered["session_id"];
    let sent: Vec<_> = ["1", "2"].iter().map(|text| alice.sends(text).to("bob").id).collect();
    let read = call_in_own_session(&broker, "receive_messages", json!({"session_id": session, "limit": 1}));
    assert_eq!(read["messages"][0]["payload"]["text"], "1");
    // The end of that HTTP session releases nothing and claims nothing.
    assert_eq!(alice.status_of(&sent[0]), "delivered");
    assert_eq!(alice.presence_of("bob").as_deref(), Some("active"));
    let arguments = json!({"session_id": session, "receipt": read["receipt"]});
    let read = call_in_own_session(&broker, "receive_messages", arguments);
    assert_eq!(read["messages"].as_array().unwrap().len(), 1);
    assert_eq!(alice.status_of(&sent[0]), "acknowledged");
    // Also without a receipt.
    let read = call_in_own_session(&broker, "receive_messages", json!({"session_id": session}));
    assert_eq!(read["messages"], json!([]));
    assert_eq!(alice.status_of(&sent[1]), "acknowledged");
    let letter = json!({
        "session_id": session, "recipient_id": "alice", "protocol_name": "note", "protocol_version": "1.0.0",
        "payload": {"text": "from bob"},
    });
    call_in_own_session(&broker, "send_message", letter);
    let seen = alice.sees(["from bob"]);
    assert_eq!(seen[0]["sender_name"], "bob");
}

#[test]
fn a_call_that_names_its_session_gets_the_unread_count_of_it() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let registered = call_in_own_session(&broker, "register_session", json!({"name": "bob"}));
    alice.sends("hi").to("bob");
    let caller = HttpAgent::legacy(broker.address, "2025-11-25", json!({}));
    let arguments = json!({"session_id": registered["session_id"], "message_ids": []});
    let params = json!({"name": "acknowledge_messages", "arguments": arguments});
    let result = caller.request("tools/call", params).unwrap();
    assert_eq!(result["_meta"]["dev.mcp-broker/unread"], 1, "{result}");
}

#[test]
fn two_clients_with_one_http_session_per_call_are_told_apart() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let first = call_in_own_session(&broker, "register_session", json!({"name": "bob"}));
    let first = json!({"session_id": first["session_id"]});
    call_in_own_session(&broker, "heartbeat", first.clone());
    alice.sends("hi").to("bob");
    call_in_own_session(&broker, "receive_messages", first.clone());
    let second = call_in_own_session(&broker, "register_session", json!({"name": "bob"}));
    assert_eq!(second["was_active"], true);
    expect_refusal_in_own_session(&broker, "session_taken_over", "receive_messages", first.clone());
    let read = call_in_own_session(
        &broker,
        "receive_messages",
        json!({"session_id": second["session_id"], "wait_seconds": 20}),
    );
    assert_eq!(read["messages"][0]["delivery_count"], 2);
    // A stateless caller takes it over from both.
    broker.http_modern("bob");
    for known in [&first["session_id"], &second["session_id"]] {
        expect_refusal_in_own_session(&broker, "session_taken_over", "heartbeat", json!({"session_id": known}));
    }
}

#[test]
fn a_read_for_a_session_that_was_never_registered_is_refused() {
    let broker = Broker::start();
    let connected = [broker.client(), crate::support::Agent::modern(broker.wire(), json!({}))];
    for (tool, arguments) in [
        ("receive_messages", json!({})),
        ("receive_messages", json!({"wait_seconds": 100})),
        ("acknowledge_messages", json!({"message_ids": []})),
    ] {
        for agent in &connected {
            let error = agent.is_refused_as("session_required", tool, arguments.clone());
            let text = error["message"].as_str().unwrap();
            assert!(
                text.contains("register_session") && text.contains("session_id"),
                "{text}"
            );
        }
        expect_refusal_in_own_session(&broker, "session_required", tool, arguments.clone());
        HttpAgent::modern(broker.address, json!({})).is_refused_as("session_required", tool, arguments);
    }
    // A caller that sends gets an inbox for the answers.
    let alice = broker.agent("alice");
    let visitor = &connected[0];
    let sent = visitor.sends("?").to(&alice);
    let sender = alice.sees(["?"])[0]["sender_id"].as_str().unwrap().to_owned();
    alice.sends("!").to(&sender);
    eventually("the answer has arrived", || {
        (texts(&visitor.reads(json!({}))) == ["!"]).then_some(())
    });
    assert_eq!(visitor.status_of(&sent.id), "delivered");
}
