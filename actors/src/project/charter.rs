use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::Settings;
use crate::{
    model::{ProjectId, ProjectRecord},
    rate::Rate,
    session::Closing,
};

/// What a project is and may, as its actors and its callers see it: replaced whole when it changes.
#[derive(Debug)]
pub struct Charter {
    settings: Settings,
    /// Whether requests are limited, so that nobody has to look at the terms where they are not.
    limits_requests: AtomicBool,
    closed: AtomicBool,
    /// Its actors were given up: another subtree has taken over.
    abandoned: OnceLock<Closing>,
    terms: RwLock<Arc<Terms>>,
}

/// What holds until the next change.
#[derive(Debug)]
pub struct Terms {
    pub record: Arc<ProjectRecord>,
    /// Messages that may wait for one session.
    pub queue_capacity: usize,
    /// Messages in one queue from which on it is nearly full.
    pub queue_warning_len: usize,
    /// Sessions that there may be at once.
    pub sessions_max: usize,
    /// Of all requests to the project.
    rate: Option<Arc<Rate>>,
    /// Of messages to other projects.
    crossings: HashMap<ProjectId, Arc<Rate>>,
}

impl Charter {
    pub(crate) fn new(settings: Settings, record: Arc<ProjectRecord>) -> Arc<Self> {
        Arc::new(Self {
            settings,
            limits_requests: AtomicBool::new(record.config.rate_limit > 0),
            closed: AtomicBool::new(!record.active),
            abandoned: OnceLock::new(),
            terms: RwLock::new(Arc::new(Terms::new(&settings, record, None))),
        })
    }

    pub fn terms(&self) -> Arc<Terms> {
        Arc::clone(&self.terms.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes so many requests of all that the project may make.
    ///
    /// # Errors
    /// When there will be as many.
    pub fn take_requests(&self, count: u32) -> Result<(), Duration> {
        if self.limits_requests.load(Ordering::Relaxed) {
            self.terms().take_requests(count)
        } else {
            Ok(())
        }
    }

    /// Whether the project was deleted.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Why its actors ended, when others have taken over, or will.
    pub(crate) fn abandoned(&self) -> Option<Closing> {
        self.abandoned.get().copied()
    }

    pub(crate) fn abandon(&self, why: Closing) {
        // The first reason stays.
        let _ = self.abandoned.set(why);
    }

    pub(crate) fn amend(&self, record: Arc<ProjectRecord>) {
        self.closed.store(!record.active, Ordering::Relaxed);
        self.limits_requests
            .store(record.config.rate_limit > 0, Ordering::Relaxed);
        let mut terms = self.terms.write().unwrap_or_else(PoisonError::into_inner);
        *terms = Arc::new(Terms::new(&self.settings, record, Some(&terms)));
    }
}

impl Terms {
    /// A limit that does not change goes on counting where it is.
    fn new(settings: &Settings, record: Arc<ProjectRecord>, before: Option<&Self>) -> Self {
        let limit = |before: Option<&Arc<Rate>>, count: u32| match before {
            Some(rate) if rate.count() == count => Some(Arc::clone(rate)),
            _ => Rate::per_minute(count).map(Arc::new),
        };
        let rate = limit(before.and_then(|before| before.rate.as_ref()), record.config.rate_limit);
        let crossings = record.grants.iter().filter_map(|(target, grant)| {
            let known = before.and_then(|before| before.crossings.get(target));
            Some((target.clone(), limit(known, grant.message_rate_limit)?))
        });
        let crossings = crossings.collect();
        let queue_capacity = record.config.queue_capacity.unwrap_or(settings.queue_capacity);
        Self {
            sessions_max: record.config.max_sessions.unwrap_or(settings.sessions_max),
            queue_capacity,
            queue_warning_len: settings.queue_warning_len(queue_capacity),
            rate,
            crossings,
            record,
        }
    }

    fn take_requests(&self, count: u32) -> Result<(), Duration> {
        self.rate.as_ref().map_or(Ok(()), |rate| rate.take_many(count))
    }

    /// Requests that are taken with the next.
    pub(super) fn owe_requests(&self, count: u32) {
        if let Some(rate) = &self.rate {
            rate.owe(count);
        }
    }

    /// Takes one message to another project.
    ///
    /// # Errors
    /// When there will be one again.
    pub fn take_crossing(&self, target: &ProjectId) -> Result<(), Duration> {
        self.crossings.get(target).map_or(Ok(()), |rate| rate.take())
    }
}
