//! Welcome page, health, probes, and the status of authentication.

use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode},
    web,
};
use actors::{clock::mono_ms, storage::StorageHealth};
use rest::{
    stats::{HealthStatus, StorageCondition, Warning},
    words,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    extract::{Caller, NoQuery},
    replicas,
    resource::Resource,
    state::{HttpState, Ready, StateData},
};
use api::{auth::METADATA_PATH, problem::Problem};

/// Bytes of the answer of another replica.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The resources of this file.
pub fn resources() -> Vec<Resource> {
    let get = |path, route| Resource::at(path).on(Method::GET, route);
    vec![
        get("/", web::to(welcome)),
        get("/health", web::to(health)),
        get("/livez", web::to(livez)),
        get("/readyz", web::to(readyz)),
        get("/startupz", web::to(startupz)),
        get("/security/status", web::to(security)),
        get(METADATA_PATH, web::to(resource_metadata)),
        Resource::at(format!("{METADATA_PATH}/{{resource:.*}}")).on(Method::GET, web::to(resource_metadata)),
    ]
}

/// Name, version and entry points of the broker.
#[derive(Serialize, ToSchema)]
pub struct Welcome {
    name: &'static str,
    version: &'static str,
    mcp: McpPaths,
    dashboard: &'static str,
    /// The page on which people answer the questions of agents.
    desk: &'static str,
    health: &'static str,
    docs: &'static str,
}

/// Paths of the MCP endpoints.
#[derive(Serialize, ToSchema)]
pub struct McpPaths {
    http: &'static str,
    websocket: &'static str,
}

/// Entry points of the broker.
#[utoipa::path(get, path = "/", operation_id = "get_welcome", tag = "broker", security(()), responses(
    (status = 200, description = "The entry points", body = Welcome),
))]
pub async fn welcome() -> HttpResponse {
    HttpResponse::Ok().json(Welcome {
        name: "mcp-broker",
        version: env!("CARGO_PKG_VERSION"),
        mcp: McpPaths {
            http: "/mcp",
            websocket: "/ws",
        },
        dashboard: "/dashboard",
        desk: "/desk",
        health: "/health",
        docs: "/docs",
    })
}

/// The health of the broker.
#[derive(Serialize, ToSchema)]
pub struct Health {
    #[serde(flatten)]
    storage: StorageCondition,
    version: &'static str,
    active_sessions: u64,
    authentication_enabled: bool,
    /// What an operator should look at, most urgent first.
    warnings: Vec<Warning>,
    /// What is wrong with the configuration file. The configuration before is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    config_error: Option<String>,
}

/// The present condition of this replica.
pub fn storage_condition(state: &HttpState) -> StorageCondition {
    let (status, storage_problem) = match state.condition() {
        Some(StorageHealth::Healthy) => (HealthStatus::Healthy, None),
        Some(StorageHealth::Degraded(why)) => (HealthStatus::Degraded, Some(why)),
        Some(StorageHealth::Unavailable(why)) => (HealthStatus::Unhealthy, Some(why)),
        None => (HealthStatus::Unhealthy, None),
    };
    let storage = state.ready.get().map(|ready| ready.broker.storage());
    StorageCondition {
        status,
        storage_backend: storage.map(|storage| storage.name().to_owned()),
        storage_durability: storage.map(|storage| storage.durability()),
        storage_problem,
    }
}

/// Health of the broker.
#[utoipa::path(get, path = "/health", operation_id = "get_health", tag = "broker", security(()), responses(
    (status = 200, description = "The broker works", body = Health),
    (status = 503, description = "The broker is starting, stopping or unhealthy", body = Health),
))]
pub async fn health(state: StateData, request: HttpRequest) -> HttpResponse {
    if !replicas::is_sent_on(&request) && state.silent.is_due(mono_ms()) {
        let others = replicas::ask_others(&request, ANSWER_BYTES_MAX).await;
        state.silent.set(others.partial.len());
    }
    let storage = storage_condition(&state);
    let code = match storage.status {
        HealthStatus::Unhealthy => StatusCode::SERVICE_UNAVAILABLE,
        HealthStatus::Healthy | HealthStatus::Degraded => StatusCode::OK,
    };
    let stats = state.totals();
    HttpResponse::build(code).json(Health {
        storage,
        version: env!("CARGO_PKG_VERSION"),
        active_sessions: stats.sessions.active,
        authentication_enabled: state.ready.get().is_some_and(|ready| ready.auth.is_required()),
        warnings: state.warnings(&stats, state.silent.count()),
        config_error: state.configuration_problem(),
    })
}

/// The process answers.
#[utoipa::path(get, path = "/livez", operation_id = "get_livez", tag = "broker", security(()), responses(
    (status = 200, description = "The process is alive", body = String, content_type = "text/plain"),
))]
pub async fn livez() -> HttpResponse {
    ok_text()
}

/// The broker accepts new work.
#[utoipa::path(get, path = "/readyz", operation_id = "get_readyz", tag = "broker", security(()), responses(
    (status = 200, description = "It is", body = String, content_type = "text/plain"),
    (status = 503, description = "The broker does not accept work now",
        headers(("Retry-After" = usize, description = "Seconds to wait"))),
))]
pub async fn readyz(state: StateData) -> HttpResponse {
    match state.condition() {
        Some(StorageHealth::Healthy | StorageHealth::Degraded(_)) => ok_text(),
        Some(StorageHealth::Unavailable(_)) => Problem::unavailable("the storage is not available").into_response(),
        None => Problem::unavailable("starting or shutting down").into_response(),
    }
}

/// The start is complete.
#[utoipa::path(get, path = "/startupz", operation_id = "get_startupz", tag = "broker", security(()), responses(
    (status = 200, description = "It is", body = String, content_type = "text/plain"),
    (status = 503, description = "The broker is starting",
        headers(("Retry-After" = usize, description = "Seconds to wait"))),
))]
pub async fn startupz(state: StateData) -> HttpResponse {
    if state.lifecycle.has_started() {
        ok_text()
    } else {
        Problem::unavailable("starting").into_response()
    }
}

fn ok_text() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body("ok")
}

/// How callers are authenticated, and the identity of this caller.
#[derive(Serialize, ToSchema)]
pub struct Security<'a> {
    authentication_enabled: bool,
    multi_project_enabled: bool,
    /// The issuer whose tokens are accepted.
    #[schema(required)]
    jwt_issuer: Option<&'a str>,
    caller: CallerView<'a>,
}

#[derive(Serialize, ToSchema)]
struct CallerView<'a> {
    name: &'a str,
    #[schema(value_type = words::CallerScope)]
    scope: &'static str,
    #[schema(value_type = words::ProjectId)]
    project_id: &'a str,
}

/// How callers are authenticated, and the identity of this caller.
#[utoipa::path(get, path = "/security/status", operation_id = "get_security_status", tag = "broker", responses(
    (status = 200, description = "The current configuration and the caller", body = Security),
))]
pub async fn security(state: StateData, Caller(identity): Caller, _: NoQuery) -> HttpResponse {
    let Some(Ready { auth, admin, .. }) = state.ready.get() else {
        return Problem::unavailable("starting").into_response();
    };
    HttpResponse::Ok().json(Security {
        authentication_enabled: auth.is_required(),
        multi_project_enabled: admin.is_multi_project(),
        jwt_issuer: auth.jwt().map(|jwt| jwt.issuer()),
        caller: CallerView {
            name: &identity.principal.audit_name,
            scope: identity.scope().as_str(),
            project_id: identity.project.id().as_str(),
        },
    })
}

/// Metadata of the protected resource (RFC 9728): the issuer of tokens for this broker.
#[utoipa::path(get, path = "/.well-known/oauth-protected-resource", operation_id = "get_resource_metadata",
    tag = "broker", security(()), responses(
    (status = 200, description = "The metadata of the protected resource", body = Object),
    (status = 404, description = "No token issuer is configured"),
))]
pub async fn resource_metadata(state: StateData) -> HttpResponse {
    if let Some(metadata) = state.ready.get().and_then(|ready| ready.auth.resource_metadata()) {
        return HttpResponse::Ok().json(metadata);
    }
    let detail = "no token issuer is configured: use an API key";
    Problem::new(StatusCode::NOT_FOUND, "invalid_argument", detail).into_response()
}
