//! The queue of spans that wait for the exporter: bounded, and every span that is lost is counted.

use std::{sync::Arc, time::Duration};

use opentelemetry::Context;
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanProcessor},
};

use super::{counts::SpanCounts, exporter::BoundedExporter, settings};

/// Spans that wait for the exporter. The processor of the SDK sends them from a thread of its own.
#[derive(Debug)]
pub struct SpanQueue {
    processor: BatchSpanProcessor,
    len_max: usize,
    counts: Arc<SpanCounts>,
}

impl SpanQueue {
    /// A queue as the variables `OTEL_BSP_*` say.
    pub fn new(exporter: BoundedExporter, resource: &Resource) -> Self {
        let len_max = settings::queue_len_max();
        let config = BatchConfigBuilder::default().with_max_queue_size(len_max).build();
        let counts = exporter.counts();
        let mut processor = BatchSpanProcessor::new(exporter, config);
        processor.set_resource(resource);
        Self {
            processor,
            len_max,
            counts,
        }
    }

    /// Queues a span, or drops it if the queue is full. Never waits.
    pub fn push(&self, span: SpanData) {
        if self.counts.enter() >= self.len_max {
            self.counts.leave(1, false);
        } else {
            self.processor.on_end(span);
        }
    }

    /// Most spans that wait.
    pub const fn len_max(&self) -> usize {
        self.len_max
    }

    /// Sends the waiting spans within `timeout`; the rest counts as dropped.
    pub fn shut_down(&self, timeout: Duration) {
        // A time-out shows in the spans that are left.
        let _ = self.processor.shutdown_with_timeout(timeout);
        let dropped = self.counts.drop_waiting();
        if dropped > 0 {
            tracing::warn!(dropped, "spans were lost: the collector did not accept them in time");
        }
    }

    /// The queue as the processor of a provider.
    pub fn processor(self: Arc<Self>) -> impl SpanProcessor {
        SharedQueue(self)
    }
}

#[derive(Debug)]
struct SharedQueue(Arc<SpanQueue>);

impl SpanProcessor for SharedQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.processor.force_flush()
    }

    // The queue outlives the provider.
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
