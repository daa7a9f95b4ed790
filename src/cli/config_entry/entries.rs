//! The entry of each client. docs/clients.md names the documentation that the forms come from.

use serde_json::{Value, json};

use crate::cli::agent_clients::AgentClient;

/// The id of the question by which VS Code asks for the key.
const INPUT_ID: &str = "broker_key";

/// What an entry is to say.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub client: &'static AgentClient,
    /// The name of the entry.
    pub name: String,
    /// The URL of MCP over HTTP.
    pub url: String,
    /// The variable that holds the key, if the broker asks for one.
    pub key_env: Option<String>,
}

/// The text for the client's file.
pub fn entry_text(wanted: &Wanted) -> String {
    let Wanted {
        client,
        name,
        url,
        key_env,
    } = wanted;
    if client.word == "codex" {
        let key = key_env
            .as_ref()
            .map(|variable| format!("bearer_token_env_var = \"{variable}\"\n"));
        // A JSON string is a TOML string, too.
        let url = Value::from(url.as_str());
        return format!("[mcp_servers.{name}]\nurl = {url}\n{}", key.unwrap_or_default());
    }
    let mut server = match client.word {
        "cursor" => json!({"url": url}),
        "gemini" => json!({"httpUrl": url}),
        "opencode" => json!({"type": "remote", "url": url}),
        _ => json!({"type": "http", "url": url}),
    };
    if let Some(reference) = key_reference(wanted) {
        server["headers"] = json!({"X-API-Key": reference});
    }
    let file = match client.word {
        "vscode" if key_env.is_some() => json!({
            "servers": {name: server},
            "inputs": [{
                "type": "promptString", "id": INPUT_ID, "description": "API key of the broker", "password": true,
            }],
        }),
        "vscode" => json!({"servers": {name: server}}),
        "opencode" => json!({"$schema": "https://opencode.ai/config.json", "mcp": {"servers": {name: server}}}),
        _ => json!({"mcpServers": {name: server}}),
    };
    format!("{file:#}\n")
}

/// How the client refers to the key.
fn key_reference(wanted: &Wanted) -> Option<String> {
    let variable = wanted.key_env.as_ref()?;
    Some(match wanted.client.word {
        "cursor" => format!("${{env:{variable}}}"),
        "opencode" => format!("{{env:{variable}}}"),
        "vscode" => format!("${{input:{INPUT_ID}}}"),
        _ => format!("${{{variable}}}"),
    })
}

/// The command of the client that adds the entry, if it has one.
pub fn command_line(wanted: &Wanted) -> Option<String> {
    let Wanted { name, key_env, .. } = wanted;
    let url = shell_word(&wanted.url);
    let header = key_reference(wanted).map(|reference| format!(" --header 'X-API-Key: {reference}'"));
    let header = header.unwrap_or_default();
    Some(match wanted.client.word {
        // The file of a project is where Claude Code replaces variables.
        "claude" if key_env.is_some() => {
            format!("claude mcp add --scope project --transport http {name} {url}{header}")
        }
        "claude" => format!("claude mcp add --transport http {name} {url}"),
        "codex" => {
            let key = key_env
                .as_ref()
                .map(|variable| format!(" --bearer-token-env-var {variable}"));
            format!("codex mcp add {name} --url {url}{}", key.unwrap_or_default())
        }
        "gemini" => format!("gemini mcp add --scope user --transport http{header} {name} {url}"),
        "vscode" if key_env.is_none() => {
            let server = json!({"name": name, "type": "http", "url": wanted.url});
            format!("code --add-mcp {}", shell_word(&server.to_string()))
        }
        _ => return None,
    })
}

/// The files that the client reads, as a user writes them.
pub fn places(client: &AgentClient) -> String {
    match client.word {
        "claude" => ".mcp.json in the folder of a project, which all who work there share".to_owned(),
        "vscode" => {
            ".vscode/mcp.json in the folder of a project, or the file that \"MCP: Open User Configuration\" opens"
                .to_owned()
        }
        "codex" => "~/.codex/config.toml".to_owned(),
        "opencode" => "opencode.json in the folder of a project, or ~/.config/opencode/opencode.json \
             (opencode 1 has no \"servers\": the entry is directly in \"mcp\")"
            .to_owned(),
        _ => {
            let file = client.project_files.first().copied().unwrap_or_default();
            format!("~/{file}, or {file} in the folder of a project")
        }
    }
}

/// What to do about the key.
pub fn key_advice(wanted: &Wanted) -> String {
    match (&wanted.key_env, wanted.client.word) {
        (None, _) => "If the broker asks for keys, add --key-env to this command.\n".to_owned(),
        (Some(_), "vscode") => "VS Code asks for the key once and keeps it.\n".to_owned(),
        (Some(variable), _) => format!(
            "Set {variable} where {} starts: export {variable}=KEY\n",
            wanted.client.label
        ),
    }
}

/// A word of a POSIX shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_shell_is_quoted_where_it_must_be() {
        assert_eq!(shell_word("http://127.0.0.1:8000/mcp"), "http://127.0.0.1:8000/mcp");
        assert_eq!(shell_word("http://a/b;c"), "'http://a/b;c'");
        assert_eq!(shell_word("a'b"), r"'a'\''b'");
    }
}
