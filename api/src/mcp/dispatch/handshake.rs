//! The era of each request, and the methods by which a legacy client and the broker agree on a version and capabilities.

use std::rc::Rc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::introduction;
use crate::mcp::{
    context::PeerContext,
    exposure::Exposure,
    handshake::{ALREADY_INITIALIZED, Introduction},
    legacy::Initialized,
    logging::Level,
    reply::ReplyTo,
    rpc::{INVALID_REQUEST, Params, RpcError},
    tasks,
    version::{Era, RequestMeta},
};

/// The era of a request; `None` if it belongs to neither. Notes in `to` what the request says of its answer: progress token,
/// log level, tasks.
pub(super) fn resolve_era(
    context: &PeerContext,
    to: &mut ReplyTo,
    method: &str,
    params: &Params<'_>,
    meta: Option<Box<RequestMeta>>,
) -> Result<Option<Era>, RpcError> {
    to.log_level = context.legacy.log_level();
    let meta = match meta {
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
    let is_legacy = context.legacy.serves_requests() || matches!(method, "initialize" | "ping");
    Ok(is_legacy.then_some(Era::Legacy))
}

/// `initialize`.
pub(super) fn initialize(context: &Rc<PeerContext>, params: &Params<'_>) -> Result<Value, RpcError> {
    if context.legacy.is_initialized() {
        return Err(RpcError::new(INVALID_REQUEST, ALREADY_INITIALIZED));
    }
    let Introduction {
        version,
        push,
        capabilities,
        client,
    } = Introduction::parse(params, context.exposure == Exposure::Backends)?;
    context.set_client(client);
    context.legacy.initialize(Initialized {
        version,
        push,
        capabilities: Value::Object(capabilities).to_string().into(),
    });
    context.apply_subscriptions();
    Ok(introduction::initialize(context, version))
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
