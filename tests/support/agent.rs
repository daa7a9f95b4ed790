//! An MCP client over WebSocket, and the assertions about what it receives.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use jsonschema::Validator;
use serde_json::{Value, json};
use test_client::mcp;

use super::{Wire, eventually, keys};

const UNREAD: &str = "dev.mcp-broker/unread";
const ERROR_CODES: [&str; 28] = [
    "authentication_failed",
    "forbidden",
    "project_mismatch",
    "project_not_found",
    "project_exists",
    "session_required",
    "session_not_found",
    "session_taken_over",
    "protocol_not_found",
    "protocol_exists",
    "invalid_schema",
    "invalid_lens",
    "payload_invalid",
    "incompatible_protocol",
    "transform_failed",
    "queue_full",
    "payload_too_large",
    "rate_limited",
    "cross_project_disabled",
    "cross_project_forbidden",
    "invalid_argument",
    "question_not_found",
    "question_closed",
    "backend_not_found",
    "backend_exists",
    "command_not_allowed",
    "timeout",
    "unavailable",
];

/// An MCP client on one WebSocket connection, usually with a session. Its methods are sentences:
/// `alice.sends("hi").to(&bob)`, `bob.sees(["hi"])`.
pub struct Agent {
    pub wire: Wire,
    pub name: String,
    /// The id by which others know its session.
    pub session: String,
    /// The id that its registration returned, which acts as the session.
    pub held: String,
    /// The `_meta` of every request, in the modern era only.
    meta: Option<Value>,
    unread: Mutex<u64>,
}

impl Agent {
    /// A client of a legacy revision: sends `initialize` first.
    pub fn legacy(wire: Wire, version: &str, capabilities: &Value) -> Self {
        let params = mcp::hello("a test", version, capabilities);
        let result = wire.request("initialize", params).unwrap();
        assert_eq!(result["protocolVersion"], version);
        wire.notifies("notifications/initialized", &json!({}));
        Self::new(wire, None)
    }

    /// A client of 2026-07-28: describes itself in the `_meta` of every request.
    pub fn modern(wire: Wire, capabilities: Value) -> Self {
        Self::new(wire, Some(mcp::meta("a test", &capabilities)))
    }

    fn new(wire: Wire, meta: Option<Value>) -> Self {
        Self {
            wire,
            name: String::new(),
            session: String::new(),
            held: String::new(),
            meta,
            unread: Mutex::default(),
        }
    }

    pub fn registered(self, name: &str) -> Self {
        self.registered_with(&json!({"name": name}))
    }

    pub fn registered_with(mut self, arguments: &Value) -> Self {
        let session = self.calls("register_session", arguments.clone());
        session["name"].as_str().unwrap_or_default().clone_into(&mut self.name);
        session["session_id"].as_str().unwrap().clone_into(&mut self.held);
        self.session = listed_id(&self.held);
        self
    }

    /// Completes the params of a request for the era of this client.
    pub fn params(&self, mut params: Value) -> Value {
        if let Some(meta) = &self.meta {
            params["_meta"] = meta.clone();
        }
        params
    }

    pub fn request(&self, method: &str, params: Value) -> Result<Value, Value> {
        self.wire.request(method, self.params(params))
    }

    pub fn error_of(&self, method: &str, params: Value) -> i64 {
        self.wire.error_of(method, self.params(params))
    }

    /// Sends a tool call and returns the id of the request.
    pub fn begins_call(&self, tool: &str, arguments: &Value) -> Value {
        let params = self.params(json!({"name": tool, "arguments": arguments}));
        self.wire.asks("tools/call", params)
    }

    /// The object that a call begun earlier returns.
    pub fn finishes_call(&self, tool: &str, id: &Value) -> Value {
        let result = self.wire.answer_to(id).unwrap();
        self.checked_object(tool, &result, false)
    }

    /// Calls a tool that must succeed and returns its object.
    pub fn calls(&self, tool: &str, arguments: Value) -> Value {
        let id = self.begins_call(tool, &arguments);
        self.finishes_call(tool, &id)
    }

    /// Calls a tool that must refuse, and returns the error object.
    pub fn is_refused(&self, tool: &str, arguments: Value) -> Value {
        let id = self.begins_call(tool, &arguments);
        let result = self.wire.answer_to(&id).unwrap();
        self.checked_object(tool, &result, true)
    }

    /// Calls a tool that must refuse with this code; returns the error object.
    pub fn is_refused_as(&self, code: &str, tool: &str, arguments: Value) -> Value {
        let error = self.is_refused(tool, arguments);
        assert_eq!(error["code"], code, "{error}");
        error
    }

    /// Returns when the session has handled everything that this client sent before. A session handles its commands in
    /// order.
    pub fn syncs(&self) {
        self.calls("acknowledge_messages", json!({"message_ids": []}));
    }

    /// The number of waiting messages in the last result.
    pub fn unread(&self) -> u64 {
        *self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of a tool result. Asserts the form that all results have.
    fn checked_object(&self, tool: &str, result: &Value, is_error: bool) -> Value {
        let mut members = vec!["_meta", "content", "isError", "structuredContent"];
        if self.meta.is_some() {
            members.insert(3, "resultType");
            assert_eq!(result["resultType"], "complete");
            assert_eq!(
                result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
                "mcp-broker"
            );
        }
        assert_eq!(keys(result), members, "{result}");
        assert_eq!(result["isError"], is_error, "{tool}: {result}");
        let content = result["content"].as_array().unwrap();
        assert_eq!(content.len(), 1, "{result}");
        assert_eq!(content[0]["type"], "text");
        let text: Value = serde_json::from_str(content[0]["text"].as_str().unwrap()).unwrap();
        let object = &result["structuredContent"];
        assert_eq!(text, *object);
        let unread = result["_meta"][UNREAD].as_u64();
        let unread = unread.unwrap_or_else(|| panic!("no {UNREAD}: {result}"));
        *self.unread.lock().unwrap() = unread;
        if is_error {
            assert!(ERROR_CODES.contains(&object["code"].as_str().unwrap()), "{object}");
            assert!(!object["message"].as_str().unwrap().is_empty());
        }
        self.assert_schema(tool, object, is_error);
        let mut object = object.clone();
        // Every result of a client with a session has the count; a count that the tool itself returns stays.
        if let Some(told) = object.as_object_mut().and_then(|object| object.remove("unread")) {
            assert_eq!((told.as_u64(), is_error), (Some(unread), false), "{result}");
        }
        object
    }

    /// Checks an object against the output schema of its tool, and against the part of the schema for results or for
    /// errors.
    fn assert_schema(&self, tool: &str, object: &Value, is_error: bool) {
        let Some(validators) = self.validators(tool) else {
            if self.is_listed_in_short() {
                return;
            }
            // A tool that this client may not use is not listed, and always refuses.
            assert!(is_error, "{tool} is not listed: {object}");
            return;
        };
        let [whole, result, error] = &*validators;
        for schema in [whole, if is_error { error } else { result }] {
            let failure = schema.validate(object).err().map(|error| error.to_string());
            assert_eq!(failure, None, "{tool}: {object}");
        }
    }

    /// Whether the list of this client is one of those without schemas of results.
    fn is_listed_in_short(&self) -> bool {
        let listed = self.request("tools/list", json!({})).unwrap();
        let tools = listed["tools"].as_array().unwrap();
        let schemas = tools.iter().map(|tool| &tool["outputSchema"]);
        let short = json!({"type": "object"});
        schemas.clone().any(|schema| *schema == short) && !schemas.clone().any(|schema| schema["anyOf"].is_array())
    }

    /// The validators of a tool, if the list of this client or of an earlier one has the tool.
    fn validators(&self, tool: &str) -> Option<Arc<[Validator; 3]>> {
        static VALIDATORS: Mutex<BTreeMap<String, Arc<[Validator; 3]>>> = Mutex::new(BTreeMap::new());
        let known = |tool: &str| VALIDATORS.lock().unwrap().get(tool).cloned();
        if let Some(validators) = known(tool) {
            return Some(validators);
        }
        let listed = self.request("tools/list", json!({})).unwrap();
        let tools = listed["tools"].as_array().unwrap().iter();
        // A tool of a backend has another schema, or none.
        let tools = tools.filter(|tool| tool["outputSchema"]["anyOf"].is_array());
        let compiled = tools.map(|tool| {
            let schema = &tool["outputSchema"];
            let parts = [schema, &schema["anyOf"][0], &schema["anyOf"][1]];
            let validators = parts.map(|part| jsonschema::validator_for(part).unwrap());
            (tool["name"].as_str().unwrap().to_owned(), Arc::new(validators))
        });
        VALIDATORS.lock().unwrap().extend(compiled);
        known(tool)
    }

    /// Begins a message of the protocol `note`; see [`OutgoingMessage`].
    pub fn sends(&self, text: &str) -> OutgoingMessage<'_> {
        OutgoingMessage {
            from: self,
            arguments: json!({
                "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": text}, "headers": {},
            }),
        }
    }

    /// Calls `receive_messages` with these arguments; returns the messages.
    pub fn reads(&self, arguments: Value) -> Vec<Value> {
        let mut received = self.calls("receive_messages", arguments);
        match received["messages"].take() {
            Value::Array(messages) => messages,
            other => panic!("not a list of messages: {other}"),
        }
    }

    /// Reads and acknowledges messages until one with this text has arrived.
    pub fn reads_until(&self, text: &str) {
        loop {
            let messages = self.reads(json!({"acknowledge": "immediate", "wait_seconds": 20, "limit": 1000}));
            assert!(!messages.is_empty(), "{} did not see {text:?}", self.name);
            if texts(&messages).contains(&text) {
                return;
            }
        }
    }

    /// Reads until this many messages have arrived; their texts must be these, in this order. The next read
    /// acknowledges them.
    pub fn sees<const N: usize>(&self, expected: [&str; N]) -> Vec<Value> {
        let mut seen = Vec::new();
        while seen.len() < N {
            let messages = self.reads(json!({"wait_seconds": 20}));
            assert!(!messages.is_empty(), "{} saw only {:?}", self.name, texts(&seen));
            seen.extend(messages);
        }
        assert_eq!(texts(&seen), expected);
        seen
    }

    /// Asserts that no message waits.
    pub fn sees_nothing(&self) {
        assert_eq!(texts(&self.reads(json!({}))), [""; 0]);
    }

    /// Asserts that the next pushed messages have these texts.
    pub fn is_pushed<const N: usize>(&self, expected: [&str; N]) -> Vec<Value> {
        let seen: Vec<_> = expected.iter().map(|_| self.next_push()).collect();
        assert_eq!(texts(&seen), expected);
        seen
    }

    pub fn next_push(&self) -> Value {
        self.wire.next_notification("notifications/dev.mcp-broker/message")["message"].take()
    }

    /// Asserts that no further message was pushed.
    pub fn sees_no_push(&self) {
        self.syncs();
        assert_eq!(
            self.wire.notifications_so_far("notifications/dev.mcp-broker/message"),
            0
        );
    }

    pub fn acknowledges(&self, messages: &[Value]) {
        let ids: Vec<_> = messages.iter().map(|message| &message["message_id"]).collect();
        self.wire
            .notifies("notifications/dev.mcp-broker/ack", &json!({"message_ids": ids}));
    }

    /// The status of a message for each of its recipients.
    pub fn recipient_statuses(&self, message: &str) -> Vec<Value> {
        let mut status = self.calls("get_message_status", json!({"message_id": message}));
        assert_eq!(status["message_id"], message);
        match status["recipients"].take() {
            Value::Array(recipients) => recipients,
            other => panic!("not a list of recipients: {other}"),
        }
    }

    /// The status of a message with one recipient.
    pub fn status_of(&self, message: &str) -> String {
        let recipients = self.recipient_statuses(message);
        assert_eq!(recipients.len(), 1, "{recipients:?}");
        recipients[0]["status"].as_str().unwrap().to_owned()
    }

    /// Waits until a message with one recipient has this status.
    pub fn awaits_status(&self, message: &str, status: &str) {
        eventually(&format!("{message} is {status}"), || {
            (self.status_of(message) == status).then_some(())
        });
    }

    /// The presence of the session of this name; None if it does not exist.
    pub fn presence_of(&self, name: &str) -> Option<String> {
        let listed = self.calls("list_sessions", json!({"status": "all", "limit": 1000}));
        let sessions = listed["sessions"].as_array().unwrap();
        let session = sessions.iter().find(|session| session["name"] == name)?;
        Some(session["status"].as_str().unwrap().to_owned())
    }

    /// Waits until the session of this name has this presence.
    pub fn awaits_presence(&self, name: &str, status: &str) {
        eventually(&format!("{name} is {status}"), || {
            (self.presence_of(name)? == status).then_some(())
        });
    }

    /// Waits until the session of this name does not exist.
    pub fn awaits_end_of(&self, name: &str) {
        eventually(&format!("{name} has no session"), || {
            self.presence_of(name).is_none().then_some(())
        });
    }

    /// The dead letters with this reason.
    pub fn dead_letters(&self, reason: &str) -> Vec<Value> {
        let mut listed = self.calls("list_dead_letters", json!({"reason": reason, "limit": 500}));
        match listed["dead_letters"].take() {
            Value::Array(letters) => letters,
            other => panic!("not a list of dead letters: {other}"),
        }
    }
}

/// The id by which lists show the session of this id.
pub fn listed_id(held: &str) -> String {
    format!("{}00000000", &held[..held.len() - 8])
}

/// The texts of messages of the protocol `note`.
pub fn texts(messages: &[Value]) -> Vec<&str> {
    let text = |message: &'_ Value| message["payload"]["text"].as_str().is_some();
    assert!(messages.iter().all(text), "{messages:?}");
    messages
        .iter()
        .filter_map(|message| message["payload"]["text"].as_str())
        .collect()
}

/// A message before it is sent: `alice.sends("hi").with("priority", "high").to("bob")`.
#[must_use]
pub struct OutgoingMessage<'a> {
    from: &'a Agent,
    arguments: Value,
}

/// A recipient of a message: an agent, or the text of an id or a name.
pub trait Recipient {
    fn as_recipient(&self) -> &str;
}

impl Recipient for &str {
    fn as_recipient(&self) -> &str {
        self
    }
}

impl Recipient for &String {
    fn as_recipient(&self) -> &str {
        self
    }
}

impl Recipient for &Agent {
    fn as_recipient(&self) -> &str {
        &self.name
    }
}

/// The answer to the sender of a direct message.
#[derive(Debug)]
pub struct SendAnswer {
    pub id: String,
    pub status: String,
    pub object: Value,
}

impl PartialEq for SendAnswer {
    /// Whether both are the same result. What is known of the recipient is of the moment of each answer.
    fn eq(&self, other: &Self) -> bool {
        let result = |answer: &Self| {
            let mut object = answer.object.clone();
            object.as_object_mut().unwrap().remove("recipient");
            object
        };
        result(self) == result(other)
    }
}

impl OutgoingMessage<'_> {
    /// Sets a header.
    pub fn with(mut self, header: &str, value: impl Into<Value>) -> Self {
        self.arguments["headers"][header] = value.into();
        self
    }

    /// Sets an argument of the tool.
    pub fn with_argument(mut self, argument: &str, value: impl Into<Value>) -> Self {
        self.arguments[argument] = value.into();
        self
    }

    pub fn arguments_to(&self, recipient: impl Recipient) -> Value {
        let mut arguments = self.arguments.clone();
        arguments["recipient_id"] = recipient.as_recipient().into();
        arguments
    }

    /// Sends the message to an id or a name.
    pub fn to(self, recipient: impl Recipient) -> SendAnswer {
        let object = self.from.calls("send_message", self.arguments_to(recipient));
        let text = |key: &str| object[key].as_str().unwrap().to_owned();
        SendAnswer {
            id: text("message_id"),
            status: text("status"),
            object,
        }
    }

    /// Sends the message without waiting for the answer; returns the id of the request.
    pub fn begins_sending_to(self, recipient: impl Recipient) -> Value {
        self.from.begins_call("send_message", &self.arguments_to(recipient))
    }

    /// Broadcasts the message without waiting for the answer; returns the id of the request.
    pub fn begins_broadcast(self) -> Value {
        self.from.begins_call("broadcast_message", &self.arguments)
    }

    /// Broadcasts the message.
    #[expect(
        clippy::wrong_self_convention,
        reason = "the sentence reads `alice.sends(text).to_everyone()`"
    )]
    pub fn to_everyone(self) -> Value {
        self.from.calls("broadcast_message", self.arguments)
    }

    /// Asserts that sending is refused with this code; returns the error object.
    pub fn fails_as(self, code: &str, recipient: impl Recipient) -> Value {
        let arguments = self.arguments_to(recipient);
        self.from.is_refused_as(code, "send_message", arguments)
    }
}
