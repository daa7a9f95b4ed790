//! `/api/v1/tree`: the actors of the broker.

use actix_web::{HttpRequest, web};
use actors::model::{BrokerError, ReplicaId, Scope};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::http::{
    extract::{ApiResult, Caller, ok},
    replicas,
    state::StateData,
};

/// Bytes of the tree of one replica: about 100,000 actors.
const TREE_BYTES_MAX: usize = 16 * 1024 * 1024;

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
    /// At the root: replicas that did not answer.
    #[schema(nullable = false)]
    partial: Option<Vec<String>>,
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

/// How to show the tree.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// `self`: only the actors of this replica, with the broker as the root.
    #[param(pattern = "^self$")]
    replica: Option<String>,
}

/// The trees of several replicas.
#[derive(Serialize)]
struct Replicas<'a> {
    kind: &'static str,
    name: &'static str,
    state: &'static str,
    mailbox_len: usize,
    restarts: usize,
    children: Vec<Replica<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    partial: Vec<String>,
}

#[derive(Serialize)]
struct Replica<'a> {
    kind: &'static str,
    name: ReplicaId,
    state: &'static str,
    mailbox_len: usize,
    restarts: usize,
    children: [&'a RawValue; 1],
}

/// The actors of the broker with their mailboxes and restarts. Where several replicas share a storage, the root has the
/// kind `replicas` and a child of the kind `replica` for each, named by its id. Requires the admin key.
#[utoipa::path(get, path = "/api/v1/tree", operation_id = "get_tree", tag = "broker", params(Query), responses(
    (status = 200, description = "The root of the tree", body = Actor),
))]
pub async fn tree(state: StateData, Caller(by): Caller, query: web::Query<Query>, request: HttpRequest) -> ApiResult {
    by.check_scope(Scope::Operator)?;
    let is_self_only = replicas::is_self_only(query.replica.as_deref())?;
    let broker = &state.ready()?.broker;
    let Some(own_id) = replicas::own_id(&request).filter(|_| !is_self_only) else {
        return ok(broker.observe());
    };
    let mut answers = replicas::ask_others(&request, TREE_BYTES_MAX).await;
    let own = serde_json::value::to_raw_value(&broker.observe()).map_err(|_| BrokerError::unavailable())?;
    let mut trees = answers.parse::<Box<RawValue>>();
    trees.push((own_id, own));
    trees.sort_unstable_by_key(|(replica, _)| *replica);
    let running = |replica: ReplicaId, tree| Replica {
        kind: "replica",
        name: replica,
        state: "running",
        mailbox_len: 0,
        restarts: 0,
        children: [tree],
    };
    ok(Replicas {
        kind: "replicas",
        name: "",
        state: "running",
        mailbox_len: 0,
        restarts: 0,
        children: trees.iter().map(|(replica, tree)| running(*replica, tree)).collect(),
        partial: answers.partial,
    })
}
