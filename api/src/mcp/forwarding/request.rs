//! The frame that a backend gets for a request of a client: the client's params as they are, but for the name, the id, the
//! progress token, and what the era of the backend wants in `_meta`.

use std::{borrow::Cow, cell::RefCell, rc::Rc};

use actors::{
    gateway::CallNumber,
    json,
    model::{BackendEra, TraceContext},
};
use serde_json::{Map, Value, json};

use crate::mcp::{
    lines::replace_line_breaks,
    logging::Level,
    rpc::{Params, RpcError},
    version::{ClientInfo, MODERN},
};
use common::json::{
    frame::{self, JsonText},
    scan,
};

/// What every member of `_meta` that belongs to the protocol begins with.
const PROTOCOL_META: &str = "io.modelcontextprotocol/";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const PROGRESS_TOKEN: &str = "progressToken";
/// The members of `_meta` with the trace context (SEP-414).
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// The member of `_meta` that says that the request came through the broker.
const VIA: &str = "dev.mcp-broker/via";
/// The broker's name and version, as JSON.
const OWN_INFO: &str = concat!(
    "{\"name\":\"mcp-broker\",\"version\":\"",
    env!("CARGO_PKG_VERSION"),
    "\"}"
);

/// A request that can be sent to a backend, more than once if the first one never got it.
pub struct ForwardedRequest {
    method: &'static str,
    /// The members of the params but `_meta` and the replaced one, as JSON without the braces.
    params: Vec<u8>,
    /// The replaced member, with its value as JSON.
    replaced: RefCell<(&'static str, String)>,
    /// The members of `_meta` that are not of the protocol, likewise.
    meta: Vec<u8>,
    /// The client, if it has said who it is outside of this request.
    client: Option<Rc<ClientInfo>>,
    /// The client's name and version of this request, as JSON.
    client_info: Option<String>,
    /// What the client can be asked for, as JSON.
    capabilities: Cow<'static, str>,
    /// The lowest level of log messages that the client wants.
    log_level: Option<Level>,
    wants_progress: bool,
    /// What the caller has answered so far.
    input: RefCell<Input>,
}

/// The answers of a caller to the questions of a modern backend (2026-07-28, basic/patterns/mrtr).
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The member `inputResponses`, as JSON.
    pub responses: Option<String>,
    /// The member `requestState`, as JSON.
    pub state: Option<String>,
}

impl ForwardedRequest {
    /// The request of `client`, unless its `_meta` names another one. `replaced` is a member of the params with its new value
    /// as JSON, and `trace` replaces the trace of `_meta`.
    ///
    /// # Errors
    /// The params are not JSON.
    pub fn new(
        method: &'static str,
        replaced: (&'static str, String),
        params: &Params<'_>,
        client: Option<Rc<ClientInfo>>,
        trace: Option<&TraceContext>,
    ) -> Result<Self, RpcError> {
        let member = replaced.0;
        let members = json::members(params.text.unwrap_or("{}"))?;
        let mut request = Self {
            method,
            params: Vec::with_capacity(params.text.map_or(0, str::len)),
            replaced: RefCell::new(replaced),
            meta: Vec::new(),
            client,
            client_info: None,
            capabilities: Cow::Borrowed("{}"),
            log_level: None,
            wants_progress: false,
            input: RefCell::default(),
        };
        for (key, raw) in &members {
            match &**key {
                "_meta" => request.add_meta(raw, trace.is_some())?,
                "inputResponses" => request.input.get_mut().responses = Some(one_line(raw)),
                "requestState" => request.input.get_mut().state = Some(one_line(raw)),
                key if key == member => {}
                key => add(&mut request.params, key, raw),
            }
        }
        if let Some(trace) = trace {
            if let Some(state) = trace.state() {
                add(&mut request.meta, TRACESTATE, &json::string(state));
            }
            add(&mut request.meta, TRACEPARENT, &json::string(&trace.traceparent()));
        }
        replace_line_breaks(&mut request.params);
        replace_line_breaks(&mut request.meta);
        Ok(request)
    }

    /// Adds what the request says of its client: what the client can be asked for, and the lowest level of log messages that
    /// it wants.
    pub fn for_caller(mut self, capabilities: &Map<String, Value>, log_level: Option<Level>) -> Self {
        self.log_level = log_level;
        if !capabilities.is_empty() {
            self.capabilities = Cow::Owned(json!(capabilities).to_string());
        }
        self
    }

    fn add_meta(&mut self, meta: &str, has_trace: bool) -> Result<(), RpcError> {
        for (key, raw) in json::members(meta)? {
            match &*key {
                PROGRESS_TOKEN => self.wants_progress = true,
                CLIENT_INFO => self.client_info = Some(one_line(raw)),
                key if key.starts_with(PROTOCOL_META) => {}
                TRACEPARENT | TRACESTATE if has_trace => {}
                key => add(&mut self.meta, key, raw),
            }
        }
        Ok(())
    }

    /// The value of the replaced member, if it is a string.
    pub fn replaced(&self) -> Option<String> {
        scan::string(&self.replaced.borrow().1).map(Cow::into_owned)
    }

    /// Replaces the value of the replaced member, as JSON.
    pub fn set_replaced(&self, value: String) {
        self.replaced.borrow_mut().1 = value;
    }

    /// What the caller has answered so far.
    pub fn input(&self) -> Input {
        self.input.borrow().clone()
    }

    /// Sets what the caller has answered, for the next time that the request is sent.
    pub fn set_input(&self, input: Input) {
        self.input.replace(input);
    }

    /// What stays the same when the caller repeats the request with its answers.
    pub fn unchanging(&self) -> Value {
        let params = [b"{", &self.params[..], b"}"].concat();
        let params: Value = serde_json::from_slice(&params).unwrap_or_default();
        let (member, value) = &*self.replaced.borrow();
        json!([member, value, params])
    }

    /// Bytes that it takes.
    pub fn len(&self) -> usize {
        let input = self.input.borrow();
        let input_len = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.params.len() + self.meta.len() + input_len(&input.responses) + input_len(&input.state)
    }

    /// Appends the frame for a backend of this era.
    pub fn write(&self, era: BackendEra, CallNumber(number): CallNumber, out: &mut Vec<u8>) {
        let params = |out: &mut Vec<u8>| self.write_params(era, number, out);
        frame::request(number, self.method, params).write_to(out);
    }

    fn write_params(&self, era: BackendEra, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"");
        let (member, value) = &*self.replaced.borrow();
        out.extend_from_slice(member.as_bytes());
        out.extend_from_slice(b"\":");
        out.extend_from_slice(value.as_bytes());
        if !self.params.is_empty() {
            out.push(b',');
            out.extend_from_slice(&self.params);
        }
        let input = self.input.borrow();
        for (member, value) in [("inputResponses", &input.responses), ("requestState", &input.state)] {
            if let (Some(value), BackendEra::Modern) = (value, era) {
                out.push(b',');
                json::write_string(out, member);
                out.push(b':');
                out.extend_from_slice(value.as_bytes());
            }
        }
        let meta = self.meta_for(era, number);
        if !meta.is_empty() {
            out.extend_from_slice(b",\"_meta\":{");
            out.extend_from_slice(&meta);
            out.push(b'}');
        }
        out.push(b'}');
    }

    /// The members of `_meta`.
    fn meta_for(&self, era: BackendEra, number: u64) -> Cow<'_, [u8]> {
        if era == BackendEra::Legacy && !self.wants_progress {
            return Cow::Borrowed(&self.meta);
        }
        let mut meta = self.meta.clone();
        if self.wants_progress {
            add(&mut meta, PROGRESS_TOKEN, &number.to_string());
        }
        if era == BackendEra::Modern {
            add(
                &mut meta,
                "io.modelcontextprotocol/protocolVersion",
                &json::string(MODERN),
            );
            add(
                &mut meta,
                "io.modelcontextprotocol/clientCapabilities",
                &self.capabilities,
            );
            if let Some(level) = self.log_level {
                let level = json::string(level.as_str());
                add(&mut meta, "io.modelcontextprotocol/logLevel", &level);
            }
            let client = self.client.as_ref().filter(|_| self.client_info.is_none());
            let client = client.map(|client| json!({"name": client.name, "version": client.version}).to_string());
            let client = self.client_info.as_deref().or(client.as_deref()).unwrap_or(OWN_INFO);
            add(&mut meta, CLIENT_INFO, client);
            add(&mut meta, VIA, OWN_INFO);
        }
        Cow::Owned(meta)
    }
}

/// Appends a member, with a comma if there is one before it.
fn add(members: &mut Vec<u8>, key: &str, value: &str) {
    if !members.is_empty() {
        members.push(b',');
    }
    json::write_string(members, key);
    members.push(b':');
    members.extend_from_slice(value.as_bytes());
}

fn one_line(json: &str) -> String {
    let mut bytes = json.as_bytes().to_vec();
    replace_line_breaks(&mut bytes);
    String::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::rpc::{self, Incoming};

    fn frame(params: &str, era: BackendEra) -> String {
        traced_frame(params, era, None)
    }

    fn traced_frame(params: &str, era: BackendEra, trace: Option<&TraceContext>) -> String {
        let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{params}}}");
        let Ok(Incoming::Request { params, .. }) = rpc::parse(&text) else {
            panic!("{text}");
        };
        let name = ("name", "\"own\"".to_owned());
        let client = Rc::new(ClientInfo {
            name: "c".to_owned(),
            version: "1".to_owned(),
        });
        let request = ForwardedRequest::new("tools/call", name, &params, Some(client), trace);
        let mut out = Vec::new();
        request.unwrap().write(era, CallNumber(1_048_577), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn all_but_the_name_and_the_token_is_passed_on_to_a_legacy_backend() {
        let params = "{\"name\":\"a__own\",\"x\":1e400,\"arguments\":{\"z\":10000000000000000001,\"a\":\"\\n\"},\r\n\"_meta\":{\"v\":[1,\n2],\"progressToken\":\"t\",\"io.modelcontextprotocol/logLevel\":\"info\"}}";
        assert_eq!(
            frame(params, BackendEra::Legacy),
            "{\"jsonrpc\":\"2.0\",\"id\":1048577,\"method\":\"tools/call\",\"params\":{\"name\":\"own\",\"x\":1e400,\
             \"arguments\":{\"z\":10000000000000000001,\"a\":\"\\n\"},\"_meta\":{\"v\":[1, 2],\"progressToken\":1048577}}}"
        );
        let bare = frame("{\"name\":\"a__own\"}", BackendEra::Legacy);
        assert!(bare.ends_with("\"params\":{\"name\":\"own\"}}"), "{bare}");
    }

    #[test]
    fn a_modern_backend_gets_the_members_of_its_era() {
        let sent: Value = serde_json::from_str(&frame("{\"name\":\"a__own\"}", BackendEra::Modern)).unwrap();
        let meta = &sent["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], MODERN);
        assert_eq!(
            meta["io.modelcontextprotocol/clientInfo"],
            json!({"name": "c", "version": "1"})
        );
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
        assert_eq!(meta[VIA]["name"], "mcp-broker");
    }

    #[test]
    fn a_trace_takes_the_place_of_that_of_the_caller() {
        let of_caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let params = format!(r#"{{"name":"a","_meta":{{"traceparent":"{of_caller}","tracestate":"a=1","x":1}}}}"#);
        let meta = |trace: Option<&TraceContext>| {
            let frame = traced_frame(&params, BackendEra::Legacy, trace);
            serde_json::from_str::<Value>(&frame).unwrap()["params"]["_meta"].take()
        };
        assert_eq!(
            meta(None),
            json!({"traceparent": of_caller, "tracestate": "a=1", "x": 1})
        );
        let trace = TraceContext::recorded(1, 2, None);
        assert_eq!(meta(Some(&trace)), json!({"traceparent": trace.traceparent(), "x": 1}));
        let bare = traced_frame(r#"{"name":"a"}"#, BackendEra::Legacy, Some(&trace));
        assert!(bare.contains(&trace.traceparent()), "{bare}");
    }

    #[test]
    fn a_frame_is_one_line() {
        let params = "{\n\"name\"\r:\n\"x\",\n\"arguments\":{\n\"a\"\n:\r[\n]\n}\n,\"_meta\":{\n\"b\":{\n}}}";
        for era in [BackendEra::Legacy, BackendEra::Modern] {
            assert!(!frame(params, era).contains(['\n', '\r']));
        }
    }
}
