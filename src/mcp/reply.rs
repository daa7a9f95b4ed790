//! Who is to be answered, and how an answer is written.

use std::{cell::RefCell, rc::Rc};

use actors::{clock::millis, model::BrokerError};
use serde_json::{Value, json};

use super::{
    Outbox,
    rpc::{self, RpcError, begin_result, write_json},
};

/// The request an answer belongs to.
#[derive(Clone)]
pub struct ReplyTo {
    /// As it was written.
    pub id: Rc<str>,
    pub modern: bool,
    pub batch: Option<Rc<Batch>>,
}

/// The answers of a batch (2025-03-26), sent together when the last is there.
pub struct Batch {
    outbox: std::sync::Arc<Outbox>,
    frames: RefCell<Vec<Vec<u8>>>,
}

impl Batch {
    pub fn new(outbox: std::sync::Arc<Outbox>) -> Rc<Self> {
        Rc::new(Self {
            outbox,
            frames: RefCell::default(),
        })
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let frames = self.frames.take();
        if !frames.is_empty() {
            let mut array = vec![b'['];
            array.extend_from_slice(&frames.join(&b','));
            array.push(b']');
            self.outbox.send(&array);
        }
    }
}

impl ReplyTo {
    /// Sends one response.
    pub fn send(&self, outbox: &Outbox, frame: &[u8]) {
        match &self.batch {
            Some(batch) => batch.frames.borrow_mut().push(frame.to_vec()),
            None => outbox.send(frame),
        }
    }

    pub fn result(&self, outbox: &Outbox, result: &Value) {
        let mut out = Vec::with_capacity(256);
        begin_result(&mut out, &self.id);
        write_json(&mut out, &result);
        out.push(b'}');
        self.send(outbox, &out);
    }

    pub fn error(&self, outbox: &Outbox, error: &RpcError) {
        let mut out = Vec::with_capacity(128);
        rpc::write_error(&mut out, Some(&self.id), error);
        self.send(outbox, &out);
    }
}

/// The result of a tool as a JSON object in text form.
pub struct Answer(pub Vec<u8>);

impl From<Value> for Answer {
    fn from(value: Value) -> Self {
        let mut out = Vec::with_capacity(256);
        write_json(&mut out, &value);
        Self(out)
    }
}

/// Writes the response to a `tools/call`: the object as `structuredContent` and as text, and how many messages
/// wait for the caller.
pub fn write_tool_result(out: &mut Vec<u8>, to: &ReplyTo, object: &[u8], is_error: bool, unread: usize) {
    begin_result(out, &to.id);
    out.extend_from_slice(b"{\"content\":[{\"type\":\"text\",\"text\":\"");
    escape_into(out, object);
    out.extend_from_slice(b"\"}],\"structuredContent\":");
    out.extend_from_slice(object);
    out.extend_from_slice(if is_error {
        b",\"isError\":true"
    } else {
        b",\"isError\":false"
    });
    out.extend_from_slice(b",\"_meta\":{\"dev.mcp-broker/unread\":");
    write_json(out, &unread);
    if to.modern {
        out.extend_from_slice(b",\"io.modelcontextprotocol/serverInfo\":");
        write_json(out, &server_info());
        out.extend_from_slice(b"},\"resultType\":\"complete\"}}");
    } else {
        out.extend_from_slice(b"}}}");
    }
}

/// JSON text inside a JSON string. JSON text has no raw control characters but those of its white space, so what
/// needs an escape is a quote or a backslash, or, rarely, white space.
fn escape_into(out: &mut Vec<u8>, json: &[u8]) {
    let mut from = 0;
    for (at, &byte) in json.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            _ => continue,
        };
        out.extend_from_slice(&json[from..at]);
        out.extend_from_slice(escape);
        from = at + 1;
    }
    out.extend_from_slice(&json[from..]);
}

/// `Implementation` of this server, in all revisions.
pub fn server_info() -> Value {
    json!({"name": "mcp-broker", "title": "MCP Broker", "version": env!("CARGO_PKG_VERSION")})
}

/// The error object of the contract, section 7. The one place where a refusal becomes words for a client.
pub fn error_object(error: &BrokerError) -> Value {
    let mut object = json!({"code": error.code(), "message": error.to_string()});
    let detail = match error {
        BrokerError::PayloadInvalid { failures } => {
            let failures: Vec<_> = failures
                .iter()
                .map(|failure| json!({"path": failure.path, "reason": failure.reason}))
                .collect();
            json!({"failures": failures})
        }
        BrokerError::IncompatibleProtocol {
            recipient,
            name,
            version,
            speaks,
        } => {
            json!({"recipient": recipient, "protocol": name, "version": version, "speaks": speaks})
        }
        BrokerError::QueueFull { limit } | BrokerError::PayloadTooLarge { limit } => json!({"limit": limit}),
        BrokerError::InvalidArgument { field, .. } => json!({"argument": field}),
        BrokerError::ProtocolNotFound { name, version } => json!({"name": name, "version": version}),
        BrokerError::ProtocolExists { name, version } => json!({"name": name, "version": version}),
        _ => Value::Null,
    };
    if !detail.is_null() {
        object["detail"] = detail;
    }
    if let BrokerError::Unavailable { retry_after } = error {
        object["retry_after_ms"] = json!(millis(*retry_after));
    }
    object
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
                    id: "\"é\"".into(),
                    modern,
                    batch: None,
                };
                write_tool_result(&mut out, &to, &text, false, 3);
                let read: Value = serde_json::from_slice(&out).unwrap();
                assert_eq!(read["id"], "é");
                let result = &read["result"];
                assert_eq!(result["structuredContent"], object);
                let inner: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
                assert_eq!(inner, object);
                assert_eq!(result["_meta"]["dev.mcp-broker/unread"], 3);
                assert_eq!(result["resultType"] == "complete", modern);
            }
        }
    }
}
