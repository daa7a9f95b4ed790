//! The open calls of backends as JSON, for operators, and how they are ended.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use actors::{
    clock::{Now, now, rfc3339_text},
    gateway::{BackendShared, CallEntry, ListKind},
    model::BrokerError,
    project::ProjectHandle,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::backends::{find, offered};

/// Calls that one answer has, at most.
const CALLS_LEN_MAX: usize = 1_000;
/// Characters that an error repeats of an id. Those of calls have 36.
const ID_CHARS_MAX: usize = 64;

/// A call of a backend that is not over.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct BackendCall {
    #[schema(value_type = String, format = "uuid")]
    call_id: Uuid,
    backend: String,
    /// The id of the replica that has it. Absent where the storage is not shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "uuid")]
    replica: Option<String>,
    /// The method of the request, such as `tools/call`.
    #[schema(value_type = String)]
    method: Cow<'static, str>,
    /// The backend's own name of the tool. Absent for other methods, and until the backend has listed the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    tool: Option<String>,
    /// The name of the tool in the list of all tools, or the one that was called if the backend had not listed it. Absent if
    /// the tool is not offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    name: Option<String>,
    /// `waiting`: for its turn, for its backend, or for what its caller has to say before it is sent again. `running`: the
    /// backend has it. `parked`: the backend has it, and its caller has to call again with the input that it was asked for.
    #[schema(value_type = String)]
    state: Cow<'static, str>,
    /// The caller, as the audit names it.
    caller: String,
    /// The session that the caller acts as.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    session_name: Option<String>,
    /// When it arrived.
    #[schema(format = "date-time")]
    since: String,
    /// The time since then.
    age_ms: u64,
}

/// The calls of the backends of the project that are not over.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct BackendCalls {
    /// The oldest first, at most 1,000.
    calls: Vec<BackendCall>,
    /// All that there are.
    total: usize,
    /// The id of the replica that answers; null where the storage is not shared.
    #[schema(required)]
    replica: Option<String>,
    /// Replicas that did not answer: their calls are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub partial: Vec<String>,
}

impl BackendCalls {
    /// None at this replica.
    pub fn none(replica: Option<String>) -> Self {
        Self {
            calls: Vec::new(),
            total: 0,
            replica,
            partial: Vec::new(),
        }
    }

    /// Adds those of another replica. The clocks of the replicas say which call is older.
    pub fn merge(&mut self, other: Self) {
        self.total += other.total;
        self.calls.extend(other.calls);
        self.calls.sort_by(|call, other| call.since.cmp(&other.since));
        self.calls.truncate(CALLS_LEN_MAX);
    }
}

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
        BackendCall::of(project, &offered.backends[*at], call, name, now).map(|call| BackendCall {
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

impl BackendCall {
    /// A call as it is now; `None` if it is over.
    fn of(
        project: &ProjectHandle,
        backend: &BackendShared,
        call: &CallEntry,
        name: Option<&str>,
        now: Now,
    ) -> Option<Self> {
        let age_ms = now.mono_ms.saturating_sub(call.begun_ms);
        let session = call.origin.session;
        let member = session.and_then(|id| project.session(id));
        let session_name = member.and_then(|member| member.record.name.as_ref().map(ToString::to_string));
        Some(Self {
            call_id: call.id()?,
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
}
