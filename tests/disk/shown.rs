//! What a query showed is true after kill -9: for each query, one connection polls and kills the broker at the first sight
//! of a change, while others keep the disk busy. Commits are delayed, so that a query that does not wait for the disk
//! shows the change long before it is written.

use std::{any::Any, thread};

use serde_json::{Value, json};
use test_client::folder::Folder;

use super::{Ledger, send_until_broken};
use crate::support::{self, Agent, Broker, Request};

/// How long each commit is delayed while the change is made.
const COMMIT_DELAY_MS: &str = "400";

/// A broker with a question, a message that bob has taken, and who knows of them.
struct Setting {
    broker: Broker,
    alice: Agent,
    question: String,
    message: String,
}

/// Begins a change. The request ends when what is returned is dropped.
type Change = fn(&Setting, &Agent) -> Box<dyn Any>;
/// Whether a query shows the change.
type Query = fn(&Setting) -> bool;

impl Setting {
    fn get(&self, path: &str) -> Value {
        let path = format!("/api/v1/{path}");
        let response = self
            .broker
            .rest_with(&[("X-Human", "mara")], "GET", &path, &Value::Null);
        assert_eq!(response.status, 200, "{path}: {response:?}");
        response.json()
    }

    /// Whether a list has an entry whose member has this value.
    fn lists(&self, path: &str, list: &str, member: &str, value: &str) -> bool {
        let page = self.get(path);
        page[list]
            .as_array()
            .unwrap()
            .iter()
            .any(|entry| entry[member] == value)
    }

    /// Sends a request of mara and does not wait for the answer.
    fn begins(&self, method: &str, path: &str, body: &Value) -> Box<dyn Any> {
        let request = Request::post(self.broker.address, body.to_string())
            .with_method(method)
            .with_path(&format!("/api/v1/{path}"))
            .with("Content-Type", "application/json")
            .with("X-Human", "mara");
        Box::new(request.sent())
    }
}

fn answers(setting: &Setting, _: &Agent) -> Box<dyn Any> {
    let path = format!("questions/{}/answer", setting.question);
    setting.begins("POST", &path, &json!({"text": "yes"}))
}

fn drafts(setting: &Setting, _: &Agent) -> Box<dyn Any> {
    let path = format!("questions/{}/draft", setting.question);
    setting.begins("PUT", &path, &json!({"text": "perhaps"}))
}

fn acknowledges(setting: &Setting, bob: &Agent) -> Box<dyn Any> {
    Box::new(bob.begins_call("acknowledge_messages", &json!({"message_ids": [setting.message]})))
}

fn rejects(setting: &Setting, bob: &Agent) -> Box<dyn Any> {
    let arguments = json!({"message_ids": [setting.message], "outcome": "rejected"});
    Box::new(bob.begins_call("acknowledge_messages", &arguments))
}

fn sends(_: &Setting, bob: &Agent) -> Box<dyn Any> {
    let message = bob
        .sends("on time")
        .with("subject", "trains")
        .with("thread_id", "trains");
    Box::new(message.begins_sending_to("alice"))
}

fn joins(setting: &Setting, _: &Agent) -> Box<dyn Any> {
    let carol = setting.broker.client();
    carol.begins_call("register_session", &json!({"name": "carol"}));
    Box::new(carol)
}

fn registers(_: &Setting, bob: &Agent) -> Box<dyn Any> {
    let protocol = json!({"name": "memo", "version": "1.0.0", "schema": {"type": "object"}});
    Box::new(bob.begins_call("register_protocol", &protocol))
}

const CASES: &[(&str, Change, Query)] = &[
    ("get_answer", answers, |it| {
        let arguments = json!({"question_id": it.question, "wait_seconds": 0});
        it.alice.calls("get_answer", arguments)["state"] == "answered"
    }),
    ("GET questions/ID", answers, |it| {
        it.get(&format!("questions/{}", it.question))["state"] == "answered"
    }),
    ("GET questions", answers, |it| {
        it.lists("questions?state=all", "questions", "state", "answered")
    }),
    ("GET questions/ID/draft", drafts, |it| {
        it.get(&format!("questions/{}/draft", it.question))["text"] == "perhaps"
    }),
    ("get_message_status", acknowledges, |it| {
        it.alice.status_of(&it.message) == "acknowledged"
    }),
    ("GET messages/ID", acknowledges, |it| {
        let path = format!("messages/{}", it.message);
        it.lists(&path, "recipients", "status", "acknowledged")
    }),
    ("GET messages", acknowledges, |it| {
        it.lists("messages?status=acknowledged", "messages", "message_id", &it.message)
    }),
    ("get_message_status of a rejected one", rejects, |it| {
        it.alice.status_of(&it.message) == "dead_lettered"
    }),
    ("list_dead_letters", rejects, |it| {
        !it.alice.dead_letters("rejected").is_empty()
    }),
    ("GET dead-letters", rejects, |it| {
        it.lists("dead-letters", "dead_letters", "reason", "rejected")
    }),
    ("get_thread", sends, |it| {
        let page = it.alice.calls("get_thread", json!({"thread_id": "trains"}));
        !page["messages"].as_array().unwrap().is_empty()
    }),
    ("search_messages", sends, |it| {
        let page = it.alice.calls("search_messages", json!({"query": "trains"}));
        !page["messages"].as_array().unwrap().is_empty()
    }),
    ("GET threads", sends, |it| {
        it.lists("threads", "threads", "thread_id", "trains")
    }),
    ("GET flow", sends, |it| {
        let flow = it.get("flow");
        let mut edges = flow["edges"].as_array().unwrap().iter();
        edges.any(|edge| edge["from"]["name"] == "bob" && edge["to"]["name"] == "alice")
    }),
    ("GET sessions", joins, |it| {
        it.lists("sessions?status=all", "sessions", "name", "carol")
    }),
    ("discover_protocols", registers, |it| {
        let page = it.alice.calls("discover_protocols", json!({"name": "memo"}));
        !page["protocols"].as_array().unwrap().is_empty()
    }),
];

/// Kills the broker when `query` first shows `change`, and asks again after a restart.
fn is_shown_again(name: &str, change: Change, query: Query) {
    let (folder, own, ledger) = (Folder::new(), Folder::new(), Ledger::default());
    let delay = own.join("delay");
    let data_dir = folder.data_dir();
    let flags = ["--storage=disk", &data_dir, "--queue-capacity=100000"];
    let mut program = support::broker_program();
    program.env("FAULT_COMMIT_DELAY_FILE", &delay);
    let broker = Broker::with_program(program, &flags);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    drop(broker.agent("sink"));
    let asked = alice.calls("clarify", json!({"question": "Drop it?", "wait_seconds": 0}));
    let message = alice.sends("hello").to(&bob).id;
    bob.reads(json!({"acknowledge": "manual"}));
    let mut setting = Setting {
        broker,
        alice,
        question: asked["question_id"].as_str().unwrap().to_owned(),
        message,
    };
    assert!(!query(&setting), "{name} before the change");
    std::fs::write(&delay, COMMIT_DELAY_MS).unwrap();
    thread::scope(|scope| {
        let (address, ledger) = (setting.broker.address, &ledger);
        scope.spawn(move || send_until_broken(address, "dave", "sink", "hello", ledger));
        let request = change(&setting, &bob);
        while !query(&setting) {}
        setting.broker.kill();
        drop(request);
    });
    setting.broker = Broker::on_existing_storage(&flags);
    setting.alice = setting.broker.agent("alice");
    assert!(query(&setting), "{name} showed a change that was not on the disk");
}

fn are_shown_again(cases: impl Iterator<Item = usize>) {
    for (name, change, query) in cases.map(|at| CASES[at]) {
        is_shown_again(name, change, query);
    }
}

#[test]
fn what_a_query_showed_is_true_after_a_kill() {
    are_shown_again((0..CASES.len()).step_by(2));
}

#[test]
fn what_another_query_showed_is_true_after_a_kill() {
    are_shown_again((1..CASES.len()).step_by(2));
}
