//! Spans of the way that a message takes. The process installs what records them ([`install`]); without it nothing is
//! recorded, and [`is_on`] is all that it costs.
//!
//! A trace of another process is handed on either way: a message carries it in its envelope.

mod current;
mod deliveries;
mod span;

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

pub use current::{Entered, current, enter, in_trace};
pub use deliveries::{TracedDeliveries, ending_with};
pub use span::{ActiveSpan, Attribute, Span, SpanKind};

use crate::model::TraceContext;

/// Decides which traces are recorded, and records their spans.
pub trait Tracer: Send + Sync + 'static {
    /// Decides whether a span is recorded, before it is built. Returns the id of its trace: that of `parent`, or a new
    /// one.
    fn sample(&self, parent: Option<&TraceContext>) -> Option<u128>;

    /// A new id of a trace; not 0.
    fn new_trace_id(&self) -> u128;

    /// A new id of a span; not 0.
    fn new_span_id(&self) -> u64;

    /// Records a span that has ended. Never waits.
    fn record(&self, span: Span);
}

static IS_ON: AtomicBool = AtomicBool::new(false);
static TRACER: OnceLock<Box<dyn Tracer>> = OnceLock::new();

/// Installs what records spans. A second call has no effect.
pub fn install(tracer: Box<dyn Tracer>) {
    if TRACER.set(tracer).is_ok() {
        IS_ON.store(true, Ordering::Release);
    }
}

/// Whether spans may be recorded.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

fn tracer() -> Option<&'static dyn Tracer> {
    if is_on() {
        TRACER.get().map(|tracer| &**tracer)
    } else {
        None
    }
}

/// Whether a trace is recorded, for a span that another library builds. The id of the trace is that of `parent`, or a
/// new one that need not be used.
pub fn sample(parent: Option<&TraceContext>) -> Option<u128> {
    tracer()?.sample(parent)
}
