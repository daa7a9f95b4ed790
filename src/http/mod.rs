//! The HTTP resources: health, probes and the REST API.
//!
//! The middleware checks `Host` and `Origin` first and then authenticates the caller. This room knows no MCP.

mod api;
mod backpressure;
mod docs;
mod health;
mod oauth;
mod openapi;
mod resource;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use actix_cors::Cors;
use actix_web::{
    Error, HttpMessage, HttpRequest, HttpResponse,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::{Method, StatusCode, header::UPGRADE},
    middleware::Next,
    web,
};
use actors::{broker::BrokerHandle, model::BrokerError};

use crate::{
    admin::Administration,
    admission::Admission,
    auth::{Authenticator, Credentials},
    transport::TransportContext,
};

pub use health::Lifecycle;

use crate::problem::Problem;
use resource::Resource;

/// State that the routes share. The `OnceLock`s are set once the broker has started.
pub struct HttpState {
    pub broker: OnceLock<BrokerHandle>,
    pub auth: OnceLock<Arc<Authenticator>>,
    pub admin: OnceLock<Arc<Administration>>,
    pub lifecycle: Lifecycle,
    pub admission: Admission,
    /// Byte budgets and other shared state of the transports.
    pub transport: Arc<OnceLock<TransportContext>>,
}

/// Registers the routes.
pub fn routes(config: &mut web::ServiceConfig) {
    api::configure_queries(config);
    for resource in resources() {
        resource.register(config);
    }
    config.default_service(web::to(not_found));
}

/// All resources of this room. `/openapi.json` describes them.
fn resources() -> Vec<Resource> {
    let mut resources = health::resources();
    resources.extend([
        Resource::at("/openapi.json").on(Method::GET, web::to(openapi::document)),
        Resource::at("/docs").on(Method::GET, web::to(docs::page)),
        Resource::at("/ws").on(Method::GET, web::to(websocket_hint)),
    ]);
    resources.extend(api::resources());
    resources
}

async fn websocket_hint() -> HttpResponse {
    let detail = "this is a WebSocket: connect with ws://";
    Problem::new(StatusCode::UPGRADE_REQUIRED, "invalid_argument", detail)
        .with_header(UPGRADE, "websocket")
        .into_response()
}

async fn not_found(request: HttpRequest) -> HttpResponse {
    let detail = if oauth::is_discovery_path(request.path()) {
        "this broker is not an authorization server: send an API key as X-API-Key or Authorization: Bearer"
    } else {
        "nothing exists at this path; see /"
    };
    Problem::new(StatusCode::NOT_FOUND, "invalid_argument", detail).into_response()
}

/// CORS headers for the allowed origins (Fetch, section 3.2).
pub fn cors(admission: Admission) -> Cors {
    const ASKED_AGAIN_AFTER: usize = 3600;
    Cors::default()
        .allowed_origin_fn(move |_, head| admission.check(head.headers()).is_ok())
        .allowed_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_any_header()
        .expose_headers(["Mcp-Session-Id", "Retry-After", "WWW-Authenticate"])
        .max_age(ASKED_AGAIN_AFTER)
}

/// Middleware: refuses hosts and origins that are not allowed, before anything else. Probes answer to every host.
///
/// # Errors
/// The error of the inner service.
pub async fn admit<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<actix_web::body::BoxBody>, Error> {
    let refusal = request.app_data::<web::Data<Arc<HttpState>>>().and_then(|state| {
        let checked = match request.path() {
            path if health::PROBES.contains(&path) => state.admission.check_origin(request.headers()),
            _ => state.admission.check(request.headers()),
        };
        checked.err()
    });
    if let Some(reason) = refusal {
        let problem = Problem::new(StatusCode::FORBIDDEN, "forbidden", reason);
        return Ok(request.into_response(problem.into_response()));
    }
    Ok(next.call(request).await?.map_into_boxed_body())
}

/// Whether a path needs no credential.
fn is_public(path: &str) -> bool {
    const PUBLIC: [&str; 4] = ["/", "/health", "/openapi.json", "/docs"];
    PUBLIC.contains(&path) || health::PROBES.contains(&path) || oauth::is_discovery_path(path)
}

/// Delay of a 429 response, plus up to the same again at random: a refusal costs the refused caller time, and callers
/// that are refused together do not return together.
const REFUSAL_DELAY: Duration = Duration::from_millis(150);

async fn delay_refusal(problem: Problem) -> Problem {
    let share = (uuid::Uuid::new_v4().as_u128() % 100) as u32;
    tokio::time::sleep(REFUSAL_DELAY + REFUSAL_DELAY * share / 100).await;
    problem
}

/// Middleware: authenticates the caller and takes one request from its rate limit. Handlers find the [`Identity`] among
/// the extensions of the request. A preflight request has no key (Fetch, section 4.8). A key in the URL is refused on
/// public paths too: it is in logs by now, and its owner must learn of it.
///
/// # Errors
/// The error of the inner service.
pub async fn authenticate<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<actix_web::body::BoxBody>, Error> {
    let credentials = Credentials {
        headers: request.headers(),
        query: Some(request.query_string()),
        path: request.path(),
        address: request.peer_addr().map(|address| address.ip()),
    };
    if is_public(request.path()) || *request.method() == Method::OPTIONS {
        if let Err(error) = credentials.check_query() {
            return Ok(request.into_response(Problem::from(&error).into_response()));
        }
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    let auth = request
        .app_data::<web::Data<Arc<HttpState>>>()
        .and_then(|state| state.auth.get())
        .cloned();
    let Some(auth) = auth else {
        let problem = Problem::unavailable("the broker is starting");
        return Ok(request.into_response(problem.into_response()));
    };
    let admitted = auth.authenticate(&credentials).await;
    let problem = match admitted {
        Ok(identity) => match identity.take_request() {
            Ok(()) => {
                request.extensions_mut().insert(identity);
                return Ok(next.call(request).await?.map_into_boxed_body());
            }
            Err(retry_after) => Problem::from(&BrokerError::RateLimited { retry_after }),
        },
        Err(problem) => problem,
    };
    let problem = match problem.status {
        StatusCode::TOO_MANY_REQUESTS => delay_refusal(problem).await,
        _ => problem,
    };
    Ok(request.into_response(problem.into_response()))
}
