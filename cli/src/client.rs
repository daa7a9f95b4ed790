//! Sends one request to the REST API of a broker.

use std::io::ErrorKind;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::{self, HeaderValue, Method, StatusCode, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, AsSendBody, Body, BodyReader, Timeout};

use super::access::{BrokerAccess, BrokerUrl};
pub use super::error::ClientError;
use super::refusals::{self, one_line};
use super::table::escaped;
use common::{http_client, tls};

/// A request without the broker's address.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiRequest {
    pub method: Method,
    /// Path and query, percent-encoded.
    pub path: String,
    /// Headers besides those of every request.
    pub headers: Vec<(&'static str, String)>,
    /// JSON.
    pub body: Option<String>,
    /// Longest time from the first byte of the request to the last byte of the response.
    pub timeout: Duration,
    /// Most bytes of the response.
    pub bytes_max: u64,
}

impl ApiRequest {
    /// A request without a body.
    pub fn new(method: Method, path: String) -> Self {
        Self {
            method,
            path,
            headers: Vec::new(),
            body: None,
            timeout: RESPONSE_TIMEOUT,
            bytes_max: RESPONSE_BYTES_MAX,
        }
    }

    /// A request that reads.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path.into())
    }

    /// Adds a JSON body.
    pub fn with_body(self, body: Value) -> Self {
        self.with_text(body.to_string())
    }

    /// Adds a body that is JSON already.
    pub fn with_text(mut self, body: String) -> Self {
        self.body = Some(body);
        self
    }

    /// Adds a header.
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Waits longer: the broker itself may wait for this time before it answers.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.timeout = RESPONSE_TIMEOUT + wait;
        self
    }
}

/// A path with a query. Absent parts are left out; the others are `name=value`, encoded.
pub fn with_query(path: &str, parts: impl IntoIterator<Item = Option<String>>) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return path.to_owned();
    }
    let mark = if path.contains('?') { '&' } else { '?' };
    format!("{path}{mark}{}", parts.join("&"))
}

/// A part of a query, if it has a value.
pub fn parameter(name: &str, value: Option<impl AsRef<str>>) -> Option<String> {
    value.map(|value| format!("{name}={}", percent_encoded(value.as_ref())))
}

/// Longest time from the first byte of the request to the last byte of the response. Connecting may take half of it, so
/// that an unreachable broker and a slow one can be distinguished.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A stream on which nothing arrives for so long is opened again: its broker may be gone without a word.
const STREAM_SILENCE_MAX: Duration = Duration::from_secs(60);

const RESPONSE_BYTES_MAX: u64 = 64 << 20;

/// The header that names the project, for a key that may act in several.
pub const PROJECT_HEADER: &str = "x-project-id";

/// Reads JSON of the broker.
///
/// # Errors
/// Says where the answer is unexpected, without quoting it.
pub fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, ClientError> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        ClientError::new(format!(
            "the answer of the broker has an unknown form (line {line}, column {column}); is it a broker of this \
             version? see --url"
        ))
    })
}

/// Takes the key out of an error: a broker may quote what it received.
fn redacted(mut error: ClientError, access: &BrokerAccess) -> ClientError {
    if let Some(key) = &access.key {
        error.line = key.redact(&error.line);
    }
    error
}

/// Sends a request and returns the body of the response, which may be empty.
///
/// # Errors
/// One line that says what happened and what to do. It never contains the key.
pub fn send(access: &BrokerAccess, ask: &ApiRequest) -> Result<String, String> {
    Client::new(access.clone()).send(ask).map_err(|error| error.line)
}

/// A client that keeps its connections for later requests. Clones share them.
#[derive(Debug, Clone)]
pub struct Client {
    pub access: BrokerAccess,
    agent: Agent,
    /// Headers of every request.
    headers: Vec<(&'static str, String)>,
}

impl Client {
    /// A client of this broker. Nothing is sent yet.
    pub fn new(access: BrokerAccess) -> Self {
        let agent = agent(&access.url);
        Self {
            access,
            agent,
            headers: Vec::new(),
        }
    }

    /// Sends a header with every request.
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sends a request and returns the body of the response, which may be empty.
    ///
    /// # Errors
    /// What happened; a refusal has the code of the broker.
    pub fn send(&self, ask: &ApiRequest) -> Result<String, ClientError> {
        self.respond(ask).map(http::Response::into_body)
    }

    /// Asks for an object.
    ///
    /// # Errors
    /// Those of [`Self::send`], or the answer has another form.
    pub fn get<T: DeserializeOwned>(&self, path: impl Into<String>) -> Result<T, ClientError> {
        parsed(&self.send(&ApiRequest::get(path))?)
    }

    /// As [`Self::send`]. An answer in JSON that is no problem document is none with these statuses, too.
    ///
    /// # Errors
    /// What happened; a refusal has the code of the broker.
    pub fn send_for(&self, ask: &ApiRequest, statuses: &[StatusCode]) -> Result<String, ClientError> {
        let is_answer = |response: &http::Response<String>| {
            let kind = response.headers().get(header::CONTENT_TYPE);
            statuses.contains(&response.status()) && kind.is_some_and(|kind| kind == "application/json")
        };
        self.respond_if(ask, is_answer).map(http::Response::into_body)
    }

    /// Sends a request and returns the response, whose status is one of success.
    ///
    /// # Errors
    /// What happened; a refusal has the code of the broker.
    pub fn respond(&self, ask: &ApiRequest) -> Result<http::Response<String>, ClientError> {
        self.respond_if(ask, |_| false)
    }

    fn respond_if(
        &self,
        ask: &ApiRequest,
        is_answer: impl Fn(&http::Response<String>) -> bool,
    ) -> Result<http::Response<String>, ClientError> {
        let response = self.exchange(ask);
        let response =
            response.map_err(|error| ClientError::new(transport_error(&self.access.url, ask.timeout, &error)));
        let response = response.and_then(|response| {
            if response.status().is_success() || is_answer(&response) {
                Ok(response)
            } else {
                Err(refusals::of_response(&self.access, &response, response.body()))
            }
        });
        response.map_err(|error| redacted(error, &self.access))
    }

    /// Sends a request and returns the response, of success or not.
    ///
    /// # Errors
    /// No response came, or it cannot be read. The text may contain the key.
    pub fn exchange(&self, ask: &ApiRequest) -> Result<http::Response<String>, ureq::Error> {
        let timeouts = Timeouts {
            whole: Some(ask.timeout),
            silence: None,
        };
        let (head, mut body) = self.run(ask, &timeouts)?.into_parts();
        let body = body.with_config().limit(ask.bytes_max).read_to_string()?;
        Ok(http::Response::from_parts(head, body))
    }

    /// Sends a request whose response does not end, and returns its body. A read of the body fails after a minute without
    /// a byte.
    ///
    /// # Errors
    /// What happened; a refusal has the code of the broker.
    pub fn open_stream(&self, ask: &ApiRequest) -> Result<BodyReader<'static>, ClientError> {
        let silence = STREAM_SILENCE_MAX;
        let broken = |error| ClientError::new(transport_error(&self.access.url, silence, &error));
        let timeouts = Timeouts {
            whole: None,
            silence: Some(silence),
        };
        let opened = self.run(ask, &timeouts).map_err(broken);
        let mut response = opened.map_err(|error| redacted(error, &self.access))?;
        if response.status().is_success() {
            return Ok(response.into_body().into_reader());
        }
        let body = response.body_mut().with_config().limit(RESPONSE_BYTES_MAX);
        let body = body.read_to_string().map_err(broken)?;
        Err(redacted(
            refusals::of_response(&self.access, &response, &body),
            &self.access,
        ))
    }

    fn run(&self, ask: &ApiRequest, timeouts: &Timeouts) -> Result<http::Response<Body>, ureq::Error> {
        let mut request = http::Request::builder()
            .method(ask.method.clone())
            .uri(format!("{}{}", self.access.url.text, ask.path));
        if !ask.headers.iter().any(|(name, _)| *name == header::ACCEPT) {
            request = request.header(header::ACCEPT, "application/json, application/problem+json");
        }
        for (name, value) in self.headers.iter().chain(&ask.headers) {
            request = request.header(*name, value);
        }
        if let Some(project) = &self.access.project
            && !self
                .headers
                .iter()
                .chain(&ask.headers)
                .any(|(name, _)| *name == PROJECT_HEADER)
        {
            request = request.header(PROJECT_HEADER, project);
        }
        if let Some(key) = &self.access.key {
            let mut value = HeaderValue::from_str(key.expose()).map_err(http::Error::from)?;
            value.set_sensitive(true);
            request = request.header("x-api-key", value);
        }
        match &ask.body {
            Some(body) => {
                let request = request
                    .header(header::CONTENT_TYPE, "application/json")
                    .body(body.as_str())?;
                self.agent.run(timeouts.apply(&self.agent, request))
            }
            None => self.agent.run(timeouts.apply(&self.agent, request.body(())?)),
        }
    }
}

/// The time limits of one request.
struct Timeouts {
    whole: Option<Duration>,
    /// The longest silence within the response.
    silence: Option<Duration>,
}

impl Timeouts {
    fn apply<S: AsSendBody>(&self, agent: &Agent, request: http::Request<S>) -> http::Request<S> {
        agent
            .configure_request(request)
            .timeout_global(self.whole)
            .timeout_per_read(self.silence)
            .timeout_recv_response(self.silence)
            .timeout_connect(self.whole.or(self.silence).map(|time| time.min(RESPONSE_TIMEOUT) / 2))
            .build()
    }
}

/// Asks for a path without a key, and succeeds if the answer has the status 200.
///
/// # Errors
/// One line that says what happened: the status, or why no answer came within `timeout`.
pub fn probe(url: &BrokerUrl, path: &str, timeout: Duration) -> Result<(), String> {
    let timeouts = Timeouts {
        whole: Some(timeout),
        silence: None,
    };
    let agent = agent(url);
    let request = http::Request::get(format!("{}{path}", url.text)).body(());
    let answer = request.map_err(ureq::Error::from);
    let answer = answer.and_then(|request| agent.run(timeouts.apply(&agent, request)));
    let answer = answer.map_err(|error| transport_error(url, timeout, &error))?;
    match answer.status() {
        StatusCode::OK => Ok(()),
        status => Err(format!("{}{path} answered {status}", escaped(&url.text))),
    }
}

fn agent(url: &BrokerUrl) -> Agent {
    let mut config = http_client::config();
    if url.is_https {
        config = config.tls_config(TlsConfig::builder().root_certs(root_certs()).build());
    } else {
        // A proxy from the environment would read the key, even of a broker on this machine.
        config = config.proxy(None);
    }
    config.build().new_agent()
}

/// The authorities of [`Roots::User`](tls::Roots::User).
fn root_certs() -> RootCerts {
    let certificates = tls::user_certificates();
    if certificates.is_empty() {
        return RootCerts::WebPki;
    }
    let certificates = certificates.iter().map(|known| Certificate::from_der(known).to_owned());
    certificates.into()
}

/// Explains an error before or during the response.
fn transport_error(url: &BrokerUrl, timeout: Duration, error: &ureq::Error) -> String {
    let cannot_reach = |reason: String| cannot_reach(url, &reason);
    let url = escaped(&url.text);
    match error {
        ureq::Error::Io(error) if is_connection_lost(error.kind()) => {
            format!("{url} closed the connection before it answered; {MAY_HAVE_HAPPENED}")
        }
        ureq::Error::Io(error) => cannot_reach(error.to_string()),
        ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed => cannot_reach(error.to_string()),
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

fn cannot_reach(url: &BrokerUrl, reason: &str) -> String {
    let (shown, reason) = (escaped(&url.text), one_line(reason));
    if url.is_default() {
        return format!(
            "your broker does not run, and {shown} cannot be reached ({reason}); mcp-broker start starts it, --url names \
             another"
        );
    }
    format!("cannot reach {shown}: {reason}; is it running? see --url")
}

/// The connection was made and then lost; the broker may have received the request.
fn is_connection_lost(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// One segment of a path, or one value of a query, percent-encoded.
pub fn percent_encoded(text: &str) -> String {
    /// All characters but the unreserved ones (RFC 3986, section 2.3).
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, ESCAPED).to_string()
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
}
