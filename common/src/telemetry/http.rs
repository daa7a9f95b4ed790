//! The trace of an HTTP request: the caller's context from its headers, and the span of the request.

use std::sync::Arc;

use actix_web::{
    HttpMessage, HttpRequest,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::{Method, header::HeaderMap},
};
use actors::{model::TraceContext, project::RequestTrace, trace};
use opentelemetry::{Context, trace::TraceContextExt};
use tracing::Span;
use tracing_actix_web::RootSpanBuilder;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::traces::span_context;

/// The target of the spans that are exported. Logs leave them out.
pub const SPAN_TARGET: &str = "mcp_broker::exported";

/// Probes, which come every few seconds and belong to no trace.
const PROBES: [&str; 5] = ["/livez", "/readyz", "/startupz", "/health", "/metrics"];

/// The trace that an HTTP request belongs to: the span of the request where it is recorded, else that of the caller.
pub fn trace_of(request: &HttpRequest) -> Option<Arc<TraceContext>> {
    let recorded = request.extensions().get::<Arc<TraceContext>>().cloned();
    recorded.or_else(|| caller(request.headers()).map(Arc::new))
}

/// The trace that a message of an HTTP request carries on.
pub fn request_trace<'a>(request: &HttpRequest, trace: Option<&'a Arc<TraceContext>>) -> Option<RequestTrace<'a>> {
    trace.map(|context| RequestTrace {
        context,
        is_recorded: request.extensions().contains::<Arc<TraceContext>>(),
    })
}

/// The caller's context. An invalid one is ignored, and so are two.
fn caller(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all("traceparent");
    let parent = parents.next()?.to_str().ok()?;
    if parents.next().is_some() {
        return None;
    }
    let states: Option<Vec<_>> = headers.get_all("tracestate").map(|value| value.to_str().ok()).collect();
    TraceContext::parse(
        parent.trim_matches([' ', '\t']),
        states.map(|states| states.join(",")).as_deref(),
    )
}

/// The span of an HTTP request: exported if its trace is recorded, else a span of the log at level debug. It excludes
/// the query, where a client of 2024-11-05 sends its session id, a secret.
pub struct RequestSpan;

impl RootSpanBuilder for RequestSpan {
    fn on_request_start(request: &ServiceRequest) -> Span {
        exported_span(request).unwrap_or_else(|| {
            tracing::debug_span!(
                "request",
                http.method = request.method().as_str(),
                http.path = request.path(),
                http.status_code = tracing::field::Empty,
            )
        })
    }

    fn on_request_end<B: MessageBody>(span: Span, outcome: &Result<ServiceResponse<B>, actix_web::Error>) {
        let status = match outcome {
            Ok(response) => response.status(),
            Err(error) => error.as_response_error().status_code(),
        };
        span.record("http.status_code", status.as_u16());
        span.record("http.response.status_code", status.as_u16());
        if status.is_server_error() {
            span.record("otel.status_code", "ERROR");
        }
    }
}

/// The span of a request whose trace is recorded. It shows the route, never the path: callers choose parts of it.
fn exported_span(request: &ServiceRequest) -> Option<Span> {
    if !trace::is_on() || PROBES.contains(&request.path()) {
        return None;
    }
    let caller = caller(request.headers());
    trace::sample(caller.as_ref())?;
    let method = match *request.method() {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "_OTHER",
    };
    let route = request.match_pattern().unwrap_or_else(|| "another path".to_owned());
    let span = tracing::trace_span!(
        target: SPAN_TARGET,
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = tracing::field::Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = tracing::field::Empty,
    );
    if let Some(caller) = caller {
        let parent = Context::new().with_remote_span_context(span_context(&caller, true));
        // It fails only where no span is exported.
        let _ = span.set_parent(parent);
    }
    let own = span.context();
    let own = own.span().span_context().clone();
    if own.is_valid() {
        let state = own.trace_state().header();
        let state = (!state.is_empty()).then(|| state.into());
        let (trace_id, span_id) = (own.trace_id().to_bytes(), own.span_id().to_bytes());
        let own = TraceContext::recorded(u128::from_be_bytes(trace_id), u64::from_be_bytes(span_id), state);
        request.extensions_mut().insert(Arc::new(own));
    }
    Some(span)
}
