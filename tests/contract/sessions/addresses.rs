//! The addresses of a session beside its id: its name, its aliases, and its conversation.

use serde_json::{Value, json};

use crate::support::{Agent, Broker};

/// Registers a session of this conversation on a connection of its own.
fn agent_of(broker: &Broker, name: &str, conversation: &str) -> Agent {
    broker
        .client()
        .registered_with(&json!({"name": name, "metadata": {"conversation": conversation}}))
}

fn aliases_of(asking: &Agent, name: &str) -> Value {
    let listed = asking.calls("list_sessions", json!({"status": "all"}));
    let sessions = listed["sessions"].as_array().unwrap();
    sessions.iter().find(|session| session["name"] == name).unwrap()["aliases"].clone()
}

#[test]
fn an_alias_is_an_address_that_outlives_its_connection() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker
        .client()
        .registered_with(&json!({"name": "bob", "aliases": ["reviewer", "bob", "der Prüfer", "reviewer"]}));
    assert_eq!(aliases_of(&alice, "bob"), json!(["reviewer", "der Prüfer"]));
    assert_eq!(aliases_of(&alice, "alice"), Value::Null);
    for address in ["reviewer", "der Prüfer", "reviewer@default"] {
        let sent = alice.sends(address).to(address);
        assert_eq!(
            alice.recipient_statuses(&sent.id)[0]["session_id"],
            bob.session.as_str()
        );
        bob.acknowledges(&bob.sees([address]));
    }
    let negotiated = alice.calls("negotiate_capabilities", json!({"target_session_id": "reviewer"}));
    assert!(negotiated["compatible"].is_boolean(), "{negotiated}");

    bob.wire.disconnects();
    alice.sends("while you were away").to("reviewer");
    let again = broker.agent("bob");
    assert_eq!(again.session, bob.session);
    again.sees(["while you were away"]);
    assert_eq!(aliases_of(&alice, "bob"), json!(["reviewer", "der Prüfer"]));

    // A list replaces the one of before.
    again.calls("register_session", json!({"name": "bob", "aliases": ["tester"]}));
    alice.sends("new").to("tester");
    again.sees(["new"]);
    let refused = alice.sends("old").fails_as("session_not_found", "reviewer");
    assert!(
        !refused["message"].as_str().unwrap().contains("der Prüfer"),
        "{refused}"
    );
    let misspelled = alice.sends("typo").fails_as("session_not_found", "tseter");
    assert!(misspelled.to_string().contains("tester"), "{misspelled}");
    again.calls("register_session", json!({"aliases": []}));
    assert_eq!(aliases_of(&alice, "bob"), Value::Null);
}

#[test]
fn a_name_or_alias_of_another_session_is_refused_with_who_has_it() {
    let broker = Broker::start();
    let bob = broker
        .client()
        .registered_with(&json!({"name": "bob", "aliases": ["reviewer"]}));
    let carol = broker.agent("carol");
    for (arguments, taken, holder) in [
        (json!({"name": "reviewer"}), "reviewer", "bob"),
        (
            json!({"name": "carol", "aliases": ["free", "reviewer"]}),
            "reviewer",
            "bob",
        ),
        (json!({"aliases": ["bob"]}), "bob", "bob"),
    ] {
        let refused = carol.is_refused_as("forbidden", "register_session", arguments);
        let text = refused["message"].as_str().unwrap();
        assert!(
            text.contains(&format!("`{taken}` is an address")) && text.contains(holder),
            "{text}"
        );
    }
    // A refusal changes nothing.
    assert_eq!(aliases_of(&carol, "carol"), Value::Null);
    carol.sends("still yours").to("reviewer");
    bob.sees(["still yours"]);

    bob.calls("register_session", json!({"aliases": ["free"]}));
    carol.calls("register_session", json!({"aliases": ["reviewer"]}));
    bob.sends("now mine").to("reviewer");
    carol.sees(["now mine"]);
}

#[test]
fn aliases_have_the_form_of_names_and_are_eight_at_most() {
    let broker = Broker::start();
    let caller = broker.client();
    let numbered = |len: usize| (0..len).map(|at| format!("alias {at}")).collect::<Vec<_>>();
    for (aliases, expected) in [
        (json!(numbered(9)), "at most 8"),
        (json!(["ok", ""]), "1 to 128 characters"),
        (json!(["a@b"]), "@"),
        (json!(["two\nlines"]), "control"),
        (json!("reviewer"), "aliases"),
        (json!(["reviewer"]), "name"),
    ] {
        let refused = caller.is_refused_as("invalid_argument", "register_session", json!({"aliases": aliases}));
        let text = refused["message"].as_str().unwrap();
        assert!(text.contains("aliases") && text.contains(expected), "{text}");
    }
    // The longest list there can be.
    let longest: Vec<_> = (0..8).map(|at| format!("{at}{}", "\u{1f980}".repeat(127))).collect();
    let caller = caller.registered_with(&json!({"name": "crab", "aliases": longest}));
    caller.sends("hi").to(&longest[7]);
    caller.sees(["hi"]);
}

#[test]
fn a_conversation_is_the_address_of_the_newest_of_its_sessions() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    alice
        .sends("too early")
        .fails_as("session_not_found", "conversation:c-1");
    let first = agent_of(&broker, "first", "c-1");
    let second = agent_of(&broker, "second", "c-1");
    let other = agent_of(&broker, "other", "c-2");
    for (address, recipient) in [("conversation:c-1", &second), ("conversation:c-2", &other)] {
        alice.sends(address).to(address);
        recipient.sees([address]);
    }
    // The newest created is meant, also when an older one registers again.
    let first_again = agent_of(&broker, "first", "c-1");
    assert_eq!(first_again.session, first.session);
    alice.sends("to the newest").to("conversation:c-1");
    second.sees(["to the newest"]);
    // The next one follows when the newest serves another conversation.
    second.calls("register_session", json!({"metadata": {"conversation": "c-3"}}));
    alice.sends("back").to("conversation:c-1");
    first_again.sees(["back"]);
    alice.sends("moved").to("conversation:c-3");
    second.sees(["moved"]);
    // What is no text or too long is no conversation, and metadata all the same.
    let long = "x".repeat(129);
    first_again.calls("register_session", json!({"metadata": {"conversation": long}}));
    for address in ["conversation:c-1", "conversation:", &format!("conversation:{long}")] {
        alice.sends("gone").fails_as("session_not_found", address);
    }
    first_again.calls("register_session", json!({"metadata": {"conversation": 7}}));
    alice.sends("gone").fails_as("session_not_found", "conversation:7");
}

#[test]
fn names_that_look_alike_are_one_address() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.client().registered_with(&json!({"name": "Zoe\u{308}\u{200b}"}));
    for address in ["Zo\u{eb}", "Zoe\u{308}", "\u{202e}Zo\u{eb}", "\u{ff3a}o\u{eb}@default"] {
        let sent = alice.sends(address).to(address);
        assert_eq!(
            alice.recipient_statuses(&sent.id)[0]["session_id"],
            bob.session.as_str(),
            "{address:?}"
        );
    }
    assert_eq!(
        aliases_of(&alice, "Zo\u{eb}"),
        Value::Null,
        "the list has the normal form"
    );
}

#[test]
fn the_name_of_the_broker_and_addresses_of_other_kinds_are_reserved() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let mallory = broker.client();
    for name in [
        "mcp-broker",
        "MCP-BROKER",
        "mcp\u{200b}-broker",
        "conversation:7",
        "queue:jobs",
    ] {
        for arguments in [json!({"name": name}), json!({"name": "m", "aliases": [name]})] {
            let refused = mallory.is_refused_as("invalid_argument", "register_session", arguments);
            assert!(refused.to_string().contains("reserved"), "{refused}");
        }
    }
    agent_of(&broker, "worker", "7");
    alice.sends("to the conversation").to("conversation:7");
}
