//! Delivery reports: a sender is told of its dead letters and of messages whose recipient is blocked.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{Agent, Broker, texts};

const REPORT: &str = "delivery-report";

/// What an agent was told: the reports, and their entries by message.
#[derive(Default)]
struct Told {
    reports: Vec<Value>,
    entries: BTreeMap<String, Value>,
}

impl Agent {
    /// Reads until the reports name this many messages. Each is named once.
    fn is_told_of(&self, len: usize) -> Told {
        let mut told = Told::default();
        while told.entries.len() < len {
            let read = self.reads(json!({"acknowledge": "immediate", "wait_seconds": 20}));
            assert!(
                !read.is_empty(),
                "{} was told of {} messages",
                self.name,
                told.entries.len()
            );
            for report in read {
                assert_eq!(report["protocol_name"], REPORT, "{report}");
                for entry in report["payload"]["messages"].as_array().unwrap() {
                    let id = entry["message_id"].as_str().unwrap().to_owned();
                    assert_eq!(told.entries.insert(id, entry.clone()), None, "reported twice: {entry}");
                }
                told.reports.push(report);
            }
        }
        assert_eq!(told.entries.len(), len);
        told
    }

    /// Takes what waits and acknowledges it with this outcome.
    fn concludes(&self, outcome: &str, note: &str) {
        let read = self.reads(json!({"acknowledge": "manual", "wait_seconds": 20}));
        let ids: Vec<_> = read.iter().map(|message| &message["message_id"]).collect();
        let arguments = json!({"message_ids": ids, "outcome": outcome, "note": note});
        assert_eq!(self.calls("acknowledge_messages", arguments)["acknowledged"], ids.len());
    }

    /// The built-in protocol, as `discover_protocols` finds it by its name.
    fn discovers(&self, name: &str) -> Value {
        self.calls("discover_protocols", json!({"name": name, "include_schema": true}))
    }
}

/// Ends a session for good.
fn forgets(broker: &Broker, name: &str) {
    let path = format!("/api/v1/sessions/{name}?forget=true");
    let ended = broker.rest_with(&[], "DELETE", &path, &Value::Null);
    assert_eq!(ended.status, 200, "{ended:?}");
}

#[test]
fn a_sender_is_told_of_each_kind_of_dead_letter() {
    let broker = Broker::start_with(&["--delivery-limit=1"]);
    let [alice, bob, carol, dave] = ["alice", "bob", "carol", "dave"].map(|name| broker.agent(name));
    let rejected = alice
        .sends("1")
        .with("subject", "lunch")
        .with("thread_id", "t")
        .to(&bob);
    bob.concludes("rejected", "ask carol");
    let expired = alice.sends("2").with("ttl_seconds", 1).to(&bob);
    let gone = alice.sends("3").with("priority", "high").to(&carol);
    forgets(&broker, "carol");
    let undelivered = alice.sends("4").to(&dave);
    dave.reads(json!({"acknowledge": "manual"}));
    dave.wire.disconnects();

    let told = alice.is_told_of(4);
    let found = alice.discovers(REPORT);
    let [protocol] = &found["protocols"].as_array().unwrap()[..] else {
        panic!("{found}")
    };
    let schema = jsonschema::validator_for(&protocol["schema"]).unwrap();
    for report in &told.reports {
        assert!(schema.is_valid(&report["payload"]), "{report}");
        assert_eq!(report["sender_name"], "mcp-broker");
        assert_eq!(report["sender_id"], "00000000-0000-0000-0000-000000000000");
        assert_eq!(report["recipient_id"], alice.session.as_str());
        assert_eq!(report["protocol_version"], protocol["version"]);
    }
    let reasons = [
        (&rejected, "rejected", &bob),
        (&expired, "expired", &bob),
        (&gone, "recipient_gone", &carol),
        (&undelivered, "delivery_limit", &dave),
    ];
    for (sent, reason, recipient) in reasons {
        let entry = &told.entries[&sent.id];
        assert_eq!(
            (&entry["reason"], &entry["recipient_id"]),
            (&json!(reason), &json!(recipient.session))
        );
        assert_eq!(
            (&entry["protocol_name"], &entry["recipient_name"]),
            (&json!("note"), &json!(recipient.name))
        );
    }
    let entry = &told.entries[&rejected.id];
    assert_eq!(
        (&entry["note"], &entry["subject"], &entry["thread_id"]),
        (&json!("ask carol"), &json!("lunch"), &json!("t"))
    );
    let of_urgent = told.reports.iter().find(|report| report.to_string().contains(&gone.id));
    assert_eq!(of_urgent.unwrap()["headers"]["priority"], "high", "that of the message");
}

#[test]
fn a_report_belongs_to_the_thread_of_its_message() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("1").to(&bob);
    bob.concludes("rejected", "");
    let report = alice.is_told_of(1).reports.remove(0);
    crate::support::eventually("the thread has the report", || {
        let thread = alice.calls("get_thread", json!({"thread_id": sent.id}));
        let thread = thread["messages"].as_array().unwrap().clone();
        let ids: Vec<_> = thread.iter().map(|message| message["message_id"].clone()).collect();
        (ids == [json!(sent.id), report["message_id"].clone()]).then_some(())
    });
    crate::support::eventually("the search finds it", || {
        let found = alice.calls("search_messages", json!({"query": "not delivered"}));
        (found["messages"][0]["message_id"] == report["message_id"]).then_some(())
    });
    assert!(bob.reads(json!({})).is_empty());
}

#[test]
fn a_sender_is_told_that_the_recipient_is_blocked() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let [one, two] = ["1", "2"].map(|text| alice.sends(text).to(&bob));
    let quiet = alice.sends("3").with("report", "none").to(&bob);
    bob.concludes("blocked", "no access to prod");
    let told = alice.is_told_of(2);
    assert_eq!(told.reports.len(), 1, "one report for all of them");
    assert_eq!(told.reports[0]["headers"]["subject"], "2 messages are blocked");
    for sent in [&one, &two] {
        let entry = &told.entries[&sent.id];
        assert_eq!(
            (&entry["reason"], &entry["note"]),
            (&json!("blocked"), &json!("no access to prod"))
        );
    }
    assert_eq!(alice.status_of(&quiet.id), "acknowledged");
    assert!(
        alice.dead_letters("rejected").is_empty(),
        "a blocked message is no dead letter"
    );
    // Done is what a sender expects.
    alice.sends("4").to(&bob);
    bob.concludes("done", "");
    alice.sees_nothing();
}

#[test]
fn a_sender_is_not_told_of_what_it_does_not_want_to_know() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice.sends("1").with("report", "none").to(&bob);
    bob.concludes("rejected", "");
    let told = alice.sends("2").to(&bob);
    bob.concludes("rejected", "");
    // Reports are made in the order of the dead letters.
    let first = alice.calls("receive_messages", json!({"acknowledge": "manual", "wait_seconds": 20}));
    let report = &first["messages"][0];
    assert_eq!(report["payload"]["messages"][0]["message_id"], told.id.as_str());
    assert_eq!(report["payload"]["messages"].as_array().unwrap().len(), 1);
    // A report that dies makes no other one.
    let arguments = json!({"message_ids": [report["message_id"]], "outcome": "rejected"});
    alice.calls("acknowledge_messages", arguments);
    let last = alice.sends("3").to(&bob);
    bob.concludes("rejected", "");
    assert!(alice.is_told_of(1).entries.contains_key(&last.id));
    assert_eq!(alice.dead_letters("rejected").len(), 4);
}

#[test]
fn many_dead_letters_are_few_reports() {
    let broker = Broker::start();
    let (alice, carol, bob) = (broker.agent("alice"), broker.agent("carol"), broker.agent("bob"));
    let sent: Vec<_> = (0..150).map(|at| alice.sends(&at.to_string()).to(&bob).id).collect();
    let of_carol = carol.sends("1").to(&bob);
    forgets(&broker, "bob");
    let told = alice.is_told_of(150);
    assert!(sent.iter().all(|id| told.entries.contains_key(id)));
    assert!(told.reports.len() <= 3, "{} reports", told.reports.len());
    assert!(
        told.reports
            .iter()
            .any(|report| report["headers"]["subject"] == "100 messages were not delivered")
    );
    assert!(carol.is_told_of(1).entries.contains_key(&of_carol.id));
}

#[test]
fn reports_leave_room_for_messages() {
    let broker = Broker::start_with(&["--queue-capacity=4"]);
    let [alice, bob] = ["alice", "bob"].map(|name| broker.agent(name));
    let refused = || {
        let metrics = broker.get("/metrics").body;
        metrics.contains("mcp_broker_delivery_reports_total{result=\"refused\"} 1")
    };
    for round in 0..3 {
        alice.sends("no").to(&bob);
        bob.concludes("rejected", "");
        crate::support::eventually("it is reported or given up", || {
            let waits = alice.calls("heartbeat", json!({}))["queue_size"] == (round + 1).min(2);
            (waits && refused() == (round == 2)).then_some(())
        });
    }
    for text in ["1", "2"] {
        bob.sends(text).to(&alice);
    }
    bob.sends("3").fails_as("queue_full", &alice);
    assert_eq!(alice.reads(json!({})).len(), 4);
}

#[test]
fn a_sender_that_has_left_is_told_nothing() {
    let broker = Broker::start();
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| broker.agent(name));
    alice.sends("1").to(&bob);
    forgets(&broker, "alice");
    let sent = carol.sends("2").to(&bob);
    bob.concludes("rejected", "");
    assert!(carol.is_told_of(1).entries.contains_key(&sent.id));
    let alice = broker.agent("alice");
    assert_eq!(texts(&alice.reads(json!({}))), [""; 0]);
}

#[test]
fn a_session_that_lists_its_protocols_is_told_as_well() {
    let broker = Broker::start();
    let capabilities = json!({"supported_protocols": {"note": ["1.0.0"]}});
    let alice = broker
        .client()
        .registered_with(&json!({"name": "alice", "capabilities": capabilities}));
    let bob = broker.agent("bob");
    let sent = alice.sends("1").to(&bob);
    bob.concludes("rejected", "");
    assert!(alice.is_told_of(1).entries.contains_key(&sent.id));
}

#[test]
fn a_built_in_protocol_is_found_by_name_and_is_the_brokers_alone() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    assert_eq!(alice.discovers(REPORT)["protocols"][0]["name"], REPORT);
    let with = |filter: Value| {
        let mut arguments = filter;
        arguments["name"] = REPORT.into();
        alice.calls("discover_protocols", arguments)["protocols"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((with(json!({"version": "^1"})), with(json!({"version": "^2"}))), (1, 0));
    let listed = alice.calls("discover_protocols", json!({}));
    let names: Vec<_> = listed["protocols"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["note"]);
    let shown = broker.get(&format!("/api/v1/protocols/{REPORT}/1.0.0"));
    assert_eq!(shown.json()["schema"]["required"], json!(["messages"]));
    assert_eq!(broker.get(&format!("/api/v1/protocols/{REPORT}/2.0.0")).status, 404);

    let definition = json!({"name": REPORT, "version": "9.0.0", "schema": {"type": "object"}});
    alice.is_refused_as("forbidden", "register_protocol", definition);
    let forged = || {
        let message = alice.sends("hi").with_argument("protocol_name", REPORT);
        message.with_argument(
            "payload",
            json!({"messages": [{"message_id": "x", "reason": "expired", "at": ""}]}),
        )
    };
    forged().fails_as("forbidden", &bob);
    alice.is_refused_as(
        "forbidden",
        "broadcast_message",
        json!({
            "protocol_name": REPORT, "protocol_version": "1.0.0", "payload": {"messages": []},
        }),
    );
    bob.sees_nothing();
}

#[test]
fn a_report_about_another_project_says_only_what_the_sender_knows() {
    let broker = Broker::secured();
    let [here, there] = broker.two_projects();
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    let rejected = alice.sends("1").to("bob@there");
    bob.concludes("rejected", "not me");
    let blocked = alice.sends("2").to("bob@there");
    bob.concludes("blocked", "later");
    let told = alice.is_told_of(2);
    for (sent, reason, note) in [(&rejected, "rejected", "not me"), (&blocked, "blocked", "later")] {
        let entry = &told.entries[&sent.id];
        assert_eq!((&entry["reason"], &entry["note"]), (&json!(reason), &json!(note)));
        assert_eq!(
            entry["recipient_id"],
            bob.session.as_str(),
            "as get_message_status shows it"
        );
        assert_eq!(entry.get("recipient_name"), None);
    }
    for report in &told.reports {
        assert_eq!(report["project_id"], "here", "it comes from the own project");
    }
    there.agent("carol").sees_nothing();
}
