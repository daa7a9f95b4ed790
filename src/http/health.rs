use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use actix_web::{HttpResponse, http::StatusCode, web};
use actors::clock::now;
use serde_json::json;

use super::{State, problem::problem};

/// Where the process is in its life.
#[derive(Default)]
pub struct Phase {
    started: AtomicBool,
    stopping: AtomicBool,
}

impl Phase {
    pub fn start(&self) {
        self.started.store(true, Ordering::Relaxed);
    }

    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    fn ready(&self) -> bool {
        self.started() && !self.stopping.load(Ordering::Relaxed)
    }
}

type Shared = web::Data<Arc<State>>;

/// What there is, for whoever looks with a browser.
pub async fn welcome() -> HttpResponse {
    HttpResponse::Ok().json(json!({
        "name": "mcp-broker",
        "version": env!("CARGO_PKG_VERSION"),
        "mcp": {"http": "/mcp", "websocket": "/ws"},
        "health": "/health",
    }))
}

/// `{status, version, storage_backend, active_sessions, authentication_enabled}`, and what the storage promises.
pub async fn health(state: Shared) -> HttpResponse {
    let (status, sessions) = match (state.phase.ready(), state.broker.get()) {
        (true, Some(broker)) => {
            let now = now();
            (
                "healthy",
                broker
                    .projects()
                    .iter()
                    .map(|project| project.directory().active_len(now))
                    .sum::<usize>(),
            )
        }
        _ => ("unhealthy", 0),
    };
    let storage = state.broker.get().map_or("memory", |broker| broker.storage_name());
    let code = if status == "healthy" {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    HttpResponse::build(code).json(json!({
        "status": status,
        "version": env!("CARGO_PKG_VERSION"),
        "storage_backend": storage,
        "storage_durability": "nothing survives the process",
        "active_sessions": sessions,
        "authentication_enabled": false,
    }))
}

/// The process answers: no reason to restart it.
pub async fn livez() -> HttpResponse {
    HttpResponse::Ok().body("ok")
}

/// New work is welcome here.
pub async fn readyz(state: Shared) -> HttpResponse {
    probe(state.phase.ready(), "starting or shutting down")
}

/// The start is over.
pub async fn startupz(state: Shared) -> HttpResponse {
    probe(state.phase.started(), "starting")
}

fn probe(fine: bool, why_not: &'static str) -> HttpResponse {
    if fine {
        HttpResponse::Ok().body("ok")
    } else {
        problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why_not)
    }
}

/// The actors of the broker as data: name, state, mailbox and restarts of each.
pub async fn tree(state: Shared) -> HttpResponse {
    match state.broker.get() {
        Some(broker) => HttpResponse::Ok().json(broker.observe()),
        None => problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "starting"),
    }
}
