//! The REST API of a project: what operators read, and what programs send.

mod backends;
mod dead_letters;
mod events;
mod flow;
mod history;
mod messages;
mod protocols;
mod sessions;
mod settings;
mod stats;
mod transforming;

use serde_json::{Value, json};

use crate::support::{Broker, Response, Tenant};

/// A key of another project, which sees nothing of the first one.
fn stranger(broker: &Broker) -> String {
    broker.project("elsewhere", &json!({})).key
}

impl Tenant<'_> {
    /// A request to `/api/v1/{path}` with the key of the project.
    fn api(&self, method: &str, path: &str, body: &Value) -> Response {
        self.api_as(&self.key, method, path, body)
    }

    /// As [`Self::api`], with another key.
    fn api_as(&self, key: &str, method: &str, path: &str, body: &Value) -> Response {
        self.broker.rest(key, method, &format!("/api/v1/{path}"), body)
    }

    /// The object at a path.
    fn gets(&self, path: &str) -> Value {
        self.gets_as(&self.key, path)
    }

    fn gets_as(&self, key: &str, path: &str) -> Value {
        let response = self.api_as(key, "GET", path, &Value::Null);
        assert_eq!(response.status, 200, "{path}: {response:?}");
        response.json()
    }

    /// Follows the cursors of a list to its end. Returns the entries of all pages, of at most `limit` each.
    fn pages(&self, path: &str, list: &str, limit: usize) -> Vec<Value> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let (mut entries, mut cursor) = (Vec::new(), String::new());
        for _ in 0..10_000 {
            let mut page = self.gets(&format!("{path}{separator}limit={limit}{cursor}"));
            let Value::Array(found) = page[list].take() else {
                panic!("no list: {page}")
            };
            assert!(found.len() <= limit, "{} entries on a page of {limit}", found.len());
            entries.extend(found);
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return entries,
            }
        }
        panic!("the pages never end");
    }

    /// Sends a note over REST. Returns the answer, which must be a success.
    fn posts(&self, key: &str, message: &Value) -> Value {
        let response = self.api_as(key, "POST", "messages", message);
        assert_eq!(response.status, 201, "{response:?}");
        let answer = response.json();
        let path = format!("/api/v1/messages/{}", answer["message_id"].as_str().unwrap());
        assert_eq!(response.header("location"), Some(path.as_str()));
        answer
    }
}

/// A note from one session to another; null: to all.
fn note(from: &str, to: Option<&str>, text: &str) -> Value {
    let mut message = json!({
        "from": from, "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": text},
    });
    if let Some(to) = to {
        message["recipient_id"] = json!(to);
    }
    message
}

/// Asserts that a response is a problem document with this status and code.
fn assert_refused(response: &Response, status: u16, code: &str) {
    assert_eq!(response.problem(), (status, code.to_owned()), "{response:?}");
}
