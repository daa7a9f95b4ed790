//! JSON-RPC 2.0 frames, written in one pass into the buffer that they leave by.
//!
//! A frame, and each part of one, is a [`JsonText`]: the queue of a connection takes it and has it write itself. Where a text is
//! needed, [`JsonText::into_bytes`] makes one.

use std::{fmt, io::Write};

use serde_json::Value;

use super::write_string;

/// JSON text, or what appends it: a text is JSON already, and a closure writes it.
pub trait JsonText: Sized {
    /// Appends the text.
    fn write_to(self, out: &mut Vec<u8>);

    /// About how many bytes it has.
    fn len_hint(&self) -> usize {
        192
    }

    /// Whether the member that it is the value of is left out.
    fn is_absent(&self) -> bool {
        false
    }

    /// The text.
    fn into_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len_hint());
        self.write_to(&mut out);
        out
    }

    /// The text.
    fn into_text(self) -> String {
        String::from_utf8(self.into_bytes()).unwrap_or_default()
    }

    /// The text with the line break that ends it.
    fn into_line(self) -> Vec<u8> {
        let mut line = self.into_bytes();
        line.push(b'\n');
        line
    }
}

macro_rules! texts {
    ($($text:ty),*) => {$(
        impl JsonText for $text {
            fn write_to(self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_ref());
            }

            fn len_hint(&self) -> usize {
                self.len()
            }
        }
    )*};
}

texts!(&str, &[u8], String, Vec<u8>);

macro_rules! values {
    ($($value:ty),*) => {$(
        impl JsonText for $value {
            fn write_to(self, out: &mut Vec<u8>) {
                let written = serde_json::to_writer(out, &self);
                debug_assert!(written.is_ok(), "a value always serializes");
            }
        }
    )*};
}

values!(u64, Value, &Value);

impl JsonText for fmt::Arguments<'_> {
    fn write_to(self, out: &mut Vec<u8>) {
        let written = out.write_fmt(self);
        debug_assert!(written.is_ok(), "memory takes every text");
    }
}

impl<F: FnOnce(&mut Vec<u8>)> JsonText for F {
    fn write_to(self, out: &mut Vec<u8>) {
        self(out);
    }
}

impl<T: JsonText> JsonText for Option<T> {
    fn write_to(self, out: &mut Vec<u8>) {
        match self {
            Some(text) => text.write_to(out),
            None => out.extend_from_slice(b"null"),
        }
    }

    fn len_hint(&self) -> usize {
        self.as_ref().map_or(4, JsonText::len_hint)
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

/// A text of exactly `len` bytes, which `write` appends.
pub struct OfLen<F> {
    /// The number of bytes.
    pub len: usize,
    /// Appends them.
    pub write: F,
}

impl<F: FnOnce(&mut Vec<u8>)> JsonText for OfLen<F> {
    fn write_to(self, out: &mut Vec<u8>) {
        (self.write)(out);
    }

    fn len_hint(&self) -> usize {
        self.len
    }
}

/// The params of a method that has none.
pub const NO_PARAMS: Option<&str> = None;

/// A JSON-RPC frame. Its id and its last member are JSON.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a, I, V> {
    id: I,
    method: Option<&'a str>,
    member: &'static str,
    value: V,
}

/// A request with this id.
pub fn request<I: JsonText, V: JsonText>(id: I, method: &str, params: V) -> Frame<'_, I, V> {
    Frame {
        id,
        method: Some(method),
        member: ",\"params\":",
        value: params,
    }
}

/// A notification.
pub fn notification<V: JsonText>(method: &str, params: V) -> Frame<'_, Option<&str>, V> {
    request(None, method, params)
}

/// The response to the request with this id: its result or its error.
pub fn response<I: JsonText, V: JsonText>(id: I, outcome: Result<V, V>) -> Frame<'static, I, V> {
    let (member, value) = match outcome {
        Ok(result) => (",\"result\":", result),
        Err(error) => (",\"error\":", error),
    };
    Frame {
        id,
        method: None,
        member,
        value,
    }
}

/// The response to the request with this id, which has this result.
pub fn result<I: JsonText, V: JsonText>(id: I, result: V) -> Frame<'static, I, V> {
    response(id, Ok(result))
}

/// The error response to the request with this id; without one if the id could not be read.
pub fn error<I: JsonText, V: JsonText>(id: I, error: V) -> Frame<'static, I, V> {
    response(id, Err(error))
}

impl<I: JsonText, V: JsonText> JsonText for Frame<'_, I, V> {
    fn write_to(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
        if !self.id.is_absent() {
            out.extend_from_slice(b",\"id\":");
            self.id.write_to(out);
        }
        if let Some(method) = self.method {
            out.extend_from_slice(b",\"method\":");
            write_string(out, method);
        }
        if !self.value.is_absent() {
            out.extend_from_slice(self.member.as_bytes());
            self.value.write_to(out);
        }
        out.push(b'}');
    }

    fn len_hint(&self) -> usize {
        self.id.len_hint() + self.method.map_or(0, str::len) + self.value.len_hint() + 48
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn frames_have_the_members_of_json_rpc_in_its_order() {
        let params = |out: &mut Vec<u8>| out.extend_from_slice(b"{\"a\":1}");
        let frames = [
            (
                request("\"x\"", "m\"", &json!([1])).into_text(),
                r#"{"jsonrpc":"2.0","id":"x","method":"m\"","params":[1]}"#,
            ),
            (
                request(7, "ping", NO_PARAMS).into_text(),
                r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
            ),
            (
                notification("n", params).into_text(),
                r#"{"jsonrpc":"2.0","method":"n","params":{"a":1}}"#,
            ),
            (
                notification("n", NO_PARAMS).into_text(),
                r#"{"jsonrpc":"2.0","method":"n"}"#,
            ),
            (
                result("7", format_args!("[{}]", 1)).into_text(),
                r#"{"jsonrpc":"2.0","id":7,"result":[1]}"#,
            ),
            (
                error(Some("7"), "{}").into_text(),
                r#"{"jsonrpc":"2.0","id":7,"error":{}}"#,
            ),
            (error(NO_PARAMS, "{}").into_text(), r#"{"jsonrpc":"2.0","error":{}}"#),
        ];
        for (written, expected) in frames {
            assert_eq!(written, expected);
        }
    }
}
