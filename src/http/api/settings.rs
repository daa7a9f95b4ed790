//! `/api/v1/settings`: the settings as they are in force at this replica, and where each value came from.

#![allow(unused_qualifications, reason = "what utoipa writes")]

use actix_web::{http::Method, web};
use actors::model::Scope;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::{
    extract::{ApiResult, Caller, NoQuery, ok},
    resource::Resource,
    state::{SettingView, StateData},
};

/// The resources of this file.
pub fn resources() -> Vec<Resource> {
    vec![Resource::at("/api/v1/settings").on(Method::GET, web::to(show))]
}

/// The settings in the order of the documentation.
#[derive(Serialize, ToSchema)]
pub struct Settings<'a> {
    settings: &'a [SettingView],
}

/// The settings of this replica, with where each value came from. Secrets are not shown. Requires the admin key.
#[utoipa::path(get, path = "/api/v1/settings", operation_id = "get_settings", tag = "broker", responses(
    (status = 200, description = "The settings", body = Settings),
))]
pub async fn show(state: StateData, Caller(by): Caller, _: NoQuery) -> ApiResult {
    by.check_scope(Scope::Operator)?;
    let settings = &state.settings;
    ok(Settings { settings })
}
