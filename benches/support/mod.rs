//! The common part of the benches of authentication: a broker in this process, one in a process of its own, and keys
//! of both.

#![allow(dead_code, reason = "each bench uses a part of it")]

pub mod statistics;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use actix_http::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use actix_rt::Arbiter;
use actors::{
    broker::{Broker, BrokerHandle, BrokerSettings},
    model::{NewKey, NewProject, PresenceTimeouts, ProjectConfig, ProjectId, Scope},
    project::ProjectSettings,
    storage::{Retention, memory::MemoryStorage},
    supervise::RestartPolicy as Restarts,
};
use api::auth::{Audit, AuthPolicy, Authenticator, Credentials};
use serde_json::Value;
use test_client::http::Request;

/// The admin key of every broker here.
pub const ADMIN_KEY: &str = "only-for-what-is-measured-on-this-machine";

/// A broker on the arbiter of this thread.
pub async fn local_broker(key_rate_limit: u32) -> BrokerHandle {
    let seconds = Duration::from_secs;
    let settings = BrokerSettings {
        project: ProjectSettings {
            queue_capacity: 1000,
            sessions_max: 25_000,
            queue_warning: 0.9,
            delivery_limit: 5,
            heartbeat_interval: seconds(10),
            presence: PresenceTimeouts {
                stale_after: seconds(30),
                disconnect_after: seconds(60),
            },
            session_retention: seconds(3600),
            payload_len_max: 10 * 1024 * 1024,
            keeps_payloads: false,
            desk: actors::policy::DeskSettings::default(),
            gateway: None,
            restarts: Restarts::default(),
        },
        key_rate_limit,
        multi_project: true,
        projects_max: 1000,
    };
    let storage = Arc::new(MemoryStorage::new(Retention::default()));
    let broker = Broker::start(settings, storage, vec![Arbiter::current()], || ());
    broker.project(&ProjectId::default_project()).await.unwrap();
    broker
}

pub fn authenticator(broker: &BrokerHandle, policy: AuthPolicy) -> Authenticator {
    Authenticator::new(broker.clone(), policy, Audit::new(broker.clone()))
}

/// Creates a project in the broker of this process. Returns its admin key.
pub async fn make_project(broker: &BrokerHandle, id: &str, rate_limit: u32) -> String {
    let wanted = NewProject {
        id: ProjectId::parse(id).unwrap(),
        name: id.to_owned(),
        description: None,
        tags: [].into(),
        config: ProjectConfig {
            rate_limit,
            ..ProjectConfig::default()
        },
    };
    broker.create_project(wanted).await.unwrap().1.key.reveal().to_owned()
}

pub fn member_key(expires_at_ms: Option<u64>) -> NewKey {
    NewKey {
        label: None,
        scope: Scope::Member,
        human: None,
        tools: None,
        expires_at_ms,
    }
}

/// The headers of a call over HTTP, plus `more`.
pub fn headers(more: &[(&'static str, &str)]) -> HeaderMap {
    let usual = [
        ("host", "127.0.0.1:8000"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "heartbeat"),
        ("content-length", "400"),
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in usual.iter().chain(more) {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// The credentials of a call. Without an address, failed attempts are not counted.
pub fn arrival(headers: &HeaderMap, address: Option<IpAddr>) -> Credentials<'_> {
    Credentials {
        method: &Method::POST,
        headers,
        query: None,
        path: "/mcp",
        address,
        stranger: None,
    }
}

/// Sends a request to the REST API of a broker in a process of its own.
pub fn administer(address: SocketAddr, method: &str, path: &str, body: &Value) -> Value {
    let mut request = Request::with_json(method, &format!("/api/v1/{path}"), body);
    request.add("X-API-Key", ADMIN_KEY);
    let answer = request.ask(address).unwrap();
    assert!(answer.status < 300, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap_or_default()
}

/// The number after a flag of this bench, or the default.
pub fn option(flag: &str, default: usize) -> usize {
    let mut args = std::env::args().skip_while(|arg| arg != flag).skip(1);
    args.next().map_or(default, |text| text.parse().unwrap())
}

pub fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
