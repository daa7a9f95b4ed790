//! What the logs of all resumable streams hold together: bounded for the process and for each project.
//!
//! A log counts from its first event until it is empty again. When there is too much, the oldest log goes: of the
//! project that holds more than its share, else of the project that holds most. A client that resumes its stream is
//! told so.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use actors::model::ProjectId;

use super::sessions::HttpSession;
use crate::budget::{Budget, Reservation};

/// Bytes of all logs of the process.
const LOGS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// A project has at most this part of them.
const LOGS_SHARE_DIVISOR: usize = 2;
/// Bytes that a stream takes beside its events.
pub const STREAM_OVERHEAD_BYTES: usize = 1024;

/// The logs of the process.
pub struct ReplayLogs {
    budget: Arc<Budget>,
    order: Mutex<Order>,
}

/// The logs of each project, the oldest first.
#[derive(Default)]
struct Order {
    next: u64,
    by_project: HashMap<ProjectId, BTreeMap<u64, LogLocation>>,
}

/// Where a log is.
#[derive(Clone)]
pub struct LogLocation {
    pub session: Weak<HttpSession>,
    /// The number of its stream there.
    pub stream: u64,
}

impl ReplayLogs {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            budget: Budget::new(LOGS_BYTES_MAX, LOGS_BYTES_MAX / LOGS_SHARE_DIVISOR),
            order: Mutex::default(),
        })
    }

    /// Counts a log as the newest of its project.
    pub fn register(self: &Arc<Self>, project: &ProjectId, place: LogLocation) -> LogEntry {
        let mut order = self.order();
        let number = order.next;
        order.next += 1;
        let of_project = order.by_project.entry(project.clone()).or_default();
        of_project.insert(number, place);
        LogEntry {
            logs: Arc::clone(self),
            hold: Reservation::new(&self.budget, project),
            project: project.clone(),
            number,
        }
    }

    /// Drops the oldest logs until all have room. Called when a log of this project has grown.
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
        let mut order = self.order();
        let (_, place) = order.by_project.get_mut(project)?.pop_first()?;
        Some(place)
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One log among all. It counts no longer once this is dropped.
pub struct LogEntry {
    logs: Arc<ReplayLogs>,
    hold: Reservation,
    project: ProjectId,
    number: u64,
}

impl LogEntry {
    /// The log holds so many bytes from now on.
    pub fn set(&mut self, bytes: usize) {
        self.hold.set_bytes(bytes);
    }
}

impl Drop for LogEntry {
    fn drop(&mut self) {
        let mut order = self.logs.order();
        if let Some(of_project) = order.by_project.get_mut(&self.project) {
            of_project.remove(&self.number);
            if of_project.is_empty() {
                order.by_project.remove(&self.project);
            }
        }
    }
}
