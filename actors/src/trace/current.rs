//! The trace that this thread works for, which the lines of its log name.

use std::{cell::Cell, future::poll_fn, pin::pin};

use crate::model::TraceContext;

/// The ids of a span: that of its trace, and its own.
type SpanIds = (u128, u64);

thread_local! {
    static CURRENT: Cell<Option<SpanIds>> = const { Cell::new(None) };
}

/// The trace and the span that this thread works for.
pub fn current() -> Option<SpanIds> {
    CURRENT.get()
}

/// Works for this trace until the result is dropped.
pub fn enter(trace: &TraceContext) -> Entered {
    Entered(CURRENT.replace(Some((trace.trace_id, trace.span_id))))
}

/// Restores what the thread worked for before.
pub struct Entered(Option<SpanIds>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// A future that works for this trace, if there is one.
pub async fn in_trace<T>(trace: Option<TraceContext>, future: impl Future<Output = T>) -> T {
    let Some(trace) = trace else {
        return future.await;
    };
    let mut future = pin!(future);
    poll_fn(move |cx| {
        let _entered = enter(&trace);
        future.as_mut().poll(cx)
    })
    .await
}
