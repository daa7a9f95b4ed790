//! `/api/v1/gateway/calls`: the calls of backends that are not over, and how operators end them.

use actix_web::{HttpRequest, HttpResponse, web};
use actors::model::{BrokerError, Scope};
use rest::backends::BackendCalls;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::{
    extract::{Admin, ApiResult, Caller, ok_object},
    replicas,
};
use api::verbs::open_calls as verbs;

/// Bytes of the answer of another replica: 1,000 calls, most of them below 1 KiB.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Selects open calls.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CallsQuery {
    /// Only those of the backend with this name.
    backend: Option<String>,
    /// `self`: only those of this replica.
    #[param(pattern = "^self$")]
    replica: Option<String>,
}

/// Where an open call is looked for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EndCallQuery {
    /// `self`: only at this replica.
    #[param(pattern = "^self$")]
    replica: Option<String>,
}

/// The open calls of the project's backends at all replicas, the oldest first.
#[utoipa::path(get, path = "/api/v1/gateway/calls", operation_id = "list_backend_calls", tag = "backends",
    params(CallsQuery), responses((status = 200, description = "The calls", body = BackendCalls),
))]
pub async fn list(Caller(by): Caller, query: web::Query<CallsQuery>, request: HttpRequest) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let CallsQuery { backend, replica } = query.into_inner();
    let is_self_only = replicas::is_self_only(replica.as_deref())?;
    let own_id = replicas::own_id(&request).map(|replica| replica.to_string());
    let own = verbs::list(&by.project, backend.as_deref(), own_id.clone());
    let calls = if is_self_only {
        own?
    } else {
        let mut others = replicas::ask_others(&request, ANSWER_BYTES_MAX).await;
        let of_others = others.parse::<BackendCalls>();
        // A replica may know a new backend earlier than this one.
        let mut calls = match own {
            Err(error) if of_others.is_empty() => return Err(error.into()),
            own => own.unwrap_or_else(|_| BackendCalls {
                replica: own_id,
                ..BackendCalls::default()
            }),
        };
        for (_, other) in of_others {
            calls.merge(other);
        }
        calls.partial = others.partial;
        calls
    };
    ok_object(&by, &calls)
}

/// Ends an open call at whichever replica it is: its caller gets the error `call_cancelled`, and its backend is notified. The
/// caller of a parked call gets `invalid_request_state` when it calls again. Requires the scope `admin`.
#[utoipa::path(delete, path = "/api/v1/gateway/calls/{call_id}", operation_id = "end_backend_call", tag = "backends",
    params(("call_id" = String, Path, format = "uuid", description = "Its id"), EndCallQuery), responses(
    (status = 204, description = "The call is ended"),
))]
pub async fn end(
    admin: Admin,
    Caller(by): Caller,
    query: web::Query<EndCallQuery>,
    path: web::Path<String>,
    request: HttpRequest,
) -> ApiResult {
    let is_self_only = replicas::is_self_only(query.replica.as_deref())?;
    let elsewhere = async || {
        if is_self_only {
            return Ok(false);
        }
        let others = replicas::ask_others(&request, ANSWER_BYTES_MAX).await;
        // It may be at a replica that did not answer.
        let is_known = others.is_any() || others.partial.is_empty();
        is_known.then_some(others.is_any()).ok_or(BrokerError::unavailable())
    };
    let elsewhere = (!replicas::is_sent_on(&request)).then_some(elsewhere);
    admin
        .end_call(&by, &path, || verbs::end(&by.project, &path), elsewhere)
        .await?;
    Ok(HttpResponse::NoContent().finish())
}
