//! Sends one request to the REST API of a broker, and explains refusals to the user.

use std::io::ErrorKind;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use ureq::http::{self, HeaderValue, Method, StatusCode, header};
use ureq::{Agent, Body, Timeout};

use super::access::{BrokerAccess, BrokerUrl};
use super::table::escaped;

/// A request without the broker's address.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiRequest {
    pub method: Method,
    /// Path and query, percent-encoded.
    pub path: String,
    pub body: Option<Value>,
}

impl ApiRequest {
    /// A request without a body.
    pub fn new(method: Method, path: String) -> Self {
        let body = None;
        Self { method, path, body }
    }

    /// Adds a JSON body.
    pub fn with_body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }
}

/// Longest time from the first byte of the request to the last byte of the response. Connecting may take half of it, so
/// that an unreachable broker and a slow one are told apart.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

const RESPONSE_BYTES_MAX: u64 = 64 << 20;

/// Sends a request and returns the body of the response, which may be empty.
///
/// # Errors
/// One line that says what happened and what to do. It never contains the key.
pub fn send(access: &BrokerAccess, ask: &ApiRequest) -> Result<String, String> {
    send_request(access, ask).map_err(|line| match &access.key {
        Some(key) => key.redact(&line),
        None => line,
    })
}

fn send_request(access: &BrokerAccess, ask: &ApiRequest) -> Result<String, String> {
    let unsent = |error: http::Error| format!("the request could not be made: {error}");
    let mut request = http::Request::builder()
        .method(ask.method.clone())
        .uri(format!("{}{}", access.url.text, ask.path))
        .header(header::ACCEPT, "application/json, application/problem+json");
    if let Some(key) = &access.key {
        let mut value = HeaderValue::from_str(key.expose()).map_err(|error| unsent(error.into()))?;
        value.set_sensitive(true);
        request = request.header("x-api-key", value);
    }
    let answer = match &ask.body {
        Some(body) => {
            let request = request
                .header(header::CONTENT_TYPE, "application/json")
                .body(body.to_string());
            agent(&access.url, RESPONSE_TIMEOUT).run(request.map_err(unsent)?)
        }
        None => agent(&access.url, RESPONSE_TIMEOUT).run(request.body(()).map_err(unsent)?),
    };
    let broken = |error| transport_error(&access.url, RESPONSE_TIMEOUT, &error);
    let mut answer = answer.map_err(broken)?;
    let body = answer
        .body_mut()
        .with_config()
        .limit(RESPONSE_BYTES_MAX)
        .read_to_string();
    let body = body.map_err(broken)?;
    if answer.status().is_success() {
        return Ok(body);
    }
    Err(refusal(access, &answer, &body))
}

/// Asks for a path without a key, and succeeds if the answer has the status 200.
///
/// # Errors
/// One line that says what happened: the status, or why no answer came within `timeout`.
pub fn probe(url: &BrokerUrl, path: &str, timeout: Duration) -> Result<(), String> {
    let answer = agent(url, timeout).get(format!("{}{path}", url.text)).call();
    let answer = answer.map_err(|error| transport_error(url, timeout, &error))?;
    match answer.status() {
        StatusCode::OK => Ok(()),
        status => Err(format!("{}{path} answered {status}", escaped(&url.text))),
    }
}

/// Redirects are not followed: the key would go to another host.
fn agent(url: &BrokerUrl, timeout: Duration) -> Agent {
    let mut config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .timeout_connect(Some(timeout / 2))
        .max_redirects(0)
        .http_status_as_error(false)
        .user_agent(concat!("mcp-broker/", env!("CARGO_PKG_VERSION")));
    if !url.is_https {
        // A proxy from the environment would read the key, even of a broker on this machine.
        config = config.proxy(None);
    }
    config.build().new_agent()
}

/// Explains an error before or during the response.
fn transport_error(url: &BrokerUrl, timeout: Duration, error: &ureq::Error) -> String {
    let url = escaped(&url.text);
    match error {
        ureq::Error::Io(error) if is_connection_lost(error.kind()) => {
            format!("{url} closed the connection before it answered; {MAY_HAVE_HAPPENED}")
        }
        ureq::Error::Io(error) => cannot_reach(&url, &error.to_string()),
        ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed => cannot_reach(&url, &error.to_string()),
        ureq::Error::Timeout(_) => {
            format!(
                "{url} did not answer within {} s; {MAY_HAVE_HAPPENED}",
                timeout.as_secs()
            )
        }
        _ => {
            let reason = one_line(&error.to_string());
            format!("the answer of {url} cannot be used: {reason}; is it a broker? see --url")
        }
    }
}

const MAY_HAVE_HAPPENED: &str = "the request may have been carried out: check before you repeat it";

fn cannot_reach(url: &str, reason: &str) -> String {
    format!("cannot reach {url}: {}; is it running? see --url", one_line(reason))
}

/// The connection was made and then lost; the broker may have received the request.
fn is_connection_lost(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// The members of a problem document (RFC 9457) that are shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    title: Option<String>,
    code: Option<String>,
    detail: Option<Value>,
    retry_after_ms: Option<u64>,
}

fn refusal(access: &BrokerAccess, answer: &http::Response<Body>, body: &str) -> String {
    let status = answer.status();
    let problem: Problem = serde_json::from_str(body).unwrap_or_default();
    let Some(code) = &problem.code else {
        return unexpected_status(access, status);
    };
    let detail = match &problem.detail {
        Some(Value::String(detail)) => detail.clone(),
        Some(detail) if !detail.is_null() => detail.to_string(),
        _ => problem.title.clone().unwrap_or_else(|| status.to_string()),
    };
    let seconds = |value: &HeaderValue| value.to_str().ok()?.parse::<u64>().ok();
    let retry_after = answer.headers().get(header::RETRY_AFTER).and_then(seconds);
    let wait = problem.retry_after_ms.map(|ms| ms.div_ceil(1000)).or(retry_after);
    let line = format!("{}: {}", one_line(code), one_line(&detail));
    match next_step(access, code, wait) {
        Some(next) => format!("{line}; {next}"),
        None => line,
    }
}

/// Explains a response without a problem document: from another program, another version, or a proxy.
fn unexpected_status(access: &BrokerAccess, status: StatusCode) -> String {
    let url = escaped(&access.url.text);
    if status.is_redirection() {
        return format!(
            "{url} answered {status}; redirects are not followed, to protect the key: pass the new address as --url"
        );
    }
    format!("{url} answered {status} without an explanation; is it a broker of this version? see --url")
}

fn next_step(access: &BrokerAccess, code: &str, wait: Option<u64>) -> Option<String> {
    Some(match code {
        "authentication_failed" => match &access.key {
            Some(key) => format!(
                "the key from {} is not known there: give another with --key-file",
                key.source
            ),
            None => format!("no key was given: set {} or use --key-file", crate::config::API_KEY_ENV),
        },
        "forbidden" | "project_mismatch" => {
            "this requires the admin key, or a key of the project with the scope admin".to_owned()
        }
        "project_not_found" => "see mcp-broker project list --include-inactive".to_owned(),
        "project_exists" => "choose another id, or change that project with mcp-broker project update".to_owned(),
        "cross_project_disabled" => "see mcp-broker project update --help for --allow-cross-project".to_owned(),
        "rate_limited" | "unavailable" => match wait {
            Some(seconds) => format!("try again in {seconds} s"),
            None => "try again later".to_owned(),
        },
        _ => return None,
    })
}

const DETAIL_CHARS_MAX: usize = 500;

/// Makes a foreign text part of one line: short, and without terminal control characters.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let short: String = words.join(" ").chars().take(DETAIL_CHARS_MAX).collect();
    escaped(&short)
}

/// One segment of a path, or one value of a query, percent-encoded.
pub fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_would_end_a_path_segment_are_encoded() {
        assert_eq!(percent_encoded("acme-1_x.y~z"), "acme-1_x.y~z");
        assert_eq!(
            percent_encoded("a/b?c#d e%&=+,ü"),
            "a%2Fb%3Fc%23d%20e%25%26%3D%2B%2C%C3%BC"
        );
    }

    #[test]
    fn the_text_of_a_broker_becomes_one_line() {
        assert_eq!(
            one_line("two\nlines \u{1b}[2J\u{202e}"),
            "two lines \\u{1b}[2J\\u{202e}"
        );
        assert_eq!(one_line(&"x".repeat(2000)).len(), DETAIL_CHARS_MAX);
    }
}
