//! The HTTP resources: health, probes and the REST API.
//!
//! The middleware checks `Host` and `Origin` first and then authenticates the caller, with the functions of `edge`. The
//! verbs of the REST API are those of `admin`. This room knows no MCP.

mod answer_link;
mod api;
mod backpressure;
mod dashboard;
mod docs;
mod events;
mod extract;
mod health;
mod kept_totals;
mod last_silent;
mod metrics;
mod middleware;
mod oauth;
pub mod openapi;
mod paths;
mod people;
mod problem_body;
mod replicas;
mod resource;
mod state;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode, header::UPGRADE},
    web,
};

pub use kept_totals::KeptTotals;
pub use last_silent::LastSilent;
pub use metrics::OwnPort;
pub use middleware::{admit, authenticate};
pub use state::{HttpState, Lifecycle, Ready, Scraping, SettingView};

use ::api::problem::Problem;
use resource::Resource;

/// Registers the routes.
pub fn routes(config: &mut web::ServiceConfig) {
    extract::configure_queries(config);
    for resource in resources() {
        resource.register(config);
    }
    config.default_service(web::to(not_found));
}

/// Registers the routes of a server that serves metrics and nothing else.
pub fn metrics_routes(config: &mut web::ServiceConfig) {
    for resource in metrics::resources() {
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
        Resource::at("/ws/{exposed}").on(Method::GET, web::to(websocket_hint)),
    ]);
    resources.extend(dashboard::resources());
    resources.extend(answer_link::resources());
    resources.extend(metrics::resources());
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
