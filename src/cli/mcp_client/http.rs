//! MCP over Streamable HTTP: each request is a POST, whose answer is a JSON object or a short stream of events.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::{
    Agent, Body,
    http::{HeaderValue, Response, StatusCode, header},
};

use super::{CallError, Era, McpClient, failed, hello, result_of};
use crate::cli::access::{BrokerAccess, BrokerUrl, ClientKey};

/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// An agent that gives up after `timeout`. It follows no redirects, and uses a proxy for `https://` alone: both could read
/// the key.
pub fn agent(url: &BrokerUrl, timeout: Duration) -> Agent {
    let mut config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .max_redirects(0)
        .http_status_as_error(false);
    if !url.is_https {
        config = config.proxy(None);
    }
    config.build().new_agent()
}

/// A client over HTTP. In the legacy era it has an HTTP session, which ends with it.
pub struct HttpClient {
    agent: Agent,
    url: String,
    key: Option<ClientKey>,
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
            agent: agent(&access.url, timeout),
            url: format!("{}/mcp", access.url.text),
            key: access.key.clone(),
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
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello()});
        let mut response = self.post("initialize", None, &hello)?;
        let session = response.headers().get("mcp-session-id");
        self.session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        result_of(answer(&mut response)?)?;
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.post("notifications/initialized", None, &ready).map(drop)
    }

    fn post(&self, method: &str, name: Option<&str>, frame: &Value) -> Result<Response<Body>, CallError> {
        let mut request = self
            .agent
            .post(&self.url)
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header(header::CONTENT_TYPE, "application/json");
        if self.era == Era::Modern || self.session.is_some() {
            request = request.header("mcp-protocol-version", self.era.version());
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        if self.era == Era::Modern {
            request = request.header("mcp-method", method);
            if let Some(name) = name {
                request = request.header("mcp-name", name);
            }
        }
        if let Some(key) = &self.key {
            request = request.header("x-api-key", secret(key)?);
        }
        let response = request.send(frame.to_string()).map_err(failed)?;
        match response.status() {
            StatusCode::UNAUTHORIZED => Err(CallError::KeyNeeded),
            status if status.is_success() => Ok(response),
            status => Err(failed(format!("POST /mcp answered {status}"))),
        }
    }
}

impl McpClient for HttpClient {
    fn request(&mut self, method: &str, mut params: Value) -> Result<Value, CallError> {
        self.era.complete(&mut params);
        let name = params["name"].as_str().map(str::to_owned);
        let frame = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut response = self.post(method, name.as_deref(), &frame)?;
        result_of(answer(&mut response)?)
    }
}

impl Drop for HttpClient {
    /// Ends the HTTP session.
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let mut request = self.agent.delete(&self.url).header("mcp-session-id", session);
            if let Some(Ok(key)) = self.key.as_ref().map(secret) {
                request = request.header("x-api-key", key);
            }
            let _ = request.call();
        }
    }
}

fn secret(key: &ClientKey) -> Result<HeaderValue, CallError> {
    let mut value = HeaderValue::from_str(key.expose()).map_err(failed)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The response in the body: a JSON object, or the event that has a result or an error.
fn answer(response: &mut Response<Body>) -> Result<Value, CallError> {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let body = response
        .body_mut()
        .with_config()
        .limit(ANSWER_BYTES_MAX)
        .read_to_string();
    let body = body.map_err(failed)?;
    if !is_stream {
        return serde_json::from_str(&body).map_err(|_| failed("POST /mcp answered with something other than JSON"));
    }
    let data = body.lines().filter_map(|line| line.strip_prefix("data:"));
    let mut frames = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let is_response = |frame: &Value| frame.get("result").is_some() || frame.get("error").is_some();
    frames
        .find(is_response)
        .ok_or_else(|| failed("the stream of POST /mcp ended without an answer"))
}
