//! MCP over Streamable HTTP: each request is a POST, whose answer is a JSON object or a short stream of events.

use std::borrow::Cow;
use std::time::Duration;

use api::mcp::event_stream::{Event, EventDecoder};
use serde_json::{Value, json};
use ureq::http::{Method, Response, StatusCode, header};

use super::{CallError, Era, McpClient, failed, hello, result_of};
use crate::{
    access::BrokerAccess,
    client::{ApiRequest, Client},
};
use common::json::frame::{self, JsonText, NO_PARAMS};

/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// A client over HTTP. In the legacy era it has an HTTP session, which ends with it.
pub struct HttpClient {
    client: Client,
    timeout: Duration,
    era: Era,
    session: Option<String>,
}

impl HttpClient {
    /// Connects to a broker. In the legacy era it opens an HTTP session.
    ///
    /// # Errors
    /// The broker does not answer, or not as MCP says.
    pub fn connect(access: &BrokerAccess, era: Era, timeout: Duration) -> Result<Self, CallError> {
        let mut client = Self {
            client: Client::new(access.clone()),
            timeout,
            era,
            session: None,
        };
        match era {
            Era::Modern => drop(client.request("server/discover", json!({}))?),
            Era::Legacy => client.initialize()?,
        }
        Ok(client)
    }

    fn initialize(&mut self) -> Result<(), CallError> {
        let response = self.post(self.legacy_request(frame::request(0, "initialize", hello())))?;
        let session = response.headers().get("mcp-session-id");
        self.session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        result_of(parsed(&response)?)?;
        let ready = frame::notification("notifications/initialized", NO_PARAMS);
        self.post(self.legacy_request(ready)).map(drop)
    }

    /// A request of the legacy era, in the HTTP session if one is open.
    fn legacy_request(&self, frame: impl JsonText) -> ApiRequest {
        let ask = mcp_request(frame);
        match &self.session {
            Some(session) => ask
                .with_header("mcp-protocol-version", Era::Legacy.version())
                .with_header("mcp-session-id", session),
            None => ask,
        }
    }

    fn post(&self, mut ask: ApiRequest) -> Result<Response<String>, CallError> {
        ask.timeout = self.timeout;
        ask.bytes_max = ANSWER_BYTES_MAX;
        let response = self.client.exchange(&ask).map_err(failed)?;
        match response.status() {
            StatusCode::UNAUTHORIZED => Err(CallError::KeyNeeded),
            status if status.is_success() => Ok(response),
            status => Err(failed(format!("POST /mcp answered {status}"))),
        }
    }
}

impl McpClient for HttpClient {
    fn request(&mut self, method: &str, params: Value) -> Result<Value, CallError> {
        let ask = match self.era {
            Era::Modern => modern_request(method, params),
            Era::Legacy => self.legacy_request(frame::request(1, method, params)),
        };
        result_of(parsed(&self.post(ask)?)?)
    }
}

impl Drop for HttpClient {
    /// Ends the HTTP session.
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let mut ask = ApiRequest::new(Method::DELETE, "/mcp".to_owned()).with_header("mcp-session-id", session);
            ask.timeout = self.timeout;
            let _ = self.client.exchange(&ask);
        }
    }
}

/// A request of the modern era, which needs nothing but itself.
pub fn modern_request(method: &str, mut params: Value) -> ApiRequest {
    Era::Modern.complete(&mut params);
    let ask = mcp_request(frame::request(1, method, &params))
        .with_header("mcp-protocol-version", Era::Modern.version())
        .with_header("mcp-method", method);
    match params["name"].as_str() {
        Some(name) => ask.with_header("mcp-name", name),
        None => ask,
    }
}

fn mcp_request(frame: impl JsonText) -> ApiRequest {
    ApiRequest::new(Method::POST, "/mcp".to_owned())
        .with_header("accept", "application/json, text/event-stream")
        .with_text(frame.into_text())
}

/// The JSON-RPC response in an answer: the body, or the event of a stream that has a result or an error.
///
/// # Errors
/// The stream has no such event.
pub fn response_in(answer: &Response<String>) -> Result<Cow<'_, str>, CallError> {
    let kind = answer.headers().get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
        return Ok(Cow::Borrowed(answer.body()));
    }
    let mut found = None;
    EventDecoder::new(answer.body().len()).decode(answer.body().as_bytes(), |event| {
        if let Event::Data { data, .. } = event {
            let frame: Value = serde_json::from_str(data).unwrap_or_default();
            let is_response = frame.get("result").is_some() || frame.get("error").is_some();
            found = found.take().or_else(|| is_response.then(|| data.to_owned()));
        }
    });
    let found = found.ok_or_else(|| failed("the stream of POST /mcp ended without an answer"))?;
    Ok(Cow::Owned(found))
}

fn parsed(answer: &Response<String>) -> Result<Value, CallError> {
    serde_json::from_str(&response_in(answer)?).map_err(|_| failed("POST /mcp answered with something other than JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_the_body_or_the_event_that_has_it() {
        let answer = |kind: &str, body: &str| {
            let answer = Response::builder().header("content-type", kind);
            answer.body(body.to_owned()).unwrap()
        };
        let plain = answer("application/json", "{\"id\":1}");
        assert_eq!(response_in(&plain).unwrap(), "{\"id\":1}");
        let frames =
            ":\n\nevent: message\ndata: {\"method\":\"x\"}\n\nevent: message\ndata: {\"id\":1,\"result\":{}}\n\n";
        let stream = answer("text/event-stream", frames);
        assert_eq!(response_in(&stream).unwrap(), "{\"id\":1,\"result\":{}}");
        assert!(response_in(&answer("text/event-stream", ":\n\n")).is_err());
    }
}
