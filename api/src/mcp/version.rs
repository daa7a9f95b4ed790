//! The two eras of MCP: how a request tells its era, what client and server agree on in each, and what a legacy client has agreed
//! for the length of its connection.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::{
    logging::Level,
    rpc::{INVALID_PARAMS, Params, RpcError, UNSUPPORTED_VERSION, deserialize_error},
};
use common::json::JsonObject;

/// The modern revision: stateless, with the version in each request.
pub const MODERN: &str = "2026-07-28";
/// The revisions that begin with `initialize`, newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The one revision whose servers must accept batches (2025-03-26, basic/index, Batching).
pub const BATCH_VERSION: &str = "2025-03-26";
/// The extension for pushed messages.
pub const PUSH_EXTENSION: &str = "dev.mcp-broker/push";

/// Bytes of the `_meta` of a request, which is deserialized with every call.
const META_LEN_MAX: usize = 64 * 1024;

/// The version that `initialize` answers: the requested one if it is known, else the newest legacy one (lifecycle,
/// Version Negotiation).
pub fn negotiate_legacy(requested: &str) -> &'static str {
    LEGACY
        .into_iter()
        .find(|known| *known == requested)
        .unwrap_or(LEGACY[0])
}

/// The client's name and version (`Implementation`, all revisions). The log shows them, and backends get them; they are not verified.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClientInfo {
    /// The name of the client.
    #[serde(deserialize_with = "truncated")]
    pub name: String,
    /// The version of the client.
    #[serde(deserialize_with = "truncated")]
    pub version: String,
}

/// Characters kept of a client's name, and of its version.
const CLIENT_LEN_MAX: usize = 64;

fn truncated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(text.chars().take(CLIENT_LEN_MAX).collect())
}

impl ClientInfo {
    /// The client that a modern request names in its `_meta`.
    pub fn from_meta(params: &Params<'_>) -> Option<Self> {
        #[derive(Deserialize)]
        struct Meta {
            #[serde(rename = "io.modelcontextprotocol/clientInfo")]
            client: Option<ClientInfo>,
        }
        serde_json::from_str::<Meta>(params.meta?).ok()?.client
    }
}

/// `_meta` of a request.
#[derive(Debug, Default, Deserialize)]
pub struct RequestMeta {
    /// The version of the protocol; its presence makes a request modern.
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    pub protocol_version: Option<Value>,
    /// The capabilities of the client.
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    pub client_capabilities: Option<Value>,
    #[serde(rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<Value>,
    #[serde(rename = "progressToken")]
    progress_token: Option<Value>,
}

/// The era of one request.
#[derive(Debug, Clone, PartialEq)]
pub enum Era {
    Legacy,
    Modern { capabilities: Map<String, Value> },
}

impl Era {
    /// Whether the request declares this extension.
    pub fn declares_extension(&self, name: &str) -> bool {
        match self {
            Self::Legacy => false,
            Self::Modern { capabilities } => capabilities
                .get("extensions")
                .and_then(|extensions| extensions.get(name))
                .is_some_and(Value::is_object),
        }
    }
}

impl RequestMeta {
    /// Deserializes the `_meta` of a request; empty if absent.
    ///
    /// # Errors
    /// Invalid params if it is no object, too long, or has members of a wrong type.
    pub fn parse(params: &Params<'_>) -> Result<Self, RpcError> {
        match params.meta {
            None => Ok(Self::default()),
            Some(meta) if meta.len() > META_LEN_MAX => Err(RpcError::invalid_params(format!(
                "Invalid params: _meta has at most {META_LEN_MAX} bytes"
            ))),
            Some(meta) => serde_json::from_str(meta)
                .map(|JsonObject(meta)| meta)
                .map_err(|error| deserialize_error(meta, &error)),
        }
    }

    /// Whether the request is modern, well formed or not.
    pub fn is_modern(&self) -> bool {
        self.protocol_version.is_some()
    }

    /// The token for progress notifications as JSON: a string or an integer, in all revisions.
    pub fn progress_token(&self) -> Option<Rc<str>> {
        let token = self.progress_token.as_ref()?;
        (token.is_string() || token.is_i64() || token.is_u64()).then(|| token.to_string().into())
    }

    /// The lowest severity of log messages that a modern caller asked for (2026-07-28, server/utilities/logging).
    ///
    /// # Errors
    /// Invalid params for an unknown severity.
    pub fn log_level(&self) -> Result<Option<Level>, RpcError> {
        let level = self.log_level.as_ref().map(Level::deserialize).transpose();
        level.map_err(|error| RpcError::invalid_params(format!("_meta: io.modelcontextprotocol/logLevel: {error}")))
    }

    /// Checks the members that a modern request must have (2026-07-28, basic/index, `_meta`).
    ///
    /// # Errors
    /// Invalid params for a missing member, `UNSUPPORTED_VERSION` for another version.
    pub fn check_modern(&self) -> Result<(), RpcError> {
        let Some(Value::String(version)) = &self.protocol_version else {
            return Err(RpcError::invalid_params(
                "_meta: io.modelcontextprotocol/protocolVersion must be a string",
            ));
        };
        if version != MODERN {
            let data = json!({"supported": [MODERN], "requested": version});
            return Err(RpcError::new(UNSUPPORTED_VERSION, "Unsupported protocol version").with_data(data));
        }
        if self.client_capabilities.as_ref().is_some_and(Value::is_object) {
            return Ok(());
        }
        Err(RpcError::new(
            INVALID_PARAMS,
            "_meta: io.modelcontextprotocol/clientCapabilities is required, an object",
        ))
    }

    /// The era of a modern request.
    ///
    /// # Errors
    /// As [`Self::check_modern`].
    pub fn into_era(self) -> Result<Era, RpcError> {
        self.check_modern()?;
        let capabilities = match self.client_capabilities {
            Some(Value::Object(capabilities)) => capabilities,
            _ => Map::new(),
        };
        Ok(Era::Modern { capabilities })
    }
}

/// The push settings that a client declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushSettings {
    /// Messages that may be unacknowledged at once.
    pub window: usize,
    /// Messages are acknowledged when their last byte has been written.
    pub auto_ack: bool,
}

impl PushSettings {
    const WINDOW_DEFAULT: usize = 64;
    const WINDOW_MAX: usize = 65_536;

    /// Parses the settings of the extension; `None` if it is not declared.
    ///
    /// # Errors
    /// Invalid params if they are malformed.
    pub fn parse(extensions: Option<&Value>) -> Result<Option<Self>, RpcError> {
        let Some(settings) = extensions.and_then(|all| all.get(PUSH_EXTENSION)) else {
            return Ok(None);
        };
        let refuse = || {
            let message = format!(
                "{PUSH_EXTENSION}: {{window: 1 to {}, ack: \"manual\" or \"auto\"}}",
                Self::WINDOW_MAX
            );
            RpcError::invalid_params(message)
        };
        let settings = settings.as_object().ok_or_else(refuse)?;
        let window = match settings.get("window") {
            None => Self::WINDOW_DEFAULT,
            Some(window) => window
                .as_u64()
                .and_then(|window| usize::try_from(window).ok())
                .filter(|window| (1..=Self::WINDOW_MAX).contains(window))
                .ok_or_else(refuse)?,
        };
        let auto = match settings.get("ack").map(Value::as_str) {
            None | Some(Some("manual")) => false,
            Some(Some("auto")) => true,
            Some(_) => return Err(refuse()),
        };
        Ok(Some(Self { window, auto_ack: auto }))
    }
}

/// The state of the legacy era on one connection; empty before `initialize`.
#[derive(Debug, Default)]
pub struct LegacyState {
    /// `initialize` may be left out: requests before it are those of the newest revision.
    is_handshake_optional: Cell<bool>,
    initialized: RefCell<Option<Initialized>>,
    log_level: Cell<Option<Level>>,
}

/// What `initialize` agreed.
#[derive(Debug)]
pub struct Initialized {
    /// The revision of MCP.
    pub version: &'static str,
    /// How messages are pushed, if the client takes them.
    pub push: Option<PushSettings>,
    /// The capabilities that the client declared, as JSON text: they are rarely needed, and as a tree take two KiB.
    pub capabilities: Box<str>,
}

impl LegacyState {
    /// Whether `initialize` was served.
    pub fn is_initialized(&self) -> bool {
        self.initialized.borrow().is_some()
    }

    /// Serves requests before `initialize` as those of the newest revision.
    pub fn make_handshake_optional(&self) {
        self.is_handshake_optional.set(true);
    }

    /// Whether a request without modern `_meta` is served.
    pub fn serves_requests(&self) -> bool {
        self.is_handshake_optional.get() || self.is_initialized()
    }

    /// Stores what `initialize` agreed.
    pub fn initialize(&self, initialized: Initialized) {
        self.initialized.replace(Some(initialized));
    }

    /// The revision that `initialize` agreed.
    pub fn version(&self) -> Option<&'static str> {
        self.initialized.borrow().as_ref().map(|agreed| agreed.version)
    }

    /// How messages are pushed, if the client takes them.
    pub fn push(&self) -> Option<PushSettings> {
        self.initialized.borrow().as_ref().and_then(|agreed| agreed.push)
    }

    /// The capabilities that the client declared.
    pub fn capabilities(&self) -> Map<String, Value> {
        let initialized = self.initialized.borrow();
        let capabilities = initialized.as_ref().map(|agreed| &agreed.capabilities);
        capabilities
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// The lowest severity of log messages that the client asked for.
    pub fn log_level(&self) -> Option<Level> {
        self.log_level.get()
    }

    /// Sets the lowest severity of log messages (`logging/setLevel`).
    pub fn set_log_level(&self, level: Level) {
        self.log_level.set(Some(level));
    }
}
