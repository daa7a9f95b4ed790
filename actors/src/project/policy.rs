use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::ProjectSettings;
use crate::{
    model::{ProjectId, ProjectRecord},
    rate::RateLimit,
    session::CloseReason,
};

/// What a project is and may, as its actors and its callers see it: replaced whole when it changes.
#[derive(Debug)]
pub struct ProjectPolicy {
    settings: ProjectSettings,
    /// Whether requests are limited, so that nobody has to look at the terms where they are not.
    has_request_limit: AtomicBool,
    closed: AtomicBool,
    /// Its actors were given up: another subtree has taken over.
    kill_reason: OnceLock<CloseReason>,
    limits: RwLock<Arc<PolicyLimits>>,
}

/// What holds until the next change.
#[derive(Debug)]
pub struct PolicyLimits {
    pub record: Arc<ProjectRecord>,
    /// Messages that may wait for one session.
    pub queue_capacity: usize,
    /// Messages in one queue from which on it is nearly full.
    pub queue_warning_len: usize,
    /// Sessions that there may be at once.
    pub sessions_max: usize,
    /// Of all requests to the project.
    request_rate: Option<Arc<RateLimit>>,
    /// Of messages to other projects.
    cross_project_rates: HashMap<ProjectId, Arc<RateLimit>>,
}

impl ProjectPolicy {
    pub(crate) fn new(settings: ProjectSettings, record: Arc<ProjectRecord>) -> Arc<Self> {
        Arc::new(Self {
            settings,
            has_request_limit: AtomicBool::new(record.config.rate_limit > 0),
            closed: AtomicBool::new(!record.active),
            kill_reason: OnceLock::new(),
            limits: RwLock::new(Arc::new(PolicyLimits::new(&settings, record, None))),
        })
    }

    pub fn limits(&self) -> Arc<PolicyLimits> {
        Arc::clone(&self.limits.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes so many requests of all that the project may make.
    ///
    /// # Errors
    /// When there will be as many.
    pub fn take_requests(&self, count: u32) -> Result<(), Duration> {
        if self.has_request_limit.load(Ordering::Relaxed) {
            self.limits().take_requests(count)
        } else {
            Ok(())
        }
    }

    /// Whether the project was deleted.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Why its actors ended, when others have taken over, or will.
    pub(crate) fn kill_reason(&self) -> Option<CloseReason> {
        self.kill_reason.get().copied()
    }

    pub(crate) fn kill(&self, why: CloseReason) {
        // The first reason stays.
        let _ = self.kill_reason.set(why);
    }

    pub(crate) fn update(&self, record: Arc<ProjectRecord>) {
        self.closed.store(!record.active, Ordering::Relaxed);
        self.has_request_limit
            .store(record.config.rate_limit > 0, Ordering::Relaxed);
        let mut terms = self.limits.write().unwrap_or_else(PoisonError::into_inner);
        *terms = Arc::new(PolicyLimits::new(&self.settings, record, Some(&terms)));
    }
}

impl PolicyLimits {
    /// A limit that does not change goes on counting where it is.
    fn new(settings: &ProjectSettings, record: Arc<ProjectRecord>, before: Option<&Self>) -> Self {
        let limit = |before: Option<&Arc<RateLimit>>, count: u32| match before {
            Some(rate) if rate.limit_per_minute() == count => Some(Arc::clone(rate)),
            _ => RateLimit::from_per_minute(count).map(Arc::new),
        };
        let rate = limit(
            before.and_then(|before| before.request_rate.as_ref()),
            record.config.rate_limit,
        );
        let crossings = record.grants.iter().filter_map(|(target, grant)| {
            let known = before.and_then(|before| before.cross_project_rates.get(target));
            Some((target.clone(), limit(known, grant.message_rate_limit)?))
        });
        let crossings = crossings.collect();
        let queue_capacity = record.config.queue_capacity.unwrap_or(settings.queue_capacity);
        Self {
            sessions_max: record.config.max_sessions.unwrap_or(settings.sessions_max),
            queue_capacity,
            queue_warning_len: settings.queue_warning_len(queue_capacity),
            request_rate: rate,
            cross_project_rates: crossings,
            record,
        }
    }

    fn take_requests(&self, count: u32) -> Result<(), Duration> {
        self.request_rate.as_ref().map_or(Ok(()), |rate| rate.take_many(count))
    }

    /// Requests that are taken with the next.
    pub(super) fn charge_requests(&self, count: u32) {
        if let Some(rate) = &self.request_rate {
            rate.add_debt(count);
        }
    }

    /// Takes one message to another project.
    ///
    /// # Errors
    /// When there will be one again.
    pub fn take_cross_project(&self, target: &ProjectId) -> Result<(), Duration> {
        self.cross_project_rates.get(target).map_or(Ok(()), |rate| rate.take())
    }
}
