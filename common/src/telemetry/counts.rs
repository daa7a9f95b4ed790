//! The number of spans on their way to the collector, and of those that were lost.

use std::sync::atomic::{AtomicUsize, Ordering};

use actors::metrics::METRICS;

/// The number of spans on their way.
#[derive(Debug, Default)]
pub struct SpanCounts {
    /// Spans that were queued, and that the exporter has neither delivered nor lost.
    waiting: AtomicUsize,
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
            METRICS.dropped_spans.add(spans as u64);
        }
    }

    /// Counts what still waits as lost. Returns all that were lost.
    pub fn drop_waiting(&self) -> u64 {
        let left = self.waiting.swap(0, Ordering::Relaxed) as u64;
        METRICS.dropped_spans.add(left);
        METRICS.dropped_spans.get()
    }
}
