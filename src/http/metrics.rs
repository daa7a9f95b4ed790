//! `/metrics`: the figures of this replica for Prometheus, at the port of the broker or at a port of its own.

use std::sync::Arc;

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::{
        Method, StatusCode,
        header::{ACCEPT, VARY},
    },
    web,
};
use actors::model::{BrokerError, Scope};

use super::{
    extract::ApiResult,
    paths::METRICS,
    resource::Resource,
    state::{Ready, StateData},
};
use crate::metrics::Format;
use api::{auth::Identity, problem::Problem};

/// Marks the server that serves nothing but metrics.
#[derive(Clone, Copy)]
pub struct OwnPort;

/// The resources of this file.
pub fn resources() -> Vec<Resource> {
    vec![Resource::at(METRICS).on(Method::GET, web::to(metrics))]
}

/// Figures of this replica in the format of Prometheus; see docs/metrics.md. Text, or protobuf with native histograms for
/// scrapers that prefer it. Requires the admin key, or the token of `metrics_token_file`, where keys are required. Not
/// found where the broker has a `metrics_port`.
#[utoipa::path(get, path = "/metrics", operation_id = "get_metrics", tag = "broker", responses(
    (status = 200, description = "The figures", body = String, content_type = "text/plain"),
    (status = 404, description = "The broker serves its metrics at a port of their own"),
))]
pub async fn metrics(request: HttpRequest, state: StateData) -> ApiResult {
    let is_own_port = request.app_data::<OwnPort>().is_some();
    if state.scraping.has_own_port && !is_own_port {
        let detail = "the metrics are served at metrics_port";
        return Err(Problem::new(StatusCode::NOT_FOUND, "invalid_argument", detail).into());
    }
    let Ready { metrics, auth, .. } = state.ready()?;
    // Without an identity the scraper has sent the token.
    let identity = request.extensions().get::<Arc<Identity>>().cloned();
    if let Some(identity) = identity.filter(|_| auth.is_required()) {
        identity.check_scope(Scope::Operator)?;
    }
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::of_accept(accept.unwrap_or_default());
    let body = metrics.expose(format).map_err(|_| BrokerError::unavailable())?;
    Ok(HttpResponse::Ok()
        .content_type(format.media_type())
        .insert_header((VARY, "Accept"))
        .body(body))
}
