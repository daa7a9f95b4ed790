//! A span: one step on the way of a request or a message.

use std::{borrow::Cow, sync::Arc};

use super::{Tracer, tracer};
use crate::{
    clock::unix_ns,
    model::{Message, TraceContext},
};

/// The role of a span in its trace, as OpenTelemetry defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// It serves a request.
    Server,
    /// It calls another process.
    Client,
    /// It creates a message.
    Producer,
    /// It hands a message to its recipient.
    Consumer,
}

/// The value of an attribute. Attributes hold ids, numbers and words of the broker, never texts of callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    Word(&'static str),
    Text(String),
    Number(u64),
}

/// A step that has ended.
#[derive(Clone, Debug)]
pub struct Span {
    pub name: Cow<'static, str>,
    pub kind: SpanKind,
    pub context: TraceContext,
    /// The parent; `None` for the first span of a trace.
    pub parent: Option<u64>,
    /// The parent belongs to another process.
    pub is_parent_remote: bool,
    /// The span that caused this one in another trace.
    pub link: Option<TraceContext>,
    /// Nanoseconds since the Unix epoch.
    pub started_ns: u64,
    /// Nanoseconds since the Unix epoch.
    pub ended_ns: u64,
    pub attributes: Vec<(&'static str, Attribute)>,
    /// The code of the error with which the step ended.
    pub error: Option<&'static str>,
}

/// A step that has begun. It is recorded when it is dropped.
#[derive(Debug)]
pub struct ActiveSpan {
    span: Span,
    tracer: TracerRef,
}

#[derive(Clone, Copy)]
struct TracerRef(&'static dyn Tracer);

impl std::fmt::Debug for TracerRef {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Tracer")
    }
}

impl ActiveSpan {
    fn begin(
        tracer: &'static dyn Tracer,
        name: Cow<'static, str>,
        kind: SpanKind,
        trace_id: u128,
        parent: Option<(&TraceContext, bool)>,
    ) -> Self {
        let state = parent.and_then(|(parent, _)| parent.state().map(Arc::clone));
        Self {
            span: Span {
                name,
                kind,
                context: TraceContext::recorded(trace_id, tracer.new_span_id(), state),
                parent: parent.map(|(parent, _)| parent.span_id),
                is_parent_remote: parent.is_some_and(|(_, is_remote)| is_remote),
                link: None,
                started_ns: unix_ns(),
                ended_ns: 0,
                attributes: Vec::new(),
                error: None,
            },
            tracer: TracerRef(tracer),
        }
    }

    /// Begins the span of a request with this caller. `None` if it is not recorded.
    pub fn server(caller: Option<&TraceContext>, name: impl FnOnce() -> Cow<'static, str>) -> Option<Self> {
        let tracer = tracer()?;
        let trace_id = tracer.sample(caller)?;
        let parent = caller.map(|caller| (caller, true));
        Some(Self::begin(tracer, name(), SpanKind::Server, trace_id, parent))
    }

    /// Begins a step of a span of this process, which is recorded.
    pub fn child(name: &'static str, kind: SpanKind, parent: &TraceContext) -> Option<Self> {
        Some(Self::begin(
            tracer()?,
            name.into(),
            kind,
            parent.trace_id,
            Some((parent, false)),
        ))
    }

    /// Begins to hand a message to a recipient. A broadcast has many: each begins a trace of its own, with a link to the
    /// message. `None` if it is not recorded.
    pub(super) fn deliver(message: &Message) -> Option<Self> {
        let tracer = tracer()?;
        let cause = message.trace()?;
        let trace_id = tracer.sample(Some(&cause))?;
        let name = Cow::Borrowed("deliver");
        if message.recipient.is_some() {
            let parent = Some((&cause, true));
            return Some(Self::begin(tracer, name, SpanKind::Consumer, trace_id, parent));
        }
        let mut span = Self::begin(tracer, name, SpanKind::Consumer, tracer.new_trace_id(), None);
        span.span.link = Some(cause);
        Some(span)
    }

    /// The context of what this step causes.
    #[must_use]
    pub const fn context(&self) -> &TraceContext {
        &self.span.context
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: &'static str, value: Attribute) {
        self.span.attributes.push((name, value));
    }

    /// Notes that the step has failed.
    pub fn fail(&mut self, code: &'static str) {
        self.span.error = Some(code);
    }
}

impl Drop for ActiveSpan {
    fn drop(&mut self) {
        let unused = TraceContext::recorded(self.span.context.trace_id, self.span.context.span_id, None);
        let span = Span {
            name: std::mem::take(&mut self.span.name),
            ended_ns: unix_ns(),
            context: std::mem::replace(&mut self.span.context, unused),
            attributes: std::mem::take(&mut self.span.attributes),
            link: self.span.link.take(),
            ..self.span
        };
        self.tracer.0.record(span);
    }
}
