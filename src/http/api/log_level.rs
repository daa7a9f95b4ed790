//! `/api/v1/log-level`: what this replica logs, which an operator may change while it runs.

use std::time::Duration;

use actors::{
    clock::{millis, rfc3339_text},
    model::{BrokerError, Scope},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::extract::{Admin, ApiResult, Caller, JsonBody, ok};
use common::telemetry::{self, FOR_SECONDS_MAX, LogFilterState};

/// What a replica logs.
#[derive(Serialize, ToSchema)]
pub struct LogLevel {
    /// The filter in force.
    filter: String,
    /// The filter of the configuration.
    configured: String,
    /// When the configured filter is in force again; absent if `filter` stays until the process ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time", nullable = false)]
    until: Option<String>,
}

impl From<LogFilterState> for LogLevel {
    fn from(state: LogFilterState) -> Self {
        Self {
            filter: state.filter,
            configured: state.configured,
            until: state.until_ms.map(rfc3339_text),
        }
    }
}

/// What a replica is to log.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeLogLevel {
    /// A level, or levels by module.
    #[schema(
        max_length = 1024,
        example = "info,mcp_broker::http=debug",
        pattern = "^(off|error|warn|info|debug|trace)(,[a-z]{1,20}(::[a-z]{1,20}){0,4}=(off|error|warn|info|debug|trace)){0,8}$"
    )]
    filter: String,
    /// Returns to the filter of the configuration after this time.
    #[schema(minimum = 1, maximum = 86_400)]
    for_seconds: Option<u64>,
}

/// What this replica logs. Requires the admin key.
#[utoipa::path(get, path = "/api/v1/log-level", operation_id = "get_log_level", tag = "broker", responses(
    (status = 200, description = "The filter in force", body = LogLevel),
))]
pub async fn show(Caller(by): Caller) -> ApiResult {
    by.check_scope(Scope::Operator)?;
    let state = telemetry::filter_state().ok_or(BrokerError::unavailable())?;
    ok(LogLevel::from(state))
}

/// Changes what this replica logs, and no other. Requires the admin key.
#[utoipa::path(put, path = "/api/v1/log-level", operation_id = "change_log_level", tag = "broker",
    request_body = ChangeLogLevel, responses(
    (status = 200, description = "The filter in force", body = LogLevel),
))]
pub async fn change(admin: Admin, Caller(by): Caller, body: JsonBody<ChangeLogLevel>) -> ApiResult {
    let JsonBody(ChangeLogLevel { filter, for_seconds }) = body;
    if for_seconds.is_some_and(|seconds| !(1..=FOR_SECONDS_MAX).contains(&seconds)) {
        return Err(BrokerError::invalid("for_seconds", format!("1 to {FOR_SECONDS_MAX}")).into());
    }
    let time = for_seconds.map(Duration::from_secs);
    let state = admin.change_process(&by, "log_level.change", &filter, || {
        let changed = telemetry::change_filter(&filter, time.map(millis));
        changed.map_err(|allowed| BrokerError::invalid("filter", allowed))
    })?;
    if let Some(time) = time {
        let changes = state.changes;
        actix_web::rt::spawn(async move {
            tokio::time::sleep(time).await;
            telemetry::revert_filter(changes);
        });
    }
    ok(LogLevel::from(state))
}
