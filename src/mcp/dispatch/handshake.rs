//! The methods by which client and broker agree on an era, a version and capabilities.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::lists::{LIST_TTL_MS, cacheable};
use crate::mcp::{
    context::PeerContext,
    legacy::Initialized,
    list_changes::LISTS_CHANGE,
    logging::Level,
    read_batch::ReadBatch,
    reply::{ReplyTo, server_info},
    rpc::{INVALID_REQUEST, Params, RpcError},
    tasks,
    version::{Era, MODERN, PUSH_EXTENSION, PushSettings, RequestMeta, negotiate_legacy},
};

/// What the broker tells a model that has just connected.
const INSTRUCTIONS: &str = include_str!("../instructions.txt");

/// The era of a request, and the settings in its `_meta`. `None` if it belongs to neither era.
pub(super) fn resolve_era(
    batch: &mut ReadBatch,
    to: &mut ReplyTo,
    method: &str,
    params: &Params<'_>,
) -> Result<Option<Era>, RpcError> {
    to.log_level = batch.context.legacy.log_level();
    let meta = match batch.parsed_meta.take() {
        Some(meta) => *meta,
        None => RequestMeta::parse(params)?,
    };
    to.progress = meta.progress_token();
    if meta.is_modern() {
        to.modern = true;
        to.log_level = meta.log_level()?;
        let era = meta.into_era()?;
        to.takes_tasks = era.declares_extension(tasks::EXTENSION);
        return Ok(Some(era));
    }
    let is_initialized = batch.context.legacy.is_initialized();
    Ok((is_initialized || matches!(method, "initialize" | "ping")).then_some(Era::Legacy))
}

/// `initialize`.
pub(super) fn initialize(context: &PeerContext, params: &Params<'_>) -> Result<Value, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Initialize<'a> {
        #[serde(borrow)]
        protocol_version: Cow<'a, str>,
        #[serde(default)]
        capabilities: Map<String, Value>,
        client_info: Option<&'a RawValue>,
    }
    let Initialize {
        protocol_version,
        capabilities,
        client_info,
    } = params.parse()?;
    if context.legacy.is_initialized() {
        return Err(RpcError::new(INVALID_REQUEST, "Invalid Request: already initialized"));
    }
    let push = PushSettings::parse(capabilities.get("experimental"))?;
    let version = negotiate_legacy(&protocol_version);
    // Only the log shows it, so malformed information is ignored.
    context.set_client(client_info.and_then(|client| serde_json::from_str(client.get()).ok()));
    context.legacy.initialize(Initialized {
        version,
        push,
        capabilities: Value::Object(capabilities).to_string().into(),
    });
    context.apply_subscriptions();
    Ok(json!({
        "protocolVersion": version,
        "capabilities": {
            "tools": {"listChanged": false},
            "resources": {"subscribe": true, "listChanged": false},
            "prompts": {"listChanged": false},
            "completions": {},
            "logging": {},
            "experimental": {PUSH_EXTENSION: {}},
        },
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    }))
}

/// `server/discover`.
pub(super) fn discover() -> Value {
    let lists = if LISTS_CHANGE {
        json!({"listChanged": true})
    } else {
        json!({})
    };
    let result = json!({
        "supportedVersions": [MODERN],
        "capabilities": {
            "tools": lists,
            "resources": {"subscribe": true},
            "prompts": lists,
            "completions": {},
            "logging": {},
            "extensions": {PUSH_EXTENSION: {}, tasks::EXTENSION: {}},
        },
        "instructions": INSTRUCTIONS,
    });
    cacheable(result, LIST_TTL_MS, "public")
}

/// `logging/setLevel`.
pub(super) fn set_log_level(context: &PeerContext, params: &Params<'_>) -> Result<Value, RpcError> {
    #[derive(Deserialize)]
    struct SetLevel {
        level: Level,
    }
    let SetLevel { level } = params.parse()?;
    context.legacy.set_log_level(level);
    Ok(json!({}))
}
