//! Messages to a name that no session has yet.

use serde_json::json;

use crate::support::{Agent, Broker, SendAnswer, eventually, texts};

fn keeps(from: &Agent, text: &str, recipient: &str) -> SendAnswer {
    from.sends(text).with_argument("if_unknown", "keep").to(recipient)
}

#[test]
fn a_message_is_kept_for_an_agent_that_is_still_to_come() {
    let broker = Broker::without_timeouts();
    let (alice, carol) = (broker.agent("alice"), broker.modern("carol"));
    for (at, name) in ["bob", "dora", "emil", "fred"].into_iter().enumerate() {
        let refused = alice.sends("hello").fails_as("session_not_found", name);
        assert!(refused["message"].as_str().unwrap().contains("if_unknown"), "{refused}");
        let kept = keeps(&alice, "hello", name);
        assert_eq!(kept.status, "queued");
        assert_eq!(kept.object["recipient"]["status"], "disconnected", "{kept:?}");
        // From now on it is an address like others, and not an agent that is here.
        carol.sends("me too").to(name);
        keeps(&carol, "and again", name);
        assert_eq!(alice.presence_of(name).as_deref(), Some("disconnected"));
        let registers = json!({"name": name});
        let (registered, read) = match at {
            0 | 1 => {
                let agent = if at == 0 {
                    broker.client()
                } else {
                    Agent::modern(broker.wire(), json!({}))
                };
                (
                    agent.calls("register_session", registers),
                    agent.reads(json!({"acknowledge": "immediate"})),
                )
            }
            2 => {
                let agent = broker.http_modern(name);
                let registered = agent.calls("register_session", registers);
                (registered, agent.reads(json!({"acknowledge": "immediate"})))
            }
            _ => {
                let agent = broker.http_legacy(name);
                let registered = agent.calls("register_session", registers);
                (registered, agent.reads(json!({"acknowledge": "immediate"})))
            }
        };
        assert_eq!(registered["resumed"], true, "{registered}");
        assert_eq!(texts(&read), ["hello", "me too", "and again"]);
        // An immediate read is acknowledged once it is on its way.
        alice.awaits_status(&kept.id, "acknowledged");
    }
}

#[test]
fn only_a_name_is_kept_for_and_only_a_message_that_is_right() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let id = "01890000-0000-7000-8000-000000000000";
    for address in [id, "conversation:none", "bob@elsewhere", "bob@", " bob"] {
        let letter = alice
            .sends("hi")
            .with_argument("if_unknown", "keep")
            .arguments_to(address);
        let error = alice.is_refused("send_message", letter);
        assert!(
            ["session_not_found", "cross_project_disabled"].contains(&error["code"].as_str().unwrap()),
            "{error}"
        );
    }
    let letter = |arguments: serde_json::Value| {
        let mut all = json!({"recipient_id": "bob", "protocol_name": "note", "protocol_version": "1.0.0",
            "payload": {"text": "hi"}, "if_unknown": "keep"});
        all.as_object_mut()
            .unwrap()
            .extend(arguments.as_object().unwrap().clone());
        all
    };
    for (code, wrong) in [
        ("payload_invalid", json!({"payload": {"text": 7}})),
        ("protocol_not_found", json!({"protocol_name": "none-such"})),
        ("invalid_argument", json!({"if_unknown": "maybe"})),
    ] {
        alice.is_refused_as(code, "send_message", letter(wrong));
        assert_eq!(alice.presence_of("bob"), None, "{code}");
    }
    let repeated = json!({"headers": {"idempotency_key": "k"}});
    let [first, second] = [(); 2].map(|()| alice.calls("send_message", letter(repeated.clone()))["message_id"].clone());
    assert_eq!(first, second);
    assert_eq!(texts(&broker.agent("bob").reads(json!({}))), ["hi"]);
}

#[test]
fn an_expected_name_belongs_to_the_first_key_that_registers_it() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({"max_sessions": 3}));
    let [one, two, three] = [(); 3].map(|()| team.new_key_with_scope("member"));
    let alice = team.agent_as(&one, "alice");
    keeps(&alice, "hi", "bob");
    let bob = team.agent_as(&two, "bob");
    bob.sees(["hi"]);
    team.client_as(&three)
        .is_refused_as("forbidden", "register_session", json!({"name": "bob"}));
    team.client_as(&one)
        .is_refused_as("forbidden", "register_session", json!({"name": "bob"}));
    // It counts as a session.
    keeps(&alice, "hi", "carol");
    alice
        .sends("hi")
        .with_argument("if_unknown", "keep")
        .fails_as("forbidden", "dora");
}

#[test]
fn what_nobody_comes_for_becomes_a_dead_letter() {
    let broker = Broker::start_with(&[
        "--session-retention=1s",
        "--stale-threshold=500ms",
        "--disconnect-threshold=700ms",
        "--heartbeat-interval=100ms",
    ]);
    let alice = broker.agent("alice");
    let kept = keeps(&alice, "hi", "bob");
    let dead = eventually("the name is given up", || {
        let letters = alice.dead_letters("recipient_gone");
        (!letters.is_empty()).then_some(letters)
    });
    assert_eq!(dead[0]["message"]["message_id"], kept.id.as_str());
    assert_eq!(alice.presence_of("bob"), None);
}
