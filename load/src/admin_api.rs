//! The projects that a run creates for itself through the REST API of the broker.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use ureq::{
    Agent,
    http::{Method, Request},
};

use crate::error::{LoadError, Result};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

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
        let created = self.ask(Method::POST, "/api/v1/projects", &project)?;
        let key = created["api_keys"][0]["api_key"].as_str();
        let key = key.ok_or_else(|| refused("a project", "the project was created without a key"))?;
        Ok(TemporaryProject {
            admin: self.clone(),
            id: id.to_owned(),
            key: key.to_owned(),
        })
    }

    fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let what = format!("{method} {path}");
        // Ignores proxies of the environment: they would read the key.
        let config = Agent::config_builder()
            .timeout_global(Some(ANSWER_TIMEOUT))
            .http_status_as_error(false)
            .proxy(None);
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("x-api-key", &self.key)
            .header("content-type", "application/json")
            .body(body.to_string())
            .map_err(|_| LoadError::Arguments("the admin key cannot be sent in a header".into()))?;
        let failed = |error: ureq::Error| refused(&what, &error.to_string());
        let mut answer = config.build().new_agent().run(request).map_err(failed)?;
        let text = answer.body_mut().read_to_string().map_err(failed)?;
        if !answer.status().is_success() {
            return Err(refused(&what, &text));
        }
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }
}

impl Drop for TemporaryProject {
    fn drop(&mut self) {
        // If the broker has ended, the project has ended with it.
        drop(
            self.admin
                .ask(Method::DELETE, &format!("/api/v1/projects/{}", self.id), &Value::Null),
        );
    }
}

fn refused(what: &str, answer: &str) -> LoadError {
    LoadError::refused(what, answer.as_bytes())
}
