//! The mutations of a request. Each one makes one fault, or uses one liberty of the specification.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::requests::{Draft, ORIGIN};

/// One step of a mutation. It fails when the request has nothing that it could change.
#[derive(Clone, Copy)]
pub enum Step {
    /// Removes the headers of this name.
    Without(&'static str),
    /// Replaces the headers of this name by one.
    Header(&'static str, &'static str),
    /// Adds a header.
    Also(&'static str, &'static str),
    /// Sets a member of the message, given by its JSON pointer, to a JSON text.
    Set(&'static str, &'static str),
    /// Removes a member of the message.
    Unset(&'static str),
    /// Sets the HTTP method.
    Method(&'static str),
    /// Replaces the body.
    Body(&'static [u8]),
    /// Any other change; false when it does not apply.
    Do(fn(&mut Draft) -> bool),
}
use Step::{Also, Body, Do, Header, Method, Set, Unset, Without};

#[derive(Clone, Copy)]
pub struct Mutation {
    pub name: &'static str,
    steps: &'static [Step],
}

impl Mutation {
    /// Applies all steps; false when one does not apply.
    pub fn apply(&self, draft: &mut Draft) -> bool {
        let before = draft.request.clone();
        self.steps.iter().all(|step| step.apply(draft)) && draft.request != before
    }
}

const VERSION: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
const CAPABILITIES: &str = "/params/_meta/io.modelcontextprotocol~1clientCapabilities";
const INFO: &str = "/params/_meta/io.modelcontextprotocol~1clientInfo";
const LOG_LEVEL: &str = "/params/_meta/io.modelcontextprotocol~1logLevel";

const fn mutation(name: &'static str, steps: &'static [Step]) -> Mutation {
    Mutation { name, steps }
}

pub const MUTATIONS: &[Mutation] = &[
    // Accept
    mutation("no Accept", &[Without("Accept")]),
    mutation("Accept JSON only", &[Header("Accept", "application/json")]),
    mutation("Accept events only", &[Header("Accept", "text/event-stream")]),
    mutation(
        "Accept events first",
        &[Header("Accept", "text/event-stream, application/json")],
    ),
    mutation("Accept anything", &[Header("Accept", "*/*")]),
    mutation("Accept ranges", &[Header("Accept", "application/*, text/*")]),
    mutation("Accept HTML", &[Header("Accept", "text/html")]),
    mutation("Accept nothing", &[Header("Accept", "")]),
    mutation(
        "Accept with weights",
        &[Header("Accept", "application/json;q=0.9, text/event-stream;q=0.1")],
    ),
    mutation(
        "Accept with a zero",
        &[Header("Accept", "application/json;q=0, text/event-stream")],
    ),
    mutation(
        "Accept in capitals",
        &[Header("Accept", "Application/JSON, Text/Event-Stream")],
    ),
    mutation(
        "Accept longer names",
        &[Header("Accept", "application/jsonx, text/event-streamx")],
    ),
    mutation(
        "Accept in two lines",
        &[
            Header("Accept", "application/json"),
            Also("Accept", "text/event-stream"),
        ],
    ),
    // Content-Type
    mutation("no Content-Type", &[Without("Content-Type")]),
    mutation(
        "Content-Type with a charset",
        &[Header("Content-Type", "application/json; charset=utf-8")],
    ),
    mutation(
        "Content-Type in capitals",
        &[Header("Content-Type", "Application/JSON")],
    ),
    mutation("Content-Type text", &[Header("Content-Type", "text/plain")]),
    mutation(
        "Content-Type of a longer name",
        &[Header("Content-Type", "application/jsonx")],
    ),
    mutation("Content-Type twice", &[Also("Content-Type", "text/plain")]),
    // MCP-Protocol-Version
    mutation("no version header", &[Without("MCP-Protocol-Version")]),
    mutation(
        "version header 1900-01-01",
        &[Header("MCP-Protocol-Version", "1900-01-01")],
    ),
    mutation(
        "version header 2099-01-01",
        &[Header("MCP-Protocol-Version", "2099-01-01")],
    ),
    mutation(
        "version header 2026-07-28",
        &[Header("MCP-Protocol-Version", "2026-07-28")],
    ),
    mutation(
        "version header 2025-11-25",
        &[Header("MCP-Protocol-Version", "2025-11-25")],
    ),
    mutation(
        "version header 2025-06-18",
        &[Header("MCP-Protocol-Version", "2025-06-18")],
    ),
    mutation(
        "version header 2024-11-05",
        &[Header("MCP-Protocol-Version", "2024-11-05")],
    ),
    mutation("version header empty", &[Header("MCP-Protocol-Version", "")]),
    mutation(
        "version header no text",
        &[Header("MCP-Protocol-Version", "2026-07-2\u{f8}")],
    ),
    mutation("version header twice", &[Do(|it| repeated(it, "MCP-Protocol-Version"))]),
    mutation(
        "version header twice, differing",
        &[Also("MCP-Protocol-Version", "1900-01-01")],
    ),
    // Mcp-Method
    mutation("no Mcp-Method", &[Without("Mcp-Method")]),
    mutation("another Mcp-Method", &[Header("Mcp-Method", "another")]),
    mutation("Mcp-Method in capitals", &[Do(|it| in_capitals(it, "Mcp-Method"))]),
    mutation("Mcp-Method padded", &[Do(|it| padded(it, "Mcp-Method"))]),
    mutation("Mcp-Method in base64", &[Do(|it| encoded(it, "Mcp-Method"))]),
    mutation("Mcp-Method empty", &[Header("Mcp-Method", "")]),
    mutation("Mcp-Method no text", &[Header("Mcp-Method", "\u{f8}")]),
    mutation("Mcp-Method twice", &[Do(|it| repeated(it, "Mcp-Method"))]),
    mutation("Mcp-Method twice, differing", &[Also("Mcp-Method", "another")]),
    // Mcp-Name
    mutation("no Mcp-Name", &[Without("Mcp-Name")]),
    mutation("another Mcp-Name", &[Header("Mcp-Name", "another")]),
    mutation("Mcp-Name in capitals", &[Do(|it| in_capitals(it, "Mcp-Name"))]),
    mutation("Mcp-Name padded", &[Do(|it| padded(it, "Mcp-Name"))]),
    mutation("Mcp-Name in base64", &[Do(|it| encoded(it, "Mcp-Name"))]),
    mutation(
        "Mcp-Name in base64, another",
        &[Header("Mcp-Name", "=?base64?YW5vdGhlcg==?=")],
    ),
    mutation("Mcp-Name in broken base64", &[Header("Mcp-Name", "=?base64?%%%?=")]),
    mutation(
        "Mcp-Name in unpadded base64",
        &[Do(|it| encoded_otherwise(it, "=", ""))],
    ),
    mutation(
        "Mcp-Name in BASE64",
        &[Do(|it| encoded_otherwise(it, "base64", "BASE64"))],
    ),
    mutation(
        "Mcp-Name in base64 of no UTF-8",
        &[Header("Mcp-Name", "=?base64?/w==?=")],
    ),
    mutation("Mcp-Name empty", &[Header("Mcp-Name", "")]),
    mutation("Mcp-Name no text", &[Header("Mcp-Name", "\u{f8}")]),
    mutation("Mcp-Name twice", &[Do(|it| repeated(it, "Mcp-Name"))]),
    mutation("Mcp-Name twice, differing", &[Also("Mcp-Name", "another")]),
    mutation("an unknown Mcp-Param", &[Also("Mcp-Param-Unknown", "x")]),
    // Sessions
    mutation("no session", &[Without("Mcp-Session-Id")]),
    mutation(
        "an unknown session",
        &[Header("Mcp-Session-Id", "00000000-0000-4000-8000-000000000000")],
    ),
    mutation("a session of no shape", &[Header("Mcp-Session-Id", "a b/c")]),
    mutation("an empty session", &[Header("Mcp-Session-Id", "")]),
    mutation("a session that is no text", &[Header("Mcp-Session-Id", "\u{f8}")]),
    mutation(
        "two sessions",
        &[Also("Mcp-Session-Id", "00000000-0000-4000-8000-000000000000")],
    ),
    mutation("the last event", &[Header("Last-Event-ID", "0")]),
    // Origin and Host
    mutation("an Origin elsewhere", &[Header("Origin", "http://evil.example")]),
    mutation("an Origin here", &[Header("Origin", "http://127.0.0.1:1")]),
    mutation("its own Origin", &[Header("Origin", ORIGIN)]),
    mutation("an Origin called localhost", &[Header("Origin", "http://localhost")]),
    mutation("an Origin null", &[Header("Origin", "null")]),
    mutation("an Origin of no shape", &[Header("Origin", "not an origin")]),
    mutation("an Origin empty", &[Header("Origin", "")]),
    mutation(
        "two Origins",
        &[
            Header("Origin", "http://127.0.0.1:1"),
            Also("Origin", "http://evil.example"),
        ],
    ),
    mutation("a Host elsewhere", &[Header("Host", "evil.example")]),
    mutation("a Host called localhost", &[Header("Host", "localhost")]),
    mutation("a Host of another port", &[Header("Host", "127.0.0.1:1")]),
    mutation("a Host of no shape", &[Header("Host", "a b")]),
    mutation("a Host empty", &[Header("Host", "")]),
    // HTTP
    mutation(
        "header names in small letters",
        &[Do(|it| names(it, str::to_ascii_lowercase))],
    ),
    mutation(
        "header names in capitals",
        &[Do(|it| names(it, str::to_ascii_uppercase))],
    ),
    mutation("in chunks", &[Do(in_chunks)]),
    mutation("expecting 100", &[Header("Expect", "100-continue")]),
    mutation("closing", &[Header("Connection", "close")]),
    mutation("with an unknown header", &[Header("X-Unknown", "x")]),
    mutation("by GET", &[Method("GET"), Body(b"")]),
    mutation("by DELETE", &[Method("DELETE"), Body(b"")]),
    mutation("by PUT", &[Method("PUT")]),
    mutation("by PATCH", &[Method("PATCH")]),
    mutation("by OPTIONS", &[Method("OPTIONS"), Body(b"")]),
    mutation("by HEAD", &[Method("HEAD"), Body(b"")]),
    mutation("by post", &[Method("post")]),
    // Bodies that are not a message
    mutation("no body", &[Body(b"")]),
    mutation("a body of words", &[Body(b"not JSON")]),
    mutation(
        "a body cut short",
        &[Do(|it| rewritten(it, |body| body.truncate(body.len() - 1)))],
    ),
    mutation("a body with a tail", &[Do(|it| rewritten(it, |body| body.push(b'x')))]),
    mutation(
        "two messages in a body",
        &[Do(|it| rewritten(it, |body| body.extend(body.clone())))],
    ),
    mutation(
        "two lines in a body",
        &[Do(|it| {
            rewritten(it, |body| {
                let again = body.clone();
                body.push(b'\n');
                body.extend(again);
            })
        })],
    ),
    mutation(
        "a body with space around",
        &[Do(|it| {
            rewritten(it, |body| {
                body.splice(..0, *b" \r\n\t");
                body.extend(b"\r\n ");
            })
        })],
    ),
    mutation(
        "a body with a byte order mark",
        &[Do(|it| {
            rewritten(it, |body| {
                body.splice(..0, *b"\xef\xbb\xbf");
            })
        })],
    ),
    mutation(
        "a body that is no UTF-8",
        &[Do(|it| with_member(it, b"\"x\":\"\xff\","))],
    ),
    mutation(
        "a body with a lone surrogate",
        &[Do(|it| with_member(it, b"\"x\":\"\\ud800\","))],
    ),
    mutation("a body with NaN", &[Do(|it| with_member(it, b"\"x\":NaN,"))]),
    mutation("a body with a comment", &[Do(|it| with_member(it, b"/* x */"))]),
    mutation(
        "a body with a comma too many",
        &[Do(|it| {
            rewritten(it, |body| {
                let end = body.len() - 1;
                body.insert(end, b',');
            })
        })],
    ),
    mutation(
        "a body with a raw line break in a string",
        &[Do(|it| with_member(it, b"\"x\":\"a\nb\","))],
    ),
    mutation(
        "a body with a huge number",
        &[Do(|it| with_member(it, b"\"x\":1e999,"))],
    ),
    mutation("a body 100 deep", &[Do(|it| deep(it, 100))]),
    mutation("a body 200 deep", &[Do(|it| deep(it, 200))]),
    mutation("a body 100,000 deep", &[Do(|it| deep(it, 100_000))]),
    mutation("a body of 3 MB", &[Do(is_call), Do(|it| large(it, 3_000_000))]),
    mutation("a body of 30 MB", &[Do(is_call), Do(|it| large(it, 30_000_000))]),
    mutation("jsonrpc twice", &[Do(|it| with_member(it, b"\"jsonrpc\":\"2.0\","))]),
    mutation(
        "method twice, differing",
        &[Do(|it| with_member(it, b"\"method\":\"ping\","))],
    ),
    mutation("id twice, differing", &[Do(|it| with_member(it, b"\"id\":8,"))]),
    mutation("an empty array", &[Body(b"[]")]),
    mutation("an array of it", &[Do(|it| wrapped(it, 1))]),
    mutation("an array of it twice", &[Do(|it| wrapped(it, 2))]),
    mutation("an array of numbers", &[Body(b"[1,2]")]),
    mutation("an empty object", &[Body(b"{}")]),
    mutation("a string", &[Body(b"\"x\"")]),
    mutation("a number", &[Body(b"5")]),
    mutation("null", &[Body(b"null")]),
    // JSON-RPC
    mutation("no jsonrpc", &[Unset("/jsonrpc")]),
    mutation("jsonrpc 1.0", &[Set("/jsonrpc", r#""1.0""#)]),
    mutation("jsonrpc a number", &[Set("/jsonrpc", "2.0")]),
    mutation("jsonrpc null", &[Set("/jsonrpc", "null")]),
    mutation("no id", &[Unset("/id")]),
    mutation("id null", &[Set("/id", "null")]),
    mutation("id a string", &[Set("/id", r#""abc""#)]),
    mutation("id an empty string", &[Set("/id", r#""""#)]),
    mutation("id zero", &[Set("/id", "0")]),
    mutation("id negative", &[Set("/id", "-1")]),
    mutation("id of 64 bits", &[Set("/id", "9223372036854775807")]),
    mutation("id of more than 64 bits", &[Set("/id", "18446744073709551615")]),
    mutation("id whole with a point", &[Set("/id", "7.0")]),
    mutation("id a fraction", &[Set("/id", "1.5")]),
    mutation("id a boolean", &[Set("/id", "true")]),
    mutation("id an object", &[Set("/id", "{}")]),
    mutation("id an array", &[Set("/id", "[1]")]),
    mutation("no method", &[Unset("/method")]),
    mutation("method null", &[Set("/method", "null")]),
    mutation("method a number", &[Set("/method", "5")]),
    mutation("method empty", &[Set("/method", r#""""#)]),
    mutation("no params", &[Unset("/params")]),
    mutation("params null", &[Set("/params", "null")]),
    mutation("params an array", &[Set("/params", "[]")]),
    mutation("params a string", &[Set("/params", r#""x""#)]),
    mutation("an unknown member", &[Set("/unknown", "1")]),
    mutation("a result as well", &[Set("/result", "{}")]),
    mutation("an error as well", &[Set("/error", r#"{"code": 1, "message": "x"}"#)]),
    // _meta
    mutation("no _meta", &[Unset("/params/_meta")]),
    mutation("_meta null", &[Set("/params/_meta", "null")]),
    mutation("_meta a string", &[Set("/params/_meta", r#""x""#)]),
    mutation("_meta an array", &[Set("/params/_meta", "[]")]),
    mutation("_meta empty", &[Set("/params/_meta", "{}")]),
    mutation("no version in _meta", &[Unset(VERSION)]),
    mutation("version null in _meta", &[Set(VERSION, "null")]),
    mutation("version a number in _meta", &[Set(VERSION, "20260728")]),
    mutation("version empty in _meta", &[Set(VERSION, r#""""#)]),
    mutation("version 1900-01-01 in _meta", &[Set(VERSION, r#""1900-01-01""#)]),
    mutation("version 2025-11-25 in _meta", &[Set(VERSION, r#""2025-11-25""#)]),
    mutation("version 2026-07-28 in _meta", &[Set(VERSION, r#""2026-07-28""#)]),
    mutation(
        "version 1900-01-01",
        &[
            Header("MCP-Protocol-Version", "1900-01-01"),
            Set(VERSION, r#""1900-01-01""#),
        ],
    ),
    mutation(
        "version 2099-01-01",
        &[
            Header("MCP-Protocol-Version", "2099-01-01"),
            Set(VERSION, r#""2099-01-01""#),
        ],
    ),
    mutation(
        "version 2025-11-25",
        &[
            Header("MCP-Protocol-Version", "2025-11-25"),
            Set(VERSION, r#""2025-11-25""#),
        ],
    ),
    mutation(
        "version empty",
        &[Header("MCP-Protocol-Version", ""), Set(VERSION, r#""""#)],
    ),
    mutation(
        "version 1900-01-01, no capabilities",
        &[
            Header("MCP-Protocol-Version", "1900-01-01"),
            Set(VERSION, r#""1900-01-01""#),
            Unset(CAPABILITIES),
        ],
    ),
    mutation("no capabilities", &[Unset(CAPABILITIES)]),
    mutation("capabilities null", &[Set(CAPABILITIES, "null")]),
    mutation("capabilities an array", &[Set(CAPABILITIES, "[]")]),
    mutation(
        "capabilities of wrong types",
        &[Set(CAPABILITIES, r#"{"sampling": 5}"#)],
    ),
    mutation(
        "capabilities unknown",
        &[Set(CAPABILITIES, r#"{"x": {}, "experimental": {"y": {}}}"#)],
    ),
    mutation(
        "tasks declared",
        &[Set(
            CAPABILITIES,
            r#"{"extensions": {"io.modelcontextprotocol/tasks": {}}}"#,
        )],
    ),
    mutation("no client info", &[Unset(INFO)]),
    mutation("client info null", &[Set(INFO, "null")]),
    mutation("client info a string", &[Set(INFO, r#""x""#)]),
    mutation("client info empty", &[Set(INFO, "{}")]),
    mutation("a log level", &[Set(LOG_LEVEL, r#""info""#)]),
    mutation("an unknown log level", &[Set(LOG_LEVEL, r#""loud""#)]),
    mutation("a progress token", &[Set("/params/_meta/progressToken", r#""t""#)]),
    mutation(
        "a progress token of no type",
        &[Set("/params/_meta/progressToken", "{}")],
    ),
    mutation("an unknown key in _meta", &[Set("/params/_meta/x", "1")]),
    // Params
    mutation("no name", &[Do(is_call), Unset("/params/name")]),
    mutation("name a number", &[Do(is_call), Set("/params/name", "5")]),
    mutation("name empty", &[Do(is_call), Set("/params/name", r#""""#)]),
    mutation("an unknown tool", &[Do(is_call), Do(|it| named(it, "unknown"))]),
    mutation(
        "an unknown tool beyond ASCII",
        &[Do(is_call), Do(|it| named(it, "w\u{f6}rld"))],
    ),
    mutation("no arguments", &[Unset("/params/arguments")]),
    mutation("arguments null", &[Do(is_call), Set("/params/arguments", "null")]),
    mutation("arguments an array", &[Do(is_call), Set("/params/arguments", "[]")]),
    mutation("arguments a string", &[Do(is_call), Set("/params/arguments", r#""x""#)]),
    mutation("a task asked for", &[Do(is_call), Set("/params/task", r#"{"ttl": 1}"#)]),
    mutation("input responses", &[Do(is_call), Set("/params/inputResponses", "{}")]),
    mutation("no taskId", &[Unset("/params/taskId")]),
    mutation("an unknown prompt", &[Do(is_prompt), Do(|it| named(it, "unknown"))]),
    mutation(
        "prompt arguments of wrong types",
        &[Do(is_prompt), Set("/params/arguments", r#"{"name": 5}"#)],
    ),
    mutation(
        "an unknown argument of a prompt",
        &[Do(is_prompt), Set("/params/arguments", r#"{"x": "y"}"#)],
    ),
    mutation("no ref", &[Unset("/params/ref")]),
    mutation("a ref of an unknown type", &[Set("/params/ref/type", r#""ref/tool""#)]),
    mutation(
        "an argument that is no object",
        &[Do(is_completion), Set("/params/argument", "5")],
    ),
    mutation("no level", &[Unset("/params/level")]),
    mutation(
        "an unknown level",
        &[Do(is_set_level), Set("/params/level", r#""loud""#)],
    ),
    mutation("an unknown param", &[Set("/params/unknown", "1")]),
    mutation("no uri", &[Unset("/params/uri")]),
    mutation("uri a number", &[Do(has_uri), Set("/params/uri", "5")]),
    mutation("an unknown uri", &[Do(has_uri), Do(|it| named(it, "broker://unknown"))]),
    mutation("a cursor", &[Do(is_list), Set("/params/cursor", r#""x""#)]),
    mutation("a cursor empty", &[Do(is_list), Set("/params/cursor", r#""""#)]),
    mutation("a cursor null", &[Do(is_list), Set("/params/cursor", "null")]),
    mutation("a cursor a number", &[Do(is_list), Set("/params/cursor", "5")]),
    mutation("no notifications", &[Unset("/params/notifications")]),
    mutation(
        "notifications an array",
        &[Do(is_listen), Set("/params/notifications", "[]")],
    ),
    mutation(
        "notifications empty",
        &[Do(is_listen), Set("/params/notifications", "{}")],
    ),
    mutation(
        "notifications of wrong types",
        &[Do(is_listen), Set("/params/notifications/toolsListChanged", "5")],
    ),
    mutation(
        "notifications of unknown things",
        &[
            Do(is_listen),
            Set(
                "/params/notifications",
                r#"{"x": true, "resourceSubscriptions": ["broker://unknown"]}"#,
            ),
        ],
    ),
    mutation("no protocolVersion", &[Unset("/params/protocolVersion")]),
    mutation(
        "protocolVersion a number",
        &[Do(is_initialize), Set("/params/protocolVersion", "5")],
    ),
    mutation(
        "protocolVersion null",
        &[Do(is_initialize), Set("/params/protocolVersion", "null")],
    ),
    mutation(
        "no client capabilities",
        &[Do(is_initialize), Unset("/params/capabilities")],
    ),
    mutation(
        "client capabilities an array",
        &[Do(is_initialize), Set("/params/capabilities", "[]")],
    ),
    mutation("no clientInfo", &[Do(is_initialize), Unset("/params/clientInfo")]),
    mutation(
        "clientInfo without a version",
        &[Do(is_initialize), Unset("/params/clientInfo/version")],
    ),
    mutation("with modern _meta", &[Do(is_initialize), Do(with_modern_meta)]),
    mutation(
        "in the words of 2026-07-28",
        &[
            Do(is_without_modern_meta),
            Do(with_modern_meta),
            Header("MCP-Protocol-Version", "2026-07-28"),
            Do(with_method_and_name),
        ],
    ),
];

impl Step {
    fn apply(&self, draft: &mut Draft) -> bool {
        match *self {
            Without(name) => draft.request.remove(name),
            Header(name, value) => {
                draft.request.set(name, bytes_of(value));
                true
            }
            Also(name, value) => {
                draft.request.add(name, bytes_of(value));
                true
            }
            Set(pointer, value) => {
                let value = serde_json::from_str(value).expect("the table has JSON");
                set(draft, pointer, value)
            }
            Unset(pointer) => unset(draft, pointer),
            Method(method) => {
                method.clone_into(&mut draft.request.method);
                true
            }
            Body(body) => {
                body.clone_into(&mut draft.request.body);
                true
            }
            Do(act) => act(draft),
        }
    }
}

/// Characters up to U+00FF become single bytes, which is not UTF-8.
fn bytes_of(value: &str) -> Vec<u8> {
    value
        .chars()
        .map(|it| u8::try_from(it).expect("the table has Latin-1"))
        .collect()
}

fn message(draft: &Draft) -> Option<Value> {
    serde_json::from_slice(&draft.request.body).ok()
}

/// Changes the message if it is an object.
fn change(draft: &mut Draft, act: impl FnOnce(&mut Value) -> Option<()>) -> bool {
    let Some(mut value @ Value::Object(_)) = message(draft) else {
        return false;
    };
    if act(&mut value).is_none() {
        return false;
    }
    draft.request.body = value.to_string().into_bytes();
    true
}

fn members<'a>(value: &'a mut Value, pointer: &str) -> Option<(&'a mut Map<String, Value>, String)> {
    let (parent, key) = pointer.rsplit_once('/')?;
    let members = value.pointer_mut(parent)?.as_object_mut()?;
    Some((members, key.replace("~1", "/")))
}

fn set(draft: &mut Draft, pointer: &str, to: Value) -> bool {
    change(draft, |value| {
        let (members, key) = members(value, pointer)?;
        members.insert(key, to);
        Some(())
    })
}

fn unset(draft: &mut Draft, pointer: &str) -> bool {
    change(draft, |value| {
        let (members, key) = members(value, pointer)?;
        members.remove(&key).map(drop)
    })
}

fn method(draft: &Draft) -> String {
    message(draft)
        .and_then(|message| Some(message.get("method")?.as_str()?.to_owned()))
        .unwrap_or_default()
}

fn is_call(draft: &mut Draft) -> bool {
    method(draft) == "tools/call"
}

fn is_prompt(draft: &mut Draft) -> bool {
    method(draft) == "prompts/get"
}

fn is_completion(draft: &mut Draft) -> bool {
    method(draft) == "completion/complete"
}

fn is_set_level(draft: &mut Draft) -> bool {
    method(draft) == "logging/setLevel"
}

fn is_list(draft: &mut Draft) -> bool {
    method(draft).ends_with("/list")
}

fn is_listen(draft: &mut Draft) -> bool {
    method(draft) == "subscriptions/listen"
}

fn is_initialize(draft: &mut Draft) -> bool {
    method(draft) == "initialize"
}

fn is_without_modern_meta(draft: &mut Draft) -> bool {
    message(draft).is_some_and(|message| message.pointer("/params/_meta").is_none())
}

fn has_uri(draft: &mut Draft) -> bool {
    message(draft).is_some_and(|message| message.pointer("/params/uri").is_some())
}

/// Sets another name or URI, in the body and in the header.
fn named(draft: &mut Draft, name: &str) -> bool {
    let pointer = if has_uri(draft) { "/params/uri" } else { "/params/name" };
    if !set(draft, pointer, name.into()) {
        return false;
    }
    if draft.request.header("Mcp-Name").is_some() {
        let value = if name.is_ascii() {
            name.to_owned()
        } else {
            format!("=?base64?{}?=", base64(name.as_bytes()))
        };
        draft.request.set("Mcp-Name", value);
    }
    true
}

fn with_modern_meta(draft: &mut Draft) -> bool {
    let meta = serde_json::json!({
        mcp_broker_oracle::mcp::PROTOCOL_VERSION: mcp_broker_oracle::mcp::MODERN,
        mcp_broker_oracle::mcp::CLIENT_CAPABILITIES: {},
    });
    set(draft, "/params/_meta", meta)
}

fn with_method_and_name(draft: &mut Draft) -> bool {
    let Some(message) = message(draft) else { return false };
    let method = method(draft);
    if method.is_empty() {
        return false;
    }
    draft.request.set("Mcp-Method", &method);
    let named = [
        "tools/call",
        "prompts/get",
        "resources/read",
        "tasks/get",
        "tasks/cancel",
    ]
    .contains(&method.as_str());
    let name = ["/params/name", "/params/uri", "/params/taskId"]
        .iter()
        .find_map(|it| message.pointer(it)?.as_str());
    if let (true, Some(name)) = (named, name) {
        draft.request.set("Mcp-Name", name);
    }
    true
}

fn rewritten(draft: &mut Draft, act: fn(&mut Vec<u8>)) -> bool {
    if draft.request.body.is_empty() {
        return false;
    }
    act(&mut draft.request.body);
    true
}

/// Inserts a text after the opening brace of the message.
fn with_member(draft: &mut Draft, text: &[u8]) -> bool {
    let body = &mut draft.request.body;
    if !body.starts_with(b"{\"") {
        return false;
    }
    body.splice(1..1, text.iter().copied());
    true
}

fn deep(draft: &mut Draft, levels: usize) -> bool {
    let text = format!("\"x\":{}{},", "[".repeat(levels), "]".repeat(levels));
    with_member(draft, text.as_bytes())
}

fn large(draft: &mut Draft, len: usize) -> bool {
    let text = format!("\"x\":\"{}\",", "x".repeat(len));
    with_member(draft, text.as_bytes())
}

fn wrapped(draft: &mut Draft, times: usize) -> bool {
    let body = String::from_utf8_lossy(&draft.request.body).into_owned();
    if !body.starts_with('{') {
        return false;
    }
    draft.request.body = format!("[{}]", vec![body; times].join(",")).into_bytes();
    true
}

fn in_chunks(draft: &mut Draft) -> bool {
    draft.request.add("Transfer-Encoding", "chunked");
    !draft.request.body.is_empty()
}

fn names(draft: &mut Draft, to: fn(&str) -> String) -> bool {
    for (name, _) in &mut draft.request.headers {
        *name = to(name);
    }
    true
}

fn header(draft: &Draft, name: &str) -> Option<Vec<u8>> {
    draft.request.header(name).map(<[u8]>::to_vec)
}

fn repeated(draft: &mut Draft, name: &str) -> bool {
    let Some(value) = header(draft, name) else { return false };
    draft.request.add(name, value);
    true
}

fn in_capitals(draft: &mut Draft, name: &str) -> bool {
    let Some(value) = header(draft, name) else { return false };
    draft.request.set(name, value.to_ascii_uppercase());
    true
}

fn padded(draft: &mut Draft, name: &str) -> bool {
    let Some(value) = header(draft, name) else { return false };
    draft.request.set(name, [b"  ", value.as_slice(), b" \t"].concat());
    true
}

fn encoded(draft: &mut Draft, name: &str) -> bool {
    let Some(value) = header(draft, name) else { return false };
    draft.request.set(name, format!("=?base64?{}?=", base64(&value)));
    true
}

fn encoded_otherwise(draft: &mut Draft, from: &str, to: &str) -> bool {
    let Some(value) = header(draft, "Mcp-Name") else {
        return false;
    };
    // Base64 of the inner text ends in padding for only two of three lengths.
    let text = match from {
        "=" => format!("=?base64?{}?=", base64(&value).replace(from, to)),
        _ => format!("=?base64?{}?=", base64(&value)).replace(from, to),
    };
    draft.request.set("Mcp-Name", text);
    true
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word = (0..3).fold(0, |word, at| {
            word << 8 | usize::from(three.get(at).copied().unwrap_or(0))
        });
        for at in 0..4 {
            let digit = char::from(DIGITS[word >> (18 - 6 * at) & 63]);
            let _ = write!(text, "{}", if at <= three.len() { digit } else { '=' });
        }
    }
    text
}

#[test]
fn base64_matches_the_specification() {
    assert_eq!(base64(b" padded "), "IHBhZGRlZCA=");
    assert_eq!(base64(b"line1\nline2"), "bGluZTEKbGluZTI=");
    assert_eq!(base64("Hello, \u{4e16}\u{754c}".as_bytes()), "SGVsbG8sIOS4lueVjA==");
}
