//! Backends of the gateway, their open calls, and whether their tools can be called.

use std::collections::BTreeMap;

use answer::answer;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words::{Id, Time};

/// Calls that one answer has, at most.
pub const CALLS_LEN_MAX: usize = 1_000;

/// A backend of the gateway.
#[answer(lenient)]
pub struct Backend {
    pub name: String,
    /// `file`: the configuration file has it. `added`: an administrator has added it.
    pub origin: String,
    /// `idle`, `starting`, `ready`, `backoff`, `failed`, `disabled` or `stopping`.
    pub state: String,
    /// Since when it is in this state.
    pub since: Time,
    /// Why it is in this state, or what it ended with before.
    #[absent]
    pub reason: Option<String>,
    /// When it is started again, in milliseconds from now.
    #[absent]
    pub retry_after_ms: Option<u64>,
    /// The program or the URL; for administrators with its arguments, which may hold secrets.
    pub address: String,
    /// `legacy` or `modern`, once its handshake has shown it.
    #[absent]
    pub era: Option<String>,
    /// The protocol version that is spoken with it.
    #[absent]
    pub protocol_version: Option<String>,
    /// What it calls itself: name and version.
    #[absent]
    pub server: Option<String>,
    /// The process group, while it runs.
    #[absent]
    pub pid: Option<u32>,
    /// Its processes that run: one, or more while it is replaced, or if not all callers share one.
    pub processes: usize,
    /// Tools that it offers, those left out by `allow` and `deny` included.
    pub tools: usize,
    pub prompts: usize,
    pub resources: usize,
    /// What it lists, or should list, and clients are not offered, with the reason: at most 20, and the number of the others.
    #[absent]
    pub list_problems: Vec<String>,
    /// Calls that ended with a result.
    pub calls: u64,
    /// Calls that ended with an error, of the backend or of the gateway.
    pub failures: u64,
    /// Calls that are open, waiting ones included and parked ones not.
    pub open_calls: usize,
    /// Calls that wait for their turn.
    pub waiting_calls: usize,
    /// Starts of its process since the start of the broker.
    pub starts: u64,
    /// Messages of it that reached no caller, by reason.
    pub dropped: BTreeMap<String, u64>,
}

/// The backends of the project.
#[answer]
pub struct Backends {
    /// Sorted by name.
    pub backends: Vec<Backend>,
}

/// A tool of a backend with the name that clients see.
#[answer]
pub struct BackendTool {
    /// The backend's own name.
    pub tool: String,
    /// The name in the list of all tools; absent if the tool is not offered.
    #[absent]
    pub name: Option<String>,
    /// Names have no prefix, but this one has, because others have the same name. Absent otherwise.
    #[absent]
    pub ambiguous: bool,
    /// Bytes of its definition, as the backend has sent it.
    pub bytes: usize,
}

/// The tools of a backend.
#[answer]
pub struct BackendTools {
    pub tools: Vec<BackendTool>,
}

/// A line that a backend has written to stderr.
#[answer]
pub struct BackendLine {
    pub number: u64,
    pub at: Time,
    pub text: String,
}

/// The last lines of a backend.
#[answer]
pub struct BackendLines {
    pub lines: Vec<BackendLine>,
    /// The number of the next line.
    pub next: u64,
}

/// A call of a backend that is not over.
#[answer]
pub struct BackendCall {
    pub call_id: Id,
    pub backend: String,
    /// The id of the replica that has it. Absent where the storage is not shared.
    #[absent]
    pub replica: Option<Id>,
    /// The method of the request, such as `tools/call`.
    pub method: String,
    /// The backend's own name of the tool. Absent for other methods, and until the backend has listed the tool.
    #[absent]
    pub tool: Option<String>,
    /// The name of the tool in the list of all tools, or the one that was called if the backend had not listed it. Absent if
    /// the tool is not offered.
    #[absent]
    pub name: Option<String>,
    /// `waiting`: for its turn, for its backend, or for what its caller has to say before it is sent again. `running`: the
    /// backend has it. `parked`: the backend has it, and its caller has to call again with the input that it was asked for.
    pub state: String,
    /// The caller, as the audit names it.
    pub caller: String,
    /// The session that the caller acts as.
    #[absent]
    pub session_id: Option<String>,
    #[absent]
    pub session_name: Option<String>,
    /// When it arrived.
    pub since: Time,
    /// The time since then.
    pub age_ms: u64,
}

/// The calls of the backends of the project that are not over.
#[answer]
pub struct BackendCalls {
    /// The oldest first, at most 1,000.
    pub calls: Vec<BackendCall>,
    /// All that there are.
    pub total: usize,
    /// The id of the replica that answers; null where the storage is not shared.
    pub replica: Option<String>,
    /// Replicas that did not answer: their calls are missing.
    #[absent]
    pub partial: Vec<String>,
}

impl BackendCalls {
    /// Adds those of another replica. The clocks of the replicas say which call is older.
    pub fn merge(&mut self, other: Self) {
        self.total += other.total;
        self.calls.extend(other.calls);
        self.calls.sort_by(|call, other| call.since.cmp(&other.since));
        self.calls.truncate(CALLS_LEN_MAX);
    }
}

/// How ready a tool is, the best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadinessLevel {
    /// It is offered, and its backend takes calls, or is started by the first one.
    Ready,
    /// Its backend is starting, ending, or waits for its next start.
    Transient,
    /// Its backend has failed or is switched off.
    NeedsPerson,
    /// No backend offers it.
    #[default]
    Unknown,
}

/// How ready one tool is.
#[answer]
pub struct ToolReadiness {
    /// The name as it was asked for.
    pub tool: String,
    pub readiness: ReadinessLevel,
    /// The backend that has it, or that its name begins with.
    #[absent]
    pub backend: Option<String>,
    /// The state of that backend.
    #[absent]
    pub state: Option<String>,
    /// Why the backend is in this state.
    #[absent]
    pub reason: Option<String>,
}

/// How ready the tools are.
#[answer]
pub struct ToolsReadiness {
    /// That of the least ready tool.
    pub readiness: ReadinessLevel,
    /// In the order of the question.
    pub tools: Vec<ToolReadiness>,
}
