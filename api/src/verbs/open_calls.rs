//! The open calls of backends as JSON, for operators, and how they are ended.

use std::{collections::HashMap, sync::Arc};

use actors::{
    clock::{Now, now, rfc3339_text},
    gateway::{BackendShared, CallEntry, ListKind},
    model::BrokerError,
    project::ProjectHandle,
};
use rest::backends::{BackendCall, BackendCalls, CALLS_LEN_MAX};
use uuid::Uuid;

use super::backends::{find, offered};

/// Characters that an error repeats of an id. Those of calls have 36.
const ID_CHARS_MAX: usize = 64;

/// The open calls of a project at this replica, or of one of its backends.
///
/// # Errors
/// `backend_not_found`.
pub fn list(
    project: &ProjectHandle,
    backend: Option<&str>,
    replica: Option<String>,
) -> Result<BackendCalls, BrokerError> {
    backend.map(|name| find(project, name)).transpose()?;
    let offered = offered(project);
    let is_wanted = |known: &BackendShared| backend.is_none_or(|wanted| known.name.as_str() == wanted);
    let listing = offered.routes.listing(None, ListKind::Tools);
    let names: HashMap<(usize, &str), &str> = listing
        .offered()
        .map(|(name, target)| ((target.backend, &*target.original), name))
        .collect();
    let backends = offered.backends.iter().enumerate();
    let mut calls: Vec<(usize, Arc<CallEntry>)> = backends
        .filter(|(_, backend)| is_wanted(backend))
        .flat_map(|(at, backend)| backend.calls.all().into_iter().map(move |call| (at, call)))
        .filter(|(_, call)| call.stage().as_str().is_some())
        .collect();
    calls.sort_by_key(|(_, call)| call.begun_ms);
    let (total, now) = (calls.len(), now());
    let shown = calls.iter().take(CALLS_LEN_MAX).filter_map(|(at, call)| {
        let name = call
            .tool()
            .map_or_else(|| call.called(), |tool| names.get(&(*at, tool)).copied());
        call_view(project, &offered.backends[*at], call, name, now).map(|call| BackendCall {
            replica: replica.clone(),
            ..call
        })
    });
    Ok(BackendCalls {
        calls: shown.collect(),
        total,
        replica,
        partial: Vec::new(),
    })
}

/// Ends an open call of a project at this replica. Returns the name of its backend.
///
/// # Errors
/// `call_not_found`.
pub fn end(project: &ProjectHandle, id: &str) -> Result<String, BrokerError> {
    let offered = offered(project);
    let call = Uuid::try_parse(id).ok();
    let ended = call.and_then(|call| offered.backends.iter().find(|backend| backend.end_call(call)));
    ended
        .map(|backend| backend.name.to_string())
        .ok_or_else(|| BrokerError::CallNotFound {
            id: id.chars().take(ID_CHARS_MAX).collect(),
        })
}

/// A call as it is now; `None` if it is over.
fn call_view(
    project: &ProjectHandle,
    backend: &BackendShared,
    call: &CallEntry,
    name: Option<&str>,
    now: Now,
) -> Option<BackendCall> {
    let age_ms = now.mono_ms.saturating_sub(call.begun_ms);
    let session = call.origin.session;
    let member = session.and_then(|id| project.session(id));
    let session_name = member.and_then(|member| member.record.name.as_ref().map(ToString::to_string));
    Some(BackendCall {
        call_id: call.id()?.to_string(),
        backend: backend.name.to_string(),
        replica: None,
        method: call.origin.method.into(),
        tool: call.tool().map(str::to_owned),
        name: name.map(str::to_owned),
        state: call.stage().as_str()?.into(),
        caller: call.origin.caller.to_string(),
        session_id: session.map(|id| id.to_string()),
        session_name,
        since: rfc3339_text(now.unix_ms.saturating_sub(age_ms)),
        age_ms,
    })
}
