//! Names of environment variables.

use std::ffi::OsString;

/// Prefix of every environment variable of the broker.
pub const ENV_PREFIX: &str = "MCP_BROKER_";

/// The variable that names the configuration file.
pub const CONFIG_ENV: &str = "MCP_BROKER_CONFIG";

/// The variables of `mcp-broker project`: the broker's URL, and the key. `serve` ignores them.
pub const URL_ENV: &str = "MCP_BROKER_URL";
/// The variable with the key of `mcp-broker project`.
pub const API_KEY_ENV: &str = "MCP_BROKER_API_KEY";
/// The variable with the context that commands use. `serve` ignores it.
pub const CONTEXT_ENV: &str = "MCP_BROKER_CONTEXT";
/// The variable with the name of the agent behind `mcp-broker connect`. `serve` ignores it.
pub const NAME_ENV: &str = "MCP_BROKER_NAME";
/// The variable with the way in which `mcp-broker connect` wakes its agent. `serve` ignores it.
pub const WAKE_ENV: &str = "MCP_BROKER_WAKE";
/// The variable with the program of Codex, by which `mcp-broker connect` wakes it. `serve` ignores it.
pub const CODEX_ENV: &str = "MCP_BROKER_CODEX";

/// The variable with the command by which `mcp-broker console` notifies. `serve` ignores it.
pub const NOTIFY_COMMAND_ENV: &str = "MCP_BROKER_NOTIFY_COMMAND";
/// The variable that has `mcp-broker console` show texts in notifications. `serve` ignores it.
pub const NOTIFY_TEXT_ENV: &str = "MCP_BROKER_NOTIFY_TEXT";

/// The settings of the broker that do what a variable does for a client.
const SETTING_INSTEAD: [(&str, &str); 1] = [(NOTIFY_TEXT_ENV, "desk_notify_text")];

/// Warnings for the operator of a broker whose environment has variables of clients, which do nothing there.
pub fn unused_variables(env: &[(OsString, OsString)]) -> Vec<String> {
    let given = CLIENT_ENVS
        .iter()
        .filter(|name| env.iter().any(|(given, _)| given == **name));
    let warning = |name: &&str| {
        let setting = SETTING_INSTEAD.iter().find(|(variable, _)| variable == name);
        let instead = setting.map_or_else(String::new, |(_, key)| format!("; the setting is {key}"));
        format!("{name} has no effect on a broker: it is a variable of clients{instead}")
    };
    given.map(warning).collect()
}

/// The variables of clients that look like settings of the broker.
pub const CLIENT_ENVS: [&str; 8] = [
    API_KEY_ENV,
    CODEX_ENV,
    CONTEXT_ENV,
    NAME_ENV,
    NOTIFY_COMMAND_ENV,
    NOTIFY_TEXT_ENV,
    URL_ENV,
    WAKE_ENV,
];
