//! `/api/v1/compatibility`: what the sessions of a project can speak with each other.

use actix_web::web;
use actors::model::Scope;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::extract::{ApiResult, Caller, listed, ok_text};
use api::verbs::compatibility;

/// Selects the sessions to compare.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Ids or names, separated by commas, at most 100; without them all active sessions. A name with a comma is given by
    /// the id of its session.
    session_ids: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// For each pair of sessions, what both can speak, as the tool `compatibility_matrix` shows it.
#[utoipa::path(get, path = "/api/v1/compatibility", operation_id = "get_compatibility", tag = "sessions",
    params(Query), responses((status = 200, description = "A page of the matrix", body = rest::sessions::Matrix),
))]
pub async fn matrix(Caller(by): Caller, query: web::Query<Query>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let Query { session_ids, cursor } = query.into_inner();
    let ids = session_ids.is_some().then(|| listed(session_ids).collect());
    let after = cursor.map(|text| compatibility::parse_cursor(&text)).transpose()?;
    let page = compatibility::page(&by.project, ids, after).answer().await?;
    ok_text(&by, page)
}
