//! Messages between versions of a protocol: each recipient gets the version that it declares.
//!
//! The protocol `task` has a member `what` in 1.0.0, which 2.0.0 calls `title`. 3.0.0 adds a `size` and refuses one title,
//! which its lens cannot know.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, eventually, keys};

fn object(properties: &Value) -> Value {
    json!({
        "type": "object", "properties": properties, "required": keys(properties), "additionalProperties": false,
    })
}

/// Registers the versions of `task` with their lenses.
fn registers_versions(agent: &Agent) {
    let text = json!({"type": "string"});
    let title = json!({"type": "string", "not": {"const": "forbidden"}});
    let versions = [
        ("1.0.0", json!({"what": text}), Value::Null),
        (
            "2.0.0",
            json!({"title": text}),
            json!([{"op": "rename", "path": "/what", "to": "title"}]),
        ),
        (
            "3.0.0",
            json!({"title": title, "size": {"type": "integer"}}),
            json!([{"op": "add", "path": "/size", "value": 1}]),
        ),
    ];
    let mut before = None;
    for (version, properties, lens) in versions {
        let mut protocol = json!({"name": "task", "version": version, "schema": object(&properties)});
        if let Some(before) = before.replace(version) {
            (protocol["from"], protocol["lens"]) = (json!(before), lens);
        }
        agent.calls("register_protocol", protocol);
    }
}

/// The arguments by which a session declares this version.
fn declares(name: &str, version: &str) -> Value {
    json!({"name": name, "capabilities": {"supported_protocols": {"task": [version]}}})
}

impl Agent {
    /// Registers the session of this client again, with this version.
    fn speaks(&self, version: &str) {
        self.calls("register_session", declares(&self.name, version));
    }

    fn sends_task(&self, version: &str, payload: Value, headers: Value, to: &str) -> Value {
        let arguments = json!({
            "recipient_id": to, "protocol_name": "task", "protocol_version": version, "payload": payload, "headers": headers,
        });
        self.calls("send_message", arguments)
    }
}

/// Version, payload and what was done to it.
fn form(message: &Value) -> Value {
    json!([message["protocol_version"], message["payload"], message["transformed"]])
}

#[test]
fn a_message_is_pushed_in_the_version_of_its_recipient_and_acknowledged() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    registers_versions(&alice);
    let bob = broker.push_agent("bob", &json!({"ack": "auto"}));
    bob.speaks("3.0.0");
    bob.syncs();
    for at in 0..40 {
        let sent = alice.sends_task(
            "1.0.0",
            json!({"what": format!("dig {at}")}),
            json!({"priority": "high"}),
            "bob",
        );
        let told = json!({"from": "1.0.0", "to": "3.0.0", "loss": [], "defaulted": ["/size"]});
        assert_eq!(sent["transform"], told);
        let pushed = bob.next_push();
        assert_eq!(
            form(&pushed),
            json!(["3.0.0", {"title": format!("dig {at}"), "size": 1}, told])
        );
        assert_eq!(
            (&pushed["message_id"], &pushed["headers"]),
            (&sent["message_id"], &json!({"priority": "high"}))
        );
        let id = sent["message_id"].as_str().unwrap();
        alice.awaits_status(id, "acknowledged");
        assert_eq!(alice.recipient_statuses(id)[0]["transformed"], told);
    }
    let back = bob.sends_task("3.0.0", json!({"title": "dug", "size": 7}), json!({}), "alice");
    assert_eq!(back["transform"], Value::Null, "alice declares nothing");
    alice.speaks("2.0.0");
    let back = bob.sends_task("3.0.0", json!({"title": "dug", "size": 7}), json!({}), "alice");
    assert_eq!(back["transform"]["loss"], json!(["/size"]));
    let seen = alice.reads(json!({}));
    assert_eq!(seen[1]["payload"], json!({"title": "dug"}));
    let refused = json!({
        "recipient_id": "alice", "protocol_name": "task", "protocol_version": "3.0.0",
        "payload": {"title": "dug", "size": 7}, "headers": {"transform": "lossless"},
    });
    let error = bob.is_refused_as("transform_failed", "send_message", refused);
    assert_eq!(
        (&error["detail"]["reason"], &error["detail"]["loss"]),
        (&json!("would_lose"), &json!(["/size"]))
    );
}

#[test]
fn a_broadcast_reaches_each_version() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    registers_versions(&alice);
    let agents: Vec<_> = ["1.0.0", "1.0.0", "2.0.0", "3.0.0"]
        .into_iter()
        .zip(broker.agents("a", 4))
        .collect();
    for (version, agent) in &agents {
        agent.speaks(version);
    }
    let broadcast = |title: &str| {
        alice.calls(
            "broadcast_message",
            json!({
                "protocol_name": "task", "protocol_version": "2.0.0", "payload": {"title": title},
            }),
        )
    };
    let answer = broadcast("dig");
    let mut rows = answer["transforms"].as_array().unwrap().clone();
    rows.sort_by_key(|row| row["to"].to_string());
    assert_eq!(
        rows,
        [
            json!({"to": "1.0.0", "recipients": 2, "loss": [], "defaulted": []}),
            json!({"to": "3.0.0", "recipients": 1, "loss": [], "defaulted": ["/size"]}),
        ]
    );
    assert_eq!((&answer["recipients"], &answer["failed"]), (&json!(4), &json!(0)));
    for (version, agent) in &agents {
        let payload = match *version {
            "1.0.0" => json!({"what": "dig"}),
            "2.0.0" => json!({"title": "dig"}),
            _ => json!({"title": "dig", "size": 1}),
        };
        let seen = agent.reads(json!({"wait_seconds": 20}));
        assert_eq!(
            (&seen[0]["protocol_version"], &seen[0]["payload"]),
            (&json!(version), &payload)
        );
    }
    let answer = broadcast("forbidden");
    assert_eq!((&answer["recipients"], &answer["failed"]), (&json!(4), &json!(1)));
    assert_eq!(
        answer["failures"],
        json!([{"session_id": agents[3].1.session, "code": "transform_failed"}])
    );
}

#[test]
fn a_repeat_says_what_lenses_did_when_the_first_was_sent() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, bob, far) = (here.agent("alice"), here.agent("bob"), there.agent("far"));
    registers_versions(&alice);
    registers_versions(&far);
    bob.speaks("1.0.0");
    far.speaks("1.0.0");
    let (payload, headers) = (json!({"title": "dig", "size": 9}), json!({"idempotency_key": "dig-1"}));
    let sends = |to: &str| alice.sends_task("3.0.0", payload.clone(), headers.clone(), to);
    let everyone = json!({
        "protocol_name": "task", "protocol_version": "3.0.0", "payload": {"title": "dig", "size": 9},
        "headers": {"idempotency_key": "dig-2"},
    });
    let broadcasts = || alice.calls("broadcast_message", everyone.clone());
    let first = sends("bob");
    assert_eq!(first["transform"]["loss"], json!(["/size"]));
    let other = json!({"idempotency_key": "dig-3"});
    let remote = alice.sends_task("3.0.0", payload.clone(), other.clone(), "far@there");
    assert_eq!(remote["transform"], json!({"from": "3.0.0", "loss": ["/size"]}));
    let to_all = broadcasts();
    assert_eq!(to_all["transforms"][0]["to"], "1.0.0");
    bob.speaks("3.0.0");
    far.speaks("3.0.0");
    let of = |answer: &Value| {
        [
            answer["message_id"].clone(),
            answer["transform"].clone(),
            answer["transforms"].clone(),
        ]
    };
    assert_eq!(of(&sends("bob")), of(&first));
    assert_eq!(of(&broadcasts()), of(&to_all));
    let again = alice.sends_task("3.0.0", payload.clone(), other, "far@there");
    assert_eq!(of(&again), of(&remote));
}

#[test]
fn a_message_that_its_recipient_can_no_longer_get_is_a_dead_letter_with_a_note() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    registers_versions(&alice);
    let bob = broker.agent("bob");
    bob.speaks("1.0.0");
    let texts = ["one", "forbidden", "two"];
    let sent = texts.map(|text| alice.sends_task("1.0.0", json!({"what": text}), json!({}), "bob"));
    bob.speaks("3.0.0");
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(bob.reads(json!({"wait_seconds": 20})));
    }
    let titles: Vec<_> = seen.iter().map(|message| &message["payload"]["title"]).collect();
    assert_eq!(titles, ["one", "two"]);
    let failed = sent[1]["message_id"].as_str().unwrap();
    alice.awaits_status(failed, "dead_lettered");
    let status = alice.recipient_statuses(failed);
    assert_eq!(status[0]["reason"], "transform_failed");
    assert!(
        status[0]["note"].as_str().unwrap().contains("does not fit"),
        "{status:?}"
    );
    let letters = alice.dead_letters("transform_failed");
    assert_eq!(letters[0]["message"]["message_id"], failed);
    assert_eq!(
        letters[0]["message"]["payload"],
        json!({"what": "forbidden"}),
        "as it was sent"
    );
    let report = eventually("the report", || {
        alice
            .reads(json!({"acknowledge": "immediate", "wait_seconds": 1}))
            .pop()
    });
    let entry = &report["payload"]["messages"][0];
    assert_eq!(
        (&entry["message_id"], &entry["reason"]),
        (&json!(failed), &json!("transform_failed"))
    );
    // A redrive tries again with what holds then.
    bob.speaks("2.0.0");
    alice.calls("redrive_dead_letters", json!({"message_ids": [failed]}));
    let again = eventually("the redriven message", || {
        let seen = bob.reads(json!({"acknowledge": "immediate", "wait_seconds": 1}));
        seen.into_iter().find(|message| message["message_id"] == failed)
    });
    assert_eq!(again["payload"], json!({"title": "forbidden"}));
}

#[test]
fn a_call_that_does_not_wait_gets_the_first_message_that_its_version_admits() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    registers_versions(&alice);
    let bob = broker.agent("bob");
    bob.speaks("1.0.0");
    for text in ["forbidden", "forbidden", "fine", "last"] {
        alice.sends_task("1.0.0", json!({"what": text}), json!({}), "bob");
    }
    bob.speaks("3.0.0");
    let seen = bob.reads(json!({"limit": 1}));
    assert_eq!(form(&seen[0])[1], json!({"title": "fine", "size": 1}));
    assert_eq!(
        form(&bob.reads(json!({"limit": 1}))[0])[1],
        json!({"title": "last", "size": 1})
    );
}

#[test]
fn a_complement_brings_back_what_was_lost() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    registers_versions(&alice);
    alice.speaks("3.0.0");
    let bob = broker.agent("bob");
    let mut capable = declares("bob", "1.0.0");
    capable["capabilities"]["supported_features"] = json!(["complement"]);
    bob.calls("register_session", capable);
    alice.sends_task("3.0.0", json!({"title": "dig", "size": 9}), json!({}), "bob");
    let seen = bob.reads(json!({"wait_seconds": 20}));
    assert_eq!(seen[0]["payload"], json!({"what": "dig"}));
    let complement = &seen[0]["transformed"]["complement"];
    let told = bob.sends_task(
        "1.0.0",
        json!({"what": "dug"}),
        json!({"complement": complement}),
        "alice",
    );
    assert_eq!(told["transform"]["defaulted"], json!([]));
    let back = alice.reads(json!({"wait_seconds": 20}));
    assert_eq!(back[0]["payload"], json!({"title": "dug", "size": 9}));
}

#[test]
fn a_large_message_is_transformed_and_keeps_its_place() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    registers_versions(&alice);
    let bob = broker.agent("bob");
    bob.speaks("1.0.0");
    let large = "x".repeat(300_000);
    for text in ["first", &large, "last"] {
        alice.sends_task("1.0.0", json!({"what": text}), json!({}), "bob");
    }
    bob.speaks("2.0.0");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(bob.reads(json!({"wait_seconds": 20})));
    }
    let titles: Vec<_> = seen
        .iter()
        .map(|message| message["payload"]["title"].as_str().unwrap())
        .collect();
    assert_eq!(titles, ["first", &large, "last"]);
}

/// What has no room in an answer was not delivered: neither a limit of deliveries nor a receipt counts it.
#[test]
fn messages_that_grow_beyond_an_answer_come_with_the_next_one_as_their_first_delivery() {
    const MESSAGES: usize = 200;
    let broker = Broker::start_with(&["--delivery-limit=1"]);
    let alice = broker.agent("alice");
    registers_versions(&alice);
    let text = json!({"type": "string"});
    alice.calls(
        "register_protocol",
        json!({
            "name": "task", "version": "4.0.0", "schema": object(&json!({"title": text, "note": text})), "from": "2.0.0",
            "lens": [{"op": "add", "path": "/note", "value": "x".repeat(4000)}],
        }),
    );
    let bob = broker.agent("bob");
    bob.speaks("2.0.0");
    let sent: Vec<_> = (0..MESSAGES)
        .map(|at| {
            let mut sent = alice.sends_task("2.0.0", json!({"title": at.to_string()}), json!({}), "bob");
            sent["message_id"].take()
        })
        .collect();
    bob.speaks("4.0.0");
    let (mut seen, mut receipt, mut answers) = (Vec::new(), json!(""), 0);
    while seen.len() < MESSAGES {
        let mut read = bob.calls("receive_messages", json!({"limit": 1000, "receipt": receipt}));
        let messages = read["messages"].as_array().unwrap();
        assert!(!messages.is_empty(), "{} of {MESSAGES}", seen.len());
        assert!(messages.iter().all(|message| message["delivery_count"] == 1));
        seen.extend(messages.iter().map(|message| message["message_id"].clone()));
        (receipt, answers) = (read["receipt"].take(), answers + 1);
    }
    assert!(seen == sent && answers > 1, "{answers} answers");
    bob.reads(json!({"receipt": receipt}));
    assert_eq!(alice.calls("list_dead_letters", json!({}))["dead_letters"], json!([]));
    for id in &sent {
        assert_eq!(alice.status_of(id.as_str().unwrap()), "acknowledged");
    }
}

#[test]
fn the_sender_learns_what_its_recipient_got() {
    let broker = Broker::secured();
    let project = broker.project("team", &json!({}));
    let alice = project.agent("alice");
    registers_versions(&alice);
    let mut bob = project.agent("bob");
    let gets = |path: &str| {
        let response = broker.rest(&project.key, "GET", &format!("/api/v1/{path}"), &Value::Null);
        response.json()
    };
    let sent = alice.sends_task("3.0.0", json!({"title": "dig", "size": 9}), json!({}), "bob");
    let id = sent["message_id"].as_str().unwrap();
    let row = || alice.recipient_statuses(id).remove(0);
    assert_eq!(
        (&sent["transform"], &row()["transformed"]),
        (&Value::Null, &Value::Null)
    );
    let forms = [
        (
            "1.0.0",
            json!({"from": "3.0.0", "to": "1.0.0", "loss": ["/size"], "defaulted": []}),
        ),
        ("3.0.0", Value::Null),
        (
            "2.0.0",
            json!({"from": "3.0.0", "to": "2.0.0", "loss": ["/size"], "defaulted": []}),
        ),
    ];
    for (version, transformed) in &forms {
        bob.speaks(version);
        let seen = bob.reads(json!({"acknowledge": "manual", "wait_seconds": 20}));
        assert_eq!(
            (&seen[0]["protocol_version"], &seen[0]["transformed"]),
            (&json!(version), transformed)
        );
        assert_eq!(
            (&row()["status"], &row()["transformed"]),
            (&json!("delivered"), transformed)
        );
        if *version != "2.0.0" {
            bob.wire.disconnects();
            alice.awaits_status(id, "queued");
            bob = project.agent("bob");
        }
    }
    bob.calls("acknowledge_messages", json!({"message_ids": [id], "outcome": "done"}));
    let last = &forms[2].1;
    assert_eq!((&row()["outcome"], &row()["transformed"]), (&json!("done"), last));
    let life = eventually("the acknowledgement is in the history", || {
        let life = gets(&format!("messages/{id}"));
        let events = life["recipients"][0]["events"].as_array()?;
        (events.last()?["event"] == "acknowledged").then(|| life["recipients"][0].clone())
    });
    assert_eq!(life["transformed"], *last);
    let delivered = life["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["event"] == "delivered");
    let in_log: Vec<_> = delivered.map(|event| &event["transformed"]).collect();
    assert_eq!(in_log, forms.iter().map(|(_, form)| form).collect::<Vec<_>>());
    let usage = gets("protocols/task?window=1h");
    let copies = |at: usize| (&usage["versions"][at]["version"], &usage["versions"][at]["delivered"]);
    // Deliveries after the first are no further copies.
    assert_eq!(copies(0), (&json!("1.0.0"), &json!({"as_sent": 0, "transformed": 1})));
    assert_eq!(copies(2), (&json!("3.0.0"), &json!({"as_sent": 0, "transformed": 0})));
}

#[test]
fn a_sender_in_another_project_learns_only_what_was_lost() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    registers_versions(&alice);
    registers_versions(&bob);
    bob.speaks("1.0.0");
    let sent = alice.sends_task("3.0.0", json!({"title": "dig", "size": 9}), json!({}), "bob@there");
    let shown = json!({"from": "3.0.0", "loss": ["/size"]});
    assert_eq!(sent["transform"], shown);
    bob.reads(json!({"wait_seconds": 20}));
    let status = alice.recipient_statuses(sent["message_id"].as_str().unwrap());
    assert_eq!(status[0]["transformed"], shown);
}
