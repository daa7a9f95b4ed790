//! The tools `get_thread` and `search_messages`.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, eventually};

impl Agent {
    /// The ids of all messages that a tool of the history finds, page by page.
    fn finds_all(&self, tool: &str, mut arguments: Value) -> Vec<Value> {
        let mut found = Vec::new();
        loop {
            let mut page = self.calls(tool, arguments.clone());
            let Value::Array(messages) = page["messages"].take() else {
                panic!("no list: {page}")
            };
            found.extend(messages);
            match page["next_cursor"].take() {
                Value::Null => return found,
                cursor => arguments["cursor"] = cursor,
            }
        }
    }

    /// The messages that a tool of the history finds, once there are this many: some storages write their history behind.
    fn finds(&self, tool: &str, arguments: &Value, len: usize) -> Vec<Value> {
        eventually(&format!("{tool} {arguments} finds {len}"), || {
            let found = self.finds_all(tool, arguments.clone());
            (found.len() == len).then_some(found)
        })
    }

    /// The subjects of the messages that a search finds, newest first.
    fn searches(&self, arguments: &Value) -> Vec<String> {
        let found = self.finds_all("search_messages", arguments.clone());
        let subjects = found.iter().map(|message| &message["headers"]["subject"]);
        subjects.map(|subject| subject.as_str().unwrap().to_owned()).collect()
    }
}

fn ids(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| message["message_id"].as_str().unwrap())
        .collect()
}

#[test]
fn a_thread_has_the_own_messages_oldest_first() {
    let broker = Broker::start();
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| broker.agent(name));
    let question = alice.sends("1").with("subject", "plans").to(&bob);
    let thread = question.id.as_str();
    let answer = bob.sends("2").with("thread_id", thread).to(&alice);
    alice.sends("of another thread").with("thread_id", "other").to(&bob);
    let aside = carol.sends("3").with("thread_id", thread).to(&bob);
    let all = bob.sends("4").with("thread_id", thread).to_everyone();
    let all = all["message_id"].as_str().unwrap();
    alice.sends("of no thread").to(&bob);
    let arguments = json!({"thread_id": thread});
    let of_bob = bob.finds("get_thread", &arguments, 4);
    assert_eq!(ids(&of_bob), [thread, &answer.id, &aside.id, all]);
    assert_eq!(
        ids(&alice.finds("get_thread", &arguments, 3)),
        [thread, &answer.id, all]
    );
    assert_eq!(ids(&carol.finds("get_thread", &arguments, 2)), [&*aside.id, all]);
    // The tool that agents are listed reads a thread as well.
    assert_eq!(bob.finds_all("search_messages", arguments.clone()), of_bob);
    for limit in [1, 2, 3, 4] {
        let in_pages = bob.finds_all("get_thread", json!({"thread_id": thread, "limit": limit}));
        assert_eq!(in_pages, of_bob, "pages of {limit}");
    }
    let first = &of_bob[0];
    assert_eq!(
        (
            &first["sender_name"],
            &first["recipient_name"],
            &first["headers"]["subject"]
        ),
        (&json!("alice"), &json!("bob"), &json!("plans"))
    );
    assert!(first.get("payload").is_none(), "{first}");
    assert_eq!(alice.finds("get_thread", &json!({"thread_id": "other"}), 1).len(), 1);
    assert_eq!(
        carol.finds_all("get_thread", json!({"thread_id": "other"})),
        [Value::Null; 0]
    );
    assert_eq!(
        broker
            .agent("late")
            .finds_all("get_thread", json!({"thread_id": thread})),
        [Value::Null; 0],
        "a session that came later got no copy of the broadcast"
    );
}

#[test]
fn a_thread_shows_payloads_while_they_are_kept() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    for text in ["read", "waiting", &"x".repeat(256 << 10)] {
        alice.sends(text).with("thread_id", "t").to(&bob);
    }
    let arguments = json!({"thread_id": "t", "include_payloads": true});
    bob.calls("receive_messages", json!({"limit": 1, "acknowledge": "immediate"}));
    let thread = alice.finds("get_thread", &arguments, 3);
    let payloads: Vec<_> = thread.iter().map(|message| &message["payload"]).collect();
    assert_eq!(payloads, [&Value::Null, &json!({"text": "waiting"}), &Value::Null]);
    assert_eq!(alice.finds_all("search_messages", arguments.clone()), thread);
    assert_eq!(
        bob.calls("heartbeat", json!({}))["queue_size"],
        2,
        "reading a thread acknowledges nothing"
    );

    let keeping = Broker::start_with(&["--message-history-payloads=true"]);
    let (alice, bob) = (keeping.agent("alice"), keeping.agent("bob"));
    let texts: Vec<_> = (0..5).map(|at| format!("{at}{}", "x".repeat(100 << 10))).collect();
    for text in &texts {
        alice.sends(text).with("thread_id", "t").to(&bob);
        bob.calls("receive_messages", json!({"acknowledge": "immediate"}));
    }
    let thread = bob.finds("get_thread", &arguments, 5);
    let kept: Vec<_> = thread
        .iter()
        .map(|message| message["payload"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(kept, texts);
    let page = bob.calls("get_thread", arguments);
    assert_eq!(
        page["messages"].as_array().unwrap().len(),
        3,
        "a page has at most 384 KiB"
    );
}

#[test]
fn a_search_finds_own_messages_newest_first() {
    let broker = Broker::start();
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| broker.agent(name));
    let schema = json!({"name": "clock-tower", "version": "1.0.0", "schema": {}});
    alice.calls("register_protocol", schema);
    let clock = alice
        .sends("a")
        .with("subject", "Ähren")
        .with_argument("protocol_name", "clock-tower");
    clock.to(&bob);
    alice
        .sends("b")
        .with("subject", "Plan of MAY")
        .with("thread_id", "spring")
        .to(&bob);
    bob.sends("c")
        .with("subject", "in June")
        .with("correlation_id", "May-1")
        .to(&alice);
    carol.sends("d").with("subject", "may I?").to(&bob);
    let sent = bob
        .sends("e")
        .with("subject", "to all")
        .with("thread_id", "spring")
        .to_everyone();
    bob.finds("search_messages", &json!({"query": "a"}), 5);
    for (arguments, expected) in [
        (json!({"query": "may"}), &["in June", "Plan of MAY"][..]),
        (json!({"query": "ÄHR"}), &["Ähren"]),
        (json!({"query": "k-tow"}), &["Ähren"]),
        (json!({"query": "BOB"}), &["to all", "in June", "Plan of MAY", "Ähren"]),
        // The own name selects nothing, and another session's messages are not found.
        (json!({"query": "alice"}), &[]),
        (json!({"query": "may i?"}), &[]),
        (json!({"query": "bob", "from": "bob"}), &["to all", "in June"]),
        (json!({"query": "bob", "from": bob.session}), &["to all", "in June"]),
        (json!({"query": "bob", "from": "bo"}), &[]),
        (
            json!({"query": "bob", "thread_id": "spring"}),
            &["to all", "Plan of MAY"],
        ),
        (json!({"query": "bob", "thread_id": sent["message_id"]}), &[]),
        (
            json!({"query": "bob", "since": "2020-01-01T00:00:00Z", "limit": 1}),
            &["to all", "in June", "Plan of MAY", "Ähren"],
        ),
        (json!({"query": "bob", "since": "2999-01-01T00:00:00+02:00"}), &[]),
    ] {
        assert_eq!(alice.searches(&arguments), expected, "{arguments}");
    }
    assert_eq!(carol.searches(&json!({"query": "may"})), ["may I?"]);
}

#[test]
fn payloads_are_searched_where_the_history_keeps_them() {
    for (flags, expected) in [(&[][..], 0), (&["--message-history-payloads=true"], 2)] {
        let broker = Broker::start_with(flags);
        let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
        alice.sends("deep Rivers").with("subject", "1").to(&bob);
        alice
            .sends("")
            .with("subject", "2")
            .with_argument("payload", json!({"text": "", "more": [{"rivers": 1}, "the RIVER\"s"]}))
            .to(&bob);
        bob.sends("river").with("subject", "3").to(&bob);
        alice.finds("search_messages", &json!({"query": "bob"}), 2);
        bob.finds("search_messages", &json!({"query": "3"}), 1);
        assert_eq!(alice.searches(&json!({"query": "RIVER"})).len(), expected);
        assert_eq!(alice.searches(&json!({"query": "river\"S"})).len(), expected / 2);
        // Names of members are no text.
        assert_eq!(alice.searches(&json!({"query": "more"})), [""; 0]);
        let of_thread = alice.finds_all("get_thread", json!({"thread_id": "rivers"}));
        assert_eq!(of_thread, [Value::Null; 0]);
        for (tool, arguments) in [
            ("get_thread", json!({"thread_id": "rivers"})),
            ("search_messages", json!({"query": "river"})),
        ] {
            assert_eq!(alice.calls(tool, arguments)["payloads_kept"], expected > 0, "{tool}");
        }
    }
}

#[test]
fn threads_of_another_project_do_not_exist() {
    let broker = Broker::secured();
    let [here, there] = ["here", "there"].map(|id| broker.project(id, &json!({})));
    let sent: Vec<_> = [&here, &there]
        .map(|project| {
            let alice = project.agent("alice");
            let sent = alice.sends("hi").with("thread_id", "t").with("subject", "s").to(&alice);
            (alice, sent.id)
        })
        .into();
    for (alice, id) in &sent {
        assert_eq!(ids(&alice.finds("get_thread", &json!({"thread_id": "t"}), 1)), [id]);
        assert_eq!(ids(&alice.finds("search_messages", &json!({"query": "s"}), 1)), [id]);
    }
    let (alice, _) = &sent[0];
    let (_, theirs) = &sent[1];
    for thread_id in [theirs.as_str(), "t\"", "T"] {
        let found = alice.finds_all("get_thread", json!({"thread_id": thread_id}));
        assert_eq!(found, [Value::Null; 0]);
    }
    // Another session of the same key sees only what it sent or got itself.
    let bob = here.agent("bob");
    assert_eq!(bob.finds_all("get_thread", json!({"thread_id": "t"})), [Value::Null; 0]);
    assert_eq!(
        bob.finds_all("search_messages", json!({"query": "s"})),
        [Value::Null; 0]
    );
}
