//! What a client and a local broker say to each other before MCP, and what the broker says of itself.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The method of the first request of a client that starts brokers. Other clients may leave it out.
pub const METHOD: &str = "dev.mcp-broker/hello";
/// The method that ends a broker as SIGTERM does, after its answer.
pub const RETIRE: &str = "dev.mcp-broker/retire";
/// The method that returns a [`Status`].
pub const STATUS: &str = "dev.mcp-broker/status";
/// The notification that comes last on a connection that the broker closes, with the code and the reason of a WebSocket's
/// close frame.
pub const CLOSING: &str = "notifications/dev.mcp-broker/closing";
/// The kind of a client that asks and starts no broker.
pub const COMMAND: &str = "command";
/// The version of these methods that this build speaks.
pub const PROTOCOL: u32 = 1;

/// The `code` in the data of the error for a client without a valid key.
pub const AUTHENTICATION_FAILED: &str = "authentication_failed";

/// The longest text of a hello, in bytes.
const TEXT_LEN_MAX: usize = 256;
/// The longest directory, in bytes.
const DIRECTORY_LEN_MAX: usize = 4096;
/// Most ways in which an agent can be woken.
const WAKE_LEN_MAX: usize = 8;

/// What a client says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    /// The version of the client's program.
    pub version: String,
    /// The build of the client's program: [`build_id`](super::build_id).
    pub build: String,
    pub pid: u32,
    /// `connect` for the front of an agent, [`COMMAND`] for a command of a person, `start` for a check of a start.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
    /// The key that a broker with `local_auth` asks for. The broker reads it before the hello, and keeps none.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<HelloKey>,
}

/// A key that `Debug` does not show.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct HelloKey(pub String);

impl fmt::Debug for HelloKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HelloKey(..)")
    }
}

/// The agent behind a front.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Agent {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The name that the agent is to have unless another conversation has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_name: Option<String>,
    /// How the agent can be woken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wake: Vec<String>,
}

/// What a broker answers to a hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloResult {
    /// The version of these methods that the connection uses.
    pub protocol: u32,
    /// The lowest and the highest version that the broker speaks.
    pub protocols: [u32; 2],
    pub version: String,
    pub build: String,
    pub pid: u32,
    /// RFC 3339.
    pub started_at: String,
    /// The address of the HTTP server, such as `http://127.0.0.1:8000`.
    pub http: Option<String>,
    /// Connections of every transport, this one included.
    pub connections: usize,
    /// The broker ends now: the client waits until the connection closes and starts another.
    pub retiring: bool,
    /// A newer version that waits until the last client has left.
    pub upgrade: Option<String>,
    /// The digest of the lists that this client gets.
    pub lists: String,
    /// The name that was given for `auto_name`.
    pub name: Option<String>,
    /// The instructions of the backends that this client may use.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub backend_instructions: String,
}

/// The `data` of the error for a protocol that the broker does not speak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedProtocol {
    pub protocols: [u32; 2],
    pub version: String,
}

/// What a broker says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub pid: u32,
    pub version: String,
    pub build: String,
    /// RFC 3339.
    pub started_at: String,
    pub http: Option<String>,
    /// `memory`, `disk` or `redis`.
    pub storage: String,
    pub upgrade: Option<String>,
    /// The connections of the local transports.
    pub connections: Vec<ConnectionStatus>,
    /// What an operator should look at, most urgent first, in one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// One connection of a local transport.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// The process at the other end; absent for a FIFO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The kind of its hello; absent for a client that sent none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
    /// When it was accepted, RFC 3339.
    pub since: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The name of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Hello {
    /// Reads the `params` of a hello.
    ///
    /// # Errors
    /// Which member cannot be used, in one sentence.
    pub fn parse(params: &str) -> Result<Self, String> {
        let hello: Self = serde_json::from_str(params).map_err(|error| format!("the hello cannot be read: {error}"))?;
        hello.check()?;
        Ok(hello)
    }

    fn check(&self) -> Result<(), String> {
        let texts = [("version", &self.version), ("build", &self.build), ("kind", &self.kind)];
        texts
            .iter()
            .try_for_each(|(name, text)| check_text(name, text, TEXT_LEN_MAX))?;
        let Some(agent) = &self.agent else { return Ok(()) };
        let texts = [
            ("agent.product", &agent.product, TEXT_LEN_MAX),
            ("agent.product_version", &agent.product_version, TEXT_LEN_MAX),
            ("agent.conversation", &agent.conversation, TEXT_LEN_MAX),
            ("agent.directory", &agent.directory, DIRECTORY_LEN_MAX),
            ("agent.auto_name", &agent.auto_name, TEXT_LEN_MAX),
        ];
        let given = texts
            .into_iter()
            .filter_map(|(name, text, max)| Some((name, text.as_ref()?, max)));
        given
            .into_iter()
            .try_for_each(|(name, text, max)| check_text(name, text, max))?;
        if agent.wake.len() > WAKE_LEN_MAX {
            return Err(format!("agent.wake has more than {WAKE_LEN_MAX} items"));
        }
        agent
            .wake
            .iter()
            .try_for_each(|way| check_text("agent.wake", way, TEXT_LEN_MAX))
    }
}

fn check_text(name: &str, text: &str, len_max: usize) -> Result<(), String> {
    if text.len() > len_max {
        return Err(format!("{name} is longer than {len_max} bytes"));
    }
    if text.contains(char::is_control) {
        return Err(format!("{name} has a control character"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hello_is_bounded() {
        let valid = json!({"protocol": 1, "version": "0.1.0", "build": "9f2c1a07", "pid": 4711, "kind": "connect",
            "agent": {"product": "claude-code", "wake": ["inbox"], "later": true}});
        let hello = Hello::parse(&valid.to_string()).unwrap();
        assert_eq!(hello.agent.unwrap().wake, ["inbox"]);
        let with = |pointer: &str, value: serde_json::Value| {
            let mut changed = valid.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            Hello::parse(&changed.to_string())
        };
        let long = "x".repeat(TEXT_LEN_MAX + 1);
        for (pointer, value) in [
            ("/version", json!(long)),
            ("/kind", json!("a\nb")),
            ("/agent/product", json!(long)),
            ("/agent/wake", json!(["a", "b", "c", "d", "e", "f", "g", "h", "i"])),
            ("/agent/wake", json!([long])),
            ("/pid", json!(-1)),
            ("/protocol", json!("1")),
        ] {
            assert!(with(pointer, value).is_err(), "{pointer}");
        }
    }
}
