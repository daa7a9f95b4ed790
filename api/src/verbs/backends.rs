//! Backends as JSON, for operators.

use std::sync::{Arc, atomic::Ordering};

use actors::{
    clock::{now, rfc3339_text},
    gateway::{BackendCommand, BackendShared, ListKind, Offered},
    model::{BackendAddress, BackendEra, BackendFailure, BrokerError},
    project::ProjectHandle,
};
use rest::backends::{Backend, BackendLine, BackendLines, BackendTool, BackendTools, Backends};
use serde_json::Value;
use std::collections::BTreeMap;

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
            .map(|backend| backend_view(backend, shows_arguments))
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
    let mut backend = serde_json::to_value(backend_view(backend, false)).unwrap_or_default();
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

/// A backend as it is now. Arguments, and those of a URL, may hold secrets.
pub fn backend_view(backend: &BackendShared, shows_arguments: bool) -> Backend {
    let (view, counters) = (backend.view(), &backend.counters);
    let lists = view.lists.as_deref();
    let len = |kind| lists.map_or(0, |lists| lists.of(kind).len());
    let is_retried = view.link.is_none() && view.state != actors::gateway::BackendState::Starting;
    let retry_at = view.retry_at_ms.filter(|_| is_retried);
    Backend {
        name: backend.name.to_string(),
        origin: view.config.origin.as_str().to_owned(),
        state: view.state.as_str().to_owned(),
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
            BackendEra::Legacy => "legacy".to_owned(),
            BackendEra::Modern => "modern".to_owned(),
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
        list_problems: view.list_problems.to_vec(),
        calls: counters.answered(),
        failures: counters.failed(),
        open_calls: counters.open.load(Ordering::Relaxed),
        waiting_calls: backend.waiting_len(),
        starts: counters.starts(),
        dropped: counters
            .dropped()
            .into_iter()
            .map(|(reason, count)| (reason.to_owned(), count))
            .collect(),
    }
}
