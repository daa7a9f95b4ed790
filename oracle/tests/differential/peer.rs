//! Sends a request to a server and summarizes the answer in one line.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

use serde_json::{Value, json};
use test_client::{
    http::{self, Head, Request},
    mcp,
    wait::WAIT_TIMEOUT,
};

use crate::requests::{Draft, ORIGIN, SESSION};

/// One of the two servers.
pub struct Peer {
    pub name: &'static str,
    pub address: SocketAddr,
}

impl Peer {
    /// The summary of the answer. Two servers that behave the same have the same summary.
    pub fn answer(&self, draft: &Draft) -> String {
        let mut request = draft.request.clone();
        fill(&mut request, ORIGIN, &format!("http://{}", self.address));
        let Some(version) = draft.session else {
            return self.exchange(&request).to_string();
        };
        let session = self.open_session(version);
        fill(&mut request, SESSION, &session);
        let answer = self.exchange(&request).to_string();
        let mut end = mcp::legacy(version, &session, &json!({}));
        "DELETE".clone_into(&mut end.method);
        end.body.clear();
        self.exchange(&end);
        answer
    }

    fn open_session(&self, version: &str) -> String {
        let opened = self.exchange(&mcp::initialize(&json!("open"), version));
        let session = opened
            .session
            .clone()
            .unwrap_or_else(|| panic!("{} opened no session: {opened:?}", self.name));
        let initialized = mcp::notification("notifications/initialized", &json!({}));
        let accepted = self.exchange(&mcp::legacy(version, &session, &initialized));
        assert_eq!(accepted.status, 202, "{}: {accepted:?}", self.name);
        session
    }

    pub fn exchange(&self, request: &Request) -> Answer {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        // A server may refuse a request after its head and close before it has read the body.
        let _ = socket.write_all(&request.encode(self.address));
        let mut bytes = Vec::new();
        let mut chunk = [0; 16_384];
        loop {
            if let Some(answer) = Answer::read(request, &mut bytes, false) {
                return answer;
            }
            match socket.read(&mut chunk) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Answer::none("silence");
                }
                Ok(0) | Err(_) => {
                    let answer = Answer::read(request, &mut bytes, true);
                    return answer.unwrap_or_else(|| Answer::none("closed"));
                }
                Ok(len) => bytes.extend_from_slice(&chunk[..len]),
            }
        }
    }
}

/// Replaces a placeholder in the headers by a value.
fn fill(request: &mut Request, stands_for_it: &str, value: &str) {
    for (_, given) in &mut request.headers {
        if given == stands_for_it.as_bytes() {
            value.as_bytes().clone_into(given);
        }
    }
}

/// The parts of an answer that are compared.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    said: String,
    allow: Option<String>,
    session: Option<String>,
}

impl Answer {
    fn none(said: &str) -> Self {
        Self {
            status: 0,
            said: said.to_owned(),
            allow: None,
            session: None,
        }
    }

    /// Parses an answer; None while it is incomplete.
    fn read(request: &Request, bytes: &mut Vec<u8>, ended: bool) -> Option<Self> {
        while let Some(head) = Head::parse(bytes)
            && head.status / 100 == 1
        {
            let len = head.len;
            bytes.drain(..len);
        }
        let head = Head::parse(bytes)?;
        let (body, whole) = http::body(head, bytes);
        let bodiless = request.method == "HEAD" || head.status == 204;
        let whole = whole || ended || bodiless;
        let kind = head.header("content-type").unwrap_or_default();
        let mut said = if kind.starts_with("text/event-stream") {
            stream_summary(request, &body, whole)?
        } else if !whole {
            return None;
        } else {
            let is_json = kind.starts_with("application/json") && !body.is_empty();
            let message = is_json.then(|| serde_json::from_slice(&body));
            message.map_or_else(
                || "-".to_owned(),
                |message| message_summary(request, &message.unwrap_or(Value::Null)),
            )
        };
        if head.status == 200 && !kind.is_empty() && !accepts(request, kind) {
            said.push_str(", in a form that was not asked for");
        }
        Some(Self {
            status: head.status,
            said,
            allow: (head.status == 405).then(|| methods(head.header("allow").unwrap_or("none"))),
            session: head.header("mcp-session-id").map(str::to_owned),
        })
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.status == 0 {
            return f.write_str(&self.said);
        }
        write!(f, "{} {}", self.status, self.said)?;
        if let Some(allow) = &self.allow {
            write!(f, ", allow {allow}")?;
        }
        if self.session.is_some() {
            f.write_str(", a session")?;
        }
        Ok(())
    }
}

/// Whether a request accepts an answer of this type.
fn accepts(request: &Request, kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let group = kind.split_once('/').map_or(kind, |(group, _)| group);
    let lists: Vec<_> = request
        .headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("accept"))
        .map(|(_, value)| String::from_utf8_lossy(value).to_ascii_lowercase())
        .collect();
    let list = lists.join(",");
    lists.is_empty()
        || list.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let is_named = name == kind || name == "*/*" || name.strip_suffix("/*") == Some(group);
            is_named && parts.all(|parameter| !["q=0", "q=0.0"].contains(&parameter))
        })
}

fn methods(allow: &str) -> String {
    let mut methods: Vec<_> = allow.split(',').map(str::trim).collect();
    methods.sort_unstable();
    methods.join(" ")
}

/// The summary of a stream: its first message if the request asked for a stream, else the answer on it.
fn stream_summary(request: &Request, body: &[u8], whole: bool) -> Option<String> {
    if request.method == "GET" {
        return Some("stream".to_owned());
    }
    let mut events = Vec::new();
    http::take_events(&mut body.to_vec(), |event| events.push(event.data));
    for data in events.iter().filter(|data| !data.is_empty()) {
        let message: Value = serde_json::from_str(data).unwrap_or(Value::Null);
        match message["method"].as_str() {
            Some(method @ "notifications/subscriptions/acknowledged") => return Some(format!("stream of {method}")),
            Some(_) => {}
            None => return Some(message_summary(request, &message)),
        }
    }
    whole.then(|| "stream of nothing".to_owned())
}

/// The summary of a JSON-RPC message. JSON and stream count as the same, because the server may choose.
fn message_summary(request: &Request, message: &Value) -> String {
    if let Some(batch) = message.as_array() {
        let all: Vec<_> = batch.iter().map(|it| message_summary(request, it)).collect();
        return format!("[{}]", all.join("; "));
    }
    let mut text = if let Some(error) = message.get("error") {
        let data = error.get("data").map(keys).unwrap_or_default();
        format!("error {}{data}", error["code"])
    } else if let Some(result) = message.get("result") {
        outcome(result)
    } else {
        return "JSON that is no response".to_owned();
    };
    text.push_str(id_seen(request, message));
    text
}

/// The summary of the id of an answer.
fn id_seen(request: &Request, message: &Value) -> &'static str {
    let body = request.body.trim_ascii_start();
    let asked = serde_json::from_slice::<Value>(body);
    match (message.get("id"), asked) {
        // A batch has several ids.
        _ if body.starts_with(b"[") => "",
        (Some(Value::Null), _) => ", id null",
        // Another parser might accept the body as JSON.
        (_, Err(_)) => "",
        (Some(given), Ok(asked)) if asked.get("id") == Some(given) => "",
        (Some(_), Ok(_)) => ", another id",
        (None, Ok(asked)) => {
            let is_request = asked.get("method").is_some_and(Value::is_string);
            match asked.get("id") {
                Some(id) if is_request && (id.is_string() || id.is_i64() || id.is_u64()) => ", no id",
                _ => "",
            }
        }
    }
}

fn outcome(result: &Value) -> String {
    let mut result = result.clone();
    // A legacy client gets cache hints in a list that its revision does not define.
    if let Some(members) = result.as_object_mut()
        && !members.contains_key("resultType")
    {
        members.remove("ttlMs");
        members.remove("cacheScope");
    }
    let mut text = format!("result{}", keys(&result));
    for (key, value) in [
        ("isError", &json!(true)),
        ("resultType", &json!("input_required")),
        ("resultType", &json!("task")),
    ] {
        if result.get(key) == Some(value) {
            let _ = write!(text, " {key}={value}");
        }
    }
    if let Some(version) = result.get("protocolVersion") {
        let _ = write!(text, " {version}");
    }
    text
}

/// The members that a server must give. `_meta`, instructions and the next cursor are optional.
fn keys(value: &Value) -> String {
    let Value::Object(members) = value else {
        return String::new();
    };
    let members: BTreeMap<_, _> = members
        .iter()
        .filter(|(key, _)| !["_meta", "instructions", "nextCursor"].contains(&key.as_str()))
        .collect();
    let names: Vec<_> = members.keys().map(|key| key.as_str()).collect();
    format!(" {{{}}}", names.join(" "))
}
