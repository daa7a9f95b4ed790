use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use actix_web::{HttpResponse, http::StatusCode, web};
use actors::clock::now;
use serde_json::json;

use super::{State, api::Caller};
use crate::problem::Problem;

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
        "authentication_enabled": state.auth.get().is_some_and(|auth| auth.is_required()),
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
        Problem::unavailable(why_not).into_response()
    }
}

/// How callers are looked at, and as whom this one was let in.
pub async fn security(state: Shared, caller: Caller) -> HttpResponse {
    let (Some(auth), Some(admin)) = (state.auth.get(), state.admin.get()) else {
        return Problem::unavailable("starting").into_response();
    };
    let Caller(identity) = caller;
    HttpResponse::Ok().json(json!({
        "authentication_enabled": auth.is_required(),
        "multi_project_enabled": admin.multi_project(),
        "jwt_issuer": auth.jwt().map(|jwt| jwt.issuer()),
        "caller": {
            "name": &*identity.principal.name,
            "scope": identity.scope().as_str(),
            "project_id": identity.project.id(),
        },
    }))
}

/// Who gives out tokens for this broker (RFC 9728).
pub async fn resource_metadata(state: Shared) -> HttpResponse {
    match state.auth.get().and_then(|auth| auth.resource_metadata()) {
        Some(metadata) => HttpResponse::Ok().json(metadata),
        None => {
            let detail = "no issuer of tokens is configured: API keys are taken";
            Problem::new(StatusCode::NOT_FOUND, "invalid_argument", detail).into_response()
        }
    }
}
