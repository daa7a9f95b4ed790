//! `/api/v1/backends`: the backend MCP servers of the project, and what operators do with them. `/api/v1/gateway/ready`:
//! whether their tools can be called.

use std::sync::Arc;

use actix_web::{HttpResponseBuilder, http::StatusCode, web};
use actors::{
    gateway::{BackendCommand, BackendState},
    model::Scope,
};
use rest::backends::{Backend, BackendLines, BackendTools, Backends, ReadinessLevel, ToolsReadiness};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::{
    extract::{Admin, ApiResult, Caller, listed, ok},
    problem_body::ProblemBody,
};
use api::{
    auth::Identity,
    verbs::{
        backends::{self as verbs, backend_view},
        readiness,
    },
};

/// The backends of the project at this replica, sorted by name.
#[utoipa::path(get, path = "/api/v1/backends", operation_id = "list_backends", tag = "backends", responses(
    (status = 200, description = "The backends", body = Backends),
))]
pub async fn list(Caller(by): Caller) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    ok(verbs::list(&by.project, shows_arguments(&by)))
}

/// One backend.
#[utoipa::path(get, path = "/api/v1/backends/{backend}", operation_id = "get_backend", tag = "backends",
    params(("backend" = String, Path, description = "Its name")), responses(
    (status = 200, description = "The backend", body = Backend),
))]
pub async fn show(Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    ok(backend_view(&*verbs::find(&by.project, &path)?, shows_arguments(&by)))
}

/// The tools of a backend, each with the name that clients see.
#[utoipa::path(get, path = "/api/v1/backends/{backend}/tools", operation_id = "list_backend_tools", tag = "backends",
    params(("backend" = String, Path, description = "Its name")), responses(
    (status = 200, description = "The tools", body = BackendTools),
))]
pub async fn tools(Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    ok(verbs::tools(&by.project, &path)?)
}

/// Where to begin.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// The number of the first line, as `next` of an earlier answer says.
    #[serde(default)]
    #[param(default = 0)]
    from: u64,
}

/// The last lines that a backend has written to stderr, and its lines on stdout that are no messages. They may hold secrets of
/// the backend. Requires the scope `admin`.
#[utoipa::path(get, path = "/api/v1/backends/{backend}/log", operation_id = "get_backend_log", tag = "backends",
    params(("backend" = String, Path, description = "Its name"), LogQuery), responses(
    (status = 200, description = "The lines", body = BackendLines),
))]
pub async fn log(Caller(by): Caller, query: web::Query<LogQuery>, path: web::Path<String>) -> ApiResult {
    by.check_scope(Scope::Admin)?;
    ok(verbs::log(&by.project, &path, query.from)?)
}

/// Starts a backend that does not run, also one that waits for its next attempt. Requires the scope `admin`.
#[utoipa::path(post, path = "/api/v1/backends/{backend}/start", operation_id = "start_backend", tag = "backends",
    params(("backend" = String, Path, description = "Its name")), responses(
    (status = 200, description = "The backend as it is now; it may still be starting", body = Backend),
))]
pub async fn start(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    let is_up = |state| {
        matches!(
            state,
            BackendState::Starting | BackendState::Ready | BackendState::Replacing
        )
    };
    let runs = verbs::find(&by.project, &path).is_ok_and(|backend| is_up(backend.view().state));
    let wanted = if runs {
        BackendCommand::Want
    } else {
        BackendCommand::Restart
    };
    command(&admin, &by, &path, wanted)
}

/// Ends the process of a backend, and starts it again. Its open calls end with `backend_died`. Requires the scope `admin`.
#[utoipa::path(post, path = "/api/v1/backends/{backend}/restart", operation_id = "restart_backend", tag = "backends",
    params(("backend" = String, Path, description = "Its name")), responses(
    (status = 200, description = "The backend as it is now; it may still be starting", body = Backend),
))]
pub async fn restart(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    command(&admin, &by, &path, BackendCommand::Restart)
}

/// Ends the process of a backend. Its tools are not listed until it is started again. Requires the scope `admin`.
#[utoipa::path(post, path = "/api/v1/backends/{backend}/stop", operation_id = "stop_backend", tag = "backends",
    params(("backend" = String, Path, description = "Its name")), responses(
    (status = 200, description = "The backend as it is now; it may still be stopping", body = Backend),
))]
pub async fn stop(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    command(&admin, &by, &path, BackendCommand::Stop)
}

/// The tools to ask for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadyQuery {
    /// Names as clients see them, separated by commas: 1 to 100, of at most 256 bytes each.
    #[param(
        required,
        nullable = false,
        pattern = "^[!-+\\-~]{1,256}(,[!-+\\-~]{1,256}){0,99}$",
        example = "github__search_code"
    )]
    tools: Option<String>,
}

/// Whether tools of backends can be called now at this replica. The status is that of the least ready tool, and the body says
/// how ready each of them is.
#[utoipa::path(get, path = "/api/v1/gateway/ready", operation_id = "get_gateway_readiness", tag = "backends",
    params(ReadyQuery), responses(
    (status = 200, description = "All are ready", body = ToolsReadiness),
    (status = 404, description = "No backend offers one of them, or the project does not exist",
        content((ToolsReadiness = "application/json"), (ProblemBody = "application/problem+json"))),
    (status = 409, description = "The backend of one of them has failed or is switched off", body = ToolsReadiness),
    (status = 503, description = "A backend is starting or waits for its next start, or the broker cannot serve the request \
        now", content((ToolsReadiness = "application/json"), (ProblemBody = "application/problem+json"))),
))]
pub async fn ready(Caller(by): Caller, query: web::Query<ReadyQuery>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let names = listed(query.into_inner().tools);
    let answer = readiness::of_tools(&by.project, names.collect())?;
    let status = match answer.readiness {
        ReadinessLevel::Ready => StatusCode::OK,
        ReadinessLevel::Transient => StatusCode::SERVICE_UNAVAILABLE,
        ReadinessLevel::NeedsPerson => StatusCode::CONFLICT,
        ReadinessLevel::Unknown => StatusCode::NOT_FOUND,
    };
    Ok(HttpResponseBuilder::new(status).json(answer))
}

/// Whether the caller may see the arguments of programs.
fn shows_arguments(by: &Identity) -> bool {
    by.check_scope(Scope::Admin).is_ok()
}

fn command(admin: &Admin, by: &Arc<Identity>, name: &str, command: BackendCommand) -> ApiResult {
    admin.command_backend(by, name, command, || verbs::command(&by.project, name, command))?;
    ok(backend_view(&*verbs::find(&by.project, name)?, shows_arguments(by)))
}
