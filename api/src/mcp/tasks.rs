//! The extension `io.modelcontextprotocol/tasks` (2026-07-28): calls whose result is fetched later.
//!
//! A task belongs to the caller that started it, in its project, and not to a connection: the caller may read, feed and
//! cancel it from any other. It is kept for a fixed time.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    rc::Rc,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actors::{
    clock::{Now, millis, now, rfc3339_text},
    gateway::ServerInfo,
    idle::{self, AwakeGuard},
    locked::Locked,
    model::{ProjectId, ReplicaId, SessionId},
};
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};
use tokio::{
    sync::{oneshot, watch},
    task::AbortHandle,
};

use super::{
    located_id,
    outbox::Outbox,
    pending_receive::PendingReceive,
    reply::server_info_text,
    rpc::{INTERNAL_ERROR, MISSING_CAPABILITY, RpcError},
    subscriptions::meta,
};
use crate::auth::Identity;
use common::json::{frame, write_json};

/// The name of the extension.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// The notification that a task has changed.
pub const CHANGED: &str = "notifications/tasks";
/// How long a task is kept after its creation. Every wait of a call is much shorter.
const TTL: Duration = Duration::from_secs(600);
/// How often a client should poll.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Tasks that may be kept at once, in all and of one project.
const TASKS_LEN_MAX: usize = 10_000;
const TASKS_OF_PROJECT_LEN_MAX: usize = 2500;
/// Bytes of results of one project that may be kept at once.
const RESULT_BYTES_OF_PROJECT_MAX: usize = 16 * 1024 * 1024;

/// Whether the capabilities of a client or a server declare the extension.
pub fn is_declared(capabilities: &Value) -> bool {
    capabilities["extensions"][EXTENSION].is_object()
}

/// Whether a backend declares the extension.
pub fn is_declared_by(server: &ServerInfo) -> bool {
    serde_json::from_str(&server.capabilities).is_ok_and(|capabilities| is_declared(&capabilities))
}

/// The error for an id that leads to no task of the caller.
pub fn not_found() -> RpcError {
    RpcError::invalid_params("Task not found: the id is unknown or the task has expired")
}

/// The error for a request that needs the extension and did not declare it.
pub fn extension_not_declared() -> RpcError {
    let data = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    RpcError::new(MISSING_CAPABILITY, "Missing required client capability").with_data(data)
}

/// The tasks of the process.
#[derive(Debug, Default)]
pub struct Tasks {
    table: Locked<TaskTable>,
    /// The tasks that received messages of a session, by session.
    receivers: Locked<HashMap<SessionId, Vec<Weak<Task>>>>,
    /// The replica that the ids name.
    replica: Option<ReplicaId>,
}

#[derive(Debug, Default)]
struct TaskTable {
    tasks: HashMap<Box<str>, Arc<Task>>,
    /// The tasks and results of each project, which are bounded per project.
    usage: HashMap<ProjectId, ProjectUsage>,
}

#[derive(Debug, Default)]
struct ProjectUsage {
    tasks: usize,
    result_bytes: usize,
}

impl TaskTable {
    fn remove(&mut self, id: &str) -> Option<Arc<Task>> {
        let task = self.tasks.remove(id)?;
        let project = task.identity.project.id();
        let is_last = self.usage.get_mut(project).is_some_and(|kept| {
            kept.tasks -= 1;
            kept.result_bytes -= task.result_len.load(Ordering::Relaxed);
            kept.tasks == 0
        });
        if is_last {
            self.usage.remove(project);
        }
        Some(task)
    }
}

impl Tasks {
    /// No tasks yet; ids name `replica`.
    pub fn new(replica: Option<ReplicaId>) -> Arc<Self> {
        Arc::new(Self {
            replica,
            ..Self::default()
        })
    }

    /// A new working task. `None` if there is no room; the call then runs as an ordinary one.
    pub fn create(self: &Arc<Self>, identity: &Arc<Identity>) -> Option<Arc<Task>> {
        let id = located_id::new_id(self.replica);
        let task = Arc::new(Task::new(id, Arc::clone(identity), Arc::downgrade(self)));
        {
            let mut known = self.table.lock();
            let is_full = known.tasks.len() >= TASKS_LEN_MAX;
            let kept = known.usage.entry(identity.project.id().clone()).or_default();
            if is_full || kept.tasks >= TASKS_OF_PROJECT_LEN_MAX || kept.result_bytes >= RESULT_BYTES_OF_PROJECT_MAX {
                return None;
            }
            kept.tasks += 1;
            known.tasks.insert(task.id.as_str().into(), Arc::clone(&task));
        }
        let (tasks, id) = (Arc::clone(self), task.id.clone());
        actix_rt::spawn(async move {
            tokio::time::sleep(TTL).await;
            tasks.remove(&id);
        });
        Some(task)
    }

    /// Removes the tasks of callers whose credentials have been invalid for at least `known_for`. Their unfetched
    /// messages return to the inbox.
    pub fn close_of_ended_credentials(&self, now: Now, known_for: Duration) {
        let ended: Vec<_> = {
            let known = self.table.lock();
            let is_over = |task: &&Arc<Task>| task.identity.invalid_for(now).is_some_and(|time| time >= known_for);
            let ended = known.tasks.values().filter(is_over);
            ended.map(|task| task.id.clone()).collect()
        };
        for id in ended {
            self.remove(&id);
        }
    }

    fn remove(&self, id: &str) {
        let removed = self.table.lock().remove(id);
        let Some(task) = removed else { return };
        let session = task.unclaimed.lock().as_ref().map(|receive| receive.member.record.id);
        task.stop();
        if let Some(session) = session {
            let mut receivers = self.receivers.lock();
            if let Some(of_session) = receivers.get_mut(&session) {
                of_session.retain(|receiver| receiver.upgrade().is_some_and(|receiver| receiver.id != id));
                if of_session.is_empty() {
                    receivers.remove(&session);
                }
            }
        }
    }

    /// Counts the bytes of a result, while its task is kept.
    fn count_result(&self, task: &Task, len: usize) {
        let mut known = self.table.lock();
        if known.tasks.contains_key(task.id.as_str())
            && let Some(kept) = known.usage.get_mut(task.identity.project.id())
        {
            task.result_len.store(len, Ordering::Relaxed);
            kept.result_bytes += len;
        }
    }

    /// A task of this caller.
    ///
    /// # Errors
    /// Invalid params if the id is unknown, of another caller, or expired.
    pub fn find(&self, identity: &Identity, id: &str) -> Result<Arc<Task>, RpcError> {
        let task = self.table.lock().tasks.get(id).cloned();
        task.filter(|task| task.identity.is_same_caller(identity))
            .ok_or_else(not_found)
    }

    /// Returns to the inbox the messages that ended tasks have received and that were not fetched. Called before
    /// another receive of the session, which would acknowledge them.
    pub fn release_unclaimed(&self, session: SessionId) {
        let receivers = self.receivers.lock().remove(&session);
        for task in receivers
            .into_iter()
            .flatten()
            .filter_map(|receiver| receiver.upgrade())
        {
            if task.has_ended() {
                task.release_unclaimed();
            } else {
                self.add_receiver(session, &task);
            }
        }
    }

    /// Keeps the messages that a task receives, until its result is fetched.
    pub fn add_receive(&self, task: &Arc<Task>, receive: PendingReceive) {
        let session = receive.member.record.id;
        *task.unclaimed.lock() = Some(receive);
        self.add_receiver(session, task);
    }

    fn add_receiver(&self, session: SessionId, task: &Arc<Task>) {
        let mut receivers = self.receivers.lock();
        let of_session = receivers.entry(session).or_default();
        of_session.retain(|receiver| receiver.strong_count() > 0);
        of_session.push(Arc::downgrade(task));
    }
}

/// One call whose result is fetched later.
pub struct Task {
    id: String,
    /// The caller that started it.
    identity: Arc<Identity>,
    created_at_ms: u64,
    /// The current state; subscriptions watch it.
    state: watch::Sender<State>,
    runner: Locked<Option<AbortHandle>>,
    inputs: Locked<PendingInputs>,
    /// The messages that it received, until its result is fetched.
    unclaimed: Locked<Option<PendingReceive>>,
    tasks: Weak<Tasks>,
    result_len: AtomicUsize,
    /// Held while it runs: no connection may be open meanwhile.
    awake: Locked<Option<AwakeGuard>>,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The input requests of a task that wait for an answer.
#[derive(Default)]
struct PendingInputs {
    asked_count: u64,
    replies: HashMap<String, oneshot::Sender<Value>>,
}

#[derive(Clone, Debug)]
struct State {
    updated_at_ms: u64,
    status: TaskStatus,
}

#[derive(Clone, Debug)]
enum TaskStatus {
    Working,
    InputRequired(Map<String, Value>),
    Completed(Arc<RawValue>),
    Failed(Arc<RpcError>),
    Cancelled,
}

impl TaskStatus {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired(_) => "input_required",
            Self::Completed(_) => "completed",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self, Self::Completed(_) | Self::Failed(_) | Self::Cancelled)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DetailedTask<'a> {
    task_id: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<&'a str>,
    created_at: String,
    last_updated_at: String,
    ttl_ms: u64,
    poll_interval_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_requests: Option<&'a Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

impl Task {
    fn new(id: String, identity: Arc<Identity>, tasks: Weak<Tasks>) -> Self {
        let now_ms = now().unix_ms;
        Self {
            id,
            identity,
            created_at_ms: now_ms,
            state: watch::Sender::new(State {
                updated_at_ms: now_ms,
                status: TaskStatus::Working,
            }),
            runner: Locked::default(),
            inputs: Locked::default(),
            unclaimed: Locked::default(),
            tasks,
            result_len: AtomicUsize::new(0),
            awake: Locked::new(Some(idle::keep_awake())),
        }
    }

    /// The id of the task.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Sets the future that runs the task, so that it can be cancelled.
    pub fn set_runner(&self, runner: AbortHandle) {
        *self.runner.lock() = Some(runner);
        if self.has_ended() {
            // The task was cancelled before the runner was known.
            self.stop();
        }
    }

    fn has_ended(&self) -> bool {
        self.state.borrow().status.has_ended()
    }

    /// Changes the status unless the task has ended; returns whether it changed.
    fn transition(&self, course: TaskStatus) -> bool {
        let has_moved = self.state.send_if_modified(|state| {
            let moves = !state.status.has_ended();
            if moves {
                *state = State {
                    updated_at_ms: now().unix_ms,
                    status: course,
                };
            }
            moves
        });
        if self.has_ended() {
            self.awake.lock().take();
        }
        has_moved
    }

    /// Ends the task with the result of its call, which may report a refusal of the tool.
    pub fn complete(&self, result: Vec<u8>) {
        if let Some(tasks) = self.tasks.upgrade() {
            tasks.count_result(self, result.len());
        }
        let result = String::from_utf8(result)
            .ok()
            .and_then(|text| RawValue::from_string(text).ok());
        match result {
            Some(result) => drop(self.transition(TaskStatus::Completed(result.into()))),
            None => self.fail(RpcError::new(INTERNAL_ERROR, "Internal error")),
        }
    }

    /// Ends the task with a JSON-RPC error.
    pub fn fail(&self, error: RpcError) {
        self.transition(TaskStatus::Failed(error.into()));
    }

    /// Cancels the task; one that has ended stays as it is.
    pub fn cancel(&self) {
        if self.transition(TaskStatus::Cancelled) {
            self.stop();
        }
    }

    fn stop(&self) {
        if let Some(runner) = self.runner.lock().take() {
            runner.abort();
        }
        self.inputs.lock().replies.clear();
        self.awake.lock().take();
        self.release_unclaimed();
    }

    fn release_unclaimed(&self) {
        let taken = self.unclaimed.lock().take();
        if let Some(receive) = taken {
            receive.release();
        }
    }

    /// The receive whose messages are part of the result, if the task has ended. The caller of this function completes
    /// or releases it.
    pub fn take_unclaimed(&self) -> Option<PendingReceive> {
        if !self.has_ended() {
            return None;
        }
        self.unclaimed.lock().take()
    }

    /// Adds an input request and returns its answer. Keys are unique within a task.
    pub fn ask(&self, key: &str, request: Value) -> oneshot::Receiver<Value> {
        let (reply, answer) = oneshot::channel();
        let mut inputs = self.inputs.lock();
        inputs.asked_count += 1;
        let key = format!("{key}-{}", inputs.asked_count);
        inputs.replies.insert(key.clone(), reply);
        let mut requests = match &self.state.borrow().status {
            TaskStatus::InputRequired(requests) => requests.clone(),
            _ => Map::new(),
        };
        requests.insert(key, request);
        self.transition(TaskStatus::InputRequired(requests));
        answer
    }

    /// Passes answers of the client to their waiters; unexpected ones are ignored (tasks/update).
    pub fn update(&self, responses: Map<String, Value>) {
        let mut inputs = self.inputs.lock();
        let answered: Vec<_> = responses
            .into_iter()
            .filter_map(|(key, response)| Some((inputs.replies.remove(&key)?, key, response)))
            .collect();
        if answered.is_empty() {
            return;
        }
        let mut requests = match &self.state.borrow().status {
            TaskStatus::InputRequired(requests) => requests.clone(),
            _ => return,
        };
        for (_, key, _) in &answered {
            requests.remove(key);
        }
        self.transition(if requests.is_empty() {
            TaskStatus::Working
        } else {
            TaskStatus::InputRequired(requests)
        });
        for (reply, _, response) in answered {
            let _ = reply.send(response);
        }
    }

    /// The members of the task: an object without its braces.
    fn members(&self) -> Vec<u8> {
        let state = self.state.borrow().clone();
        let mut detailed = DetailedTask {
            task_id: &self.id,
            status: state.status.as_str(),
            status_message: None,
            created_at: rfc3339_text(self.created_at_ms),
            last_updated_at: rfc3339_text(state.updated_at_ms),
            ttl_ms: millis(TTL),
            poll_interval_ms: millis(POLL_INTERVAL),
            input_requests: None,
            result: None,
            error: None,
        };
        match &state.status {
            TaskStatus::Working | TaskStatus::Cancelled => {}
            TaskStatus::InputRequired(requests) => detailed.input_requests = Some(requests),
            TaskStatus::Completed(result) => detailed.result = Some(result),
            TaskStatus::Failed(error) => {
                detailed.status_message = Some(&error.message);
                detailed.error = Some(error.to_json());
            }
        }
        let mut out = Vec::with_capacity(256);
        write_json(&mut out, &detailed);
        out[1..out.len() - 1].to_vec()
    }

    /// The result of the call that became this task.
    pub fn created_result(&self) -> Vec<u8> {
        self.result("task")
    }

    /// The result of `tasks/get`.
    pub fn detailed_result(&self) -> Vec<u8> {
        self.result("complete")
    }

    fn result(&self, kind: &str) -> Vec<u8> {
        let mut out = format!(
            "{{\"resultType\":\"{kind}\",\"_meta\":{{\"io.modelcontextprotocol/serverInfo\":{}}},",
            server_info_text()
        )
        .into_bytes();
        out.extend_from_slice(&self.members());
        out.push(b'}');
        out
    }

    /// Sends the task to a subscription as it is now and at every change, until the future is dropped. `subscription`
    /// is the id of its request, as JSON.
    pub fn notify(self: Arc<Self>, subscription: Rc<str>, outbox: Arc<Outbox>) -> impl Future<Output = ()> {
        let mut changes = self.state.subscribe();
        async move {
            loop {
                changes.borrow_and_update();
                let params = [b"{", meta(Some(&subscription)).as_bytes(), &self.members(), b"}"].concat();
                outbox.send(frame::notification(CHANGED, params));
                if changes.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}
