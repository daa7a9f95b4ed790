//! The servers that the configuration file of an MCP client lists.

use std::path::Path;

use serde_json::Value;

use crate::{
    agent_clients::AgentClient,
    config_entry::{command_of, is_front, is_program},
};

/// A server in the file of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerEntry {
    pub name: String,
    pub target: Target,
    pub is_disabled: bool,
    /// Environment variables that its URL and headers refer to.
    pub variables: Vec<String>,
    /// Whether a header holds a key in clear text.
    pub has_plain_key: bool,
}

/// Where a client finds a server.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    Url(String),
    Command(StartedCommand),
    Unknown,
}

/// A program that a client starts.
#[derive(Debug, Clone, PartialEq)]
pub struct StartedCommand {
    pub program: String,
    /// Whether it is this program.
    pub is_own: bool,
    /// Whether it is the front of a local broker: this program with the word `connect`.
    pub is_front: bool,
}

/// The servers that a file lists, also those that Claude Code keeps for the folder of a project.
pub fn servers(client: &AgentClient, file: &Value, project: Option<&Path>) -> Vec<ServerEntry> {
    let at = |keys: &[&str]| keys.iter().try_fold(file, |value, key| value.get(key));
    let of_project = project.and_then(|project| file.get("projects")?.get(project.to_str()?)?.get("mcpServers"));
    let mut entries = Vec::new();
    for (name, entry) in client
        .servers
        .iter()
        .filter_map(|keys| at(keys))
        .chain(of_project)
        .filter_map(Value::as_object)
        .flatten()
    {
        let is_known = entries.iter().any(|known: &ServerEntry| known.name == *name);
        if entry.is_object() && !is_known {
            entries.push(server_entry(name, entry));
        }
    }
    entries
}

fn server_entry(name: &str, entry: &Value) -> ServerEntry {
    let url = ["httpUrl", "serverUrl", "url"]
        .iter()
        .find_map(|key| entry.get(key)?.as_str());
    let target = match (url, command_of(entry)) {
        (Some(url), _) => Target::Url(url.to_owned()),
        (None, Some((program, _))) => Target::Command(StartedCommand {
            program: program.to_owned(),
            is_own: is_program(program),
            is_front: is_front(entry),
        }),
        (None, None) => Target::Unknown,
    };
    let headers: Vec<(&String, &str)> = ["headers", "http_headers"]
        .iter()
        .filter_map(|key| entry.get(key)?.as_object())
        .flatten()
        .filter_map(|(name, value)| Some((name, value.as_str()?)))
        .collect();
    let referring = headers.iter().map(|(_, value)| *value).chain(url);
    let mut variables: Vec<String> = referring.flat_map(references).collect();
    variables.extend(
        entry
            .get("bearer_token_env_var")
            .and_then(Value::as_str)
            .map(str::to_owned),
    );
    let by_name = entry
        .get("env_http_headers")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    variables.extend(by_name.filter_map(|(_, variable)| Some(variable.as_str()?.to_owned())));
    let is_key = |name: &str| name.eq_ignore_ascii_case("x-api-key") || name.eq_ignore_ascii_case("authorization");
    ServerEntry {
        name: name.to_owned(),
        target,
        is_disabled: entry.get("enabled") == Some(&Value::Bool(false))
            || entry.get("disabled") == Some(&Value::Bool(true)),
        variables,
        has_plain_key: headers
            .iter()
            .any(|(name, value)| is_key(name) && !value.contains('$') && !value.contains('{')),
    }
}

/// The variables that a text refers to, without those that have a default: `${NAME}`, `${env:NAME}`, `{env:NAME}`.
fn references(text: &str) -> Vec<String> {
    let inside = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let names = inside.map(|(name, _)| name.strip_prefix("env:").unwrap_or(name));
    names.filter(|name| is_variable(name)).map(str::to_owned).collect()
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Replaces the references in a text by their values. `None` where a variable without a default is not set.
pub fn expanded(text: &str, value_of: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut parts = text.split('{');
    let mut whole = parts.next()?.to_owned();
    for part in parts {
        let Some((reference, rest)) = part.split_once('}') else {
            whole.extend(["{", part]);
            continue;
        };
        let reference = reference.strip_prefix("env:").unwrap_or(reference);
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (reference, None),
        };
        if whole.ends_with('$') {
            whole.pop();
        }
        whole.push_str(&value_of(name).or(default)?);
        whole.push_str(rest);
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn only(word: &str, file: &Value) -> ServerEntry {
        let client = AgentClient::of_word(word).unwrap();
        let mut found = servers(client, file, Some(Path::new("/home/ada/shop")));
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn a_server_is_found_in_the_file_of_each_client() {
        let url = || Target::Url("http://127.0.0.1:8000/mcp".to_owned());
        let http = json!({"url": "http://127.0.0.1:8000/mcp"});
        for (word, file) in [
            ("claude", json!({"mcpServers": {"broker": http}})),
            (
                "claude",
                json!({"projects": {"/home/ada/shop": {"mcpServers": {"broker": http}}}}),
            ),
            ("cursor", json!({"mcpServers": {"broker": http}})),
            ("vscode", json!({"servers": {"broker": http}})),
            ("codex", json!({"mcp_servers": {"broker": http}})),
            (
                "gemini",
                json!({"mcpServers": {"broker": {"httpUrl": "http://127.0.0.1:8000/mcp"}}}),
            ),
            ("opencode", json!({"mcp": {"servers": {"broker": http}}})),
            ("opencode", json!({"mcp": {"broker": http}})),
            (
                "windsurf",
                json!({"mcpServers": {"broker": {"serverUrl": "http://127.0.0.1:8000/mcp"}}}),
            ),
            ("zed", json!({"context_servers": {"broker": http}})),
        ] {
            let mut files = servers(
                AgentClient::of_word(word).unwrap(),
                &file,
                Some(Path::new("/home/ada/shop")),
            );
            files.retain(|entry| entry.name == "broker");
            assert_eq!(files[0].target, url(), "{word}");
        }
    }

    #[test]
    fn references_and_keys_are_told_apart() {
        let entry = only(
            "claude",
            &json!({"mcpServers": {"broker": {"url": "${URL:-http://a}/mcp", "headers": {"X-API-Key": "${BROKER_KEY}"}}}}),
        );
        assert_eq!(
            (entry.variables, entry.has_plain_key),
            (vec!["BROKER_KEY".to_owned()], false)
        );
        let entry = only(
            "codex",
            &json!({"mcp_servers": {"broker": {"url": "http://a/mcp", "bearer_token_env_var": "K", "http_headers": {"x-api-key": "a_b_c"}}}}),
        );
        assert_eq!((entry.variables, entry.has_plain_key), (vec!["K".to_owned()], true));
        let set = |name: &str| (name == "HOST").then(|| "cache".to_owned());
        assert_eq!(
            expanded("http://${HOST}:${PORT:-80}/mcp", set).unwrap(),
            "http://cache:80/mcp"
        );
        assert_eq!(
            expanded("http://${env:HOST}/{env:HOST}", set).unwrap(),
            "http://cache/cache"
        );
        assert_eq!(expanded("http://${OTHER}/", set), None);
    }
}
