//! `/api/v1/audit`: pages of the audit.

#![allow(unused_qualifications, reason = "what utoipa writes")]

use actix_web::{http::Method, web};
use actors::model::{AuditOutcome, BrokerError, ProjectId};
use rest::words;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::http::{
    extract::{Admin, ApiResult, Caller, ok, parse_text},
    resource::Resource,
};
use api::verbs::administration::{AUDIT_PAGE_LEN_MAX, AuditFilter};

/// The resources of this file.
pub fn resources() -> Vec<Resource> {
    vec![Resource::at("/api/v1/audit").on(Method::GET, web::to(list))]
}

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
pub async fn list(admin: Admin, Caller(by): Caller, query: web::Query<Query>) -> ApiResult {
    let Query {
        project,
        action,
        outcome,
        q,
        limit,
        cursor,
    } = query.into_inner();
    let outcome = match outcome.as_deref() {
        None => None,
        Some("done") => Some(AuditOutcome::Done),
        Some("refused") => Some(AuditOutcome::Refused),
        Some(_) => return Err(BrokerError::invalid("outcome", "done or refused").into()),
    };
    if limit.is_some_and(|limit| !(1..=AUDIT_PAGE_LEN_MAX).contains(&limit)) {
        return Err(BrokerError::invalid("limit", format!("1 to {AUDIT_PAGE_LEN_MAX}")).into());
    }
    let cursor = cursor.map(|text| Uuid::parse_str(&text)).transpose();
    let filter = AuditFilter {
        project: project.map(|text| ProjectId::parse(&text)).transpose()?,
        action,
        outcome,
        text: q.map(|text| parse_text(&text)).transpose()?,
        limit,
        cursor: cursor.map_err(|_| BrokerError::invalid("cursor", "not a cursor of this list"))?,
    };
    ok(admin.audit_page(&by, filter).await?)
}
