//! Results that clients may cache: the lists of tools, resources and prompts.

use std::sync::OnceLock;

use actors::model::Scope;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::json::write_json;
use crate::mcp::{
    reply::with_era_members,
    rpc::{Params, RpcError},
    tools,
};

/// How long a client may cache the lists, in milliseconds. They change only with the version of the broker.
pub(super) const LIST_TTL_MS: u64 = 3_600_000;

/// Adds the members that say how long and for whom a result may be cached.
pub(super) fn cacheable(mut result: Value, ttl_ms: u64, scope: &str) -> Value {
    result["ttlMs"] = json!(ttl_ms);
    result["cacheScope"] = json!(scope);
    result
}

/// The result with a whole list, under `key`.
pub(super) fn list(params: &Params<'_>, key: &str, items: Value) -> Result<Value, RpcError> {
    check_cursor(params)?;
    Ok(cacheable(json!({key: items}), LIST_TTL_MS, "public"))
}

/// Refuses every cursor: all lists fit on one page.
pub(super) fn check_cursor(params: &Params<'_>) -> Result<(), RpcError> {
    #[derive(Deserialize)]
    struct ListParams {
        cursor: Option<Value>,
    }
    match params.parse::<ListParams>()?.cursor {
        Some(_) => Err(RpcError::invalid_params("Invalid cursor")),
        None => Ok(()),
    }
}

/// The result of `tools/list` for callers of one scope, without the tools that they may not call. It is long and
/// requested by every client, so it is serialized once.
pub(super) fn tool_list(is_multi_project: bool, scope: Scope, modern: bool) -> &'static [u8] {
    type CachedList = OnceLock<Vec<u8>>;
    static LISTS: [[[CachedList; 2]; 2]; Scope::ALL.len()] =
        [const { [const { [const { CachedList::new() }; 2] }; 2] }; Scope::ALL.len()];
    LISTS[scope as usize][usize::from(is_multi_project)][usize::from(modern)].get_or_init(|| {
        let tools = json!({"tools": tools::list(is_multi_project, scope)});
        let mut text = Vec::new();
        write_json(
            &mut text,
            &with_era_members(cacheable(tools, LIST_TTL_MS, "private"), modern),
        );
        text
    })
}
