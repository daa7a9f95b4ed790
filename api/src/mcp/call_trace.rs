//! The trace of one request: the context that the messages of the request carry on, and the span of the request.

use std::{borrow::Cow, cell::RefCell, rc::Rc};

use actors::{
    model::{ProjectId, TraceContext},
    project::RequestTrace,
    trace::{self, ActiveSpan, Attribute, Entered, SpanKind},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::rpc::Params;
use common::json::scan;

/// Bytes of a `_meta` that is read for its trace. A longer one is refused by its reader.
const META_LEN_MAX: usize = 64 * 1024;

/// The trace of one request. Its span ends when the last reference is dropped, which is when the request is answered.
pub struct CallTrace {
    context: TraceContext,
    /// `None` if the trace is only handed on.
    span: Option<RefCell<ActiveSpan>>,
}

/// The names of a request, as far as the broker knows them: another text is chosen by the caller.
pub struct RequestNames {
    /// The method.
    pub method: Option<&'static str>,
    /// The tool that it calls.
    pub tool: Option<&'static str>,
}

impl CallTrace {
    /// Begins the span of a request if its trace is recorded. `None` if it has no trace.
    pub fn begin(
        http: Option<&TraceContext>,
        project: &ProjectId,
        params: &Params<'_>,
        names: impl FnOnce() -> RequestNames,
    ) -> Option<Rc<Self>> {
        let caller = trace_in_meta(params).or_else(|| http.cloned());
        if caller.is_none() && !trace::is_on() {
            return None;
        }
        let mut known = None;
        let span = ActiveSpan::server(caller.as_ref(), || {
            let names = known.insert(names());
            let method = names.method.unwrap_or("another method");
            match names.tool {
                Some(tool) => Cow::Owned(format!("{method} {tool}")),
                None => Cow::Borrowed(method),
            }
        });
        let (Some(mut span), Some(names)) = (span, known) else {
            return caller.map(|context| Rc::new(Self { context, span: None }));
        };
        if let Some(method) = names.method {
            span.set("mcp.method.name", Attribute::Word(method));
        }
        if let Some(tool) = names.tool {
            span.set("gen_ai.tool.name", Attribute::Word(tool));
        }
        span.set("mcp_broker.project", Attribute::Text(project.to_string()));
        Some(Rc::new(Self {
            context: span.context().clone(),
            span: Some(RefCell::new(span)),
        }))
    }

    /// The context of what the request causes.
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    /// Begins a span of this name for a request to another process. `None` if the trace is only handed on.
    pub fn client_span(&self, name: &'static str) -> Option<ActiveSpan> {
        self.span.as_ref()?;
        ActiveSpan::child(name, SpanKind::Client, &self.context)
    }

    /// What a message of the request carries on.
    pub fn for_message(&self) -> RequestTrace<'_> {
        RequestTrace {
            context: &self.context,
            is_recorded: self.span.is_some(),
        }
    }

    /// Works for this trace until the result is dropped.
    pub fn enter(&self) -> Entered {
        trace::enter(&self.context)
    }

    /// Notes that the request fails with the error of this code.
    pub fn fail(&self, code: &'static str) {
        if let Some(span) = &self.span {
            span.borrow_mut().fail(code);
        }
    }
}

/// The trace in `_meta`. An invalid one is ignored.
pub fn trace_in_meta(params: &Params<'_>) -> Option<TraceContext> {
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow)]
        traceparent: Option<&'a RawValue>,
        #[serde(borrow)]
        tracestate: Option<&'a RawValue>,
    }
    let meta = params.meta.filter(|meta| meta.len() <= META_LEN_MAX)?;
    memchr::memmem::find(meta.as_bytes(), b"\"traceparent\"")?;
    let meta: Meta<'_> = serde_json::from_str(meta).ok()?;
    let text = |raw: &'_ RawValue| scan::string(raw.get()).map(Cow::into_owned);
    let state = meta.tracestate.and_then(text);
    TraceContext::parse(&meta.traceparent.and_then(text)?, state.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_trace_is_taken_from_meta() {
        const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = |meta: &str| {
            let found = trace_in_meta(&Params {
                meta: Some(meta),
                ..Params::default()
            });
            found.map(|found| (found.traceparent(), found.state().map(ToString::to_string)))
        };
        let with = |state: &str| format!(r#"{{"x":1,"traceparent":"{PARENT}"{state}}}"#);
        let parent = PARENT.to_owned();
        assert_eq!(read(&with("")), Some((parent.clone(), None)));
        let state = with(r#","tracestate":"a=\"1\"""#);
        assert_eq!(read(&state), Some((parent.clone(), Some("a=\"1\"".to_owned()))));
        for ignored in [r#","tracestate":7"#, r#","tracestate":"A""#, r#","tracestate":null"#] {
            assert_eq!(read(&with(ignored)), Some((parent.clone(), None)), "{ignored}");
        }
        for wrong in [
            "{}",
            "[]",
            r#"{"traceparent":null}"#,
            r#"{"traceparent":7}"#,
            r#"{"traceparent":"00"}"#,
            &with(r#","traceparent":"""#),
            &format!(
                "{{\"traceparent\":\"{PARENT}\",\"x\":\"{}\"}}",
                "x".repeat(META_LEN_MAX)
            ),
        ] {
            assert_eq!(read(wrong), None, "{}", &wrong[..wrong.len().min(80)]);
        }
    }
}
