//! A message on its way to a server over HTTP: its body, and the headers that repeat parts of it. Pure.

use std::{cell::RefCell, collections::HashMap};

use actors::{
    gateway::{BackendLog, CallNumber, Item, SET_LOG_LEVEL},
    json::{member, scan},
    model::TraceContext,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::instances::{lists::ReadTools, probe::Probe};
use api::mcp::{
    call_trace::trace_in_meta,
    mirrored::{self, MirroredParameter, mirrored_parameters},
    rpc::{self, Incoming, Params},
    version::MODERN,
};

pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A message that is sent as the body of a request.
#[derive(Debug)]
pub struct Outgoing {
    pub body: Bytes,
    pub kind: OutgoingKind,
    /// The method and the member that `Mcp-Name` repeats; empty for the answer to a request of the server.
    method: String,
    name: Option<String>,
    /// The arguments of a call of a tool, as JSON.
    arguments: Option<String>,
    /// The trace that it belongs to.
    trace: Option<TraceContext>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutgoingKind {
    Request(CallNumber),
    /// `notifications/initialized`, which has to arrive before any request.
    Initialized,
    /// The level of log messages, which has to be set before the call that wants it.
    LogLevel,
    /// The call of this number is cancelled.
    Cancel(CallNumber),
    /// Another notification, or the answer to a request of the server.
    Other,
}

impl Outgoing {
    /// A message of the broker. `None` for bytes that are none, which the broker does not send.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let (kind, method, params) = match rpc::parse(text).ok()? {
            Incoming::Request { id, method, params } => {
                let kind = match CallNumber(id.parse().ok()?) {
                    SET_LOG_LEVEL => OutgoingKind::LogLevel,
                    number => OutgoingKind::Request(number),
                };
                (kind, method, params)
            }
            Incoming::Notification { method, params } => {
                let kind = match &*method {
                    "notifications/initialized" => OutgoingKind::Initialized,
                    "notifications/cancelled" => OutgoingKind::Cancel(cancelled(&params)?),
                    _ => OutgoingKind::Other,
                };
                (kind, method, params)
            }
            Incoming::Response { .. } => (OutgoingKind::Other, "".into(), Params::default()),
            Incoming::Batch(_) => return None,
        };
        let name = match &*method {
            "tools/call" | "prompts/get" => params.named().map(Into::into),
            "resources/read" => member(params.text?, "uri").and_then(scan::string).map(Into::into),
            "tasks/get" | "tasks/update" | "tasks/cancel" => {
                member(params.text?, "taskId").and_then(scan::string).map(Into::into)
            }
            _ => None,
        };
        let arguments = params.arguments.filter(|_| method == "tools/call").map(str::to_owned);
        Some(Self {
            body: Bytes::copy_from_slice(line),
            kind,
            method: method.into_owned(),
            name,
            arguments,
            trace: trace_in_meta(&params),
        })
    }

    /// Whether later messages must not overtake it.
    pub fn comes_first(&self) -> bool {
        matches!(self.kind, OutgoingKind::Initialized | OutgoingKind::LogLevel)
    }

    /// Whether it is part of the handshake.
    pub fn is_opening(&self) -> bool {
        matches!(self.kind, OutgoingKind::Request(number) if Probe::is_opening(number))
    }

    /// Whether it calls a tool.
    pub fn is_tool_call(&self) -> bool {
        self.method == "tools/call"
    }

    /// Whether it subscribes to changes.
    pub fn is_subscription(&self) -> bool {
        self.method == "subscriptions/listen"
    }

    /// Adds the headers with the trace that the message belongs to.
    pub fn add_trace_headers(&self, headers: &mut HeaderMap) {
        let Some(trace) = &self.trace else { return };
        for (name, value) in [
            (TRACEPARENT, Some(trace.traceparent())),
            (TRACESTATE, trace.state().map(ToString::to_string)),
        ] {
            if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
                headers.insert(name, value);
            }
        }
    }

    /// Adds the headers that a modern server wants: the version, and what repeats parts of the body.
    pub fn add_modern_headers(&self, tools: &ToolHeaders, headers: &mut HeaderMap) {
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(MODERN));
        let mut add = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        };
        if !self.method.is_empty() {
            add(METHOD, &self.method);
        }
        if let Some(name) = &self.name {
            add(NAME, &mirrored::encoded(name));
        }
        let (Some(tool), Some(arguments)) = (self.name.as_ref().filter(|_| self.is_tool_call()), &self.arguments)
        else {
            return;
        };
        for (name, value) in tools.headers_of(tool, arguments) {
            add(name, &value);
        }
    }
}

/// The number of the call that a notification cancels.
fn cancelled(params: &Params<'_>) -> Option<CallNumber> {
    let id = member(params.text?, "requestId")?;
    id.parse().ok().map(CallNumber)
}

/// The parameters of each tool that are repeated in headers, by the list of tools that was read last.
pub struct ToolHeaders {
    log: std::sync::Arc<BackendLog>,
    of: RefCell<HashMap<String, Vec<MirroredParameter>>>,
    /// Notified when the list of tools was read.
    pub read: tokio::sync::Notify,
}

impl ToolHeaders {
    /// The headers for the tools of an earlier instance. `log` says which tools are left out, and why.
    pub fn new(log: std::sync::Arc<BackendLog>, known: &[Item]) -> Self {
        let headers = Self {
            log,
            of: RefCell::default(),
            read: tokio::sync::Notify::new(),
        };
        headers.look_at(&mut known.to_vec());
        headers
    }

    fn headers_of(&self, tool: &str, arguments: &str) -> Vec<(HeaderName, String)> {
        let of = self.of.borrow();
        let Some(parameters) = of.get(tool) else {
            return Vec::new();
        };
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        parameters
            .iter()
            .filter_map(|parameter| {
                let name = HeaderName::try_from(parameter.header.as_str()).ok()?;
                Some((name, parameter.value(&arguments)?))
            })
            .collect()
    }
}

impl ReadTools for ToolHeaders {
    fn look_at(&self, tools: &mut Vec<Item>) {
        let mut of = HashMap::new();
        tools.retain(|tool| {
            if !tool.text.contains("x-mcp-header") {
                return true;
            }
            let described: Value = serde_json::from_str(&tool.text).unwrap_or_default();
            match mirrored_parameters(&described["inputSchema"]) {
                Ok(parameters) => {
                    of.insert(tool.key.clone(), parameters);
                    true
                }
                Err(reason) => {
                    let line = format!("the tool {} is not offered: {reason}", tool.key);
                    self.log.push(&line, actors::clock::now().unix_ms);
                    false
                }
            }
        });
        *self.of.borrow_mut() = of;
        self.read.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(key: &str, text: &str) -> Item {
        Item {
            key: key.to_owned(),
            text: text.into(),
        }
    }

    #[test]
    fn the_headers_repeat_the_method_the_name_and_marked_arguments() {
        let log = std::sync::Arc::<BackendLog>::default();
        let marked = r#"{"inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}"#;
        let wrong = r#"{"inputSchema":{"properties":{"r":{"type":"array","x-mcp-header":"Region"}}}}"#;
        let mut tools = vec![item("plain", "{}"), item("märked", marked), item("wrong", wrong)];
        let headers = ToolHeaders::new(std::sync::Arc::clone(&log), &[]);
        headers.look_at(&mut tools);
        assert_eq!(tools.len(), 2, "clients must not use the third");
        assert!(log.since(0)[0].text.contains("the tool wrong is not offered"));

        let call =
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"arguments":{"r":"eu"},"name":"märked"}}"#;
        let call = Outgoing::parse(call.as_bytes()).unwrap();
        assert_eq!(call.kind, OutgoingKind::Request(CallNumber(7)));
        let mut found = HeaderMap::new();
        call.add_modern_headers(&headers, &mut found);
        let found = |name: &str| found.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(found("mcp-method").as_deref(), Some("tools/call"));
        assert_eq!(found("mcp-name").as_deref(), Some("=?base64?bcOkcmtlZA==?="));
        assert_eq!(found("mcp-param-region").as_deref(), Some("eu"));
        assert_eq!(found("mcp-protocol-version").as_deref(), Some(MODERN));
    }

    #[test]
    fn the_headers_repeat_the_trace_of_the_message() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let headers_of = |meta: &str| {
            let call = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"_meta":{meta}}}}}"#);
            let mut headers = HeaderMap::new();
            Outgoing::parse(call.as_bytes())
                .unwrap()
                .add_trace_headers(&mut headers);
            headers
        };
        let traced = headers_of(&format!(r#"{{"traceparent":"{parent}","tracestate":"a=1"}}"#));
        assert_eq!(traced["traceparent"], parent);
        assert_eq!(traced["tracestate"], "a=1");
        assert!(headers_of(r#"{"traceparent":"00-1-2-01"}"#).is_empty());
        assert!(headers_of("{}").is_empty());
    }

    #[test]
    fn a_message_is_sorted_by_what_follows_from_it() {
        let kind = |text: &str| Outgoing::parse(text.as_bytes()).map(|outgoing| outgoing.kind);
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9,"reason":"r"}}"#;
        let answer = r#"{"jsonrpc":"2.0","id":"a","result":{}}"#;
        assert_eq!(kind(initialized), Some(OutgoingKind::Initialized));
        assert_eq!(kind(cancelled), Some(OutgoingKind::Cancel(CallNumber(9))));
        assert_eq!(kind(answer), Some(OutgoingKind::Other));
        assert_eq!(kind("{"), None);
    }
}
