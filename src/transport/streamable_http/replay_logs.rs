//! The memory of all replay logs: bounded for the process and for each project.
//!
//! A log is registered from its first event until it is empty. Beyond the bounds the oldest log is dropped: of the
//! project that exceeds its share, else of the largest project. A client that resumes a dropped stream gets 410.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Weak},
};

use actors::{locked::Locked, model::ProjectId};

use api::budget::{ByteBudget, Reservation};

/// Bytes of all logs of the process.
const LOGS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// A project has at most this part of [`LOGS_BYTES_MAX`].
const LOGS_SHARE_DIVISOR: usize = 2;
/// Bytes that a stream counts besides its events.
pub const STREAM_OVERHEAD_BYTES: usize = 1024;

/// The replay logs of the process.
pub struct ReplayLogs {
    budget: Arc<ByteBudget>,
    order: Locked<Order>,
}

/// The logs of each project, oldest first.
#[derive(Default)]
struct Order {
    next: u64,
    by_project: HashMap<ProjectId, BTreeMap<u64, LogLocation>>,
}

/// A session, as far as it owns replay logs.
pub trait LogOwner: Send + Sync {
    /// Drops the replay log of a stream, to free memory.
    fn drop_replay_log(&self, stream: u64);
}

/// The session and stream of a log.
#[derive(Clone)]
pub struct LogLocation {
    pub session: Weak<dyn LogOwner>,
    /// The number of the stream in its session.
    pub stream: u64,
}

impl ReplayLogs {
    /// No logs, with the bounds of the process.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            budget: ByteBudget::new(LOGS_BYTES_MAX, LOGS_BYTES_MAX / LOGS_SHARE_DIVISOR),
            order: Locked::default(),
        })
    }

    /// Registers a log as the newest of its project.
    pub fn register(self: &Arc<Self>, project: &ProjectId, location: LogLocation) -> LogEntry {
        let mut order = self.order.lock();
        let number = order.next;
        order.next += 1;
        let project_logs = order.by_project.entry(project.clone()).or_default();
        project_logs.insert(number, location);
        LogEntry {
            logs: Arc::clone(self),
            reservation: Reservation::new(&self.budget, project),
            project: project.clone(),
            number,
        }
    }

    /// Drops the oldest logs until the bounds hold. Call it when a log of this project has grown.
    pub fn evict_until_within_budget(&self, project: &ProjectId) {
        while let Some(project) = self.budget.overcommitted_project(project) {
            let Some(oldest) = self.take_oldest(&project) else {
                return;
            };
            if let Some(session) = oldest.session.upgrade() {
                session.drop_replay_log(oldest.stream);
            }
        }
    }

    fn take_oldest(&self, project: &ProjectId) -> Option<LogLocation> {
        let mut order = self.order.lock();
        let (_, location) = order.by_project.get_mut(project)?.pop_first()?;
        Some(location)
    }
}

/// The registration of one log. It ends on drop.
pub struct LogEntry {
    logs: Arc<ReplayLogs>,
    reservation: Reservation,
    project: ProjectId,
    number: u64,
}

impl LogEntry {
    /// Sets the bytes of the log.
    pub fn set(&mut self, bytes: usize) {
        self.reservation.set_bytes(bytes);
    }
}

impl Drop for LogEntry {
    fn drop(&mut self) {
        let mut order = self.logs.order.lock();
        if let Some(project_logs) = order.by_project.get_mut(&self.project) {
            project_logs.remove(&self.number);
            if project_logs.is_empty() {
                order.by_project.remove(&self.project);
            }
        }
    }
}
