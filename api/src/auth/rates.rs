//! Rate limits by caller name, for callers without a key record.

use std::{collections::HashMap, sync::Arc};

use actors::{locked::Locked, rate::RateLimit};

/// Rate limits by caller, for callers that have no key record to hold one.
#[derive(Debug)]
pub struct CallerRates {
    per_minute: u32,
    by_caller: Locked<HashMap<String, Arc<RateLimit>>>,
}

/// Callers with a limit at once; beyond that, limits that no identity uses are dropped.
const CALLERS_MAX: usize = 10_000;

impl CallerRates {
    /// Makes limits of so many requests per minute; 0 means no limit.
    pub fn per_minute(per_minute: u32) -> Self {
        Self {
            per_minute,
            by_caller: Locked::default(),
        }
    }

    /// Whether callers are limited at all.
    pub fn is_limited(&self) -> bool {
        self.per_minute > 0
    }

    /// Returns the limit of a caller; `None` when callers are not limited.
    pub fn rate_of(&self, caller: &str) -> Option<Arc<RateLimit>> {
        if self.per_minute == 0 {
            return None;
        }
        let mut by_caller = self.by_caller.lock();
        if let Some(rate) = by_caller.get(caller) {
            return Some(Arc::clone(rate));
        }
        if by_caller.len() >= CALLERS_MAX {
            by_caller.retain(|_, rate| Arc::strong_count(rate) > 1);
        }
        let rate = Arc::new(RateLimit::from_per_minute(self.per_minute)?);
        by_caller.insert(caller.to_owned(), Arc::clone(&rate));
        Some(rate)
    }
}
