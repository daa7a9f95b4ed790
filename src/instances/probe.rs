//! Which era a backend speaks. Both openings are sent in one write, and the first valid answer decides: no timer is
//! involved, and no error code is trusted. Pure.
//!
//! Servers differ (docs/decisions/0043-gateway.md): some answer both, some lock the connection to whichever comes first, and
//! old ones end when the first message is not `initialize`. These are started again with `initialize` alone.

use actors::{
    gateway::{CallNumber, Profile, ServerInfo},
    json::member,
    model::BackendEra,
};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use api::mcp::version::{LEGACY, MODERN};
use common::json::{
    frame::{self, JsonText},
    whole_number,
};

/// The ids of the two openings. Calls have far higher numbers.
const DISCOVER: CallNumber = CallNumber(1);
const INITIALIZE: CallNumber = CallNumber(2);
/// The notification that ends a legacy handshake.
pub const INITIALIZED: &str = "notifications/initialized";

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Both, in one write.
    Both,
    /// `initialize`.
    Legacy,
    /// `server/discover`.
    Modern,
}

impl From<Option<BackendEra>> for Opening {
    fn from(era: Option<BackendEra>) -> Self {
        match era {
            None => Self::Both,
            Some(BackendEra::Legacy) => Self::Legacy,
            Some(BackendEra::Modern) => Self::Modern,
        }
    }
}

/// The handshake with one instance.
#[derive(Debug)]
pub struct Probe {
    waits_for_discover: bool,
    waits_for_initialize: bool,
    refusals: Vec<String>,
}

/// What an answer means.
#[derive(Debug)]
pub enum ProbeStep {
    /// Another answer is awaited.
    Wait,
    /// The era is agreed.
    Agreed(BackendEra, ServerInfo),
    /// The backend speaks neither era: why.
    Refused(String),
}

/// The client that the broker is towards backends.
fn client_info() -> Value {
    json!({"name": "mcp-broker", "version": env!("CARGO_PKG_VERSION")})
}

/// The `_meta` of the broker's own requests to a modern backend.
pub fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": client_info(),
    })
}

impl Probe {
    /// A probe, and the lines to be sent. A legacy backend gets the capabilities of its client once, here.
    pub fn begin(opening: Opening, profile: Profile) -> (Self, Vec<String>) {
        let asks_modern = opening != Opening::Legacy;
        let asks_legacy = opening != Opening::Modern;
        let mut lines = Vec::new();
        if asks_modern {
            let params = json!({"_meta": modern_meta()});
            lines.push(request(DISCOVER, "server/discover", &params.to_string()));
        }
        if asks_legacy {
            let params = format!(
                "{{\"protocolVersion\":\"{}\",\"capabilities\":{},\"clientInfo\":{}}}",
                LEGACY[0],
                profile.to_json(),
                client_info()
            );
            lines.push(request(INITIALIZE, "initialize", &params));
        }
        let probe = Self {
            waits_for_discover: asks_modern,
            waits_for_initialize: asks_legacy,
            refusals: Vec::new(),
        };
        (probe, lines)
    }

    /// Whether a number is that of an opening.
    pub fn is_opening(number: CallNumber) -> bool {
        number == DISCOVER || number == INITIALIZE
    }

    /// Takes an answer: a result or an error as JSON.
    pub fn answer(&mut self, number: CallNumber, outcome: Result<&str, &str>) -> ProbeStep {
        let agreed = match (number, outcome) {
            (DISCOVER, Ok(result)) => read_discover(result).map(|server| (BackendEra::Modern, server)),
            (INITIALIZE, Ok(result)) => read_initialize(result).map(|server| (BackendEra::Legacy, server)),
            (DISCOVER | INITIALIZE, Err(error)) => Err(error_text(error)),
            _ => return ProbeStep::Wait,
        };
        match agreed {
            Ok((era, server)) => return ProbeStep::Agreed(era, server),
            Err(reason) if number == DISCOVER => {
                self.waits_for_discover = false;
                self.refusals.push(format!("server/discover: {reason}"));
            }
            Err(reason) => {
                self.waits_for_initialize = false;
                self.refusals.push(format!("initialize: {reason}"));
            }
        }
        if self.waits_for_discover || self.waits_for_initialize {
            ProbeStep::Wait
        } else {
            ProbeStep::Refused(format!("it refuses the handshake ({})", self.refusals.join("; ")))
        }
    }
}

fn request(CallNumber(id): CallNumber, method: &str, params: &str) -> String {
    frame::request(id, method, params).into_text()
}

/// The members that both handshakes have in common.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Greeting {
    protocol_version: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    supported_versions: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    capabilities: Map<String, Value>,
    server_info: Option<Implementation>,
    instructions: Option<String>,
    #[serde(rename = "_meta", deserialize_with = "null_as_default")]
    meta: Map<String, Value>,
}

/// Reads a member that some servers write as null instead of leaving it out.
fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(member: D) -> Result<T, D::Error> {
    Option::deserialize(member).map(Option::unwrap_or_default)
}

/// Reads a text that some servers write as a number or as null.
fn text_of<'de, D: Deserializer<'de>>(member: D) -> Result<String, D::Error> {
    Value::deserialize(member).map(|value| match value {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Implementation {
    #[serde(deserialize_with = "text_of")]
    name: String,
    #[serde(deserialize_with = "text_of")]
    version: String,
}

fn read_discover(result: &str) -> Result<ServerInfo, String> {
    let greeting = read(result)?;
    if !greeting.supported_versions.iter().any(|version| version == MODERN) {
        return Err(format!("it supports {:?}", greeting.supported_versions));
    }
    Ok(greeting.into_server(MODERN.to_owned()))
}

fn read_initialize(result: &str) -> Result<ServerInfo, String> {
    let greeting = read(result)?;
    match greeting.protocol_version.clone() {
        Some(version) => Ok(greeting.into_server(version)),
        None => Err("no protocolVersion".to_owned()),
    }
}

fn read(result: &str) -> Result<Greeting, String> {
    serde_json::from_str(result).map_err(|_| "not a result of MCP".to_owned())
}

impl Greeting {
    fn into_server(mut self, protocol_version: String) -> ServerInfo {
        self.capabilities.retain(|_, value| !value.is_null());
        let in_meta = self.meta.get("io.modelcontextprotocol/serverInfo");
        let in_meta = || in_meta.and_then(|info| Implementation::deserialize(info).ok());
        let Implementation { name, version } = self.server_info.or_else(in_meta).unwrap_or_default();
        ServerInfo {
            protocol_version,
            name,
            version,
            instructions: self.instructions,
            capabilities: Value::Object(self.capabilities).to_string(),
        }
    }
}

/// The message of a JSON-RPC error.
pub fn error_text(error: &str) -> String {
    let message = serde_json::from_str::<Value>(error).ok();
    let message = message.as_ref().and_then(|error| error["message"].as_str());
    message
        .unwrap_or("an error without a message")
        .chars()
        .take(200)
        .collect()
}

/// The code of an error.
pub fn error_code(error: &str) -> Option<i32> {
    let code = member(error, "code").and_then(whole_number)?;
    i32::try_from(code).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEGACY_RESULT: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"},"instructions":"i"}"#;
    const MODERN_RESULT: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"2"}}}"#;
    const REFUSAL: &str = r#"{"code":-32601,"message":"Method not found"}"#;

    fn agreed(step: ProbeStep) -> (BackendEra, ServerInfo) {
        match step {
            ProbeStep::Agreed(era, server) => (era, server),
            other => panic!("the era is agreed: {other:?}"),
        }
    }

    #[test]
    fn the_first_valid_answer_decides() {
        let (mut probe, lines) = Probe::begin(Opening::Both, Profile::NONE);
        assert_eq!(lines.len(), 2);
        assert!(matches!(probe.answer(DISCOVER, Err(REFUSAL)), ProbeStep::Wait));
        let (era, server) = agreed(probe.answer(INITIALIZE, Ok(LEGACY_RESULT)));
        assert_eq!((era, server.name.as_str()), (BackendEra::Legacy, "s"));
        assert_eq!(server.instructions.as_deref(), Some("i"));

        let (mut probe, _) = Probe::begin(Opening::Both, Profile::NONE);
        assert!(matches!(probe.answer(INITIALIZE, Err(REFUSAL)), ProbeStep::Wait));
        let (era, server) = agreed(probe.answer(DISCOVER, Ok(MODERN_RESULT)));
        assert_eq!((era, server.name.as_str()), (BackendEra::Modern, "m"));
    }

    #[test]
    fn members_of_a_handshake_that_are_null_count_as_absent() {
        let text = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":null},"serverInfo":{"name":"s","version":1.5,"title":null},"instructions":null,"_meta":null}"#;
        let (mut probe, _) = Probe::begin(Opening::Legacy, Profile::NONE);
        let (_, server) = agreed(probe.answer(INITIALIZE, Ok(text)));
        assert_eq!(server.capabilities, r#"{"tools":{}}"#);
        assert_eq!((server.version.as_str(), server.instructions), ("1.5", None));

        let text = r#"{"protocolVersion":"2025-11-25","capabilities":null,"serverInfo":null,"supportedVersions":null}"#;
        let (mut probe, _) = Probe::begin(Opening::Legacy, Profile::NONE);
        let (_, server) = agreed(probe.answer(INITIALIZE, Ok(text)));
        assert_eq!((server.capabilities.as_str(), server.name.as_str()), ("{}", ""));
    }

    #[test]
    fn a_backend_that_refuses_both_is_refused_with_its_words() {
        let (mut probe, _) = Probe::begin(Opening::Both, Profile::NONE);
        probe.answer(DISCOVER, Ok(r#"{"supportedVersions":["2030-01-01"]}"#));
        match probe.answer(INITIALIZE, Err(r#"{"code":-32000,"message":"no key"}"#)) {
            ProbeStep::Refused(reason) => {
                assert_eq!(
                    reason,
                    "it refuses the handshake (server/discover: it supports [\"2030-01-01\"]; initialize: no key)"
                );
            }
            other => panic!("it is refused: {other:?}"),
        }
    }

    #[test]
    fn with_a_known_era_only_its_opening_is_sent() {
        for (opening, method) in [(Opening::Legacy, "initialize"), (Opening::Modern, "server/discover")] {
            let (_, lines) = Probe::begin(opening, Profile::ALL);
            assert_eq!(lines.len(), 1);
            assert!(lines[0].contains(method), "{lines:?}");
        }
    }
}
