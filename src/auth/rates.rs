use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use actors::rate::RateLimit;

/// Limits of callers that nothing else of theirs lasts as long as.
#[derive(Debug)]
pub struct CallerRates {
    per_minute: u32,
    by_caller: Mutex<HashMap<String, Arc<RateLimit>>>,
}

/// Who was counted so far and is not here is forgotten when there are more.
const CALLERS_MAX: usize = 10_000;

impl CallerRates {
    /// 0 is no limit.
    pub fn per_minute(per_minute: u32) -> Self {
        Self {
            per_minute,
            by_caller: Mutex::default(),
        }
    }

    /// Whether there is a limit at all.
    pub fn is_limited(&self) -> bool {
        self.per_minute > 0
    }

    /// The limit of this caller; None when there is none.
    pub fn rate_of(&self, who: &str) -> Option<Arc<RateLimit>> {
        if self.per_minute == 0 {
            return None;
        }
        let mut known = self.by_caller.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rate) = known.get(who) {
            return Some(Arc::clone(rate));
        }
        if known.len() >= CALLERS_MAX {
            known.retain(|_, rate| Arc::strong_count(rate) > 1);
        }
        let rate = Arc::new(RateLimit::from_per_minute(self.per_minute)?);
        known.insert(who.to_owned(), Arc::clone(&rate));
        Some(rate)
    }
}
