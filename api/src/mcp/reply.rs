//! Where the answer to a request goes, and how it is written.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, LazyLock, OnceLock},
};

use actors::{
    model::{BrokerError, ConnectionId},
    project::RequestTrace,
    session::{Connection, Member, UNRESERVED_BYTES_MAX},
};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    call_trace::CallTrace,
    client_input::ClientInput,
    logging::Level,
    outbox::Outbox,
    pending_receive::{HandedOver, PendingNotices},
    rpc::{self, RpcError},
};

use crate::budget::Reservation;
use common::{
    json::{
        frame::{self, JsonText},
        write_json,
    },
    refusal::error_object,
};

/// The request that an answer belongs to.
#[derive(Clone)]
pub struct ReplyTo {
    /// The id as JSON, verbatim.
    pub id: Rc<str>,
    /// The request is modern (2026-07-28).
    pub modern: bool,
    /// The caller declared the extension for tasks.
    pub takes_tasks: bool,
    /// The token for progress notifications as JSON, verbatim.
    pub progress: Option<Rc<str>>,
    /// The lowest severity of log messages that the caller asked for.
    pub log_level: Option<Level>,
    /// Where its answer and notifications go.
    pub route: ReplyRoute,
    /// The session that the call names by id, if that is not the session of its connection.
    pub acts_as: Option<Arc<Member>>,
    /// What its client may be asked, and has answered. Only for calls that ask people.
    pub input: Option<Rc<ClientInput>>,
    /// The trace that the request belongs to. Its span ends with the last copy of this.
    pub trace: Option<Rc<CallTrace>>,
}

/// Where the answer and the notifications of a request go.
#[derive(Clone, Default)]
pub enum ReplyRoute {
    /// To the connection, with everything else.
    #[default]
    Connection,
    /// To the answer of the HTTP request that carried it.
    Exchange(Arc<Outbox>),
    /// To the answer of its JSON-RPC batch (2025-03-26).
    Batch(Rc<AnswerBatch>),
}

impl ReplyRoute {
    /// The outbox for notifications of this route.
    pub fn outbox<'a>(&'a self, connection: &'a Outbox) -> &'a Outbox {
        match self {
            Self::Connection => connection,
            Self::Exchange(outbox) => outbox,
            Self::Batch(batch) => &batch.outbox,
        }
    }

    /// Sends the response to a request; `error` is its JSON-RPC error code, `receive` the receive that it completes.
    pub fn respond(&self, connection: &Outbox, frame: impl JsonText, error: Option<i32>, receive: Option<HandedOver>) {
        match self {
            Self::Connection => connection.respond(frame, error, receive),
            Self::Exchange(outbox) => outbox.respond(frame, error, receive),
            Self::Batch(batch) => batch.add(frame, receive),
        }
    }

    /// Sends an error for a frame that may be a request. If its id is unknown, the response over HTTP omits the id, and
    /// on a connection it is null (JSON-RPC 2.0, section 5).
    pub fn refuse(&self, connection: &Outbox, id: Option<&str>, error: &RpcError) {
        let id = match self {
            Self::Connection => id.or(Some("null")),
            Self::Exchange(_) | Self::Batch(_) => id,
        };
        self.respond(connection, rpc::error_response(id, error), Some(error.code), None);
    }

    /// Discards the answer to the request of this route.
    pub fn abandon(&self) {
        if let Self::Exchange(outbox) = self {
            outbox.abandon();
        }
    }

    /// Whether this route leads to that exchange.
    pub fn leads_to(&self, exchange: &Outbox) -> bool {
        self.exchange_id() == Some(exchange.id())
    }

    /// The exchange that this route leads to; `None` for the connection.
    pub fn exchange_id(&self) -> Option<ConnectionId> {
        match self {
            Self::Connection => None,
            Self::Exchange(outbox) => Some(outbox.id()),
            Self::Batch(batch) => Some(batch.outbox.id()),
        }
    }

    /// Whether the answers of the batch leave room for another.
    ///
    /// # Errors
    /// `REFUSED` if not: a batch is answered as a whole, so it has no cursor.
    pub fn check_room(&self) -> Result<(), RpcError> {
        match self {
            Self::Batch(batch) if batch.answers.borrow().len() >= BATCH_BYTES_MAX => Err(RpcError::new(
                rpc::REFUSED,
                format!(
                    "the answers of this batch have {BATCH_BYTES_MAX} bytes and more: send this request in another"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Waits until no other request of the same batch writes a page. `None` outside a batch.
    pub async fn page_permit(&self) -> Option<OwnedSemaphorePermit> {
        match self {
            // The semaphore is never closed.
            Self::Batch(batch) => Arc::clone(&batch.page_permits).acquire_owned().await.ok(),
            Self::Connection | Self::Exchange(_) => None,
        }
    }

    /// Whether the request is part of a JSON-RPC batch.
    pub fn is_batch(&self) -> bool {
        matches!(self, Self::Batch(_))
    }
}

/// The answers of a JSON-RPC batch (2025-03-26). They are sent as one array when the last reference is dropped.
pub struct AnswerBatch {
    outbox: Arc<Outbox>,
    /// The outbox serves this batch only.
    is_exchange: bool,
    /// The array so far: each answer follows `[` or `,`.
    answers: RefCell<Vec<u8>>,
    /// Counts its bytes until the outbox does.
    held: RefCell<Reservation>,
    page_permits: Arc<Semaphore>,
    /// The receives that the answer completes.
    receives: RefCell<Vec<HandedOver>>,
}

/// Once the answers of a batch have this many bytes, its other requests are refused.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

impl AnswerBatch {
    /// A batch that came by `route`. `held` is empty.
    pub fn new(connection: &Arc<Outbox>, route: ReplyRoute, held: Reservation) -> Rc<Self> {
        let (outbox, is_exchange) = match route {
            ReplyRoute::Exchange(outbox) => (outbox, true),
            ReplyRoute::Connection | ReplyRoute::Batch(_) => (Arc::clone(connection), false),
        };
        Rc::new(Self {
            outbox,
            is_exchange,
            answers: RefCell::default(),
            held: RefCell::new(held),
            page_permits: Arc::new(Semaphore::new(1)),
            receives: RefCell::default(),
        })
    }

    fn add(&self, frame: impl JsonText, receive: Option<HandedOver>) {
        let mut answers = self.answers.borrow_mut();
        let separator = if answers.is_empty() { b'[' } else { b',' };
        answers.push(separator);
        frame.write_to(&mut answers);
        if answers.len() > UNRESERVED_BYTES_MAX {
            self.held.borrow_mut().set_bytes(answers.len());
        }
        self.receives.borrow_mut().extend(receive);
    }
}

impl Drop for AnswerBatch {
    fn drop(&mut self) {
        let mut array = self.answers.take();
        if array.is_empty() {
            if self.is_exchange {
                self.outbox.abandon();
            }
            return;
        }
        array.push(b']');
        self.outbox.respond(&*array, None, self.receives.take());
    }
}

impl ReplyTo {
    /// The request with this id.
    pub fn new(id: &str, route: ReplyRoute) -> Self {
        Self {
            id: id.into(),
            modern: false,
            takes_tasks: false,
            progress: None,
            log_level: None,
            route,
            acts_as: None,
            input: None,
            trace: None,
        }
    }

    /// A copy of the request that is another key among the running calls. The text of its id stays the same.
    #[must_use]
    pub fn with_new_id(&self) -> Self {
        Self {
            id: Rc::from(&*self.id),
            ..self.clone()
        }
    }

    /// The trace that a message of this request carries on.
    pub fn message_trace(&self) -> Option<RequestTrace<'_>> {
        self.trace.as_ref().map(|trace| trace.for_message())
    }

    /// Notes in the trace that the request fails with the error of this code.
    pub fn trace_failure(&self, code: &'static str) {
        if let Some(trace) = &self.trace {
            trace.fail(code);
        }
    }

    /// Sends a response with this result.
    pub fn result(&self, connection: &Outbox, result: impl JsonText) {
        self.result_with_receive(connection, result, None);
    }

    /// As [`Self::result`]; the response completes a receive if `receive` is given.
    pub fn result_with_receive(&self, connection: &Outbox, result: impl JsonText, receive: Option<HandedOver>) {
        let response = frame::result(&*self.id, result);
        self.route.respond(connection, response, None, receive);
    }

    /// Sends an error response with this error object, as JSON text.
    pub fn raw_error(&self, connection: &Outbox, error: &[u8]) {
        /// The call was served: over HTTP its response is 200 for every code of the backend.
        const SERVED: i32 = 0;
        let response = frame::error(&*self.id, error);
        self.route.respond(connection, response, Some(SERVED), None);
    }

    /// Sends an error response.
    pub fn error(&self, connection: &Outbox, error: &RpcError) {
        self.route.refuse(connection, Some(&self.id), error);
    }

    /// Sends a notification that belongs to the request.
    pub fn notify(&self, connection: &Outbox, frame: impl JsonText) {
        self.route.outbox(connection).send(frame);
    }

    /// Sends a log message about the request, if the caller asked for this severity.
    pub fn log(&self, connection: &Outbox, level: Level, logger: &str, data: &Value) {
        if self.log_level.is_none_or(|wanted| level < wanted) {
            return;
        }
        let params = json!({"level": level.as_str(), "logger": logger, "data": data});
        self.notify(connection, frame::notification("notifications/message", params));
    }

    /// Sends a progress notification if the caller gave a token.
    pub fn notify_progress(&self, connection: &Outbox, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = &self.progress else { return };
        let total = total.map_or_else(String::new, |total| format!(",\"total\":{total}"));
        let message = message.map_or_else(String::new, |message| format!(",\"message\":{}", Value::from(message)));
        let params = format_args!("{{\"progressToken\":{token},\"progress\":{progress}{total}{message}}}");
        self.notify(connection, frame::notification("notifications/progress", params));
    }
}

/// The result of a tool, as JSON text.
pub struct ToolResult {
    /// The JSON text of an object.
    pub text: Vec<u8>,
    /// What the object is.
    pub form: ResultForm,
    /// The messages that the answer hands over.
    pub notices: Option<PendingNotices>,
}

/// What the object of a [`ToolResult`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultForm {
    /// The result of the tool, to which the number of waiting messages is added.
    Object,
    /// The result of the tool, whose client reads exactly this text and takes nothing else.
    ExactText,
    /// The result of the request: a task, or a request for input.
    Whole,
}

impl ToolResult {
    /// A result of this form, which hands over no messages.
    pub fn of_form(text: Vec<u8>, form: ResultForm) -> Self {
        Self {
            text,
            form,
            notices: None,
        }
    }
}

impl From<Vec<u8>> for ToolResult {
    fn from(text: Vec<u8>) -> Self {
        Self::of_form(text, ResultForm::Object)
    }
}

impl From<Value> for ToolResult {
    fn from(value: Value) -> Self {
        let mut out = Vec::with_capacity(256);
        write_json(&mut out, &value);
        out.into()
    }
}

/// The number of messages that wait for the session of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadCount {
    /// Messages that wait for the session.
    Of(usize),
    /// The caller has no session, so no messages wait.
    NoSession,
    /// The result is stored for later, when the number would be outdated.
    Unknown,
    /// As [`Self::Of`], for a client that reads the text alone: the object stays as it is, and is no
    /// `structuredContent`.
    BesideText(usize),
}

/// The result of a `tools/call`: the object as `structuredContent` and as text. The number of waiting messages is a member
/// of both, for models, and of `_meta`, for programs.
#[derive(Clone, Copy, Debug)]
pub struct CallResult<'a> {
    /// The request is modern.
    pub modern: bool,
    /// The JSON text of an object.
    pub object: &'a [u8],
    /// The object is an error.
    pub is_error: bool,
    /// The number of waiting messages.
    pub unread: UnreadCount,
}

impl JsonText for CallResult<'_> {
    fn write_to(self, out: &mut Vec<u8>) {
        write_call_result(out, self);
    }

    fn len_hint(&self) -> usize {
        self.object.len() * 2 + 256
    }
}

fn write_call_result(out: &mut Vec<u8>, result: CallResult<'_>) {
    let CallResult {
        modern,
        object,
        is_error,
        unread,
    } = result;
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
    out.extend_from_slice(b"\"}]");
    if !matches!(unread, UnreadCount::BesideText(_)) {
        out.extend_from_slice(b",\"structuredContent\":");
        out.extend_from_slice(object);
        close(out, b"\"unread\":");
    }
    out.extend_from_slice(if is_error {
        b",\"isError\":true"
    } else {
        b",\"isError\":false"
    });
    out.extend_from_slice(b",\"_meta\":{");
    let known = match unread {
        UnreadCount::Of(unread) | UnreadCount::BesideText(unread) => Some(unread),
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

/// Adds the members that every modern result has: its type and the server.
pub fn with_era_members(mut result: Value, modern: bool) -> Value {
    if modern && let Some(result) = result.as_object_mut() {
        result.insert("resultType".to_owned(), json!("complete"));
        let meta = result.entry("_meta").or_insert_with(|| json!({}));
        meta["io.modelcontextprotocol/serverInfo"] = server_info();
    }
    result
}

/// Escapes JSON text for a JSON string. Such text has no control characters except white space, so only quotes,
/// backslashes and line breaks need an escape.
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

/// The character after the backslash in the escape of a byte; 0 for a byte without an escape.
static ESCAPED: [u8; 256] = {
    let mut table = [0; 256];
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table[b'\n' as usize] = b'n';
    table[b'\r' as usize] = b'r';
    table[b'\t' as usize] = b't';
    table
};

/// The name of this server, if it is another one than that of the program.
static SERVER_NAME: OnceLock<String> = OnceLock::new();

/// Gives this server another name. Called before it answers a client; a second call has no effect.
pub fn set_server_name(name: String) {
    let _ = SERVER_NAME.set(name);
}

/// The `Implementation` object of this server, in all revisions.
pub fn server_info() -> Value {
    let version = env!("CARGO_PKG_VERSION");
    match SERVER_NAME.get() {
        Some(name) => json!({"name": name, "version": version}),
        None => json!({"name": "mcp-broker", "title": "MCP Broker", "version": version}),
    }
}

/// [`server_info`] as text.
pub fn server_info_text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| server_info().to_string());
    &TEXT
}

impl RpcError {
    /// The error of a request that is no tool call; `data` is the error object of the tools.
    pub fn refused(error: &BrokerError) -> Self {
        Self::new(rpc::REFUSED, error.to_string()).with_data(error_object(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_tool_result_is_its_object() {
        let object = json!({"a\"b": "c\\d\n", "é": ["\u{1}", {"x": null}]});
        for text in [
            serde_json::to_vec(&object).unwrap(),
            serde_json::to_vec_pretty(&object).unwrap(),
        ] {
            for modern in [false, true] {
                let result = CallResult {
                    modern,
                    object: &text,
                    is_error: false,
                    unread: UnreadCount::Of(3),
                };
                let response = frame::result("\"é\"", result).into_bytes();
                let read: Value = serde_json::from_slice(&response).unwrap();
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
    fn an_object_has_the_number_of_waiting_messages_only_if_it_is_known() {
        let result_of = |object: &str, is_error, unread| -> Value {
            let result = CallResult {
                modern: false,
                object: object.as_bytes(),
                is_error,
                unread,
            };
            serde_json::from_slice(&result.into_bytes()).unwrap()
        };
        let written = |object: &str, is_error: bool, unread| {
            let result = result_of(object, is_error, unread);
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
        let result = result_of(r#"{"a":1}"#, false, UnreadCount::BesideText(2));
        let content = json!([{"type": "text", "text": r#"{"a":1}"#}]);
        assert_eq!(result, json!({"content": content, "isError": false, "_meta": meta(2)}));
        assert_eq!(written("{}", false, UnreadCount::Unknown), (json!({}), json!({})));
    }
}
