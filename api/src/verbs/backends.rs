//! Backends as JSON, for operators.

use std::sync::{Arc, atomic::Ordering};

use actors::{
    clock::{now, rfc3339_text},
    gateway::{BackendCommand, BackendShared, ListKind, Offered},
    model::{BackendAddress, BackendEra, BackendFailure, BrokerError},
    project::ProjectHandle,
};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Lines of a log that one answer has, at most.
pub const LOG_LINES_MAX: usize = 1_000;

/// The members of a backend that an agent reads: few, because each is paid for in tokens.
const SUMMARY: [&str; 11] = [
    "name",
    "state",
    "since",
    "reason",
    "retry_after_ms",
    "era",
    "server",
    "tools",
    "list_problems",
    "calls",
    "failures",
];

/// A backend of the gateway.
#[derive(Serialize, ToSchema)]
pub struct Backend {
    name: String,
    /// `file`: the configuration file has it. `added`: an administrator has added it.
    origin: &'static str,
    /// `idle`, `starting`, `ready`, `backoff`, `failed`, `disabled` or `stopping`.
    state: &'static str,
    /// Since when it is in this state.
    #[schema(format = "date-time")]
    since: String,
    /// Why it is in this state, or what it ended with before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// When it is started again, in milliseconds from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    retry_after_ms: Option<u64>,
    /// The program or the URL; for administrators with its arguments, which may hold secrets.
    address: String,
    /// `legacy` or `modern`, once its handshake has shown it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    era: Option<&'static str>,
    /// The protocol version that is spoken with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    protocol_version: Option<String>,
    /// What it calls itself: name and version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    server: Option<String>,
    /// The process group, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pid: Option<u32>,
    /// Its processes that run: one, or more while it is replaced, or if not all callers share one.
    processes: usize,
    /// Tools that it offers, those left out by `allow` and `deny` included.
    tools: usize,
    prompts: usize,
    resources: usize,
    /// What it lists, or should list, and clients are not offered, with the reason: at most 20, and the number of the others.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[schema(value_type = Vec<String>)]
    list_problems: Arc<[String]>,
    /// Calls that ended with a result.
    calls: u64,
    /// Calls that ended with an error, of the backend or of the gateway.
    failures: u64,
    /// Calls that are open, waiting ones included and parked ones not.
    open_calls: usize,
    /// Calls that wait for their turn.
    waiting_calls: usize,
    /// Starts of its process since the start of the broker.
    starts: u64,
    /// Messages of it that reached no caller, by reason.
    dropped: BTreeMap<&'static str, u64>,
}

/// The backends of the project.
#[derive(Serialize, ToSchema)]
pub struct Backends {
    /// Sorted by name.
    backends: Vec<Backend>,
}

/// A tool of a backend with the name that clients see.
#[derive(Serialize, ToSchema)]
pub struct BackendTool {
    /// The backend's own name.
    tool: String,
    /// The name in the list of all tools; absent if the tool is not offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    name: Option<String>,
    /// Names have no prefix, but this one has, because others have the same name. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ambiguous: bool,
    /// Bytes of its definition, as the backend has sent it.
    bytes: usize,
}

/// The tools of a backend.
#[derive(Serialize, ToSchema)]
pub struct BackendTools {
    tools: Vec<BackendTool>,
}

/// A line that a backend has written to stderr.
#[derive(Serialize, ToSchema)]
pub struct BackendLine {
    number: u64,
    #[schema(format = "date-time")]
    at: String,
    text: String,
}

/// The last lines of a backend.
#[derive(Serialize, ToSchema)]
pub struct BackendLines {
    lines: Vec<BackendLine>,
    /// The number of the next line.
    next: u64,
}

/// The backends of a project with their routing table; none where it has no gateway.
pub(super) fn offered(project: &ProjectHandle) -> Arc<Offered> {
    let gateway = project.gateway();
    gateway.map(|gateway| gateway.shared().offered()).unwrap_or_default()
}

/// Whether a project has backends.
pub fn any(project: &ProjectHandle) -> bool {
    !offered(project).backends.is_empty()
}

/// The names of the backends of a project, sorted.
pub fn names(project: &ProjectHandle) -> Vec<String> {
    offered(project)
        .backends
        .iter()
        .map(|backend| backend.name.to_string())
        .collect()
}

/// All backends of a project, with the arguments of their programs if the caller may see them.
pub fn list(project: &ProjectHandle, shows_arguments: bool) -> Backends {
    Backends {
        backends: offered(project)
            .backends
            .iter()
            .map(|backend| Backend::of(backend, shows_arguments))
            .collect(),
    }
}

/// A backend of a project.
///
/// # Errors
/// `backend_not_found`.
pub fn find(project: &ProjectHandle, name: &str) -> Result<Arc<BackendShared>, BrokerError> {
    let missing = || BackendFailure::NotFound {
        name: name.chars().take(64).collect(),
    };
    offered(project).backend(name).cloned().ok_or_else(|| missing().into())
}

/// A backend in few words.
///
/// # Errors
/// `backend_not_found`.
pub fn summary(project: &ProjectHandle, name: &str) -> Result<Value, BrokerError> {
    Ok(summary_of(&*find(project, name)?))
}

/// All backends of a project in few words.
pub fn summaries(project: &ProjectHandle) -> Vec<Value> {
    offered(project)
        .backends
        .iter()
        .map(|backend| summary_of(backend))
        .collect()
}

fn summary_of(backend: &BackendShared) -> Value {
    // A plain object always serializes.
    let mut backend = serde_json::to_value(Backend::of(backend, false)).unwrap_or_default();
    if let Some(members) = backend.as_object_mut() {
        members.retain(|name, _| SUMMARY.contains(&name.as_str()));
    }
    backend
}

/// Gives a backend a command.
///
/// # Errors
/// `backend_not_found`.
pub fn command(project: &ProjectHandle, name: &str, command: BackendCommand) -> Result<(), BrokerError> {
    find(project, name)?.command(command);
    Ok(())
}

/// The tools of a backend.
///
/// # Errors
/// `backend_not_found`.
pub fn tools(project: &ProjectHandle, name: &str) -> Result<BackendTools, BrokerError> {
    let backend = find(project, name)?;
    let offered = offered(project);
    let at = offered.backends.iter().position(|known| known.name == backend.name);
    let listing = offered.routes.listing(None, ListKind::Tools);
    let names: BTreeMap<&str, &str> = listing
        .offered()
        .filter(|(_, target)| Some(target.backend) == at)
        .map(|(name, target)| (&*target.original, name))
        .collect();
    let view = backend.view();
    let lists = view.lists.as_deref();
    let tools = lists.map(|lists| lists.tools.as_slice()).unwrap_or_default();
    let tools = tools.iter().map(|tool| {
        let name = names.get(tool.key.as_str()).copied();
        BackendTool {
            tool: tool.key.clone(),
            name: name.map(str::to_owned),
            ambiguous: name.is_some_and(|name| listing.ambiguous().contains(name)),
            bytes: tool.text.len(),
        }
    });
    Ok(BackendTools { tools: tools.collect() })
}

/// The lines of a backend from this number on, the last ones if there are too many.
///
/// # Errors
/// `backend_not_found`.
pub fn log(project: &ProjectHandle, name: &str, from: u64) -> Result<BackendLines, BrokerError> {
    let backend = find(project, name)?;
    let lines = backend.log.since(from);
    let skipped = lines.len().saturating_sub(LOG_LINES_MAX);
    let lines = lines.into_iter().skip(skipped).map(|line| BackendLine {
        number: line.number,
        at: rfc3339_text(line.at_ms),
        text: line.text.into(),
    });
    Ok(BackendLines {
        lines: lines.collect(),
        next: backend.log.next_number(),
    })
}

impl Backend {
    /// A backend as it is now. Arguments, and those of a URL, may hold secrets.
    pub fn of(backend: &BackendShared, shows_arguments: bool) -> Self {
        let (view, counters) = (backend.view(), &backend.counters);
        let lists = view.lists.as_deref();
        let len = |kind| lists.map_or(0, |lists| lists.of(kind).len());
        let is_retried = view.link.is_none() && view.state != actors::gateway::BackendState::Starting;
        let retry_at = view.retry_at_ms.filter(|_| is_retried);
        Self {
            name: backend.name.to_string(),
            origin: view.config.origin.as_str(),
            state: view.state.as_str(),
            since: rfc3339_text(view.since_ms),
            reason: view.reason.clone(),
            retry_after_ms: retry_at.map(|at| at.saturating_sub(now().mono_ms)),
            address: match &view.config.address {
                BackendAddress::Command { command, args, .. } => args
                    .iter()
                    .filter(|_| shows_arguments)
                    .fold(command.clone(), |line, argument| format!("{line} {argument}")),
                BackendAddress::Url { url, .. } if shows_arguments => url.clone(),
                BackendAddress::Url { url, .. } => url.split(['?', '#']).next().unwrap_or_default().to_owned(),
            },
            era: view.link.as_ref().map(|link| match link.era() {
                BackendEra::Legacy => "legacy",
                BackendEra::Modern => "modern",
            }),
            protocol_version: view.server.as_ref().map(|server| server.protocol_version.clone()),
            server: view
                .server
                .as_ref()
                .map(|server| format!("{} {}", server.name, server.version)),
            pid: view.pid,
            processes: counters.processes.load(Ordering::Relaxed),
            tools: len(ListKind::Tools),
            prompts: len(ListKind::Prompts),
            resources: len(ListKind::Resources),
            list_problems: Arc::clone(&view.list_problems),
            calls: counters.answered(),
            failures: counters.failed(),
            open_calls: counters.open.load(Ordering::Relaxed),
            waiting_calls: backend.waiting_len(),
            starts: counters.starts(),
            dropped: counters.dropped().into_iter().collect(),
        }
    }
}
