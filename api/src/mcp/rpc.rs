//! JSON-RPC 2.0 frames: parses incoming ones in a single borrowing pass, writes outgoing ones directly.
//!
//! It must not know the methods of MCP.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use common::{
    json::{
        frame,
        scan::{self, ScanError},
    },
    refusal::json_error_reason,
};

/// JSON-RPC 2.0: the text is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// JSON-RPC 2.0: the JSON is not a request.
pub const INVALID_REQUEST: i32 = -32600;
/// JSON-RPC 2.0: the method does not exist.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// JSON-RPC 2.0: the params are invalid.
pub const INVALID_PARAMS: i32 = -32602;
/// JSON-RPC 2.0: the server failed.
pub const INTERNAL_ERROR: i32 = -32603;
/// Legacy revisions: the resource does not exist. The modern one uses [`INVALID_PARAMS`].
pub const RESOURCE_NOT_FOUND: i32 = -32002;
/// 2026-07-28: the headers of the request contradict its body.
pub const HEADER_MISMATCH: i32 = -32020;
/// 2026-07-28: the request needs a client capability that was not declared.
pub const MISSING_CAPABILITY: i32 = -32021;
/// 2026-07-28: the server does not support the protocol version of the request.
pub const UNSUPPORTED_VERSION: i32 = -32022;

/// Bytes of params that are deserialized as a whole: those of every method but one that runs a tool.
const PARAMS_LEN_MAX: usize = 512 * 1024;
/// Elements of a batch: their answers are held until the last is complete.
const BATCH_LEN_MAX: usize = 100;
/// Arguments of a call that are kept. No tool has as many; one more than the limit lets the tool report it.
const MEMBERS_LEN_MAX: usize = 65;
/// Bytes of an id that is echoed.
pub const ID_LEN_MAX: usize = 256;
/// Bytes of a method, and of the name of a tool or a prompt, as JSON.
const NAME_LEN_MAX: usize = 64 * 1024;
/// Members in addition to those of [`Params`]: how many of them are accepted, and their bytes. Each is checked.
const OTHERS_LEN_MAX: usize = 64;
const OTHERS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a text that is checked to be JSON although it is refused anyway, or as a whole before its parts are.
const CHECKED_BYTES_MAX: usize = 256 * 1024;

/// A parsed frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    Request {
        id: &'a str,
        method: Cow<'a, str>,
        params: Params<'a>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Params<'a>,
    },
    /// The client's answer to a request of the server: the JSON of its result, or of its error.
    Response {
        id: Option<&'a str>,
        outcome: Result<&'a str, &'a str>,
    },
    /// The elements of a batch (2025-03-26), each a frame.
    Batch(Vec<&'a str>),
}

impl<'a> Incoming<'a> {
    /// The id of a request.
    pub fn id(&self) -> Option<&'a str> {
        match self {
            Self::Request { id, .. } => Some(id),
            _ => None,
        }
    }
}

/// The params of a frame, and the parts that most methods have. `name`, `arguments`, `meta` and the members of
/// `arguments` have only been scanned: their readers must parse or check them. All other params have been checked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Params<'a> {
    /// The raw params.
    pub text: Option<&'a str>,
    /// The raw member `name`.
    pub name: Option<&'a str>,
    /// The raw member `arguments`.
    pub arguments: Option<&'a str>,
    /// The raw member `_meta`.
    pub meta: Option<&'a str>,
    /// The members of `arguments`, if it is an object: the first [`MEMBERS_LEN_MAX`].
    pub members: Vec<(Cow<'a, str>, &'a str)>,
}

impl<'a> Params<'a> {
    /// Deserializes the params of a method; absent ones are an empty object.
    ///
    /// # Errors
    /// As [`deserialize_error`].
    pub fn parse<T: Deserialize<'a>>(&self) -> Result<T, RpcError> {
        let text = self.text.unwrap_or("{}");
        serde_json::from_str(text).map_err(|error| deserialize_error(text, &error))
    }

    /// Checks that params are an object.
    ///
    /// # Errors
    /// Invalid params.
    pub fn check_is_object(&self) -> Result<(), RpcError> {
        match self.text {
            Some(text) if !text.starts_with('{') => Err(RpcError::invalid_params("params must be an object")),
            _ => Ok(()),
        }
    }

    /// Checks params that are deserialized as a whole. A call of a tool leaves parts of its params to its own parsers.
    ///
    /// # Errors
    /// Invalid params if they are too long, a parse error if they are not JSON.
    pub fn check(&self, method: &str) -> Result<(), RpcError> {
        let Some(text) = self.text else { return Ok(()) };
        if text.len() > PARAMS_LEN_MAX {
            return Err(RpcError::invalid_params(format!(
                "Invalid params: {} takes at most {PARAMS_LEN_MAX} bytes",
                shortened(method)
            )));
        }
        Ok(scan::check(text)?)
    }

    /// The value of `name` if it is a string that a name may be: the tool or the prompt.
    pub fn named(&self) -> Option<Cow<'a, str>> {
        let name = self.name.filter(|name| name.len() <= NAME_LEN_MAX);
        name.and_then(scan::string)
    }
}

/// Why a frame is invalid. `id` is present if it could be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed<'a> {
    /// The id of the frame, as JSON.
    pub id: Option<&'a str>,
    /// The JSON-RPC error code.
    pub code: i32,
    /// What is wrong, for the client.
    pub message: &'static str,
}

impl From<ScanError> for Malformed<'_> {
    fn from(error: ScanError) -> Self {
        let message = match error {
            ScanError::Syntax => "Parse error: the frame is not JSON",
            ScanError::TooDeep => "Parse error: the frame is nested too deeply",
        };
        Malformed {
            id: None,
            code: PARSE_ERROR,
            message,
        }
    }
}

/// Parses one frame.
///
/// # Errors
/// [`Malformed`] if the text is not JSON, nested too deeply, or not a JSON-RPC frame.
pub fn parse(text: &str) -> Result<Incoming<'_>, Malformed<'_>> {
    if text.trim_start().starts_with('[') {
        return batch(text);
    }
    if !text.trim_start().starts_with('{') {
        scan::check(text)?;
        return Err(invalid(None, "Invalid Request: a frame is a JSON object"));
    }
    let mut frame = Frame::default();
    scan::walk(
        text,
        |level, key| matches!((level, key), (0, "params") | (1, "arguments")),
        |level, key, value| frame.member(level, key, value),
    )?;
    frame.finish()
}

#[derive(Default)]
struct Frame<'a> {
    version: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<&'a str>,
    params: Params<'a>,
    outcome: Option<Result<&'a str, &'a str>>,
    repeated: bool,
    /// Members in addition to those of [`Params`], and their bytes.
    others_len: usize,
    others_bytes: usize,
}

impl<'a> Frame<'a> {
    fn member(&mut self, level: usize, key: Cow<'a, str>, value: &'a str) -> Result<(), Malformed<'a>> {
        let params = &mut self.params;
        let place = match (level, &*key) {
            (0, "jsonrpc") => &mut self.version,
            (0, "id") => &mut self.id,
            (0, "method") => &mut self.method,
            (0, "params") => {
                if !value.starts_with('{') {
                    scan::check(value)?;
                }
                &mut params.text
            }
            (0, "result") => {
                self.outcome = Some(Ok(value));
                return Ok(scan::check(value)?);
            }
            (0, "error") => {
                self.outcome = Some(Err(value));
                return Ok(scan::check(value)?);
            }
            (1, "name") => &mut params.name,
            (1, "arguments") => &mut params.arguments,
            (1, "_meta") => &mut params.meta,
            (2, _) => {
                if params.members.capacity() == 0 {
                    params.members.reserve(8);
                }
                if params.members.len() < MEMBERS_LEN_MAX {
                    params.members.push((key, value));
                }
                return Ok(());
            }
            _ => return Ok(self.other_member(value)?),
        };
        self.repeated |= place.replace(value).is_some();
        Ok(())
    }

    /// Checks a member in addition to those of [`Params`]. A frame with too many of them is refused, and they are not read.
    fn other_member(&mut self, value: &str) -> Result<(), ScanError> {
        self.others_len += 1;
        self.others_bytes += value.len();
        if self.has_too_many_others() {
            return Ok(());
        }
        scan::check(value)
    }

    fn has_too_many_others(&self) -> bool {
        self.others_len > OTHERS_LEN_MAX || self.others_bytes > OTHERS_BYTES_MAX
    }

    fn finish(self) -> Result<Incoming<'a>, Malformed<'a>> {
        let id = match self.id {
            Some(id) if is_id(id) => Some(id),
            Some(id) => {
                self.check_rest()?;
                scan::check(id)?;
                return Err(invalid(None, "Invalid Request: an id is a string or an integer"));
            }
            None => None,
        };
        if self.repeated || self.version != Some("\"2.0\"") {
            self.check_rest()?;
            return Err(invalid(
                id,
                "Invalid Request: jsonrpc must be \"2.0\", and no member may be repeated",
            ));
        }
        let Some(method) = self.method else {
            self.check_rest()?;
            return match self.outcome {
                Some(outcome) => Ok(Incoming::Response { id, outcome }),
                None => Err(invalid(id, "Invalid Request: no method")),
            };
        };
        if self.has_too_many_others() || method.len() > NAME_LEN_MAX {
            let reason = "Invalid Request: the method is too long, or the members other than the arguments are too many or too long";
            return Err(invalid(id, reason));
        }
        let Some(method) = scan::string(method) else {
            scan::check(method)?;
            return Err(invalid(id, "Invalid Request: the method is not a string"));
        };
        match id {
            Some(id) => Ok(Incoming::Request {
                id,
                method,
                params: self.params,
            }),
            None => Ok(Incoming::Notification {
                method,
                params: self.params,
            }),
        }
    }

    /// A frame that is invalid for its shape must still be JSON; otherwise it is a parse error.
    fn check_rest(&self) -> Result<(), ScanError> {
        [self.version, self.method, self.params.text]
            .into_iter()
            .flatten()
            .try_for_each(check_refused)
    }
}

fn invalid<'a>(id: Option<&'a str>, message: &'static str) -> Malformed<'a> {
    Malformed {
        id,
        code: INVALID_REQUEST,
        message,
    }
}

fn batch(text: &str) -> Result<Incoming<'_>, Malformed<'_>> {
    let mut frames = Vec::new();
    scan::elements::<Malformed<'_>>(text, |element| {
        if frames.len() == BATCH_LEN_MAX {
            return Err(invalid(None, "Invalid Request: a batch of more than 100"));
        }
        frames.push(element);
        Ok(())
    })?;
    // A batch that is not JSON as a whole is refused as a whole (JSON-RPC 2.0, section 6). The elements of a long one are
    // checked one by one.
    check_refused(text)?;
    if frames.is_empty() {
        return Err(invalid(None, "Invalid Request: an empty batch"));
    }
    Ok(Incoming::Batch(frames))
}

/// Whether this is a string or an integer, the ids of all revisions of MCP. Floats and null are none.
pub fn is_id(raw: &str) -> bool {
    let integer = {
        let digits = raw.strip_prefix('-').unwrap_or(raw).as_bytes();
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || digits[0] != b'0')
    };
    raw.len() <= ID_LEN_MAX && (integer || scan::string(raw).is_some())
}

/// A JSON-RPC error, as opposed to a result that reports a failure.
#[derive(Clone, Debug)]
pub struct RpcError {
    /// The JSON-RPC error code.
    pub code: i32,
    /// What is wrong, for the client.
    pub message: Cow<'static, str>,
    /// Details for programs.
    pub data: Option<Value>,
}

/// A server error (JSON-RPC 2.0, section 5.1): refused for this caller, or temporarily.
pub const REFUSED: i32 = -32000;

impl RpcError {
    /// An error without data.
    pub fn new(code: i32, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// An [`INVALID_PARAMS`] error.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// The error for a method that does not exist, or not in the era of the request.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("Method not found: {}", shortened(method)))
    }

    /// The error object of a response.
    pub fn to_json(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }

    /// Adds the `data` member.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}

impl From<ScanError> for RpcError {
    fn from(error: ScanError) -> Self {
        let Malformed { code, message, .. } = error.into();
        Self::new(code, message)
    }
}

/// The error for a text that could not be deserialized: a parse error if it is not JSON, invalid params otherwise.
pub fn deserialize_error(text: &str, error: &serde_json::Error) -> RpcError {
    if is_json(text) {
        RpcError::invalid_params(format!("Invalid params: {}", json_error_reason(error)))
    } else {
        ScanError::Syntax.into()
    }
}

/// Whether a text that could not be served was JSON at all.
pub fn is_json(text: &str) -> bool {
    scan::check(text).is_ok()
}

/// As [`scan::check`], for a text that is refused in any case: a long one is not read to its end.
///
/// # Errors
/// As [`scan::check`].
pub fn check_refused(text: &str) -> Result<(), ScanError> {
    if text.len() > CHECKED_BYTES_MAX {
        return Ok(());
    }
    scan::check(text)
}

/// The first 100 characters of a caller's text, for error messages.
pub fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

/// An error response, without an id if that of the request could not be read (2025-11-25 and 2026-07-28, basic/index).
pub fn error_response<'a>(id: Option<&'a str>, error: &RpcError) -> frame::Frame<'static, Option<&'a str>, Value> {
    frame::error(id, error.to_json())
}

#[cfg(test)]
mod tests {
    use common::json::frame::JsonText;

    use super::*;

    fn refused(text: &str) -> (i32, Option<&str>) {
        let malformed = parse(text).unwrap_err();
        (malformed.code, malformed.id)
    }

    #[test]
    fn requests_notifications_responses_and_batches_are_distinguished() {
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}"#).unwrap(),
            Incoming::Request {
                id: "7",
                method: "tools/call".into(),
                params: Params {
                    text: Some(r#"{"name":"x"}"#),
                    name: Some("\"x\""),
                    ..Params::default()
                }
            }
        );
        assert_eq!(
            parse(r#"{"method":"a\u002fb","jsonrpc":"2.0","id":"é"}"#).unwrap(),
            Incoming::Request {
                id: "\"é\"",
                method: "a/b".into(),
                params: Params::default()
            }
        );
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","method":"n"}"#).unwrap(),
            Incoming::Notification {
                method: "n".into(),
                params: Params::default()
            }
        );
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).unwrap(),
            Incoming::Response {
                id: Some("1"),
                outcome: Ok("{}")
            }
        );
        assert_eq!(parse("[1, {}]").unwrap(), Incoming::Batch(vec!["1", "{}"]));
    }

    #[test]
    fn a_text_that_is_not_json_is_a_parse_error_and_other_json_is_an_invalid_request() {
        for bad in [
            "",
            "{",
            "nonsense",
            "{\"jsonrpc\":\"2.0\",}",
            "[1,",
            "{\"id\":1x}",
            "{\"x\":[1,,2]}",
        ] {
            assert_eq!(refused(bad), (PARSE_ERROR, None), "{bad}");
        }
        for (bad, id) in [
            ("1", None),
            ("[]", None),
            ("{}", None),
            (r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, None),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, None),
            (r#"{"jsonrpc":"2.0","id":true,"method":"x"}"#, None),
            (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, Some("1")),
            (r#"{"jsonrpc":"2.0","id":"a","method":5}"#, Some("\"a\"")),
            (r#"{"jsonrpc":"2.0","id":1}"#, Some("1")),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#, Some("2")),
        ] {
            assert_eq!(refused(bad), (INVALID_REQUEST, id), "{bad}");
        }
    }

    #[test]
    fn errors_are_written_with_the_id_or_without() {
        let written = |id, message| error_response(id, &RpcError::new(PARSE_ERROR, message)).into_text();
        assert_eq!(
            written(None, "no \"JSON\""),
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no \"JSON\""}}"#
        );
        assert_eq!(
            written(Some("7"), ""),
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32700,"message":""}}"#
        );
    }
}
