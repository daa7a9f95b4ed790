//! A frame that owns its text: parsed when it was received, and handled later, or by another task, without parsing it again.

use std::{borrow::Cow, ops::Range, sync::Arc};

use actors::model::TraceContext;

use super::rpc::{Incoming, Malformed, Params};

/// A parsed frame with its text. The parts are ranges of the text.
#[derive(Debug)]
pub struct OwnedFrame {
    text: String,
    parts: Parts,
    http_trace: Option<Arc<TraceContext>>,
}

type Span = Range<usize>;

#[derive(Debug)]
enum Parts {
    Request {
        id: Span,
        method: Piece,
        params: ParamParts,
    },
    Notification {
        method: Piece,
        params: ParamParts,
    },
    Response {
        id: Option<Span>,
        outcome: Result<Span, Span>,
    },
    Batch(Vec<Span>),
    Malformed {
        id: Option<Span>,
        code: i32,
        message: &'static str,
    },
}

/// A string of the frame: a range of its text, or the decoded string where the text has escapes.
#[derive(Debug)]
enum Piece {
    Borrowed(Span),
    Decoded(String),
}

#[derive(Debug)]
struct ParamParts {
    text: Option<Span>,
    name: Option<Span>,
    arguments: Option<Span>,
    meta: Option<Span>,
    members: Vec<(Piece, Span)>,
}

impl OwnedFrame {
    /// Copies `text` with the parts that were found in it.
    pub fn new(text: &str, parsed: Result<&Incoming<'_>, &Malformed<'_>>) -> Self {
        let span = |part: &str| span(text, part);
        let parts = match parsed {
            Ok(Incoming::Request { id, method, params }) => Parts::Request {
                id: span(id),
                method: Piece::of(text, method),
                params: ParamParts::new(text, params),
            },
            Ok(Incoming::Notification { method, params }) => Parts::Notification {
                method: Piece::of(text, method),
                params: ParamParts::new(text, params),
            },
            Ok(Incoming::Response { id, outcome }) => Parts::Response {
                id: id.map(span),
                outcome: outcome.map(span).map_err(span),
            },
            Ok(Incoming::Batch(frames)) => Parts::Batch(frames.iter().map(|frame| span(frame)).collect()),
            Err(Malformed { id, code, message }) => Parts::Malformed {
                id: id.map(span),
                code: *code,
                message,
            },
        };
        Self {
            text: text.to_owned(),
            parts,
            http_trace: None,
        }
    }

    /// Adds the trace of the HTTP request that brought the frame.
    #[must_use]
    pub fn with_http_trace(mut self, trace: Option<Arc<TraceContext>>) -> Self {
        self.http_trace = trace;
        self
    }

    /// The trace of the HTTP request that brought the frame.
    pub fn http_trace(&self) -> Option<Arc<TraceContext>> {
        self.http_trace.clone()
    }

    /// The text of the frame.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The id of a request.
    pub fn id(&self) -> Option<&str> {
        match &self.parts {
            Parts::Request { id, .. } => self.text.get(id.clone()),
            _ => None,
        }
    }

    /// The parts of the frame, as they were found.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parsed(&self) -> Result<Incoming<'_>, Malformed<'_>> {
        let text = self.text.as_str();
        let part = |span: &Span| &text[span.clone()];
        Ok(match &self.parts {
            Parts::Request { id, method, params } => Incoming::Request {
                id: part(id),
                method: method.text(text),
                params: params.of(text),
            },
            Parts::Notification { method, params } => Incoming::Notification {
                method: method.text(text),
                params: params.of(text),
            },
            Parts::Response { id, outcome } => Incoming::Response {
                id: id.as_ref().map(part),
                outcome: outcome.as_ref().map(part).map_err(part),
            },
            Parts::Batch(frames) => Incoming::Batch(frames.iter().map(part).collect()),
            Parts::Malformed { id, code, message } => {
                return Err(Malformed {
                    id: id.as_ref().map(part),
                    code: *code,
                    message,
                });
            }
        })
    }
}

impl ParamParts {
    fn new(text: &str, params: &Params<'_>) -> Self {
        let span = |part: &str| span(text, part);
        let members = params.members.iter();
        Self {
            text: params.text.map(span),
            name: params.name.map(span),
            arguments: params.arguments.map(span),
            meta: params.meta.map(span),
            members: members
                .map(|(name, value)| (Piece::of(text, name), span(value)))
                .collect(),
        }
    }

    fn of<'a>(&'a self, text: &'a str) -> Params<'a> {
        let part = |span: &Span| &text[span.clone()];
        let members = self.members.iter();
        Params {
            text: self.text.as_ref().map(part),
            name: self.name.as_ref().map(part),
            arguments: self.arguments.as_ref().map(part),
            meta: self.meta.as_ref().map(part),
            members: members.map(|(name, value)| (name.text(text), part(value))).collect(),
        }
    }
}

impl Piece {
    /// A decoded string lies outside of the text.
    fn of(text: &str, piece: &str) -> Self {
        if text.as_bytes().as_ptr_range().contains(&piece.as_ptr()) {
            Self::Borrowed(span(text, piece))
        } else {
            Self::Decoded(piece.to_owned())
        }
    }

    fn text<'a>(&'a self, text: &'a str) -> Cow<'a, str> {
        match self {
            Self::Borrowed(span) => Cow::Borrowed(&text[span.clone()]),
            Self::Decoded(piece) => Cow::Borrowed(piece),
        }
    }
}

/// Where `part` is in `text`, of which it is a slice.
fn span(text: &str, part: &str) -> Span {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::rpc;

    #[test]
    fn an_owned_frame_has_the_parts_of_the_parsed_one() {
        for text in [
            r#"{"jsonrpc":"2.0","id":"a\n1","method":"tools/call","params":{"name":"send","arguments":{"to":"bob","p\u0061yload":{"x":[1]}},"_meta":{"a":1}}}"#,
            r#" { "jsonrpc" : "2.0", "id": 7, "method": "tools\/list" } "#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":3,"result":{"ok":true}}"#,
            r#"{"jsonrpc":"2.0","error":{"code":1}}"#,
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            "{",
        ] {
            let parsed = rpc::parse(text);
            let owned = OwnedFrame::new(text, parsed.as_ref());
            assert_eq!(owned.parsed(), parsed, "{text}");
            assert_eq!(owned.text(), text);
        }
    }
}
