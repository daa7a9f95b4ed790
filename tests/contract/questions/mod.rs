//! Questions of agents to people, from the side of the agents: asking, waiting, and what becomes of an answer when the
//! call that waits for it ends early.

mod bounds;
mod clients;
mod cuts;
mod life;
mod notices;
mod permission;
mod rights;
mod tasks;
mod yaps;

use serde_json::{Value, json};

use crate::support::{Agent, Broker, Response, eventually};

/// A person who reads and answers questions by REST.
pub struct Person<'a> {
    broker: &'a Broker,
    name: &'static str,
    key: Option<String>,
}

impl Broker {
    /// A person at a broker without keys.
    fn person(&self, name: &'static str) -> Person<'_> {
        Person {
            broker: self,
            name,
            key: None,
        }
    }
}

impl Person<'_> {
    fn sends(&self, method: &str, path: &str, body: &Value) -> Response {
        let path = format!("/api/v1/{path}");
        match &self.key {
            Some(key) => self.broker.rest(key, method, &path, body),
            None => self.broker.rest_with(&[("X-Human", self.name)], method, &path, body),
        }
    }

    /// Does something with a question, which must succeed; returns the question.
    fn does(&self, verb: &str, question: &str, body: Value) -> Value {
        let response = self.sends("POST", &format!("questions/{question}/{verb}"), &body);
        assert_eq!(response.status, 200, "{verb}: {response:?}");
        response.json()
    }

    fn answers(&self, question: &str, body: Value) -> Value {
        self.does("answer", question, body)
    }

    /// The open questions that the person may see.
    fn sees(&self) -> Vec<Value> {
        let response = self.sends("GET", "questions?state=pending", &Value::Null);
        assert_eq!(response.status, 200, "{response:?}");
        response.json()["questions"].as_array().unwrap().clone()
    }

    /// Waits for the question with this summary; returns its id.
    fn awaits(&self, summary: &str) -> String {
        eventually(&format!("{} sees {summary:?}", self.name), || {
            let questions = self.sees();
            let found = questions.iter().find(|question| question["summary"] == summary)?;
            Some(found["question_id"].as_str().unwrap().to_owned())
        })
    }
}

/// The arguments of a question that a call does not wait for.
fn asks(question: &str) -> Value {
    json!({"question": question, "wait_seconds": 0})
}

/// Asks without waiting; returns the id of the question.
fn asked(agent: &Agent, arguments: Value) -> String {
    let asked = agent.calls("clarify", arguments);
    assert_eq!(asked["state"], "pending", "{asked}");
    asked["question_id"].as_str().unwrap().to_owned()
}

/// The messages about the ends of questions in an inbox. The next read acknowledges them.
fn notices(agent: &Agent) -> Vec<Value> {
    let messages = agent.reads(json!({}));
    assert!(
        messages
            .iter()
            .all(|message| message["protocol_name"] == "human-answer"),
        "{messages:?}"
    );
    messages
}

/// Waits until no message waits for the agent, without reading one.
fn awaits_empty_inbox(agent: &Agent) {
    eventually("the inbox is empty", || {
        (agent.calls("heartbeat", json!({}))["queue_size"] == 0).then_some(())
    });
}
