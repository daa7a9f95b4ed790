//! `/api/v1/audit`: pages of the audit.

use actix_web::web;
use actors::model::{AuditOutcome, BrokerError, ProjectId};
use rest::words;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::http::extract::{Admin, ApiResult, Caller, ok, parse_text};
use api::verbs::administration::{AUDIT_PAGE_LEN_MAX, AuditFilter};

/// Selects entries of the audit.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only entries of this project.
    #[param(value_type = Option<words::ProjectId>)]
    project: Option<String>,
    /// Only entries of this action, such as `key.rotate`.
    action: Option<String>,
    /// Only entries with this outcome.
    #[param(value_type = Option<AuditOutcome>)]
    outcome: Option<String>,
    /// Only entries with this text, in any case, in their actor, action or target.
    #[param(min_length = 1, max_length = 128)]
    q: Option<String>,
    /// Most entries of a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    #[param(format = "uuid")]
    cursor: Option<String>,
}

/// Administrative actions and refusals, newest first. An admin of a project sees the entries of that project.
#[utoipa::path(get, path = "/api/v1/audit", operation_id = "list_audit", tag = "audit", params(Query), responses(
    (status = 200, description = "A page of the audit", body = rest::projects::AuditPage),
))]
pub async fn list(admin: Admin, Caller(by): Caller, web::Query(query): web::Query<Query>) -> ApiResult {
    let outcome = match query.outcome.as_deref() {
        None => None,
        Some("done") => Some(AuditOutcome::Done),
        Some("refused") => Some(AuditOutcome::Refused),
        Some(_) => return Err(BrokerError::invalid("outcome", "done or refused").into()),
    };
    if query
        .limit
        .is_some_and(|limit| !(1..=AUDIT_PAGE_LEN_MAX).contains(&limit))
    {
        return Err(BrokerError::invalid("limit", format!("1 to {AUDIT_PAGE_LEN_MAX}")).into());
    }
    let cursor = query.cursor.map(|text| Uuid::parse_str(&text)).transpose();
    let filter = AuditFilter {
        project: query.project.map(|text| ProjectId::parse(&text)).transpose()?,
        action: query.action,
        outcome,
        text: query.q.map(|text| parse_text(&text)).transpose()?,
        limit: query.limit,
        cursor: cursor.map_err(|_| BrokerError::invalid("cursor", "not a cursor of this list"))?,
    };
    ok(admin.audit_page(&by, filter).await?)
}
