//! The desk over REST: questions of agents, the people who answer them, and the stream that is a console.

mod messages;
mod questions;
mod rights;
mod stream;
mod webhooks;
mod yaps;

use serde_json::{Value, json};

use crate::support::{Broker, Request, Response, ResponseReader, Tenant};

/// A project with the keys of an agent and of some people.
struct Desk<'a> {
    team: Tenant<'a>,
    /// A key of scope `member`.
    agent: String,
    mara: String,
    lena: String,
}

impl<'a> Desk<'a> {
    fn open(broker: &'a Broker) -> Self {
        let team = broker.project("team", &json!({}));
        let person =
            |human: &str, roles: Value| team.new_key(&json!({"scope": "answer", "human": human, "roles": roles}));
        Self {
            agent: team.new_key_with_scope("member"),
            mara: person("mara", json!(["oncall"])),
            lena: person("lena", json!([])),
            team,
        }
    }

    fn request(&self, key: &str, method: &str, path: &str, body: &Value) -> Response {
        self.team.broker.rest(key, method, &format!("/api/v1/{path}"), body)
    }

    /// The object of a request that succeeds.
    fn does(&self, key: &str, method: &str, path: &str, body: &Value) -> Value {
        let response = self.request(key, method, path, body);
        assert_eq!(response.status, 200, "{method} {path}: {response:?}");
        response.json()
    }

    fn gets(&self, key: &str, path: &str) -> Value {
        self.does(key, "GET", path, &Value::Null)
    }

    /// Asks a question in the name of `alice`, with further arguments. Returns its id.
    fn asks(&self, question: &str, arguments: &Value) -> String {
        let mut body = json!({"from": "alice", "question": question});
        for (name, value) in arguments.as_object().unwrap() {
            body[name] = value.clone();
        }
        let response = self.request(&self.agent, "POST", "questions", &body);
        assert_eq!(response.status, 201, "{response:?}");
        let asked = response.json();
        let id = asked["question_id"].as_str().unwrap().to_owned();
        assert_eq!(
            response.header("location"),
            Some(format!("/api/v1/questions/{id}").as_str())
        );
        assert_eq!(asked["state"], "pending");
        id
    }

    /// A verb of a person about a question.
    fn acts(&self, key: &str, id: &str, verb: &str, body: &Value) -> Response {
        self.request(key, "POST", &format!("questions/{id}/{verb}"), body)
    }

    /// The ids of the questions of a list.
    fn lists(&self, key: &str, query: &str) -> Vec<String> {
        let page = self.gets(key, &format!("questions{query}"));
        let questions = page["questions"].as_array().unwrap().iter();
        questions
            .map(|question| question["question_id"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Opens a stream of the desk, which has begun when this returns. Returns the first event, `desk`.
    fn follows(&self, key: &str, query: &str) -> (ResponseReader, Value) {
        let mut stream = self.stream_request(key, query).sent();
        assert_eq!(stream.status(), 200, "{stream:?}");
        let first = awaits(&mut stream, "desk", |_| true);
        (stream, first)
    }

    fn stream_request(&self, key: &str, query: &str) -> Request {
        Request::get(self.team.broker.address)
            .with_path(&format!("/api/v1/events?{query}"))
            .with("X-API-Key", key)
    }
}

/// The data of the next event of this kind that `fits`.
fn awaits(stream: &mut ResponseReader, kind: &str, fits: impl Fn(&Value) -> bool) -> Value {
    loop {
        let event = stream.next_event().expect("the stream goes on");
        if event.kind.as_deref() == Some(kind) && fits(&event.json()) {
            return event.json();
        }
    }
}
