//! Projects of a broker with authentication, and REST requests with a key.

use serde_json::{Value, json};

use super::{Agent, Broker, HttpAgent, Request, Response, Wire, eventually};

/// The admin key of a broker with authentication.
pub const ADMIN_KEY: &str = "admin_tests_0123456789abcdef0123456789abcdef0123456789abcdef";

/// A project of a broker, and its admin key.
pub struct Tenant<'a> {
    pub broker: &'a Broker,
    pub id: String,
    pub key: String,
}

impl<'a> Tenant<'a> {
    pub(super) fn create(broker: &'a Broker, id: &str, config: &Value) -> Self {
        let body = json!({"project_id": id, "name": id, "config": config});
        let response = broker.rest(ADMIN_KEY, "POST", "/api/v1/projects", &body);
        assert_eq!(response.status, 201, "{response:?}");
        let key = response.json()["api_keys"][0]["api_key"].as_str().unwrap().to_owned();
        let id = id.to_owned();
        Self { broker, id, key }
    }

    /// The same project at another broker with the same storage.
    pub fn at_broker<'b>(&self, broker: &'b Broker) -> Tenant<'b> {
        Tenant {
            broker,
            id: self.id.clone(),
            key: self.key.clone(),
        }
    }

    /// Creates another key of the project.
    pub fn new_key(&self, wanted: &Value) -> String {
        let response = self.rest("POST", "keys", wanted);
        assert_eq!(response.status, 201, "{response:?}");
        response.json()["api_key"].as_str().unwrap().to_owned()
    }

    /// Creates a key with this scope.
    pub fn new_key_with_scope(&self, scope: &str) -> String {
        self.new_key(&json!({"scope": scope}))
    }

    /// A REST request about the project with its own key; `rest` is the path after the id of the project.
    pub fn rest(&self, method: &str, rest: &str, body: &Value) -> Response {
        let path = format!("/api/v1/projects/{}/{rest}", self.id);
        self.broker.rest(&self.key, method, path.trim_end_matches('/'), body)
    }

    /// Grants the sessions of this project to send to another one.
    pub fn allow_sending_to(&self, target: &str, grant: &Value) {
        let response = self.rest("PUT", &format!("grants/{target}"), grant);
        assert_eq!(response.status, 200, "{response:?}");
    }

    /// Changes the project with the admin key of the broker.
    pub fn update(&self, changes: &Value) -> Value {
        let path = format!("/api/v1/projects/{}", self.id);
        let response = self.broker.rest(ADMIN_KEY, "PATCH", &path, changes);
        assert_eq!(response.status, 200, "{response:?}");
        response.json()["project"].take()
    }

    /// Deletes the project with the admin key of the broker.
    pub fn delete(&self) {
        let path = format!("/api/v1/projects/{}", self.id);
        let response = self.broker.rest(ADMIN_KEY, "DELETE", &path, &Value::Null);
        assert_eq!((response.status, response.body.as_str()), (204, ""), "{response:?}");
    }

    /// Revokes one of its keys.
    pub fn revoke_key(&self, key: &str) {
        let response = self.rest("DELETE", &format!("keys/{}", id_of_key(key)), &Value::Null);
        assert_eq!(response.status, 200, "{response:?}");
    }

    /// Rotates one of its keys; returns the new one.
    pub fn rotate_key(&self, key: &str, grace_s: u64) -> String {
        let body = json!({"key_id": id_of_key(key), "grace_period_seconds": grace_s});
        let response = self.rest("POST", "keys/rotate", &body);
        assert_eq!(response.status, 200, "{response:?}");
        response.json()["api_keys"][0]["api_key"].as_str().unwrap().to_owned()
    }

    pub fn wire(&self) -> Wire {
        self.wire_as(&self.key)
    }

    pub fn wire_as(&self, key: &str) -> Wire {
        self.broker.wire_with(&[("X-API-Key", key)])
    }

    /// A legacy client that is initialized and has no session.
    pub fn client(&self) -> Agent {
        self.client_as(&self.key)
    }

    pub fn client_as(&self, key: &str) -> Agent {
        Agent::legacy(self.wire_as(key), "2025-11-25", &json!({}))
    }

    /// A legacy client with a session of this name.
    pub fn agent(&self, name: &str) -> Agent {
        self.agent_as(&self.key, name)
    }

    pub fn agent_as(&self, key: &str, name: &str) -> Agent {
        self.client_as(key).registered(name)
    }

    /// A legacy client with push, with a session of this name.
    pub fn push_agent_as(&self, key: &str, name: &str, settings: &Value) -> Agent {
        let capabilities = json!({"experimental": {"dev.mcp-broker/push": settings}});
        let agent = Agent::legacy(self.wire_as(key), "2025-11-25", &capabilities).registered(name);
        agent.syncs();
        agent
    }

    /// A client of 2026-07-28 over HTTP without a session.
    pub fn http_modern_as(&self, key: &str) -> HttpAgent {
        HttpAgent::modern_with(self.broker.address, json!({}), &[("X-API-Key", key)])
    }

    /// A client of 2025-11-25 over HTTP without a session.
    pub fn http_legacy_as(&self, key: &str) -> HttpAgent {
        HttpAgent::legacy_with(self.broker.address, "2025-11-25", json!({}), &[("X-API-Key", key)])
    }
}

impl Broker {
    /// Waits until this replica knows the key of a project that was created at another one.
    pub fn awaits_key_of(&self, tenant: &Tenant<'_>) {
        eventually("the replica knows the key", || {
            (self.upgrade(&[("X-API-Key", &tenant.key)]).status == 101).then_some(())
        });
    }

    /// Two projects `here` and `there` that allow cross-project messages; the first may send to the second.
    pub fn two_projects(&self) -> [Tenant<'_>; 2] {
        let open = json!({"allow_cross_project": true});
        let [here, there] = ["here", "there"].map(|id| self.project(id, &open));
        here.allow_sending_to("there", &json!({}));
        [here, there]
    }
}

/// The id of a key: its second part.
pub fn id_of_key(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

impl Broker {
    /// A REST request with this key; null: without a body.
    pub fn rest(&self, key: &str, method: &str, path: &str, body: &Value) -> Response {
        self.rest_with(&[("X-API-Key", key)], method, path, body)
    }

    /// A REST request with these headers.
    pub fn rest_with(&self, headers: &[(&str, &str)], method: &str, path: &str, body: &Value) -> Response {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = Request::post(self.address, text).with_method(method).with_path(path);
        let request = headers
            .iter()
            .fold(request, |request, (name, value)| request.with(name, *value));
        request.with("Connection", "close").answered()
    }
}
