//! `/api/v1/gateway/calls`: the calls of backends that are not over, and how operators end them.

#![allow(unused_qualifications, reason = "what utoipa writes")]

use actix_web::{HttpRequest, HttpResponse, http::Method, web};
use actors::model::Scope;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    http::{
        extract::{Admin, ApiResult, Caller, NoQuery, ok_text},
        replicas,
        resource::Resource,
    },
    json::write_json,
    verbs::open_calls::{self as verbs, BackendCalls},
};

/// The resources of this file.
pub fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/api/v1/gateway/calls").on(Method::GET, web::to(list)),
        Resource::at("/api/v1/gateway/calls/{call_id}").on(Method::DELETE, web::to(end)),
    ]
}

/// Selects open calls.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CallsQuery {
    /// Only those of the backend with this name.
    backend: Option<String>,
}

/// The open calls of the project's backends at this replica, the oldest first.
#[utoipa::path(get, path = "/api/v1/gateway/calls", operation_id = "list_backend_calls", tag = "backends",
    params(CallsQuery), responses((status = 200, description = "The calls", body = BackendCalls),
))]
pub async fn list(Caller(by): Caller, query: web::Query<CallsQuery>, request: HttpRequest) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let replica = replicas::own_id(&request).map(|replica| replica.to_string());
    let calls = verbs::list(&by.project, query.backend.as_deref(), replica)?;
    let mut text = Vec::new();
    write_json(&mut text, &calls);
    ok_text(&by, text)
}

/// Ends an open call at this replica: its caller gets the error `call_cancelled`, and its backend is told. The caller of a
/// parked call gets `invalid_request_state` when it calls again. Requires the scope `admin`.
#[utoipa::path(delete, path = "/api/v1/gateway/calls/{call_id}", operation_id = "end_backend_call", tag = "backends",
    params(("call_id" = String, Path, format = "uuid", description = "Its id")), responses(
    (status = 204, description = "The call is ended"),
))]
pub async fn end(admin: Admin, Caller(by): Caller, _: NoQuery, path: web::Path<String>) -> ApiResult {
    admin.end_call(&by, &path, || verbs::end(&by.project, &path))?;
    Ok(HttpResponse::NoContent().finish())
}
