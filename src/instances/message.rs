//! Reads the messages of backends, also where they break rules of JSON-RPC and can be understood: members that are null count
//! as absent, and the id of a call may be written in any way that is the same number. An answer that cannot be read
//! is reported with the id of its call, so that its caller does not wait. Pure.

use std::borrow::Cow;

use actors::gateway::CallNumber;
use memchr::{memchr, memmem};
use serde::de::IgnoredAny;

use api::mcp::skipped_frame::SkippedFrame;
use common::json::{
    scan::{self, ScanError},
    whole_number,
};

/// A message of a backend.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The answer to a request: its result, or its error, as JSON.
    Answer {
        to: AnswerTo,
        outcome: Result<&'a str, &'a str>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a str>,
    },
    /// `id` is JSON.
    Request {
        id: &'a str,
        method: Cow<'a, str>,
        params: Option<&'a str>,
    },
    /// The answer to this request, which cannot be read: why.
    Broken { to: CallNumber, reason: String },
    /// The elements of a batch, each a message.
    Batch(Vec<&'a str>),
    /// No message.
    Garbage,
}

/// The request that an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerTo {
    Request(CallNumber),
    /// The backend could not read the id of the request.
    Unnamed,
    /// A request that the broker has not sent.
    Other,
}

/// The text of a message without what spoils a frame: a byte order mark before it, and escapes that are one half of a
/// character.
pub fn sound(text: &str) -> Cow<'_, str> {
    without_lone_surrogates(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Reads a message.
pub fn read(text: &str) -> Message<'_> {
    let text = text.trim_ascii();
    if text.starts_with('[') {
        return batch(text);
    }
    let mut frame = Frame::default();
    let scanned = scan::deep_members::<ScanError>(text, |key, value| {
        frame.member(&key, value);
        Ok(())
    });
    let checked = match scanned {
        Ok(()) => serde_json::from_str::<IgnoredAny>(text).map_err(|error| format!("it is no JSON: {error}")),
        Err(_) => Err("it is no JSON".to_owned()),
    };
    match checked {
        Ok(_) => frame.finish(),
        Err(reason) => broken(text, reason),
    }
}

/// The number of a call, which an id or a progress token names.
pub fn call_number(raw: &str) -> Option<CallNumber> {
    whole_number(raw)
        .and_then(|number| u64::try_from(number).ok())
        .map(CallNumber)
}

/// The members of a message that are not null.
#[derive(Default)]
struct Frame<'a> {
    version: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<&'a str>,
    params: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
    has_null_result: bool,
}

impl<'a> Frame<'a> {
    fn member(&mut self, key: &str, value: &'a str) {
        let place = match key {
            "jsonrpc" => &mut self.version,
            "id" => &mut self.id,
            "method" => &mut self.method,
            "params" => &mut self.params,
            "result" => &mut self.result,
            "error" => &mut self.error,
            _ => return,
        };
        self.has_null_result |= key == "result" && value == "null";
        *place = Some(value).filter(|value| *value != "null");
    }

    fn finish(self) -> Message<'a> {
        let is_versioned = self.version == Some("\"2.0\"");
        if let Some(method) = self.method {
            let Some(method) = scan::string(method).filter(|_| is_versioned) else {
                return Message::Garbage;
            };
            let params = self.params;
            return match self.id {
                Some(id) => Message::Request { id, method, params },
                None => Message::Notification { method, params },
            };
        }
        let has_outcome = self.result.is_some() || self.error.is_some() || self.has_null_result;
        if self.version.is_none() && !has_outcome {
            // An object of a log may have an id.
            return Message::Garbage;
        }
        let to = match self.id {
            None => AnswerTo::Unnamed,
            Some(id) => call_number(id).map_or(AnswerTo::Other, AnswerTo::Request),
        };
        let outcome = match (self.error, self.result) {
            (Some(error), _) => Ok(Err(error)),
            (None, Some(result)) => Ok(Ok(result)),
            (None, None) if self.has_null_result => Ok(Ok("null")),
            (None, None) => Err("it has neither a result nor an error"),
        };
        let outcome = outcome.and_then(|outcome| {
            is_versioned
                .then_some(outcome)
                .ok_or("its member jsonrpc is not \"2.0\"")
        });
        match (outcome, to) {
            (Ok(outcome), to) => Message::Answer { to, outcome },
            (Err(reason), AnswerTo::Request(to)) => Message::Broken {
                to,
                reason: reason.to_owned(),
            },
            (Err(_), AnswerTo::Unnamed | AnswerTo::Other) => Message::Garbage,
        }
    }
}

fn batch(text: &str) -> Message<'_> {
    let mut messages = Vec::new();
    let scanned = scan::deep_elements::<ScanError>(text, |element| {
        messages.push(element);
        Ok(())
    });
    match scanned {
        Ok(()) => Message::Batch(messages),
        Err(_) => Message::Garbage,
    }
}

/// What is no JSON may be recognised as an answer.
fn broken(text: &str, reason: String) -> Message<'static> {
    let id = SkippedFrame::beginning_with(text.as_bytes()).into_response_id();
    match id.as_deref().and_then(call_number) {
        Some(to) => Message::Broken { to, reason },
        None => Message::Garbage,
    }
}

/// Replaces the escapes of halves of characters that have no other half by that of U+FFFD: parsers of other languages refuse
/// them.
fn without_lone_surrogates(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    if memmem::find(bytes, b"\\ud").is_none() && memmem::find(bytes, b"\\uD").is_none() {
        return Cow::Borrowed(text);
    }
    let unit = |at: usize| match bytes.get(at..at + 6) {
        Some([b'\\', b'u', ..]) => u16::from_str_radix(text.get(at + 2..at + 6)?, 16).ok(),
        _ => None,
    };
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = memchr(b'\\', &bytes[at..]) {
        at += found;
        at += match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                out.push_str(&text[copied..at]);
                out.push_str("\\ufffd");
                copied = at + 6;
                6
            }
            _ => 2,
        };
        if at >= bytes.len() {
            break;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer<'a>(outcome: Result<&'a str, &'a str>) -> Message<'a> {
        Message::Answer {
            to: AnswerTo::Request(CallNumber(5)),
            outcome,
        }
    }

    fn reason_in(text: &str) -> String {
        match read(text) {
            Message::Broken {
                to: CallNumber(5),
                reason,
            } => reason,
            other => panic!("it is a broken answer: {other:?}"),
        }
    }

    #[test]
    fn the_id_of_a_call_may_be_written_in_any_way() {
        for id in ["5", "5.0", "5e0", "50e-1", "\"5\"", "\"5.0\"", " 5 "] {
            let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}");
            assert_eq!(read(&text), answer(Ok("{}")), "{id}");
        }
        for id in ["5.5", "\"five\"", "-5", "1e400", "{}"] {
            let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}");
            let to = AnswerTo::Other;
            assert_eq!(read(&text), Message::Answer { to, outcome: Ok("{}") }, "{id}");
        }
    }

    #[test]
    fn members_that_are_null_count_as_absent() {
        let with = |members: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":5,{members}}}");
        for (members, outcome) in [
            ("\"result\":{},\"error\":null", Ok("{}")),
            ("\"error\":null,\"result\":{}", Ok("{}")),
            ("\"error\":{},\"result\":null", Err("{}")),
            ("\"result\":null,\"error\":{}", Err("{}")),
            ("\"method\":null,\"params\":null,\"result\":{}", Ok("{}")),
            ("\"result\":null", Ok("null")),
        ] {
            assert_eq!(read(&with(members)), answer(outcome), "{members}");
        }
        let notification = r#"{"jsonrpc":"2.0","id":null,"method":"m","params":null,"result":null,"error":null}"#;
        let method = Cow::Borrowed("m");
        assert_eq!(read(notification), Message::Notification { method, params: None });
        let unnamed = Message::Answer {
            to: AnswerTo::Unnamed,
            outcome: Err("{}"),
        };
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#), unnamed);
        assert_eq!(read(r#"{"jsonrpc":"2.0","error":{}}"#), unnamed);
        assert!(reason_in(&with("\"error\":null")).contains("neither"));
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_broken_and_text_without_an_id_is_garbage() {
        for result in ["NaN", "[1,]", "{\"a\":\"\u{1}\"}", "{'a':1}", "\"", "[Infinity]", "01"] {
            let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{result}}}");
            if result == "\"" {
                assert_eq!(read(&text), broken(&text, "it is no JSON".to_owned()));
            } else {
                assert!(reason_in(&text).contains("no JSON"), "{result}");
            }
        }
        assert!(reason_in(r#"{"id":5,"result":{}}"#).contains("jsonrpc"));
        assert!(reason_in(r#"{"jsonrpc":2.0,"id":5,"result":{}}"#).contains("jsonrpc"));
        for garbage in [
            "",
            "listening on 3000",
            "{}",
            "{\"level\":30,\"msg\":\"x\"}",
            "{\"level\":30,\"id\":5,\"msg\":\"x\"}",
            "{\"method\":\"GET\"}",
            "5",
        ] {
            assert_eq!(read(garbage), Message::Garbage, "{garbage}");
        }
    }

    #[test]
    fn deep_results_are_read() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{deep}}}");
        assert_eq!(read(&text), answer(Ok(&deep)));
        let batch = format!("[{text}]");
        assert_eq!(read(&batch), Message::Batch(vec![&text]));
    }

    #[test]
    fn what_spoils_a_frame_is_replaced() {
        for (text, expected) in [
            ("\u{feff}{}", "{}"),
            (r#""\ud800""#, r#""\ufffd""#),
            (r#""\uDC00\uD83d\uDE00\ud800x""#, r#""\ufffd\uD83d\uDE00\ufffdx""#),
            (r#""\ud800\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud800""#, r#""\\ud800""#),
            (r#""\\\ud800""#, r#""\\\ufffd""#),
            (r#""\ud8"#, r#""\ud8"#),
        ] {
            assert_eq!(sound(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_sound_text_is_one_for_strict_parsers(
            parts in proptest::collection::vec(
                prop::sample::select(vec!["\\ud800", "\\udc00", "\\uD83D", "\\uDE00", "\\\\", "\\n", "é", "u", "\\u0041"]),
                0..12,
            ),
        ) {
            let text = format!("\"{}\"", parts.concat());
            prop_assert!(serde_json::from_str::<String>(&sound(&text)).is_ok(), "{}", text);
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}", cut in "[\\\\u d8ef{}\\[\\]\":,0-9]{0,40}") {
            let _ = (sound(&text), read(&text), sound(&cut), read(&cut));
        }
    }
}
