//! The JSON-RPC text that is sent, and a fast check of what arrives.
//!
//! Messages are written into a template, and a delivery is compared with what was sent byte by byte. A delivery that
//! does not compare equal is parsed, so that a server with another order of members costs time but gives the same
//! result.

use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memmem;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use test_client::mcp;

use crate::{
    error::{LoadError, Result},
    event_loop::Outbox,
};

/// The protocol of all messages; its schema describes their payload.
pub const PROTOCOL: &str = "load";

const PUSH_METHOD: &str = "notifications/dev.mcp-broker/message";
/// The number of the first message. All numbers have the same width, so that a template can be overwritten; 9 billion
/// messages fit.
const FIRST_NUMBER: u64 = 1_000_000_000;
const NUMBER_DIGITS: usize = 10;

/// A tag that no other measurement has, in this process or another. It tells messages that an interrupted run left in
/// an inbox from those of this run.
pub fn fresh_tag() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let micros = since.as_micros() & 0xffff_ffff_ffff;
    format!(
        "{micros:012x}-{:x}-{:x}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// What every request of 2026-07-28 says in `_meta`.
pub fn modern_meta() -> Value {
    mcp::meta("mcp-broker-load", &json!({}))
}

/// One `tools/call`.
pub fn call(id: u64, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// The arguments that register a protocol whose payload is the one sent here.
pub fn protocol(name: &str, version: &str) -> Value {
    let schema = json!({
        "type": "object",
        "required": ["stream", "run", "seq"],
        "properties": {
            "stream": {"type": "integer", "minimum": 0},
            "pad": {"type": "string"},
            "run": {"type": "string"},
            "seq": {"type": "integer", "minimum": 0},
        },
    });
    json!({"name": name, "version": version, "schema": schema, "capabilities": ["point_to_point", "broadcast"]})
}

/// The arguments that register version 2.0.0 of it, with a lens of three operations from 1.0.0.
pub fn newer_protocol(name: &str) -> Value {
    let mut newer = protocol(name, "2.0.0");
    newer["schema"] = json!({
        "type": "object",
        "required": ["stream", "label", "seq", "urgent"],
        "properties": {
            "stream": {"type": "integer", "minimum": 0},
            "filler": {"type": "string"},
            "label": {"type": "string"},
            "seq": {"type": "integer", "minimum": 0},
            "urgent": {"type": "boolean"},
        },
    });
    newer["from"] = "1.0.0".into();
    newer["lens"] = json!([
        {"op": "rename", "path": "/pad", "to": "filler"},
        {"op": "rename", "path": "/run", "to": "label"},
        {"op": "add", "path": "/urgent", "value": false},
    ]);
    newer
}

/// The notification that acknowledges the messages of one read. It grows as text: one acknowledgement per message
/// would cost the recipient more than the message.
#[derive(Default)]
pub struct Acknowledgement(Vec<u8>);

impl Acknowledgement {
    const HEAD: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/dev.mcp-broker/ack","params":{"message_ids":["#;

    /// Adds the message of a push frame. Ignores every other frame.
    pub fn add(&mut self, frame: &[u8]) {
        let Some(id) = pushed_id(frame) else { return };
        self.0
            .extend_from_slice(if self.0.is_empty() { Self::HEAD } else { b"," });
        self.0.push(b'"');
        self.0.extend_from_slice(id);
        self.0.push(b'"');
    }

    /// Sends the acknowledgement if a message was added.
    pub fn send(&mut self, link: usize, out: &mut Outbox) {
        if !self.0.is_empty() {
            self.0.extend_from_slice(b"]}}");
            out.text(link, &self.0);
            self.0.clear();
        }
    }
}

/// A notification without message ids, which is not answered.
pub const fn empty_acknowledgement() -> &'static [u8] {
    br#"{"jsonrpc":"2.0","method":"notifications/dev.mcp-broker/ack","params":{"message_ids":["01999999-9999-7999-8999-999999999999"]}}"#
}

/// A stream of numbered messages with one content, for its sender.
pub struct Template {
    frame: Vec<u8>,
    id_at: usize,
    seq_at: usize,
}

impl Template {
    /// `size` is the length of the whole frame in bytes. A frame is never shorter than with an empty `pad`.
    pub fn new(tool: &str, mut arguments: Value, run: &str, stream: usize, size: usize) -> (Self, ExpectedContent) {
        arguments["protocol_name"] = PROTOCOL.into();
        arguments["protocol_version"] = "1.0.0".into();
        let build = |pad: &str| {
            let content = ExpectedContent::new(run, stream, pad);
            let mut arguments = arguments.clone();
            arguments["payload"] = "PAYLOAD".into();
            let text = call(FIRST_NUMBER, tool, &arguments);
            (text.replacen("\"PAYLOAD\"", &content.payload(FIRST_NUMBER), 1), content)
        };
        let missing = size.saturating_sub(build("").0.len());
        let alphabet = "abcdefghijklmnopqrstuvwxyz0123456789".chars().cycle();
        let (text, content) = build(&alphabet.skip(stream % 36).take(missing).collect::<String>());
        (Self::of_text(text), content)
    }

    fn of_text(text: String) -> Self {
        let key_at = |key: &str| {
            text.find(&format!("\"{key}\":{FIRST_NUMBER}"))
                .map_or(0, |at| at + key.len() + 3)
        };
        let (id_at, seq_at) = (key_at("id"), key_at("seq"));
        Self {
            frame: text.into_bytes(),
            id_at,
            seq_at,
        }
    }

    /// The same messages in version 2.0.0, which become those of 1.0.0 by the lens between them.
    pub fn in_newer_version(self) -> Self {
        let text = String::from_utf8_lossy(&self.frame).into_owned();
        let renamed = [
            ("\"pad\":", "\"filler\":"),
            ("\"run\":", "\"label\":"),
            ("\"seq\":", "\"urgent\":false,\"seq\":"),
            ("\"1.0.0\"", "\"2.0.0\""),
        ];
        let text = renamed.iter().fold(text, |text, (from, to)| text.replacen(from, to, 1));
        Self::of_text(text)
    }

    /// A call that is identified by its request id alone.
    pub fn of_call(tool: &str, arguments: &Value) -> Self {
        let text = call(FIRST_NUMBER, tool, arguments);
        let id_at = text.find(&format!("\"id\":{FIRST_NUMBER}")).map_or(0, |at| at + 5);
        Self {
            frame: text.into_bytes(),
            id_at,
            seq_at: id_at,
        }
    }

    /// The frame of message `seq`; its request id is `seq` too.
    pub fn frame(&mut self, seq: u64) -> &[u8] {
        self.frame_answered(seq, seq)
    }

    /// The frame of message `seq` with the request id `request`: for connections that send several streams.
    pub fn frame_answered(&mut self, request: u64, seq: u64) -> &[u8] {
        write_number(&mut self.frame[self.id_at..self.id_at + NUMBER_DIGITS], request);
        write_number(&mut self.frame[self.seq_at..self.seq_at + NUMBER_DIGITS], seq);
        &self.frame
    }
}

fn write_number(digits: &mut [u8], number: u64) {
    let mut rest = FIRST_NUMBER + number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// A stream of numbered messages with one content, for its recipient.
#[derive(Clone)]
pub struct ExpectedContent {
    run: String,
    /// The payload up to the number. Its keys are in alphabetical order: a server that keeps objects in sorted maps
    /// writes the same bytes.
    head: String,
}

/// A frame that a recipient received.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The expected content, with its number.
    Message(u64),
    /// A message of another run.
    Foreign,
    /// A message of this run with other content than was sent.
    Corrupt,
    /// Not a message.
    Other,
}

impl ExpectedContent {
    fn new(run: &str, stream: usize, pad: &str) -> Self {
        Self {
            run: run.into(),
            head: format!(r#"{{"stream":{stream},"pad":"{pad}","run":"{run}","seq":"#),
        }
    }

    fn payload(&self, number: u64) -> String {
        format!("{}{number}}}", self.head)
    }

    pub fn read(&self, frame: &[u8]) -> Incoming {
        if memmem::find(frame, PUSH_METHOD.as_bytes()).is_none() {
            return Incoming::Other;
        }
        self.compare(frame).map_or_else(|| self.parse(frame), Incoming::Message)
    }

    fn compare(&self, frame: &[u8]) -> Option<u64> {
        const KEY: &[u8] = b"\"payload\":";
        let payload = &frame[memmem::find(frame, KEY)? + KEY.len()..];
        let (digits, end) = payload
            .strip_prefix(self.head.as_bytes())?
            .split_first_chunk::<NUMBER_DIGITS>()?;
        let number = digits
            .iter()
            .try_fold(0, |n, d| d.is_ascii_digit().then(|| n * 10 + u64::from(d - b'0')))?;
        (end.first() == Some(&b'}')).then(|| number.checked_sub(FIRST_NUMBER))?
    }

    fn parse(&self, frame: &[u8]) -> Incoming {
        let Ok(frame) = serde_json::from_slice::<Value>(frame) else {
            return Incoming::Corrupt;
        };
        if frame["method"] != PUSH_METHOD {
            return Incoming::Other;
        }
        let payload = &frame["params"]["message"]["payload"];
        if payload["run"] != *self.run {
            return Incoming::Foreign;
        }
        let number = payload["seq"].as_u64().unwrap_or_default();
        let sent: Option<Value> = serde_json::from_str(&self.payload(number)).ok();
        match number.checked_sub(FIRST_NUMBER) {
            Some(seq) if sent.as_ref() == Some(payload) => Incoming::Message(seq),
            _ => Incoming::Corrupt,
        }
    }
}

/// The text of the message id in a push frame; None for any other frame.
fn pushed_id(frame: &[u8]) -> Option<&[u8]> {
    const KEY: &[u8] = b"\"message_id\"";
    memmem::find(frame, PUSH_METHOD.as_bytes())?;
    let after_key = &frame[memmem::find(frame, KEY)? + KEY.len()..];
    let id = &after_key[memchr::memchr(b'"', after_key)? + 1..];
    id.get(..memchr::memchr(b'"', id)?)
}

/// An answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub id: u64,
    /// A JSON-RPC error, or a tool result with `isError`.
    pub failed: bool,
}

impl Reply {
    /// The number of the message whose frame was answered.
    pub fn seq(self) -> Option<u64> {
        self.id.checked_sub(FIRST_NUMBER)
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Outcome {
    #[serde(rename = "isError", default)]
    is_error: bool,
}

/// Reads a frame as an answer; None if it is not one.
pub fn read_reply(frame: &[u8]) -> Option<Reply> {
    let suspicious = memmem::find(frame, b"\"error\"").is_some() || memmem::find(frame, b"\"isError\":true").is_some();
    let quick = frame.strip_prefix(br#"{"jsonrpc":"2.0","id":"#).filter(|_| !suspicious);
    if let Some(rest) = quick {
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if let (1..=NUMBER_DIGITS, Some(b',')) = (digits, rest.get(digits)) {
            let id = rest[..digits].iter().fold(0, |n, d| n * 10 + u64::from(d - b'0'));
            return Some(Reply { id, failed: false });
        }
    }
    let envelope: Envelope<'_> = serde_json::from_slice(frame).ok()?;
    let outcome = envelope
        .result
        .and_then(|result| serde_json::from_str::<Outcome>(result.get()).ok());
    envelope.result.or(envelope.error)?;
    Some(Reply {
        id: envelope.id?,
        failed: envelope.error.is_some() || outcome.is_some_and(|o| o.is_error),
    })
}

/// The structured content of a tool result, or the result itself where it has none.
pub fn structured(frame: &[u8]) -> Result<Value> {
    let mut frame: Value =
        serde_json::from_slice(frame).map_err(|e| LoadError::refused(format!("JSON: {e}"), frame))?;
    let mut result = frame["result"].take();
    Ok(match result["structuredContent"].take() {
        Value::Null => result,
        content => content,
    })
}

/// The code of a failed tool call, from its structured content or from its text.
pub fn error_code(frame: &[u8]) -> Option<String> {
    let content = structured(frame).ok()?;
    let text = content["content"][0]["text"]
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    let code = |value: &Value| {
        value["code"]
            .as_str()
            .or_else(|| value["error"]["code"].as_str())
            .map(str::to_owned)
    };
    code(&content).or_else(|| text.as_ref().and_then(code))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn pushed(payload: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"{PUSH_METHOD}","params":{{"message":{{"message_id":"m-1","payload":{payload},"headers":{{}}}}}}}}"#
        )
    }

    /// The text of a member of a JSON object, as it stands there.
    fn member<'a>(object: &'a str, name: &str) -> &'a str {
        let members: HashMap<&str, &RawValue> = serde_json::from_str(object).unwrap();
        members[name].get()
    }

    fn stream() -> (Template, ExpectedContent) {
        Template::new("send_message", json!({"recipient_id": "bob"}), "r1", 3, 400)
    }

    #[test]
    fn a_frame_has_the_size_asked_for_and_carries_its_number_twice() {
        let (mut template, _) = stream();
        assert_eq!(template.frame(7).len(), 400);
        let frame: Value = serde_json::from_slice(template.frame(41)).unwrap();
        assert_eq!(frame["id"], 1_000_000_041);
        assert_eq!(frame["params"]["arguments"]["payload"]["seq"], 1_000_000_041);
        assert_eq!(frame["params"]["arguments"]["recipient_id"], "bob");
        let (mut tiny, _) = Template::new("send_message", json!({}), "r1", 0, 1);
        assert!(serde_json::from_slice::<Value>(tiny.frame(0)).is_ok());
    }

    #[test]
    fn a_sent_message_is_recognized_in_any_json_formatting() {
        let (mut template, content) = stream();
        let frame = std::str::from_utf8(template.frame(5)).unwrap();
        let payload = ["params", "arguments", "payload"].into_iter().fold(frame, member);
        assert_eq!(content.compare(pushed(payload).as_bytes()), Some(5));
        let loose = pushed(payload).replace(':', " : ");
        assert_eq!(content.compare(loose.as_bytes()), None);
        assert_eq!(content.read(loose.as_bytes()), Incoming::Message(5));
    }

    #[test]
    fn a_message_in_the_newer_version_has_its_number_and_the_newer_members() {
        let mut newer = stream().0.in_newer_version();
        let frame: Value = serde_json::from_slice(newer.frame(5)).unwrap();
        let sent = &frame["params"]["arguments"];
        assert_eq!(
            (&frame["id"], &sent["payload"]["seq"]),
            (&json!(1_000_000_005), &json!(1_000_000_005))
        );
        assert_eq!(sent["protocol_version"], "2.0.0");
        let mut members: Vec<_> = sent["payload"].as_object().unwrap().keys().collect();
        members.sort();
        assert_eq!(members, ["filler", "label", "seq", "stream", "urgent"]);
    }

    #[test]
    fn messages_of_other_runs_and_other_content_are_distinguished() {
        let (mut template, content) = stream();
        let frame: Value = serde_json::from_slice(template.frame(5)).unwrap();
        let mut payload = frame["params"]["arguments"]["payload"].clone();
        payload["pad"] = "x".into();
        assert_eq!(content.read(pushed(&payload.to_string()).as_bytes()), Incoming::Corrupt);
        payload["run"] = "r0".into();
        assert_eq!(content.read(pushed(&payload.to_string()).as_bytes()), Incoming::Foreign);
        assert_eq!(
            content.read(br#"{"method":"notifications/resources/updated"}"#),
            Incoming::Other
        );
    }

    #[test]
    fn answers_are_read_with_their_outcome() {
        let read = |frame: &str| read_reply(frame.as_bytes()).map(|r| (r.id, r.failed));
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":12,"result":{"isError":false}}"#),
            Some((12, false))
        );
        assert_eq!(read(r#"{"result":{},"id":12,"jsonrpc":"2.0"}"#), Some((12, false)));
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":12,"result":{"isError":true}}"#),
            Some((12, true))
        );
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":12,"error":{"code":-32602}}"#),
            Some((12, true))
        );
        assert_eq!(read(r#"{"jsonrpc":"2.0","method":"x","params":{}}"#), None);
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":"a","result":{}}"#), None);
    }

    #[test]
    fn an_error_code_is_found_where_servers_put_it() {
        let both = r#"{"id":1,"result":{"isError":true,"structuredContent":{"code":"queue_full"},"content":[]}}"#;
        let text =
            r#"{"id":1,"result":{"isError":true,"content":[{"type":"text","text":"{\"code\":\"queue_full\"}"}]}}"#;
        assert_eq!(error_code(both.as_bytes()).as_deref(), Some("queue_full"));
        assert_eq!(error_code(text.as_bytes()).as_deref(), Some("queue_full"));
    }

    #[test]
    fn message_ids_are_found() {
        assert_eq!(pushed_id(pushed("{}").as_bytes()), Some(&b"m-1"[..]));
        assert_eq!(
            pushed_id(pushed("{}").replace("\":", "\" : ").as_bytes()),
            Some(&b"m-1"[..])
        );
        assert_eq!(pushed_id(br#"{"id":1,"result":{"message_id":"m-1"}}"#), None);
    }

    #[test]
    fn an_acknowledgement_names_all_messages_of_a_read() {
        let mut acknowledgement = Acknowledgement::default();
        acknowledgement.add(pushed("{}").as_bytes());
        acknowledgement.add(pushed("{}").as_bytes());
        acknowledgement.0.extend_from_slice(b"]}}");
        let frame: Value = serde_json::from_slice(&acknowledgement.0).unwrap();
        assert_eq!(frame["params"]["message_ids"], json!(["m-1", "m-1"]));
    }
}
