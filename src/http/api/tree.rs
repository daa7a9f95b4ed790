//! `/api/v1/tree`: the actors of the broker.

use actix_web::{HttpResponse, http::Method, web};
use actors::model::{BrokerError, Scope};
use utoipa::ToSchema;

use crate::http::{
    extract::{ApiResult, Caller, NoQuery},
    resource::Resource,
    state::StateData,
};

/// The resources of this file.
pub fn resources() -> Vec<Resource> {
    vec![Resource::at("/api/v1/tree").on(Method::GET, web::to(tree))]
}

/// An actor of the broker with its children.
#[allow(dead_code, reason = "schema of the output of Node")]
#[derive(ToSchema)]
pub struct Actor {
    /// Such as `project` or `session`.
    kind: String,
    name: String,
    state: ActorState,
    /// Messages in its mailbox.
    mailbox_len: usize,
    /// Restarts after a panic.
    #[schema(value_type = usize)]
    restarts: u32,
    #[schema(no_recursion)]
    children: Vec<Actor>,
}

/// The state of an actor.
#[allow(dead_code, reason = "schema of the output of Node")]
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum ActorState {
    Running,
    Restarting,
    Finished,
    GaveUp,
}

/// The actors of the broker with their mailboxes and restarts. Requires the admin key.
#[utoipa::path(get, path = "/api/v1/tree", operation_id = "get_tree", tag = "broker", responses(
    (status = 200, description = "The root of the tree", body = Actor),
))]
pub async fn tree(state: StateData, Caller(by): Caller, _: NoQuery) -> ApiResult {
    by.check_scope(Scope::Operator)?;
    let broker = state.broker.get().ok_or(BrokerError::unavailable())?;
    Ok(HttpResponse::Ok().json(broker.observe()))
}
