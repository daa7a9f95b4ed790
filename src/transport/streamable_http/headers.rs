//! What the headers of a request say: its era, whether they agree with its body (2026-07-28,
//! basic/transports/streamable-http), and the media types of its body and of its answer.

use std::borrow::Cow;

use actix_web::http::{
    StatusCode,
    header::{self, HeaderMap, HeaderValue},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::refusal::Refusal;
use api::mcp::{
    ResponseForm,
    mirrored::{self, MirroredParameter},
    rpc::{self, HEADER_MISMATCH, INVALID_REQUEST, METHOD_NOT_FOUND, Params, RpcError},
    tools,
    version::{LEGACY, MODERN, RequestMeta},
};

const PROTOCOL_VERSION: &str = "MCP-Protocol-Version";
const METHOD: &str = "Mcp-Method";
const NAME: &str = "Mcp-Name";

/// Whether the headers name the modern revision.
pub fn is_modern(headers: &HeaderMap) -> bool {
    headers
        .get(PROTOCOL_VERSION)
        .is_some_and(|version| version.as_bytes() == MODERN.as_bytes())
}

/// The task id of a modern request. Clients encode only non-ASCII ids, and the broker makes none.
pub fn task_id(headers: &HeaderMap) -> Option<&str> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    text(NAME).filter(|_| text(METHOD).is_some_and(|method| method.starts_with("tasks/")))
}

/// Checks that a legacy request names a known protocol version. Any known one is accepted.
///
/// # Errors
/// 400 for an unknown version (2025-06-18 and 2025-11-25, basic/transports, Protocol Version Header).
pub fn check_legacy_version(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get(PROTOCOL_VERSION) {
        Some(version) if !is_supported_version(version) => Err(unsupported_version(version)),
        _ => Ok(()),
    }
}

fn is_supported_version(version: &HeaderValue) -> bool {
    LEGACY
        .iter()
        .chain([&MODERN])
        .any(|known| known.as_bytes() == version.as_bytes())
}

fn unsupported_version(version: &HeaderValue) -> Refusal {
    let requested = String::from_utf8_lossy(version.as_bytes());
    let data = json!({"supported": [MODERN], "requested": requested});
    let error = RpcError::new(rpc::UNSUPPORTED_VERSION, "Unsupported protocol version").with_data(data);
    Refusal::new(StatusCode::BAD_REQUEST, error)
}

/// Decides the era of a request. A modern one has its headers and `_meta` checked and returns them; `None` means
/// legacy.
///
/// # Errors
/// 400: -32020 when header and body differ, -32022 for an unsupported version, -32602 for incomplete `_meta`.
pub fn check_era(headers: &HeaderMap, method: &str, params: &Params<'_>) -> Result<Option<RequestMeta>, Refusal> {
    let refuse = |error| Refusal::new(StatusCode::BAD_REQUEST, error);
    let meta = match RequestMeta::parse(params) {
        Ok(meta) => meta,
        // Without the modern header an unreadable `_meta` makes no modern request.
        Err(_) if !is_modern(headers) => return Ok(None),
        Err(error) => return Err(refuse(error)),
    };
    let version = match &meta.protocol_version {
        // A client of both eras may name the modern version in an `initialize`.
        None if !is_modern(headers) || method == "initialize" => return Ok(None),
        version => version.as_ref(),
    };
    let header = single_value(headers, PROTOCOL_VERSION).map_err(refuse)?;
    match (header, version) {
        (None, _) => return Err(refuse(missing(PROTOCOL_VERSION))),
        (Some(header), Some(Value::String(version))) if header != *version => {
            return Err(refuse(mismatch(PROTOCOL_VERSION, &header, version)));
        }
        _ => {}
    }
    meta.check_modern().map_err(refuse)?;
    check_mirrored(headers, METHOD, method, false).map_err(refuse)?;
    check_name_header(headers, method, params).map_err(refuse)?;
    Ok(Some(meta))
}

/// Checks `Mcp-Name`, and the headers of the parameters that a tool mirrors.
fn check_name_header(headers: &HeaderMap, method: &str, params: &Params<'_>) -> Result<(), RpcError> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Names<'a> {
        #[serde(borrow)]
        uri: Option<Cow<'a, str>>,
        #[serde(borrow)]
        task_id: Option<Cow<'a, str>>,
    }
    let names = || -> Names<'_> {
        params
            .text
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    };
    let name = match method {
        "tools/call" | "prompts/get" => params.named(),
        "resources/read" => names().uri,
        "tasks/get" | "tasks/update" | "tasks/cancel" => names().task_id,
        _ => return Ok(()),
    };
    // A missing name in the body is refused by the method itself.
    let Some(name) = name else { return Ok(()) };
    check_mirrored(headers, NAME, &name, true)?;
    if method != "tools/call" {
        return Ok(());
    }
    for parameter in tools::mirrored_parameters(&name) {
        check_parameter_header(headers, parameter, params)?;
    }
    Ok(())
}

fn check_parameter_header(
    headers: &HeaderMap,
    parameter: &MirroredParameter,
    params: &Params<'_>,
) -> Result<(), RpcError> {
    let arguments: Value = params
        .arguments
        .and_then(|arguments| serde_json::from_str(arguments).ok())
        .unwrap_or_default();
    let name = &parameter.header;
    let header = single_value(headers, name)?
        .map(|value| decode_value(name, value))
        .transpose()?;
    let body = arguments.pointer(&parameter.pointer).filter(|body| !body.is_null());
    match (header, body) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(missing(name)),
        (Some(header), None) => Err(mismatch(name, &header, "")),
        (Some(header), Some(body)) => {
            let same = match body {
                Value::String(text) => header == *text,
                Value::Number(_) => is_integer(&header, body),
                _ => header == body.to_string(),
            };
            if same {
                Ok(())
            } else {
                Err(mismatch(name, &header, &body.to_string()))
            }
        }
    }
}

/// Compares integers by value: 42 and 42.0 are equal.
fn is_integer(header: &str, body: &Value) -> bool {
    let whole = match header.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|digit| digit == b'0') => whole,
        Some(_) => return false,
        None => header,
    };
    whole.parse::<i64>().is_ok_and(|header| body.as_i64() == Some(header))
}

/// Checks that a header has the value of the body.
fn check_mirrored(headers: &HeaderMap, name: &str, body: &str, encodable: bool) -> Result<(), RpcError> {
    let header = single_value(headers, name)?.ok_or_else(|| missing(name))?;
    let header = if encodable { decode_value(name, header)? } else { header };
    if header == body {
        Ok(())
    } else {
        Err(mismatch(name, &header, body))
    }
}

/// Returns the single value of a header, without surrounding white space.
fn single_value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<Cow<'a, str>>, RpcError> {
    let mut values = headers.get_all(name);
    let Some(value) = values.next() else { return Ok(None) };
    match (values.next(), value.to_str()) {
        (None, Ok(text)) => Ok(Some(Cow::Borrowed(text.trim_matches([' ', '\t'])))),
        (None, Err(_)) => Err(RpcError::new(
            HEADER_MISMATCH,
            format!("Header mismatch: {name} has invalid characters"),
        )),
        (Some(_), _) => Err(RpcError::new(
            HEADER_MISMATCH,
            format!("Header mismatch: {name} is given twice"),
        )),
    }
}

fn decode_value<'a>(name: &str, value: Cow<'a, str>) -> Result<Cow<'a, str>, RpcError> {
    mirrored::decoded(value).ok_or_else(|| {
        RpcError::new(
            HEADER_MISMATCH,
            format!("Header mismatch: {name} is not Base64 of UTF-8"),
        )
    })
}

fn missing(name: &str) -> RpcError {
    RpcError::new(HEADER_MISMATCH, format!("Header mismatch: {name} is missing"))
}

fn mismatch(name: &str, header: &str, body: &str) -> RpcError {
    let shortened = |text: &str| text.chars().take(100).collect::<String>();
    let (header, body) = (shortened(header), shortened(body));
    RpcError::new(
        HEADER_MISMATCH,
        format!("Header mismatch: {name} header value '{header}' does not match body value '{body}'"),
    )
}

/// The HTTP status of an answer to a modern request.
pub fn modern_status(error: Option<i32>) -> StatusCode {
    match error {
        Some(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(
            rpc::PARSE_ERROR | INVALID_REQUEST | HEADER_MISMATCH | rpc::MISSING_CAPABILITY | rpc::UNSUPPORTED_VERSION,
        ) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// The HTTP status of an answer in a session: 200 for JSON-RPC errors too, unless the request was unreadable.
pub fn legacy_status(error: Option<i32>) -> StatusCode {
    match error {
        Some(rpc::PARSE_ERROR | INVALID_REQUEST) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// The media types that a caller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepts {
    json: bool,
    events: bool,
    /// Events were named before JSON.
    prefers_events: bool,
}

impl Accepts {
    /// A caller that accepts events only.
    pub const EVENTS: Self = Self {
        json: false,
        events: true,
        prefers_events: true,
    };

    /// Whether events are accepted.
    pub fn events(self) -> bool {
        self.events
    }

    /// The form of an answer. A caller that names events first gets events, even for an answer that is ready at once.
    pub fn form(self) -> ResponseForm {
        match (self.json, self.events) {
            (true, true) if !self.prefers_events => ResponseForm::Either,
            (true, true) => ResponseForm::Events,
            (false, true) => ResponseForm::EventsOnly,
            (_, false) => ResponseForm::Whole,
        }
    }
}

/// Parses `Accept`; without it everything is accepted (RFC 9110, section 12.5.1).
///
/// # Errors
/// 406 when neither JSON nor events are accepted.
pub fn accepts(headers: &HeaderMap) -> Result<Accepts, Refusal> {
    let mut accepts = Accepts {
        json: false,
        events: false,
        prefers_events: false,
    };
    let mut any = false;
    for value in headers.get_all(header::ACCEPT) {
        any = true;
        for range in value.to_str().unwrap_or("").split(',') {
            let mut parts = range.split(';').map(str::trim);
            let range = parts.next().unwrap_or("");
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            if weight.and_then(|weight| weight.parse().ok()) == Some(0.0) {
                continue;
            }
            if ["application/json", "application/*", "*/*"]
                .iter()
                .any(|known| range.eq_ignore_ascii_case(known))
            {
                accepts.json = true;
            }
            if ["text/event-stream", "text/*", "*/*"]
                .iter()
                .any(|known| range.eq_ignore_ascii_case(known))
            {
                accepts.prefers_events |= !accepts.json;
                accepts.events = true;
            }
        }
    }
    if !any {
        (accepts.json, accepts.events) = (true, true);
    }
    if accepts.json || accepts.events {
        return Ok(accepts);
    }
    Err(not_acceptable())
}

/// 406: the caller does not accept the form of the answer.
pub fn not_acceptable() -> Refusal {
    let error = RpcError::new(
        INVALID_REQUEST,
        "Not Acceptable: accept application/json and text/event-stream",
    );
    Refusal::new(StatusCode::NOT_ACCEPTABLE, error)
}

/// Checks the media type of the body.
///
/// # Errors
/// 415 when it is not JSON.
pub fn check_content_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let kind = value.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
        kind.eq_ignore_ascii_case("application/json")
    });
    if is_json {
        return Ok(());
    }
    let error = RpcError::new(
        INVALID_REQUEST,
        "Unsupported Media Type: the Content-Type must be application/json",
    );
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;
    use base64::{Engine, engine::general_purpose::STANDARD};
    use proptest::prelude::*;

    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.parse().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn checked(lines: &[(&str, &str)], body: &str) -> Result<bool, i32> {
        let Ok(rpc::Incoming::Request { method, params, .. }) = rpc::parse(body) else {
            panic!("not a request: {body}");
        };
        check_era(&headers(lines), &method, &params)
            .map(|meta| meta.is_some())
            .map_err(|refusal| refusal.error.code)
    }

    const VERSION: (&str, &str) = ("mcp-protocol-version", MODERN);

    fn read(uri: &str) -> String {
        json!({
            "jsonrpc": "2.0", "id": 1, "method": "resources/read",
            "params": {"uri": uri, "_meta": {
                "io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {},
            }},
        })
        .to_string()
    }

    #[test]
    fn the_body_or_the_header_names_the_era() {
        let bare = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        assert_eq!(checked(&[], bare), Ok(false));
        assert_eq!(checked(&[("mcp-protocol-version", "2025-11-25")], bare), Ok(false));
        assert_eq!(checked(&[VERSION], bare), Err(rpc::INVALID_PARAMS));
        let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        assert_eq!(checked(&[VERSION], initialize), Ok(false));
        assert_eq!(checked(&[], &read("a")), Err(HEADER_MISMATCH));
        assert_eq!(
            checked(&[("mcp-protocol-version", "2025-11-25")], &read("a")),
            Err(HEADER_MISMATCH)
        );
    }

    #[test]
    fn an_encoded_header_value_is_decoded_before_it_is_compared() {
        let with = |name: &'static str| checked(&[VERSION, (METHOD, "resources/read"), (NAME, name)], &read("é"));
        assert_eq!(with("=?base64?w6k=?="), Ok(true));
        assert_eq!(with(" =?base64?w6k=?= "), Ok(true));
        for wrong in [
            "e",
            "=?base64?w6k?=",
            "=?BASE64?w6k=?=",
            "=?base64?w6k=",
            "=?base64?/w==?=",
            "",
        ] {
            assert_eq!(with(wrong), Err(HEADER_MISMATCH), "{wrong}");
        }
        let twice = [VERSION, (METHOD, "resources/read"), (NAME, "a"), (NAME, "a")];
        assert_eq!(checked(&twice, &read("a")), Err(HEADER_MISMATCH));
        let other_case = [VERSION, (METHOD, "Resources/Read"), (NAME, "a")];
        assert_eq!(checked(&other_case, &read("a")), Err(HEADER_MISMATCH));
    }

    #[test]
    fn integers_are_compared_by_value() {
        for (header, body, same) in [
            ("42", json!(42), true),
            ("42.0", json!(42), true),
            ("-7", json!(-7), true),
            ("42.", json!(42), false),
            ("42.5", json!(42), false),
            ("9007199254740993", json!(9_007_199_254_740_992_i64), false),
            ("1e3", json!(1000), false),
        ] {
            assert_eq!(is_integer(header, &body), same, "{header} {body}");
        }
    }

    proptest! {
        #[test]
        fn a_header_value_encoded_by_a_client_is_decoded_to_the_same_text(uri in "\\PC{0,40}") {
            let encoded = format!("=?base64?{}?=", STANDARD.encode(&uri));
            let lines = [VERSION, (METHOD, "resources/read"), (NAME, encoded.as_str())];
            prop_assert_eq!(checked(&lines, &read(&uri)), Ok(true));
        }
    }

    fn form(accept: &[&str]) -> Option<ResponseForm> {
        let lines: Vec<_> = accept.iter().map(|value| ("accept", *value)).collect();
        accepts(&headers(&lines)).ok().map(Accepts::form)
    }

    #[test]
    fn the_accept_header_decides_the_form_of_the_answers() {
        for (accept, expected) in [
            (&[][..], Some(ResponseForm::Either)),
            (&["application/json, text/event-stream"], Some(ResponseForm::Either)),
            (&["application/json", "text/event-stream"], Some(ResponseForm::Either)),
            (&["*/*"], Some(ResponseForm::Either)),
            (
                &["APPLICATION/JSON;q=0.5,Text/Event-Stream"],
                Some(ResponseForm::Either),
            ),
            (&["text/event-stream, application/json"], Some(ResponseForm::Events)),
            (&["text/event-stream"], Some(ResponseForm::EventsOnly)),
            (&["text/*"], Some(ResponseForm::EventsOnly)),
            (&["application/json"], Some(ResponseForm::Whole)),
            (&["application/*"], Some(ResponseForm::Whole)),
            (
                &["application/json;q=0, text/event-stream"],
                Some(ResponseForm::EventsOnly),
            ),
            (&["text/event-stream; q=0.0, */*;q=0.1"], Some(ResponseForm::Either)),
            (&["text/html"], None),
            (&[""], None),
        ] {
            assert_eq!(form(accept), expected, "{accept:?}");
        }
    }
}
