use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use actors::rate::Rate;

/// Limits of callers that nothing else of theirs lasts as long as.
#[derive(Debug)]
pub struct Rates {
    per_minute: u32,
    known: Mutex<HashMap<String, Arc<Rate>>>,
}

/// Who was counted so far and is not here is forgotten when there are more.
const LEN_MAX: usize = 10_000;

impl Rates {
    /// 0 is no limit.
    pub fn per_minute(per_minute: u32) -> Self {
        Self {
            per_minute,
            known: Mutex::default(),
        }
    }

    /// Whether there is a limit at all.
    pub fn is_limit(&self) -> bool {
        self.per_minute > 0
    }

    /// The limit of this caller; None when there is none.
    pub fn of(&self, who: &str) -> Option<Arc<Rate>> {
        if self.per_minute == 0 {
            return None;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rate) = known.get(who) {
            return Some(Arc::clone(rate));
        }
        if known.len() >= LEN_MAX {
            known.retain(|_, rate| Arc::strong_count(rate) > 1);
        }
        let rate = Arc::new(Rate::per_minute(self.per_minute)?);
        known.insert(who.to_owned(), Arc::clone(&rate));
        Some(rate)
    }
}
