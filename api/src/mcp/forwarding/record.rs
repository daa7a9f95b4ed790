//! What is counted and traced of one call of a backend.

use std::{
    cell::{Cell, RefCell},
    sync::{Arc, atomic::Ordering},
};

use actors::{
    clock::mono_ms,
    gateway::{BackendShared, CallEntry, CallOrigin, CallStage, CallStatus},
    metrics::Labelled,
    model::{BackendFailure, TraceContext},
    trace::{ActiveSpan, Attribute},
};
use tokio::time::Instant;

use super::route::Route;
use crate::mcp::{call_trace::CallTrace, context::PeerContext};
use common::json::scan;

/// Lists and counts a call while it is open, and counts as what it ended. Its span ends with it.
pub struct CallRecord {
    backend: Arc<BackendShared>,
    pub begun: Instant,
    outcome: Cell<CallStatus>,
    /// `None` if the trace of the call is not recorded.
    span: Option<RefCell<ActiveSpan>>,
    /// What operators see of it.
    entry: Arc<CallEntry>,
}

impl CallRecord {
    /// Begins a call, which is refused unless it gets another end.
    pub fn begin(context: &PeerContext, route: &Route, trace: Option<&CallTrace>) -> Self {
        let backend = &route.backend;
        backend.counters.open.fetch_add(1, Ordering::Relaxed);
        let begun_ms = mono_ms();
        backend.counters.last_call_ms.store(begun_ms, Ordering::Relaxed);
        Self {
            backend: Arc::clone(backend),
            begun: Instant::now(),
            outcome: Cell::new(CallStatus::Refused),
            span: trace.and_then(|trace| span_of(route, trace)).map(RefCell::new),
            entry: entry_of(context, route, begun_ms),
        }
    }

    /// Continues as a call that was parked.
    pub fn resumes(&mut self, entry: &Arc<CallEntry>) {
        self.entry = Arc::clone(entry);
    }

    /// What operators see of the call.
    pub fn entry(&self) -> Arc<CallEntry> {
        Arc::clone(&self.entry)
    }

    /// Moves the call to another stage.
    ///
    /// # Errors
    /// An operator has ended it.
    pub fn moves_to(&self, stage: CallStage) -> Result<(), BackendFailure> {
        self.entry.moves_to(stage).map_err(|_| self.cancelled())
    }

    /// Waits until an operator ends the call. Returns the error for its caller.
    pub async fn ended(&self) -> BackendFailure {
        self.entry.ended().await;
        self.cancelled()
    }

    fn cancelled(&self) -> BackendFailure {
        BackendFailure::Cancelled {
            backend: self.backend.name.to_string(),
        }
    }

    /// The backend has its own name for what was called, as JSON.
    pub fn found(&self, route: &Route, name: &str) {
        note_tool(&self.entry, route, name);
    }

    /// The trace context that the backend gets: the span of the call, if it is recorded, or else what the caller said.
    pub fn trace(&self, of_caller: Option<&CallTrace>) -> Option<TraceContext> {
        match &self.span {
            Some(span) => Some(span.borrow().context().clone()),
            None => of_caller.map(|trace| trace.context().clone()),
        }
    }

    /// Sets as what the call ends. The last time counts.
    pub fn ends_as(&self, outcome: CallStatus) {
        self.outcome.set(outcome);
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        let (counters, outcome) = (&self.backend.counters, self.outcome.get());
        counters.open.fetch_sub(1, Ordering::Relaxed);
        counters.last_call_ms.store(mono_ms(), Ordering::Relaxed);
        counters.calls.add(outcome, 1);
        let took = self.begun.elapsed().as_nanos();
        counters.call_time.observe(u64::try_from(took).unwrap_or(u64::MAX));
        if let Some(span) = &self.span
            && outcome != CallStatus::Ok
        {
            span.borrow_mut().fail(outcome.as_str());
        }
    }
}

fn entry_of(context: &PeerContext, route: &Route, begun_ms: u64) -> Arc<CallEntry> {
    let origin = CallOrigin {
        caller: Arc::clone(&context.identity.principal.audit_name),
        session: context.session_id(),
        method: route.method,
    };
    let entry = route.backend.calls.begin(origin, begun_ms);
    match &route.awaited {
        Some(called) if route.method == "tools/call" => entry.set_called(called),
        Some(_) => {}
        None => note_tool(&entry, route, &route.replaced.1),
    }
    entry
}

fn note_tool(entry: &CallEntry, route: &Route, name: &str) {
    if route.method == "tools/call"
        && let Some(tool) = scan::string(name)
    {
        entry.set_tool(&tool);
    }
}

fn span_of(route: &Route, trace: &CallTrace) -> Option<ActiveSpan> {
    let mut span = trace.client_span(route.method)?;
    span.set("mcp.method.name", Attribute::Word(route.method));
    span.set("mcp_broker.backend", Attribute::Text(route.backend.name.to_string()));
    // The name of a tool that no instance has listed is a text of the caller.
    if route.method == "tools/call"
        && route.awaited.is_none()
        && let Some(tool) = scan::string(&route.replaced.1)
    {
        span.set("gen_ai.tool.name", Attribute::Text(tool.into_owned()));
    }
    Some(span)
}
