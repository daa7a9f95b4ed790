//! The mutations of a request. Each one makes one fault, or uses one liberty of the specification.

mod bodies;
mod headers;

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::requests::Draft;

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

/// Every mutation.
pub fn all() -> Vec<&'static Mutation> {
    headers::MUTATIONS.iter().chain(bodies::MUTATIONS).collect()
}

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
        test_client::mcp::PROTOCOL_VERSION: test_client::mcp::MODERN,
        test_client::mcp::CLIENT_CAPABILITIES: {},
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
    let mut headers = draft.request.headers.iter();
    let (_, value) = headers.find(|(it, _)| it.eq_ignore_ascii_case(name))?;
    Some(value.clone())
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
