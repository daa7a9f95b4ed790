//! What a client and the broker tell each other first, in both eras. Pure: no connection is changed here.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    list_changes::serves_fixtures,
    lists::cacheable_by_all,
    prompts::quoted,
    reply::server_info,
    rpc::{Params, RpcError},
    tasks,
    version::{ClientInfo, MODERN, PUSH_EXTENSION, PushSettings, negotiate_legacy},
};

/// What the broker tells a model that has just connected.
pub const INSTRUCTIONS: &str = include_str!("instructions.txt");

/// The text of the error for a second `initialize`.
pub const ALREADY_INITIALIZED: &str = "Invalid Request: already initialized";

/// What a client says in `initialize`.
pub struct Introduction {
    /// The revision that client and broker speak.
    pub version: &'static str,
    /// How messages are pushed, if the client takes them.
    pub push: Option<PushSettings>,
    /// The capabilities of the client.
    pub capabilities: Map<String, Value>,
    /// The client. Only the log shows it, so malformed information is ignored.
    pub client: Option<ClientInfo>,
}

impl Introduction {
    /// Reads the params of `initialize`. A client that `may_be_silent` need not say which revision it speaks.
    ///
    /// # Errors
    /// Invalid params.
    pub fn parse(params: &Params<'_>, may_be_silent: bool) -> Result<Self, RpcError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Initialize<'a> {
            #[serde(borrow)]
            protocol_version: Option<Cow<'a, str>>,
            #[serde(default)]
            capabilities: Map<String, Value>,
            client_info: Option<&'a RawValue>,
        }
        let Initialize {
            protocol_version,
            capabilities,
            client_info,
        } = params.parse()?;
        let protocol_version = match protocol_version {
            Some(version) => version,
            None if may_be_silent => Cow::default(),
            None => {
                return Err(RpcError::invalid_params(
                    "Invalid params: missing field `protocolVersion`",
                ));
            }
        };
        Ok(Self {
            version: negotiate_legacy(&protocol_version),
            push: PushSettings::parse(capabilities.get("experimental"))?,
            capabilities,
            client: client_info.and_then(|client| serde_json::from_str(client.get()).ok()),
        })
    }
}

/// The result of a handshake for an agent that has this name already, which others do not get.
pub fn with_name(mut result: Value, name: &str) -> Value {
    let name = quoted(name);
    let instructions = result["instructions"].as_str().unwrap_or_default();
    result["instructions"] = json!(format!(
        "You are {name}: others reach you by this name. To have another one, register it: {name} then still reaches you.\n\n\
         {instructions}"
    ));
    if let Some(scope) = result.get_mut("cacheScope") {
        *scope = json!("private");
    }
    result
}

/// The result of `initialize` for a revision. `tools_change` says that `notifications/tools/list_changed` may be sent.
pub fn initialize_result(version: &str) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": {
            "tools": {"listChanged": false},
            "resources": {"subscribe": true, "listChanged": false},
            "prompts": {"listChanged": false},
            "completions": {},
            "logging": {},
            "experimental": {PUSH_EXTENSION: {}},
        },
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    })
}

/// The result of a handshake that says that the lists change while the broker runs.
pub fn with_changing_lists(mut result: Value) -> Value {
    for list in ["tools", "prompts", "resources"] {
        result["capabilities"][list]["listChanged"] = json!(true);
    }
    result
}

/// The result of `server/discover`.
pub fn discover_result() -> Value {
    let lists = if serves_fixtures() {
        json!({"listChanged": true})
    } else {
        json!({})
    };
    cacheable_by_all(json!({
        "supportedVersions": [MODERN],
        "capabilities": {
            "tools": lists,
            "resources": {"subscribe": true},
            "prompts": lists,
            "completions": {},
            "logging": {},
            "extensions": {PUSH_EXTENSION: {}, tasks::EXTENSION: {}},
        },
        "instructions": INSTRUCTIONS,
    }))
}
