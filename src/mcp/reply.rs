//! Who is to be answered, and how an answer is written.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Arc, LazyLock},
};

use actors::{
    model::{BrokerError, ConnectionId},
    session::{Connection, Member},
};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    Outbox,
    logging::Level,
    pending_receive::PendingReceive,
    rpc::{self, RpcError, begin_result, write_json},
};

use crate::refusal::error_object;

/// The request an answer belongs to.
#[derive(Clone)]
pub struct ReplyTo {
    /// As it was written.
    pub id: Rc<str>,
    pub modern: bool,
    /// The caller declares the extension for tasks.
    pub takes_tasks: bool,
    /// The token by which the caller knows notifications of progress, as it was written.
    pub progress: Option<Rc<str>>,
    /// The least severe log messages that the caller wants to hear of.
    pub log_level: Option<Level>,
    pub route: ReplyRoute,
    /// The session that the call names, where that is not what its connection acts as.
    pub acts_as: Option<Arc<Member>>,
}

/// Where what belongs to a request goes.
#[derive(Clone, Default)]
pub enum ReplyRoute {
    /// To the connection, with everything else.
    #[default]
    Connection,
    /// To the answer to the HTTP request that brought it.
    Exchange(Arc<Outbox>),
    /// To the answer of the batch it was part of (2025-03-26).
    Batch(Rc<AnswerBatch>),
}

impl ReplyRoute {
    /// Where notifications of this lane go.
    pub fn outbox<'a>(&'a self, connection: &'a Outbox) -> &'a Outbox {
        match self {
            Self::Connection => connection,
            Self::Exchange(outbox) => outbox,
            Self::Batch(batch) => &batch.outbox,
        }
    }

    /// Sends the response to a request of this lane; `error` is the code in it, and `taking` what it brings.
    pub fn respond(&self, connection: &Outbox, frame: &[u8], error: Option<i32>, taking: Option<PendingReceive>) {
        match self {
            Self::Connection => connection.respond_with_receives(frame, error, taking),
            Self::Exchange(outbox) => outbox.respond_with_receives(frame, error, taking),
            Self::Batch(batch) => {
                batch.len.set(batch.len.get() + frame.len());
                batch.frames.borrow_mut().push(frame.to_vec());
                batch.receives.borrow_mut().extend(taking);
            }
        }
    }

    /// Refuses what may have been a request. Without the id that is known, one over HTTP has none, while on a
    /// connection it is null (JSON-RPC 2.0, section 5).
    pub fn refuse(&self, connection: &Outbox, id: Option<&str>, error: &RpcError) {
        let mut out = Vec::with_capacity(128);
        let id = match self {
            Self::Connection => id.or(Some("null")),
            Self::Exchange(_) | Self::Batch(_) => id,
        };
        rpc::write_error(&mut out, id, error);
        self.respond(connection, &out, Some(error.code), None);
    }

    /// There will be no answer to the one request that this lane is for.
    pub fn abandon(&self) {
        if let Self::Exchange(outbox) = self {
            outbox.abandon();
        }
    }

    /// Whether what belongs to this lane goes to that exchange.
    pub fn leads_to(&self, exchange: &Outbox) -> bool {
        self.exchange_id() == Some(exchange.id())
    }

    /// Where what belongs to this lane goes, unless that is the connection.
    pub fn exchange_id(&self) -> Option<ConnectionId> {
        match self {
            Self::Connection => None,
            Self::Exchange(outbox) => Some(outbox.id()),
            Self::Batch(batch) => Some(batch.outbox.id()),
        }
    }

    /// Whether the answers of its batch, if it is of one, leave room for another.
    ///
    /// # Errors
    /// When they do not: a batch is answered as one, so it has no cursor.
    pub fn check_room(&self) -> Result<(), RpcError> {
        match self {
            Self::Batch(batch) if batch.len.get() >= BATCH_BYTES_MAX => Err(RpcError::new(
                rpc::REFUSED,
                format!(
                    "the answers of this batch have {BATCH_BYTES_MAX} bytes and more: send this request in another"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Waits until no other page of its batch, if it is of one, is being made.
    pub async fn page_permit(&self) -> Option<OwnedSemaphorePermit> {
        match self {
            // It is never closed.
            Self::Batch(batch) => Arc::clone(&batch.page_permits).acquire_owned().await.ok(),
            Self::Connection | Self::Exchange(_) => None,
        }
    }

    pub fn is_batch(&self) -> bool {
        matches!(self, Self::Batch(_))
    }
}

/// The answers of a batch (2025-03-26), sent together when the last is there.
pub struct AnswerBatch {
    outbox: Arc<Outbox>,
    /// The outbox is for this batch alone.
    is_exchange: bool,
    frames: RefCell<Vec<Vec<u8>>>,
    /// Bytes of the frames.
    len: Cell<usize>,
    page_permits: Arc<Semaphore>,
    /// What they bring.
    receives: RefCell<Vec<PendingReceive>>,
}

/// Bytes of the answers of one batch past which no other of its requests is served.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

impl AnswerBatch {
    /// A batch that came by `lane`.
    pub fn new(connection: &Arc<Outbox>, lane: ReplyRoute) -> Rc<Self> {
        let (outbox, is_exchange) = match lane {
            ReplyRoute::Exchange(outbox) => (outbox, true),
            ReplyRoute::Connection | ReplyRoute::Batch(_) => (Arc::clone(connection), false),
        };
        Rc::new(Self {
            outbox,
            is_exchange,
            frames: RefCell::default(),
            len: Cell::new(0),
            page_permits: Arc::new(Semaphore::new(1)),
            receives: RefCell::default(),
        })
    }
}

impl Drop for AnswerBatch {
    fn drop(&mut self) {
        let frames = self.frames.take();
        if frames.is_empty() {
            if self.is_exchange {
                self.outbox.abandon();
            }
            return;
        }
        let mut array = vec![b'['];
        array.extend_from_slice(&frames.join(&b','));
        array.push(b']');
        self.outbox.respond_with_receives(&array, None, self.receives.take());
    }
}

impl ReplyTo {
    /// A request of the connection itself.
    pub fn new(id: &str, lane: ReplyRoute) -> Self {
        Self {
            id: id.into(),
            modern: false,
            takes_tasks: false,
            progress: None,
            log_level: None,
            route: lane,
            acts_as: None,
        }
    }

    /// Whether it is the same request, and not only one of the same id.
    pub fn is_same_request(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.id, &other.id)
    }

    /// Sends one response.
    pub fn send(&self, connection: &Outbox, frame: &[u8]) {
        self.route.respond(connection, frame, None, None);
    }

    /// Sends one response that may bring messages.
    pub fn send_with_receive(&self, connection: &Outbox, frame: &[u8], taking: Option<PendingReceive>) {
        self.route.respond(connection, frame, None, taking);
    }

    pub fn result(&self, connection: &Outbox, result: &Value) {
        let mut text = Vec::with_capacity(256);
        write_json(&mut text, result);
        self.raw_result(connection, &text);
    }

    /// Sends a response whose result is JSON text already.
    pub fn raw_result(&self, connection: &Outbox, result: &[u8]) {
        self.raw_result_with_receive(connection, result, None);
    }

    /// The same for one that may bring messages.
    pub fn raw_result_with_receive(&self, connection: &Outbox, result: &[u8], taking: Option<PendingReceive>) {
        let mut out = Vec::with_capacity(result.len() + 64);
        begin_result(&mut out, &self.id);
        out.extend_from_slice(result);
        out.push(b'}');
        self.send_with_receive(connection, &out, taking);
    }

    pub fn error(&self, connection: &Outbox, error: &RpcError) {
        self.route.refuse(connection, Some(&self.id), error);
    }

    /// Sends a notification that belongs to the request.
    pub fn notify(&self, connection: &Outbox, frame: &[u8]) {
        self.route.outbox(connection).send(frame);
    }

    /// Says how far the request has come, if its caller wants to know.
    pub fn notify_progress(&self, connection: &Outbox, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = &self.progress else { return };
        let total = total.map_or_else(String::new, |total| format!(",\"total\":{total}"));
        let message = message.map_or_else(String::new, |message| format!(",\"message\":{}", Value::from(message)));
        let frame = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\
             \"progress\":{progress}{total}{message}}}}}"
        );
        self.notify(connection, frame.as_bytes());
    }
}

/// The result of a tool as a JSON object in text form.
pub struct ToolResult(pub Vec<u8>);

impl From<Value> for ToolResult {
    fn from(value: Value) -> Self {
        let mut out = Vec::with_capacity(256);
        write_json(&mut out, &value);
        Self(out)
    }
}

/// How many messages wait for the session that a call acted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadCount {
    Of(usize),
    /// The caller has no session, so none wait for it.
    NoSession,
    /// The result is kept for later: by then it would not be true.
    Unknown,
}

/// Writes the response to a `tools/call`.
pub fn write_tool_result(out: &mut Vec<u8>, to: &ReplyTo, object: &[u8], is_error: bool, unread: UnreadCount) {
    begin_result(out, &to.id);
    write_call_result(out, to.modern, object, is_error, unread);
    out.push(b'}');
}

/// Writes the result of a `tools/call`: the object as `structuredContent` and as text. How many messages wait for the
/// caller is a member of both, because models see these two, and of `_meta`, which programs read.
pub fn write_call_result(out: &mut Vec<u8>, modern: bool, object: &[u8], is_error: bool, unread: UnreadCount) {
    let (object, last) = match (unread, object.strip_suffix(b"}")) {
        (UnreadCount::Of(unread), Some(open)) if !is_error => (open, Some((open != b"{", unread))),
        _ => (object, None),
    };
    let close = |out: &mut Vec<u8>, member: &[u8]| {
        if let Some((follows, unread)) = last {
            if follows {
                out.push(b',');
            }
            out.extend_from_slice(member);
            write_json(out, &unread);
            out.push(b'}');
        }
    };
    out.extend_from_slice(b"{\"content\":[{\"type\":\"text\",\"text\":\"");
    escape_into(out, object);
    close(out, b"\\\"unread\\\":");
    out.extend_from_slice(b"\"}],\"structuredContent\":");
    out.extend_from_slice(object);
    close(out, b"\"unread\":");
    out.extend_from_slice(if is_error {
        b",\"isError\":true"
    } else {
        b",\"isError\":false"
    });
    out.extend_from_slice(b",\"_meta\":{");
    let known = match unread {
        UnreadCount::Of(unread) => Some(unread),
        UnreadCount::NoSession => Some(0),
        UnreadCount::Unknown => None,
    };
    if let Some(unread) = known {
        out.extend_from_slice(b"\"dev.mcp-broker/unread\":");
        write_json(out, &unread);
    }
    if modern {
        if known.is_some() {
            out.push(b',');
        }
        out.extend_from_slice(b"\"io.modelcontextprotocol/serverInfo\":");
        out.extend_from_slice(server_info_text().as_bytes());
        out.extend_from_slice(b"},\"resultType\":\"complete\"}");
    } else {
        out.extend_from_slice(b"}}");
    }
}

/// Every modern result says what it is and who it is from.
pub fn with_era_members(mut result: Value, modern: bool) -> Value {
    if modern && let Some(result) = result.as_object_mut() {
        result.insert("resultType".to_owned(), json!("complete"));
        let meta = result.entry("_meta").or_insert_with(|| json!({}));
        meta["io.modelcontextprotocol/serverInfo"] = server_info();
    }
    result
}

/// JSON text inside a JSON string. JSON text has no raw control characters but those of its white space, so what
/// needs an escape is a quote or a backslash, or, rarely, white space.
fn escape_into(out: &mut Vec<u8>, json: &[u8]) {
    out.reserve(json.len() + json.len() / 4);
    let mut rest = json;
    while let Some(at) = rest.iter().position(|&byte| ESCAPED[usize::from(byte)] != 0) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        out.extend_from_slice(&[b'\\', ESCAPED[usize::from(special[0])]]);
        rest = &special[1..];
    }
    out.extend_from_slice(rest);
}

/// What follows the backslash in the escape of a byte; 0 for a byte that needs none.
static ESCAPED: [u8; 256] = {
    let mut table = [0; 256];
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table[b'\n' as usize] = b'n';
    table[b'\r' as usize] = b'r';
    table[b'\t' as usize] = b't';
    table
};

/// `Implementation` of this server, in all revisions.
pub fn server_info() -> Value {
    json!({"name": "mcp-broker", "title": "MCP Broker", "version": env!("CARGO_PKG_VERSION")})
}

/// The same as text.
pub fn server_info_text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| server_info().to_string());
    &TEXT
}

impl RpcError {
    /// What is no tool refuses with the same error object.
    pub fn refused(error: &BrokerError) -> Self {
        Self::new(rpc::REFUSED, error.to_string()).with_data(error_object(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_tool_result_is_the_object_again() {
        let object = json!({"a\"b": "c\\d\n", "é": ["\u{1}", {"x": null}]});
        let mut out = Vec::new();
        for text in [
            serde_json::to_vec(&object).unwrap(),
            serde_json::to_vec_pretty(&object).unwrap(),
        ] {
            for modern in [false, true] {
                out.clear();
                let to = ReplyTo {
                    modern,
                    ..ReplyTo::new("\"é\"", ReplyRoute::Connection)
                };
                write_tool_result(&mut out, &to, &text, false, UnreadCount::Of(3));
                let read: Value = serde_json::from_slice(&out).unwrap();
                assert_eq!(read["id"], "é");
                let result = &read["result"];
                let mut object = object.clone();
                object["unread"] = json!(3);
                assert_eq!(result["structuredContent"], object);
                let inner: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
                assert_eq!(inner, object);
                assert_eq!(result["_meta"]["dev.mcp-broker/unread"], 3);
                assert_eq!(result["resultType"] == "complete", modern);
            }
        }
    }

    #[test]
    fn an_object_says_how_many_wait_only_where_that_is_true() {
        let written = |object: &str, is_error: bool, unread| {
            let mut out = Vec::new();
            write_call_result(&mut out, false, object.as_bytes(), is_error, unread);
            let result: Value = serde_json::from_slice(&out).unwrap();
            let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!(text, result["structuredContent"]);
            (text, result["_meta"].clone())
        };
        let meta = |unread: usize| json!({"dev.mcp-broker/unread": unread});
        assert_eq!(
            written("{}", false, UnreadCount::Of(2)),
            (json!({"unread": 2}), meta(2))
        );
        assert_eq!(
            written(r#"{"a":1}"#, false, UnreadCount::Of(0)),
            (json!({"a": 1, "unread": 0}), meta(0))
        );
        assert_eq!(
            written(r#"{"code":"x"}"#, true, UnreadCount::Of(2)),
            (json!({"code": "x"}), meta(2))
        );
        assert_eq!(written("{}", false, UnreadCount::NoSession), (json!({}), meta(0)));
        assert_eq!(written("{}", false, UnreadCount::Unknown), (json!({}), json!({})));
    }
}
