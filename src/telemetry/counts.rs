//! The number of spans on their way to the collector, and of those that were lost.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of spans on their way.
#[derive(Debug, Default)]
pub struct SpanCounts {
    /// Spans that were queued, and that the exporter has neither delivered nor lost.
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

impl SpanCounts {
    /// A span is about to be queued. Returns how many wait before it.
    pub fn enter(&self) -> usize {
        self.waiting.fetch_add(1, Ordering::Relaxed)
    }

    /// The collector took these spans, or did not.
    pub fn leave(&self, spans: usize, are_delivered: bool) {
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        if !are_delivered {
            self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
        }
    }

    /// Spans that were lost.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts what still waits as lost. Returns all that were lost.
    pub fn drop_waiting(&self) -> u64 {
        let left = self.waiting.swap(0, Ordering::Relaxed) as u64;
        self.dropped.fetch_add(left, Ordering::Relaxed) + left
    }
}
