//! One agent of the demo on the wire: a session over WebSocket or HTTP.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    access::BrokerAccess,
    mcp_client::{CallError, Era, HttpClient, McpClient, WebSocketClient},
};

/// Longest time for one answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// How an agent talks to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A connection that stays open.
    WebSocket(Era),
    /// A request for each call, in the modern era.
    Http,
}

enum Client {
    WebSocket(Box<WebSocketClient>),
    Http(Box<HttpClient>),
}

/// An agent with a session.
pub struct Agent {
    pub name: &'static str,
    client: Client,
    /// The id that each call passes. Empty on a connection, which acts as its session.
    session: String,
    /// Whether it gives no sign of life, as a program that hangs.
    pub is_silent: bool,
}

impl Agent {
    /// Connects, and registers a session of this name. An earlier session of the name is resumed.
    ///
    /// # Errors
    /// The broker does not answer, or refuses.
    pub fn join(
        access: &BrokerAccess,
        name: &'static str,
        way: Way,
        capabilities: &Value,
        role: &str,
    ) -> Result<Self, CallError> {
        let client = match way {
            Way::WebSocket(era) => Client::WebSocket(Box::new(WebSocketClient::connect(access, era, TIMEOUT)?)),
            Way::Http => Client::Http(Box::new(HttpClient::connect(access, Era::Modern, TIMEOUT)?)),
        };
        let mut agent = Self {
            name,
            client,
            session: String::new(),
            is_silent: false,
        };
        let arguments = json!({"name": name, "capabilities": capabilities, "metadata": {"role": role}});
        let session = agent.call("register_session", arguments)?;
        if way == Way::Http {
            session["session_id"]
                .as_str()
                .unwrap_or_default()
                .clone_into(&mut agent.session);
        }
        Ok(agent)
    }

    /// Calls a tool as this session.
    ///
    /// # Errors
    /// The broker does not answer, or refuses.
    pub fn call(&mut self, tool: &str, mut arguments: Value) -> Result<Value, CallError> {
        if !self.session.is_empty() {
            arguments["session_id"] = json!(self.session);
        }
        match &mut self.client {
            Client::WebSocket(client) => client.call(tool, arguments),
            Client::Http(client) => client.call(tool, arguments),
        }
    }

    /// Gives a sign of life for a while, unless the agent is silent: answers pings, or sends a heartbeat.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn stay_for(&mut self, time: Duration) -> Result<(), CallError> {
        if self.is_silent {
            return Ok(());
        }
        match &mut self.client {
            Client::WebSocket(client) => client.read_for(time),
            Client::Http(_) => self.call("heartbeat", json!({})).map(drop),
        }
    }
}
