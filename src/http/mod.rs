//! The HTTP side: health, probes, and a look at the tree. Origin and Host are checked before anything else.

mod health;
mod problem;

use std::sync::{Arc, OnceLock};

use actix_cors::Cors;
use actix_web::{
    Error, HttpResponse,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::Method,
    middleware::Next,
    web,
};
use actors::broker::BrokerHandle;

use crate::admission::Admission;

pub use health::Phase;

use problem::problem;

/// What the routes share. The broker is there as soon as it has started.
pub struct State {
    pub broker: OnceLock<BrokerHandle>,
    pub phase: Phase,
    pub admission: Admission,
}

/// Adds the routes.
pub fn routes(config: &mut web::ServiceConfig) {
    config
        .route("/", web::get().to(health::welcome))
        .route("/health", web::get().to(health::health))
        .route("/livez", web::get().to(health::livez))
        .route("/readyz", web::get().to(health::readyz))
        .route("/startupz", web::get().to(health::startupz))
        .route("/api/v1/tree", web::get().to(health::tree))
        .route("/ws", web::get().to(no_upgrade))
        .default_service(web::to(not_found));
}

async fn no_upgrade() -> HttpResponse {
    let mut response = problem(
        actix_web::http::StatusCode::UPGRADE_REQUIRED,
        "invalid_argument",
        "this is a WebSocket: connect with ws://",
    );
    response.headers_mut().insert(
        actix_web::http::header::UPGRADE,
        actix_web::http::header::HeaderValue::from_static("websocket"),
    );
    response
}

async fn not_found() -> HttpResponse {
    problem(
        actix_web::http::StatusCode::NOT_FOUND,
        "invalid_argument",
        "there is nothing at this path; see /",
    )
}

/// Lets pages of the origins that are admitted read what they get (Fetch, section 3.2): whoever comes so far is one of
/// them.
pub fn cors(admission: Admission) -> Cors {
    const ASKED_AGAIN_AFTER: usize = 3600;
    Cors::default()
        .allowed_origin_fn(move |_, head| admission.check(head.headers()).is_ok())
        .allowed_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_any_header()
        .expose_headers(["Mcp-Session-Id"])
        .max_age(ASKED_AGAIN_AFTER)
}

/// Refuses foreign origins and hosts that are not ours, before anything looks at the request.
pub async fn admit<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<actix_web::body::BoxBody>, Error> {
    let refusal = request
        .app_data::<web::Data<Arc<State>>>()
        .and_then(|state| state.admission.check(request.headers()).err());
    if let Some(reason) = refusal {
        let response = problem(actix_web::http::StatusCode::FORBIDDEN, "forbidden", reason);
        return Ok(request.into_response(response));
    }
    Ok(next.call(request).await?.map_into_boxed_body())
}
