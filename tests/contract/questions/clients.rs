//! Questions that are also put to the client of their asker, as a form of MCP (elicitation).

use serde_json::{Value, json};

use super::awaits_empty_inbox;
use crate::support::{Agent, Broker};

fn form_agent(broker: &Broker, name: &str) -> Agent {
    Agent::legacy(broker.wire(), "2025-11-25", &json!({"elicitation": {"form": {}}})).registered(name)
}

/// Waits for the form that the client is to show.
fn next_form(agent: &Agent) -> Value {
    agent
        .wire
        .awaits_frame("the client is asked", |frame| frame["method"] == "elicitation/create")
}

fn responds(agent: &Agent, form: &Value, result: &Value) {
    agent
        .wire
        .sends(&json!({"jsonrpc": "2.0", "id": form["id"], "result": result}));
}

#[test]
fn a_person_at_the_client_answers_while_no_person_is_at_the_desk() {
    let broker = Broker::without_timeouts();
    let alice = form_agent(&broker, "alice");
    let options = json!([{"value": "drop", "label": "Drop it"}, {"value": "keep", "label": "Keep it"}]);
    let call = alice.begins_call("clarify", &json!({"question": "Drop?", "options": options}));
    let form = next_form(&alice);
    assert_eq!(form["params"]["message"], "Drop?");
    let answer = &form["params"]["requestedSchema"]["properties"]["answer"];
    assert_eq!(
        answer["oneOf"],
        json!([{"const": "drop", "title": "Drop it"}, {"const": "keep", "title": "Keep it"}])
    );
    responds(
        &alice,
        &form,
        &json!({"action": "accept", "content": {"answer": "keep"}}),
    );
    let result = alice.finishes_call("clarify", &call);
    assert_eq!(
        (&result["state"], &result["answer"]["selected"]),
        (&json!("answered"), &json!(["keep"]))
    );
    assert_eq!(result["answered_by"]["via"], "elicitation");
    awaits_empty_inbox(&alice);
    // The agent gets no session that looks like a person's.
    let sessions = alice.calls("list_sessions", json!({}));
    let sessions = sessions["sessions"].as_array().unwrap();
    assert!(
        sessions.iter().all(|session| session["kind"] != "human"),
        "{sessions:?}"
    );
}

#[test]
fn a_client_that_declines_closes_its_form_and_not_the_question() {
    let broker = Broker::without_timeouts();
    let mara = broker.person("mara");
    let alice = form_agent(&broker, "alice");
    for action in ["decline", "cancel"] {
        let call = alice.begins_call("clarify", &json!({"question": action}));
        responds(&alice, &next_form(&alice), &json!({"action": action}));
        alice.syncs();
        assert!(!alice.wire.has_received(&call));
        mara.answers(&mara.awaits(action), json!({"text": "from the desk"}));
        let result = alice.finishes_call("clarify", &call);
        assert_eq!(result["answered_by"]["human"], "mara");
    }
}

#[test]
fn a_form_is_withdrawn_when_the_desk_answers_first_or_the_call_ends() {
    let broker = Broker::without_timeouts();
    let mara = broker.person("mara");
    let alice = form_agent(&broker, "alice");
    let call = alice.begins_call("clarify", &json!({"question": "First?"}));
    let form = next_form(&alice);
    mara.answers(&mara.awaits("First?"), json!({"text": "mine"}));
    assert_eq!(alice.finishes_call("clarify", &call)["answered_by"]["human"], "mara");
    let withdrawn = alice.wire.next_notification("notifications/cancelled");
    assert_eq!(withdrawn["requestId"], form["id"]);
    // The loser changes nothing.
    responds(
        &alice,
        &form,
        &json!({"action": "accept", "content": {"answer": "too late"}}),
    );
    alice.syncs();
    let short = alice.begins_call("clarify", &json!({"question": "Second?", "wait_seconds": 0.3}));
    let form = next_form(&alice);
    assert_eq!(alice.finishes_call("clarify", &short)["state"], "pending");
    let withdrawn = alice.wire.next_notification("notifications/cancelled");
    assert_eq!(withdrawn["requestId"], form["id"]);
}

#[test]
fn no_client_is_asked_for_a_secret_or_for_a_certain_person_or_where_the_operator_wants_the_desk_only() {
    let broker = Broker::without_timeouts();
    let alice = form_agent(&broker, "alice");
    for arguments in [
        json!({"question": "Password?", "sensitive": true, "wait_seconds": 0.2}),
        json!({"question": "Mara?", "to": "mara", "wait_seconds": 0.2}),
        json!({"question": "No wait?", "wait_seconds": 0}),
    ] {
        assert_eq!(alice.calls("clarify", arguments)["state"], "pending");
    }
    assert_eq!(alice.wire.notifications_so_far("elicitation/create"), 0);
    let plain = broker.agent("plain");
    plain.calls("clarify", json!({"question": "Undeclared?", "wait_seconds": 0.2}));
    assert_eq!(plain.wire.notifications_so_far("elicitation/create"), 0);
    let only = Broker::start_with(&["--clarify-by=desk"]);
    let bob = form_agent(&only, "bob");
    bob.calls("clarify", json!({"question": "Desk?", "wait_seconds": 0.2}));
    assert_eq!(bob.wire.notifications_so_far("elicitation/create"), 0);
}

#[test]
fn a_modern_client_is_asked_by_the_result_where_the_operator_wants_it_first() {
    let capabilities = json!({"elicitation": {"form": {}}});
    // By default it waits at the desk.
    let usual = Broker::without_timeouts();
    let agent = Agent::modern(usual.wire(), capabilities.clone()).registered("alice");
    let pending = agent.calls("clarify", json!({"question": "Desk?", "wait_seconds": 0.2}));
    assert_eq!(pending["state"], "pending");
    let first = Broker::start_with(&["--clarify-by=client"]);
    let call = |mut extra: Value| {
        extra["name"] = json!("clarify");
        extra["arguments"] = json!({"question": "Here?", "options": ["yes", "no"], "wait_seconds": 0});
        extra
    };
    let bob = Agent::modern(first.wire(), capabilities).registered("bob");
    let asked = bob.request("tools/call", call(json!({}))).unwrap();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let request = &asked["inputRequests"]["answer"];
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(request["params"]["message"], "Here?");
    let state = &asked["requestState"];
    let accepted = json!({"answer": {"action": "accept", "content": {"answer": "yes"}}});
    let done = bob
        .request(
            "tools/call",
            call(json!({"requestState": state, "inputResponses": accepted})),
        )
        .unwrap();
    let result = &done["structuredContent"];
    assert_eq!(
        (&result["state"], &result["answer"]["selected"]),
        (&json!("answered"), &json!(["yes"])),
        "{done}"
    );
    // A client that declines waits at the desk, for the same question.
    let asked = bob.request("tools/call", call(json!({}))).unwrap();
    let declined = json!({"answer": {"action": "decline"}});
    let waits = call(json!({"requestState": asked["requestState"], "inputResponses": declined}));
    let pending = bob.request("tools/call", waits).unwrap();
    assert_eq!(pending["structuredContent"]["state"], "pending");
    assert_eq!(first.person("mara").sees().len(), 1);
    // A state of another request is refused.
    let mut other = call(json!({"requestState": asked["requestState"]}));
    other["arguments"]["question"] = json!("There?");
    assert_eq!(bob.error_of("tools/call", other), -32602);
}
