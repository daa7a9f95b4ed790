//! `/api/v1/sessions`: the sessions of a project.

use std::sync::Arc;

use actix_web::{HttpRequest, web};
use actors::{
    model::{ProtocolName, Scope},
    project::SessionQuery,
};
use rest::words;
use serde::Deserialize;
use utoipa::IntoParams;

use super::session_order;
use crate::http::{
    extract::{Admin, ApiResult, Caller, ok, ok_object, ok_text, parse_limit, parse_text},
    replicas,
};
use api::verbs::sessions::{self, PAGE_LEN, PAGE_LEN_MAX, session_view};

/// Bytes of the answer of another replica to a disconnection.
const ANSWER_BYTES_MAX: usize = 4096;

/// Selects sessions of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only sessions of this presence; `active` by default.
    #[param(value_type = Option<rest::sessions::SessionStatusFilter>)]
    status: Option<String>,
    /// Only sessions that declare this protocol.
    #[param(value_type = Option<words::ProtocolName>)]
    protocol: Option<String>,
    /// Only sessions that declare this feature.
    feature: Option<String>,
    /// Only sessions with this text in their name, an alias or their id, in any case.
    #[param(min_length = 1, max_length = 128)]
    q: Option<String>,
    /// What the sessions are sorted by; their creation by default. Sessions that are equal in it are in order of creation.
    /// With a shared storage and more than 2,000 sessions that match, `queue_size` sorts by the sizes that this replica last
    /// knew.
    #[param(pattern = "^(connection_time|name|status|queue_size|last_heartbeat)$")]
    sort: Option<String>,
    /// `desc` begins with the last ones.
    #[param(pattern = "^(asc|desc)$", default = "asc")]
    order: Option<String>,
    /// Show what the sessions declare.
    #[serde(default)]
    #[param(default = false)]
    include_capabilities: bool,
    /// Most sessions of a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page, with the same `sort` and `order`. A session whose place changes between two
    /// pages may be on both, or on none.
    cursor: Option<String>,
}

/// The sessions of the project, as the tool `list_sessions` shows them, oldest first unless they are sorted. `total` counts
/// those of all pages.
#[utoipa::path(get, path = "/api/v1/sessions", operation_id = "list_sessions", tag = "sessions", params(Query),
    responses((status = 200, description = "A page of the sessions", body = rest::sessions::Sessions),
))]
pub async fn list(Caller(by): Caller, web::Query(query): web::Query<Query>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let filter = SessionQuery {
        status: sessions::parse_status(query.status.as_deref())?,
        protocol: query.protocol.map(|name| ProtocolName::parse(&name)).transpose()?,
        feature: query.feature,
        text: query.q.map(|text| parse_text(&text)).transpose()?,
        limit: parse_limit(query.limit, PAGE_LEN, PAGE_LEN_MAX)?,
        after: None,
    };
    let order = session_order::parse(query.sort.as_deref(), query.order.as_deref())?;
    let after = query
        .cursor
        .map(|text| session_order::parse_cursor(&text, order))
        .transpose()?;
    let cursor = |place: &_| session_order::cursor(order, place);
    let page = sessions::sorted_list(
        &by.project,
        &filter,
        order,
        after.as_ref(),
        query.include_capabilities,
        cursor,
    )
    .await;
    ok_text(&by, page)
}

/// The same as `GET /api/v1/sessions`.
#[utoipa::path(get, path = "/sessions", operation_id = "list_sessions_of_the_project", tag = "sessions", params(Query),
    responses((status = 200, description = "A page of the sessions", body = rest::sessions::Sessions),
))]
#[allow(dead_code, reason = "describes a second path of the list")]
pub fn list_at_root() {}

/// One session, by its id or its name.
#[utoipa::path(get, path = "/api/v1/sessions/{session_id}", operation_id = "get_session", tag = "sessions",
    params(("session_id" = String, Path, description = "Id or name")), responses(
    (status = 200, description = "The session with what it declares", body = rest::sessions::Session),
))]
pub async fn show(Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let member = by.project.resolve(&path).answer().await?;
    by.project.refresh_waiting(&[Arc::clone(&member)]).await;
    ok_object(&by, &session_view(&by.project, &member, true))
}

/// How to end a session.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EndQuery {
    /// End the session for good: its messages become dead letters (`recipient_gone`), its name is free.
    #[serde(default)]
    #[param(default = false)]
    forget: bool,
    /// `self`: only at this replica.
    #[param(pattern = "^self$")]
    replica: Option<String>,
}

/// Disconnects a session: its connection is closed (4007 on a WebSocket); name and inbox stay, and the client may come
/// back. Requires the scope `admin`, or `member` for a session of the caller, by its name or the id that its registration
/// returned.
#[utoipa::path(delete, path = "/api/v1/sessions/{session_id}", operation_id = "end_session", tag = "sessions",
    params(("session_id" = String, Path, description = "Id or name"), EndQuery), responses(
    (status = 200, description = "The session is disconnected or ended", body = rest::sessions::EndedSession),
))]
pub async fn end(
    admin: Admin,
    Caller(by): Caller,
    query: web::Query<EndQuery>,
    path: web::Path<String>,
    request: HttpRequest,
) -> ApiResult {
    let EndQuery { forget, replica } = query.into_inner();
    let is_self_only = replicas::is_self_only(replica.as_deref())?;
    if forget {
        return ok(admin.forget_session(&by, &path).await?);
    }
    let (mut ended, was_connected) = admin.disconnect_session(&by, &path).await?;
    if !was_connected && !is_self_only {
        // Its connection may be at another replica.
        ended.partial = replicas::ask_others(&request, ANSWER_BYTES_MAX).await.partial;
    }
    ok(ended)
}
