//! `/api/v1/settings`: the settings as they are in force at this replica, and where each value came from.

use actors::model::Scope;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::{
    extract::{ApiResult, Caller, ok},
    state::{SettingView, StateData},
};

/// The settings in the order of the documentation.
#[derive(Serialize, ToSchema)]
pub struct Settings<'a> {
    settings: &'a [SettingView],
}

/// The settings of this replica, with where each value came from. Secrets are not shown. Requires the admin key.
#[utoipa::path(get, path = "/api/v1/settings", operation_id = "get_settings", tag = "broker", responses(
    (status = 200, description = "The settings", body = Settings),
))]
pub async fn show(state: StateData, Caller(by): Caller) -> ApiResult {
    by.check_scope(Scope::Operator)?;
    let settings = &state.settings;
    ok(Settings { settings })
}
