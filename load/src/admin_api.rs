//! The projects that a run creates for itself through the REST API of the broker.

use std::net::SocketAddr;

use serde_json::{Value, json};
use test_client::http::Request;

use crate::error::{LoadError, Result};

/// A project of this run. Dropping it deletes the project; its id cannot be used again.
pub struct TemporaryProject {
    admin: AdminClient,
    id: String,
    /// The API key of the project. Never print it.
    pub key: String,
}

/// A client of the REST API with the admin key.
#[derive(Clone)]
pub struct AdminClient {
    address: SocketAddr,
    key: String,
}

impl AdminClient {
    pub fn new(address: SocketAddr, key: &str) -> Self {
        Self {
            address,
            key: key.to_owned(),
        }
    }

    /// Creates a project. `rate_limit` is in requests per minute of all callers of the project together; 0 is no
    /// limit.
    pub fn create(&self, id: &str, rate_limit: u32) -> Result<TemporaryProject> {
        let project = json!({"project_id": id, "name": "load", "config": {"rate_limit": rate_limit}});
        let created = self.ask("POST", "/api/v1/projects", &project)?;
        let key = created["api_keys"][0]["api_key"].as_str();
        let key = key.ok_or_else(|| LoadError::refused("the key of a project", b""))?;
        Ok(TemporaryProject {
            admin: self.clone(),
            id: id.to_owned(),
            key: key.to_owned(),
        })
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let mut request = Request::with_json(method, path, body);
        request.add("X-API-Key", &self.key);
        let answer = request.ask(self.address)?;
        match answer.status {
            200..300 => Ok(serde_json::from_str(&answer.body).unwrap_or_default()),
            _ => Err(LoadError::refused(format!("{method} {path}"), answer.body.as_bytes())),
        }
    }
}

impl Drop for TemporaryProject {
    fn drop(&mut self) {
        // If the broker has ended, the project has ended with it.
        drop(
            self.admin
                .ask("DELETE", &format!("/api/v1/projects/{}", self.id), &Value::Null),
        );
    }
}
