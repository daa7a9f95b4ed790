//! Messages between projects: which senders are permitted, what each side learns, and what it does not.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::{Agent, Broker, eventually, masked_frame};

fn open_config() -> Value {
    json!({"allow_cross_project": true})
}

/// The error of sending to this address.
fn send_error(agent: &Agent, code: &str, recipient: &str) -> Value {
    let error = agent.sends("hi").fails_as(code, recipient);
    // The wait differs each time.
    assert_eq!(error.get("retry_after_ms").is_some(), code == "rate_limited", "{error}");
    error
}

#[test]
fn a_message_crosses_when_both_projects_permit_it() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    let by_id = format!("{}@there", bob.session);
    for recipient in ["bob@there", by_id.as_str()] {
        let sent = alice.sends(recipient).with("correlation_id", "c").to(recipient);
        assert!(sent.object.get("queue_size").is_none(), "{sent:?}");
        let message = bob.sees([recipient]).remove(0);
        assert_eq!(message["message_id"], sent.id.as_str());
        assert_eq!(message["project_id"], "here");
        assert_eq!(message["sender_name"], "alice");
        assert_eq!(message["sender_id"], alice.session.as_str());
        assert_eq!(message["recipient_id"], bob.session.as_str());
        assert_eq!(message["headers"]["correlation_id"], "c");
    }
    // An address may name the own project, which needs no permission.
    alice.sends("home").to("alice@here");
    alice.sees(["home"]);
}

#[test]
fn refusals_are_checked_in_the_documented_order() {
    let broker = Broker::secured();
    let (here, there) = (broker.project("here", &json!({})), broker.project("there", &json!({})));
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    // In every configuration, existing and unknown recipients get the same answer.
    let refused = |code: &str, detail: Value| {
        let error = send_error(&alice, code, "bob@there");
        assert_eq!(error["detail"], detail, "{error}");
        assert_eq!(send_error(&alice, code, "nobody@there"), error);
        let unknown = alice.sends("hi").with_argument("protocol_name", "unheard-of");
        assert_eq!(unknown.fails_as(code, "bob@there")["code"], code);
        let wrong = alice.sends("hi").with_argument("payload", json!({"text": 1}));
        assert_eq!(wrong.fails_as(code, "bob@there")["detail"], detail);
    };
    refused("cross_project_disabled", json!({"project": "own"}));
    there.update(&json!({"config": open_config()}));
    refused("cross_project_disabled", json!({"project": "own"}));
    there.update(&json!({"config": {"allow_cross_project": false}}));
    here.update(&json!({"config": open_config()}));
    refused("cross_project_disabled", json!({"project": "target"}));
    here.allow_sending_to(
        "there",
        &json!({"allowed_protocols": ["other"], "message_rate_limit": 1}),
    );
    refused("cross_project_disabled", json!({"project": "target"}));
    here.rest("DELETE", "grants/there", &Value::Null);
    there.update(&json!({"config": open_config()}));
    refused("cross_project_forbidden", json!({"missing": "permission"}));
    // A permission of the other side has no effect here.
    there.allow_sending_to("here", &json!({}));
    refused("cross_project_forbidden", json!({"missing": "permission"}));
    here.allow_sending_to(
        "there",
        &json!({"allowed_protocols": ["other"], "message_rate_limit": 1}),
    );
    refused("cross_project_forbidden", json!({"missing": "protocol"}));
    here.allow_sending_to(
        "there",
        &json!({"allowed_protocols": ["note", "other"], "message_rate_limit": 1}),
    );
    alice.sends("hi").to("bob@there");
    for recipient in ["bob@there", "nobody@there"] {
        let error = send_error(&alice, "rate_limited", recipient);
        let wait = error["retry_after_ms"].as_u64().unwrap();
        assert!((1..=60_000).contains(&wait), "{error}");
        assert!(error.get("detail").is_none(), "{error}");
    }
    bob.sees(["hi"]);
    here.allow_sending_to("there", &json!({"allowed_protocols": ["note"]}));
    send_error(&alice, "session_not_found", "nobody@there");
    alice.sends("ho").to("bob@there");
    bob.sees(["ho"]);
}

#[test]
fn an_unknown_project_is_refused_like_a_closed_one() {
    let broker = Broker::secured();
    let here = broker.project("here", &open_config());
    broker.project("closed", &json!({"discoverable": true}));
    broker.project("gone", &open_config()).delete();
    let alice = here.agent("alice");
    for granted in [false, true] {
        if granted {
            for target in ["closed", "gone", "nowhere"] {
                here.allow_sending_to(target, &json!({}));
            }
        }
        let closed = send_error(&alice, "cross_project_disabled", "bob@closed");
        assert_eq!(closed["detail"]["project"], "target");
        for target in ["nowhere", "gone", "system", "NOT AN ID", "", "-", "a@b", "default"] {
            let refused = send_error(&alice, "cross_project_disabled", &format!("bob@{target}"));
            assert_eq!(refused, closed, "{target:?}");
        }
    }
    here.update(&json!({"config": {"allow_cross_project": false}}));
    let own = send_error(&alice, "cross_project_disabled", "bob@closed");
    assert_eq!(own["detail"]["project"], "own");
    for target in ["nowhere", "gone", "NOT AN ID", ""] {
        let refused = send_error(&alice, "cross_project_disabled", &format!("bob@{target}"));
        assert_eq!(refused, own, "{target:?}");
    }
}

#[test]
fn the_protocols_of_both_projects_are_checked() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    let teach = |agent: &Agent, name: &str, member: &str| {
        let schema = json!({"type": "object", "required": [member]});
        agent.calls(
            "register_protocol",
            json!({"name": name, "version": "1.0.0", "schema": schema}),
        );
    };
    teach(&alice, "ours", "a");
    teach(&bob, "theirs", "b");
    teach(&alice, "both", "a");
    teach(&bob, "both", "b");
    let letter = |name: &str, payload: Value| {
        let letter = alice.sends("").with_argument("protocol_name", name);
        letter.with_argument("payload", payload)
    };
    for name in ["ours", "theirs", "both"] {
        letter(name, json!({"a": 1, "b": 1})).to("bob@there");
    }
    for (name, payload, fits) in [
        ("ours", json!({"a": 1}), true),
        ("ours", json!({"b": 1}), false),
        ("theirs", json!({"b": 1}), true),
        ("theirs", json!({"a": 1}), false),
        ("both", json!({"a": 1}), false),
        ("both", json!({"b": 1}), false),
    ] {
        if fits {
            letter(name, payload).to("bob@there");
        } else {
            letter(name, payload).fails_as("payload_invalid", "bob@there");
        }
    }
    letter("neither", json!({})).fails_as("protocol_not_found", "bob@there");
    assert_eq!(bob.reads(json!({})).len(), 5);
}

#[test]
fn the_protocols_of_a_remote_recipient_are_not_revealed() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let alice = here.agent("alice");
    there.client().registered_with(&json!({
        "name": "bob", "capabilities": {"supported_protocols": {"secret-talk": ["3.1.4"]}},
    }));
    let error = alice.sends("hi").fails_as("incompatible_protocol", "bob@there");
    assert_eq!(error["detail"]["speaks"], json!([]));
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn a_sender_learns_the_status_of_its_message() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, other) = (here.agent("alice"), here.agent("other"));
    let bob = there.push_agent_as(&there.key, "bob", &json!({"ack": "manual", "window": 1}));
    let first = alice.sends("1").to("bob@there");
    if broker.answers_after_delivery() {
        assert_eq!(first.status, "delivered");
    }
    let second = alice.sends("2").to("bob@there");
    assert_eq!(
        (second.status.as_str(), alice.status_of(&second.id).as_str()),
        ("queued", "queued")
    );
    let pushed = bob.is_pushed(["1"]);
    assert_eq!(alice.status_of(&first.id), "delivered");
    bob.acknowledges(&pushed);
    alice.awaits_status(&first.id, "acknowledged");
    alice.awaits_status(&second.id, "delivered");
    // Also in the recipient's project, and nowhere else.
    assert_eq!(bob.status_of(&first.id), "acknowledged");
    let third = broker.project("third", &open_config());
    third
        .agent("nosy")
        .is_refused("get_message_status", json!({"message_id": first.id}));
    drop(other);
}

#[test]
fn a_sender_can_wait_for_a_remote_delivery() {
    let mut broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    for goal in ["delivered", "acknowledged"] {
        let call = alice
            .sends(goal)
            .with_argument("wait_for", goal)
            .begins_sending_to("bob@there");
        let messages = bob.sees([goal]);
        let told = if goal == "acknowledged" {
            assert_eq!(alice.wire.answer_so_far(&call), None);
            bob.acknowledges(&messages);
            alice.finishes_call("send_message", &call)
        } else {
            let told = alice.finishes_call("send_message", &call);
            bob.acknowledges(&messages);
            told
        };
        assert_eq!(told["status"], goal);
        assert!(
            told["delivered_at"].is_string() && told.get("queue_size").is_none(),
            "{told}"
        );
    }
    // A sender whose wait times out is told the status.
    let told = alice
        .sends("late")
        .with_argument("wait_for", "delivered")
        .with_argument("timeout_seconds", 0.05);
    assert_eq!(told.to("bob@there").status, "queued");
    bob.sees(["late"]);
    // So is a sender that waits when the broker stops.
    let call = alice
        .sends("last")
        .with_argument("wait_for", "acknowledged")
        .begins_sending_to("bob@there");
    eventually("the message is queued", || {
        (!bob.calls("list_sessions", json!({})).is_null() && bob.unread() == 1).then_some(())
    });
    alice.wire.syncs();
    broker.terminate();
    assert_eq!(alice.finishes_call("send_message", &call)["status"], "queued");
    assert!(broker.wait_for_exit().success());
}

#[test]
fn a_wait_for_a_remote_delivery_can_be_a_task() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let alice = Agent::modern(here.wire(), tasks).registered("alice");
    let bob = there.agent("bob");
    let arguments = alice
        .sends("hi")
        .with_argument("wait_for", "acknowledged")
        .arguments_to("bob@there");
    let call = json!({"name": "send_message", "arguments": arguments});
    let task = alice.request("tools/call", call).unwrap();
    assert_eq!(
        (&task["resultType"], &task["status"]),
        (&json!("task"), &json!("working"))
    );
    let messages = bob.sees(["hi"]);
    bob.acknowledges(&messages);
    let result = eventually("the task is completed", || {
        let found = alice.request("tasks/get", json!({"taskId": task["taskId"]})).unwrap();
        (found["status"] == "completed").then(|| found["result"].clone())
    });
    assert_eq!(result["structuredContent"]["status"], "acknowledged");
    assert_eq!(result["structuredContent"]["message_id"], messages[0]["message_id"]);
}

#[test]
fn a_remote_dead_letter_is_seen_in_both_projects() {
    let broker = Broker::secured_with(&["--delivery-limit=1"]);
    let [here, there] = broker.two_projects();
    let (alice, bob, nosy) = (here.agent("alice"), there.agent("bob"), broker.agent("nosy"));
    let late = alice.sends("late").with("ttl_seconds", 1).to("bob@there");
    alice.awaits_status(&late.id, "expired");
    let poison = alice.sends("poison").to("bob@there");
    bob.sees(["poison"]);
    bob.calls("disconnect_session", json!({}));
    alice.awaits_status(&poison.id, "dead_lettered");
    let bob = there.agent("bob");
    for (reason, id) in [("expired", &late.id), ("delivery_limit", &poison.id)] {
        for side in [&alice, &bob] {
            let letters = side.dead_letters(reason);
            assert_eq!(letters.len(), 1, "{letters:?}");
            assert_eq!(letters[0]["message"]["message_id"], id.as_str());
            assert_eq!(letters[0]["message"]["project_id"], "here");
        }
        assert_eq!(nosy.dead_letters(reason), [json!(null); 0]);
    }
    // The dead letter is in the project in which it died, and is redriven there.
    let ids = json!({"message_ids": [poison.id]});
    let from_here = alice.calls("redrive_dead_letters", ids.clone());
    assert_eq!(
        (&from_here["redriven"], &from_here["unknown"]),
        (&json!(0), &ids["message_ids"])
    );
    assert_eq!(bob.calls("redrive_dead_letters", ids)["redriven"], 1);
    bob.sees(["poison"]);
    assert_eq!(alice.dead_letters("delivery_limit"), [json!(null); 0]);
    alice.awaits_status(&poison.id, "delivered");
}

#[test]
fn a_sender_that_waits_is_told_that_the_remote_project_was_deleted() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, _bob) = (here.agent("alice"), there.agent("bob"));
    let call = alice
        .sends("hi")
        .with_argument("wait_for", "acknowledged")
        .with_argument("timeout_seconds", 100)
        .begins_sending_to("bob@there");
    eventually("the message waits in the other project", || {
        let shown = there.rest("GET", "", &Value::Null).json();
        let listed = there.client().calls("list_sessions", json!({}));
        assert_eq!(shown["counts"]["sessions"], 1);
        (listed["sessions"][0]["queue_size"] == 1).then_some(())
    });
    there.delete();
    let told = alice.finishes_call("send_message", &call);
    assert_eq!(told["status"], "dead_lettered");
    send_error(&alice, "cross_project_disabled", "bob@there");
}

#[test]
fn an_idempotency_key_sends_to_another_project_once() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    let letter = || alice.sends("once").with("idempotency_key", "k").to("bob@there");
    let first = letter();
    assert_eq!(letter(), first);
    bob.sees(["once"]);
    bob.sees_nothing();
    assert_eq!(letter(), first);
    bob.sees_nothing();
    assert_eq!(alice.status_of(&first.id), "acknowledged");
    // The key is refused for a recipient that never existed, unlike for one that has left.
    let unknown = alice.sends("once").with("idempotency_key", "other");
    unknown.fails_as("session_not_found", "nobody@there");
}

#[test]
fn concurrent_sends_with_one_key_send_to_another_project_once() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    for round in 0..5 {
        let key = format!("key {round}");
        let letter = || alice.sends("once").with("idempotency_key", key.as_str());
        let calls: Vec<_> = (0..40).map(|_| letter().begins_sending_to("bob@there")).collect();
        let answers = calls.iter().map(|call| alice.finishes_call("send_message", call));
        let ids: HashSet<_> = answers.map(|answer| answer["message_id"].to_string()).collect();
        assert_eq!(ids.len(), 1, "one message has one id: {ids:?}");
        bob.sees(["once"]);
        bob.sees_nothing();
    }
}

#[test]
fn an_idempotency_key_has_one_result_for_all_projects() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, bob, carol) = (here.agent("alice"), there.agent("bob"), here.agent("carol"));
    let letter = |text: &str, key: &str| alice.sends(text).with("idempotency_key", key);
    for (key, first, second) in [("out", "bob@there", "carol"), ("home", "carol", "bob@there")] {
        let sent = letter(key, key).to(first);
        assert_eq!(letter("another", key).to(second).id, sent.id);
        assert_eq!(letter("another", key).to(first).id, sent.id);
    }
    bob.sees(["out"]);
    carol.sees(["home"]);
    bob.sees_nothing();
    carol.sees_nothing();
    // A refused send does not use up its key.
    let refused = letter("lost", "free");
    refused.fails_as("session_not_found", "nobody@there");
    letter("found", "free").to("carol");
    carol.sees(["found"]);
}

#[test]
fn a_message_from_another_project_is_pushed_and_announced() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let alice = here.agent("alice");
    let pushed = there.push_agent_as(&there.key, "pushed", &json!({}));
    alice.sends("hi").to("pushed@there");
    let message = pushed.is_pushed(["hi"]).remove(0);
    assert_eq!(message["project_id"], "here");
    let told = there.agent("told");
    told.request("resources/subscribe", json!({"uri": "broker://inbox"}))
        .unwrap();
    alice.sends("hi").to("told@there");
    assert_eq!(
        told.wire.next_notification("notifications/resources/updated"),
        json!({"uri": "broker://inbox"})
    );
    let waiting = told.begins_call("receive_messages", &json!({"wait_seconds": 20}));
    let read = told.finishes_call("receive_messages", &waiting);
    assert_eq!(read["messages"][0]["payload"]["text"], "hi");
}

#[test]
fn an_answer_is_addressed_by_name_and_project() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    there.allow_sending_to("here", &json!({}));
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    alice.sends("question").to("bob@there");
    let question = bob.sees(["question"]).remove(0);
    let text = |name: &str| question[name].as_str().unwrap();
    let address = format!("{}@{}", text("sender_name"), text("project_id"));
    bob.sends("answer").with("reply_to", text("message_id")).to(&address);
    let answer = alice.sees(["answer"]).remove(0);
    assert_eq!(
        (&answer["project_id"], &answer["sender_name"]),
        (&json!("there"), &json!("bob"))
    );
}

#[test]
fn the_capacity_of_a_remote_inbox_is_set_by_its_project() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    here.update(&json!({"config": {"queue_capacity": 1}}));
    there.update(&json!({"config": {"queue_capacity": 2}}));
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    alice.sends("1").to("bob@there");
    alice.sends("2").to("bob@there");
    alice.sends("3").fails_as("queue_full", "bob@there");
    bob.sees(["1", "2"]);
}

#[test]
fn a_revoked_permission_ends_at_once() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    for (method, path, body) in [
        ("DELETE", "/api/v1/projects/here/grants/there", Value::Null),
        (
            "PATCH",
            "/api/v1/projects/here",
            json!({"config": {"allow_cross_project": false}}),
        ),
        (
            "PATCH",
            "/api/v1/projects/there",
            json!({"config": {"allow_cross_project": false}}),
        ),
    ] {
        let sent = alice.sends("before").to("bob@there");
        let key = if path.contains("projects/here") {
            &here.key
        } else {
            &there.key
        };
        assert_eq!(broker.rest(key, method, path, &body).status, 200, "{path}");
        let error = alice.is_refused("send_message", alice.sends("after").arguments_to("bob@there"));
        assert!(error["code"].as_str().unwrap().starts_with("cross_project_"), "{error}");
        // A message that was accepted before is delivered, and its sender learns of it.
        bob.sees(["before"]);
        bob.sees_nothing();
        assert_eq!(alice.status_of(&sent.id), "acknowledged");
        here.update(&json!({"config": open_config()}));
        there.update(&json!({"config": open_config()}));
        here.allow_sending_to("there", &json!({}));
    }
}

#[test]
fn a_broadcast_stays_in_its_project() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, carol) = (here.agent("alice"), here.agent("carol"));
    let bob = there.agent("bob");
    let told = alice.sends("everyone").to_everyone();
    assert_eq!((&told["recipients"], &told["skipped"]), (&json!(1), &json!(0)));
    carol.sees(["everyone"]);
    bob.sees_nothing();
}

#[test]
fn the_rate_of_a_permission_is_enforced_per_minute() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    here.allow_sending_to("there", &json!({"message_rate_limit": 120}));
    let (alice, other) = (here.agent("alice"), here.agent("other"));
    let _bob = there.agent("bob");
    let calls: Vec<_> = (0..130)
        .map(|_| alice.sends("hi").begins_sending_to("bob@there"))
        .collect();
    let results: Vec<_> = calls.iter().map(|call| alice.wire.answer_to(call).unwrap()).collect();
    let is_sent = |result: &&Value| result["isError"] == false;
    assert!((120..130).contains(&results.iter().filter(is_sent).count()));
    let refused = results.iter().find(|result| !is_sent(result)).unwrap();
    let error = &refused["structuredContent"];
    assert_eq!(error["code"], "rate_limited");
    assert!(
        (1..=500).contains(&error["retry_after_ms"].as_u64().unwrap()),
        "{error}"
    );
    // The limit is the project's, does not affect local messages, and ends after a while.
    alice.sends("home").to(&other);
    eventually("there is room again", || {
        let arguments = other.sends("hi").arguments_to("bob@there");
        let call = other.begins_call("send_message", &arguments);
        is_sent(&&other.wire.answer_to(&call).unwrap()).then_some(())
    });
}

#[test]
fn messages_of_one_read_batch_keep_their_order_per_recipient() {
    // Each project on its own thread.
    let broker = Broker::secured_with(&["--workers=2"]);
    let [here, there] = broker.two_projects();
    let (alice, carol, bob) = (here.agent("alice"), here.agent("carol"), there.agent("bob"));
    let mut frames = Vec::new();
    for at in 0..40 {
        let recipient = if at % 3 == 0 { "bob@there" } else { "carol" };
        let arguments = alice.sends(&at.to_string()).arguments_to(recipient);
        let params = json!({"name": "send_message", "arguments": arguments});
        let frame = json!({"jsonrpc": "2.0", "id": format!("m{at}"), "method": "tools/call", "params": params});
        frames.extend(masked_frame(0x81, frame.to_string().as_bytes()));
    }
    alice.wire.sends_bytes(&frames);
    for at in 0..40 {
        let result = alice.wire.answer_to(&json!(format!("m{at}"))).unwrap();
        assert_eq!(result["isError"], false, "{result}");
    }
    let mut seen = [&carol, &bob].map(|agent| {
        let read = agent.reads(json!({"limit": 100}));
        let numbers = read
            .iter()
            .map(|message| message["payload"]["text"].as_str().unwrap().parse::<u32>().unwrap());
        numbers.collect::<Vec<_>>()
    });
    assert!(seen.iter().all(|numbers| numbers.is_sorted()), "{seen:?}");
    seen[0].append(&mut seen[1].clone());
    seen[0].sort_unstable();
    assert_eq!(seen[0], (0..40).collect::<Vec<_>>());
}
