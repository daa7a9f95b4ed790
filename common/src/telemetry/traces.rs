//! Traces: what records the spans of the actors and of HTTP requests, and hands them to the exporter.
//!
//! The standard variables of OpenTelemetry switch them on. The SDK reads its own variables; `settings` decides whether
//! there is anything to read and warns of values that are ignored.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use actors::{
    model::TraceContext,
    trace::{self, Attribute, Span, SpanKind, Tracer},
};
use opentelemetry::{
    Context, InstrumentationScope, KeyValue, TraceFlags, Value,
    trace::{Link, SpanContext, SpanId, Status, TraceContextExt, TraceId, TraceState, TracerProvider},
};
use opentelemetry_sdk::{
    Resource,
    trace::{
        IdGenerator, RandomIdGenerator, Sampler, SamplingDecision, SdkTracerProvider, ShouldSample, SpanData,
        SpanEvents, SpanLinks,
    },
};

use super::{
    exporter::{BoundedExporter, ExporterError},
    queue::SpanQueue,
    settings,
};

/// The name of the broker as the library that makes the spans.
pub const SCOPE: &str = "mcp-broker";

/// Why traces stay off although the variables ask for them.
static FAILURE: OnceLock<String> = OnceLock::new();
static QUEUE: OnceLock<Arc<SpanQueue>> = OnceLock::new();

/// Records the spans of this process.
struct Recorder {
    sampler: Box<dyn ShouldSample>,
    ids: RandomIdGenerator,
    scope: InstrumentationScope,
    queue: Arc<SpanQueue>,
}

/// Switches traces on if the variables ask for them. Returns the tracer for the spans of HTTP requests.
pub fn install() -> Option<opentelemetry_sdk::trace::SdkTracer> {
    if !settings::is_wanted() {
        return None;
    }
    let exporter = match BoundedExporter::from_environment() {
        Ok(exporter) => exporter,
        Err(ExporterError(reason)) => {
            let _ = FAILURE.set(reason);
            return None;
        }
    };
    let resource = resource();
    let queue = Arc::new(SpanQueue::new(exporter, &resource));
    // Whether an HTTP request is recorded is decided before its span is built.
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::AlwaysOn)
        .with_resource(resource)
        .with_span_processor(Arc::clone(&queue).processor())
        .build();
    let _ = QUEUE.set(Arc::clone(&queue));
    trace::install(Box::new(Recorder {
        sampler: opentelemetry_sdk::trace::Config::default().sampler,
        ids: RandomIdGenerator::default(),
        scope: scope(),
        queue,
    }));
    Some(provider.tracer_with_scope(scope()))
}

/// Logs whether traces are on. [`install`] runs before there is a log.
pub fn log_state() {
    if let Some(queue) = QUEUE.get() {
        tracing::info!(queue_len_max = queue.len_max(), "traces are on");
    }
    if let Some(reason) = FAILURE.get() {
        tracing::error!(reason, "traces stay off: a variable of the exporter cannot be used");
    }
}

/// Sends what is queued, and stops. Takes at most `timeout`; what is left then is counted as dropped.
pub fn shut_down(timeout: Duration) {
    if let Some(queue) = QUEUE.get() {
        queue.shut_down(timeout);
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(SCOPE)
        .with_version(env!("CARGO_PKG_VERSION"))
        .build()
}

/// What the spans say of this process: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` win.
fn resource() -> Resource {
    let own = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", uuid::Uuid::new_v4().to_string()),
    ];
    let given = Resource::builder().build();
    let has_name = given
        .get(&"service.name".into())
        .is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let name = (!has_name).then(|| KeyValue::new("service.name", SCOPE));
    let is_missing = |pair: &KeyValue| given.get(&pair.key).is_none();
    let added: Vec<_> = own.into_iter().filter(is_missing).chain(name).collect();
    Resource::builder().with_attributes(added).build()
}

impl Tracer for Recorder {
    fn sample(&self, parent: Option<&TraceContext>) -> Option<u128> {
        let trace_id = parent.map_or_else(|| self.new_trace_id(), |parent| parent.trace_id);
        let parent = parent.map(|parent| Context::new().with_remote_span_context(span_context(parent, true)));
        let id = TraceId::from(trace_id);
        let kind = opentelemetry::trace::SpanKind::Server;
        let sampled = self.sampler.should_sample(parent.as_ref(), id, "", &kind, &[], &[]);
        (sampled.decision == SamplingDecision::RecordAndSample).then_some(trace_id)
    }

    fn new_trace_id(&self) -> u128 {
        u128::from_be_bytes(self.ids.new_trace_id().to_bytes())
    }

    fn new_span_id(&self) -> u64 {
        u64::from_be_bytes(self.ids.new_span_id().to_bytes())
    }

    fn record(&self, span: Span) {
        self.queue.push(self.span_data(span));
    }
}

impl Recorder {
    fn span_data(&self, span: Span) -> SpanData {
        let mut attributes: Vec<_> = span
            .attributes
            .into_iter()
            .map(|(name, value)| KeyValue::new(name, value_of(value)))
            .collect();
        let mut links = SpanLinks::default();
        links
            .links
            .extend(span.link.map(|link| Link::with_context(span_context(&link, true))));
        let status = match span.error {
            None => Status::Unset,
            Some(code) => {
                attributes.push(KeyValue::new("error.type", code));
                Status::error(code)
            }
        };
        SpanData {
            span_context: span_context(&span.context, false),
            parent_span_id: span.parent.map_or(SpanId::INVALID, SpanId::from),
            parent_span_is_remote: span.is_parent_remote,
            span_kind: match span.kind {
                SpanKind::Server => opentelemetry::trace::SpanKind::Server,
                SpanKind::Client => opentelemetry::trace::SpanKind::Client,
                SpanKind::Producer => opentelemetry::trace::SpanKind::Producer,
                SpanKind::Consumer => opentelemetry::trace::SpanKind::Consumer,
            },
            name: span.name,
            start_time: SystemTime::UNIX_EPOCH + Duration::from_nanos(span.started_ns),
            end_time: SystemTime::UNIX_EPOCH + Duration::from_nanos(span.ended_ns),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

fn value_of(value: Attribute) -> Value {
    match value {
        Attribute::Word(word) => word.into(),
        Attribute::Text(text) => text.into(),
        Attribute::Number(number) => i64::try_from(number).unwrap_or(i64::MAX).into(),
    }
}

/// The context in the form of OpenTelemetry.
pub fn span_context(context: &TraceContext, is_remote: bool) -> SpanContext {
    let flags = if context.is_sampled() {
        TraceFlags::SAMPLED
    } else {
        TraceFlags::default()
    };
    let state = context.state().and_then(|state| state.parse::<TraceState>().ok());
    SpanContext::new(
        TraceId::from(context.trace_id),
        SpanId::from(context.span_id),
        flags,
        is_remote,
        state.unwrap_or_default(),
    )
}
