//! `/api/v1/desk`: who is at the desk, and which questions wait there.

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use actors::{
    desk::ConsoleChange,
    model::{BrokerError, ConsoleId, Scope, Via},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::desk_requests as documented;
use crate::http::{
    extract::{ApiResult, Caller, JsonBody, ok},
    people::NamedHuman,
    replicas,
};
use api::{problem, verbs::desk::desk_view};

/// Bytes of the answer of another replica.
const ANSWER_BYTES_MAX: usize = 4096;

/// The people at the desk, their consoles at all replicas, and the number of questions that wait.
#[utoipa::path(get, path = "/api/v1/desk", operation_id = "get_desk", tag = "desk", responses(
    (status = 200, description = "The desk", body = rest::desk::Desk),
))]
pub async fn show(Caller(by): Caller) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    ok(desk_view(&*by.project.desk().await?))
}

/// What changes about a console; absent members stay unchanged.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChangeConsole)]
pub struct Change {
    /// It takes no new questions.
    paused: Option<bool>,
    /// The person is away: questions that they have not opened go to others.
    away: Option<bool>,
    /// The person has done something just now.
    active: Option<bool>,
}

/// Changes a console of the caller: it pauses, its person is away, or has done something just now.
#[utoipa::path(put, path = "/api/v1/desk/consoles/{console}", operation_id = "change_console", tag = "desk",
    params(("console" = String, Path, description = "Id of the console, from its stream of events"),
        documented::HumanHeaders),
    request_body = Change, responses((status = 204, description = "The console is changed")))]
pub async fn change(
    Caller(by): Caller,
    named: NamedHuman,
    path: web::Path<String>,
    JsonBody(body): JsonBody<Change>,
    request: HttpRequest,
) -> ApiResult {
    let console = ConsoleId::parse(&path).ok_or_else(|| BrokerError::invalid("console", "not the id of a console"))?;
    // The console is connected to the replica that its id names.
    let forwarded = serde_json::to_vec(&body).unwrap_or_default();
    let answer = replicas::ask_replica(&request, console.replica, forwarded.into(), ANSWER_BYTES_MAX).await;
    if let Some((status, text)) = answer {
        let mut response = HttpResponse::build(status);
        return Ok(match status {
            StatusCode::NO_CONTENT => response.finish(),
            _ => response.content_type(problem::CONTENT_TYPE).body(text),
        });
    }
    let human = named.acting(&by, Via::Api).await?;
    let change = ConsoleChange {
        is_paused: body.paused,
        is_away: body.away,
        is_active: body.active.unwrap_or(false),
        is_unproven: None,
    };
    // A key with a person changes consoles of this person alone.
    let only = by.principal.human.as_ref().map(|_| &human.name);
    by.project.change_console(console, only, change)?;
    Ok(HttpResponse::NoContent().finish())
}
