//! How many replicas were silent when `/health` asked them last.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Milliseconds between two times that the others are asked: anyone may ask for `/health`.
const INTERVAL_MS: u64 = 5_000;

/// The number of silent replicas, and when it was found.
#[derive(Debug, Default)]
pub struct LastSilent {
    /// On the monotonic clock; 0 before the first time.
    asked_ms: AtomicU64,
    count: AtomicUsize,
}

impl LastSilent {
    /// Whether it is time to ask the other replicas. True for one caller of several.
    pub fn is_due(&self, now_ms: u64) -> bool {
        let (now, last) = (now_ms.max(1), self.asked_ms.load(Ordering::Relaxed));
        let is_due = last == 0 || now.saturating_sub(last) >= INTERVAL_MS;
        let mine = || {
            self.asked_ms
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
        };
        is_due && mine().is_ok()
    }

    /// Keeps the number that was found.
    pub fn set(&self, count: usize) {
        self.count.store(count, Ordering::Relaxed);
    }

    /// The number as it was found last.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_are_asked_once_in_five_seconds() {
        let last = LastSilent::default();
        assert!(last.is_due(0) && !last.is_due(0) && !last.is_due(4_999));
        assert!(last.is_due(5_001) && !last.is_due(5_002));
        last.set(2);
        assert_eq!(last.count(), 2);
    }
}
