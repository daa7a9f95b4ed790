//! The entry of each client. docs/clients.md names the documentation that the forms come from.

use serde_json::{Value, json};

use super::{
    edit::{self, EditError, Members},
    wanted::{Connection, PROGRAM, Wanted},
};
use crate::agent_clients::AgentClient;

/// The id of the question by which VS Code asks for the key.
const INPUT_ID: &str = "broker_key";
/// The command of the stdio front.
const CONNECT: &str = "connect";

/// The members of the entry, in their order.
pub fn members(wanted: &Wanted) -> Members {
    let word = wanted.client.word;
    let (url, key_env) = match &wanted.connection {
        Connection::Local { instance } => {
            let instance = instance.iter().flat_map(|name| ["--instance", name]);
            let args = [CONNECT, "--auto-name"].into_iter().chain(instance);
            return stdio(word, &wanted.program, args);
        }
        // Its file lists programs alone.
        Connection::Http { url, .. } if word == "claude-desktop" => {
            let base = url.strip_suffix("/mcp").unwrap_or(url);
            return stdio(
                word,
                &wanted.program,
                [CONNECT, "--auto-name", "--url", base].into_iter(),
            );
        }
        Connection::Http { url, key_env } => (url, key_env),
    };
    let mut members = match word {
        "claude" | "vscode" => vec![("type", json!("http")), ("url", json!(url))],
        "gemini" => vec![("httpUrl", json!(url))],
        "windsurf" => vec![("serverUrl", json!(url))],
        "opencode" => vec![("type", json!("remote")), ("url", json!(url))],
        "copilot" => vec![("type", json!("http")), ("url", json!(url)), ("tools", json!(["*"]))],
        _ => vec![("url", json!(url))],
    };
    if let ("codex", Some(variable)) = (word, key_env) {
        members.push(("bearer_token_env_var", json!(variable)));
    } else if let Some(reference) = key_reference(wanted) {
        members.push(("headers", json!({"X-API-Key": reference})));
    }
    members
}

fn stdio<'a>(word: &str, program: &'a str, args: impl Iterator<Item = &'a str>) -> Members {
    if word == "opencode" {
        let words: Vec<_> = std::iter::once(program).chain(args).collect();
        return vec![("type", json!("local")), ("command", json!(words))];
    }
    let kind = match word {
        "vscode" => Some(("type", json!("stdio"))),
        "copilot" => Some(("type", json!("local"))),
        _ => None,
    };
    let args: Vec<_> = args.collect();
    let command = [("command", json!(program)), ("args", json!(args))];
    // Copilot CLI offers the tools that an entry names.
    let tools = (word == "copilot").then(|| ("tools", json!(["*"])));
    kind.into_iter().chain(command).chain(tools).collect()
}

/// The program that an entry starts and its arguments, if it starts one.
pub fn command_of(entry: &Value) -> Option<(&str, Vec<&str>)> {
    match entry.get("command")? {
        Value::String(program) => Some((program, words(entry.get("args")))),
        all @ Value::Array(_) => {
            let mut all = words(Some(all)).into_iter();
            Some((all.next()?, all.collect()))
        }
        // The form of Zed until 2025.
        old => Some((old.get("path")?.as_str()?, words(old.get("args")))),
    }
}

fn words(list: Option<&Value>) -> Vec<&str> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

/// Whether an entry starts the front of a local broker. It may say more.
pub fn is_front(entry: &Value) -> bool {
    command_of(entry).is_some_and(|(program, args)| is_program(program) && args.first() == Some(&CONNECT))
}

/// Whether a command of an entry starts this program.
pub fn is_program(command: &str) -> bool {
    std::path::Path::new(command)
        .file_name()
        .is_some_and(|name| name == PROGRAM)
}

/// The members of an entry as [`members`] would have written them, with some program and some instance; else `None`.
pub fn as_written(wanted: &Wanted, entry: &Value) -> Option<Members> {
    let is_equal = |members: &Members| {
        let has = |(key, value): &(&str, Value)| entry.get(*key) == Some(value);
        entry.as_object().is_some_and(|object| object.len() == members.len()) && members.iter().all(has)
    };
    let exactly = members(wanted);
    if is_equal(&exactly) {
        return Some(exactly);
    }
    let (program, args) = command_of(entry).filter(|_| is_front(entry))?;
    let instance = match args.as_slice() {
        [_, "--auto-name"] => None,
        [_, "--auto-name", "--instance", instance] => Some((*instance).to_owned()),
        _ => return None,
    };
    let written = members(&Wanted {
        program: program.to_owned(),
        connection: Connection::Local { instance },
        ..wanted.clone()
    });
    is_equal(&written).then_some(written)
}

/// The text for a file that has nothing else.
///
/// # Errors
/// [`EditError`], which this text does not cause.
pub fn entry_text(wanted: &Wanted) -> Result<String, EditError> {
    let base = match (wanted.client.word, wanted.key_env()) {
        ("vscode", Some(_)) => {
            let inputs = json!({"inputs": [{
                "type": "promptString", "id": INPUT_ID, "description": "API key of the broker", "password": true,
            }]});
            format!("{inputs:#}\n")
        }
        _ => edit::blank(wanted.client).to_owned(),
    };
    edit::insert(wanted.client, &base, &wanted.name, &members(wanted))
}

/// How the client refers to the key.
fn key_reference(wanted: &Wanted) -> Option<String> {
    let variable = wanted.key_env()?;
    Some(match wanted.client.word {
        "cursor" | "windsurf" => format!("${{env:{variable}}}"),
        "opencode" => format!("{{env:{variable}}}"),
        "vscode" => format!("${{input:{INPUT_ID}}}"),
        _ => format!("${{{variable}}}"),
    })
}

/// The command that adds the entry, if there is one.
pub fn command_line(wanted: &Wanted) -> Option<String> {
    let name = &wanted.name;
    let (url, key_env) = match &wanted.connection {
        Connection::Local { instance } => {
            let name = (name != super::wanted::NAME_DEFAULT).then(|| format!(" --name {name}"));
            let instance = instance
                .as_ref()
                .map(|instance| format!(" --instance {}", shell_word(instance)));
            let (name, instance) = (name.unwrap_or_default(), instance.unwrap_or_default());
            return Some(format!("{PROGRAM} setup {}{name}{instance}", wanted.client.word));
        }
        Connection::Http { url, key_env } => (url, key_env),
    };
    let word = shell_word(url);
    let header = key_reference(wanted).map(|reference| format!(" --header 'X-API-Key: {reference}'"));
    let header = header.unwrap_or_default();
    Some(match wanted.client.word {
        // The file of a project is where Claude Code replaces variables.
        "claude" if key_env.is_some() => {
            format!("claude mcp add --scope project --transport http {name} {word}{header}")
        }
        "claude" => format!("claude mcp add --transport http {name} {word}"),
        "codex" => {
            let key = key_env
                .as_ref()
                .map(|variable| format!(" --bearer-token-env-var {variable}"));
            format!("codex mcp add {name} --url {word}{}", key.unwrap_or_default())
        }
        "gemini" => format!("gemini mcp add --scope user --transport http{header} {name} {word}"),
        "vscode" if key_env.is_none() => {
            let server = json!({"name": name, "type": "http", "url": url});
            format!("code --add-mcp {}", shell_word(&server.to_string()))
        }
        _ => return None,
    })
}

/// The files that the client reads, as a user writes them.
pub fn places(client: &AgentClient) -> &'static str {
    match client.word {
        "claude" => ".mcp.json in the folder of a project, which all who work there share",
        "cursor" => "~/.cursor/mcp.json, or .cursor/mcp.json in the folder of a project",
        "vscode" => {
            ".vscode/mcp.json in the folder of a project, or the file that \"MCP: Open User Configuration\" opens"
        }
        "codex" => "~/.codex/config.toml",
        "gemini" => "~/.gemini/settings.json, or .gemini/settings.json in the folder of a project",
        "copilot" => "~/.copilot/mcp-config.json",
        "opencode" => {
            "opencode.json in the folder of a project, or ~/.config/opencode/opencode.json \
             (where opencode 2 lists servers in \"mcp.servers\", it belongs there)"
        }
        "windsurf" => "~/.codeium/windsurf/mcp_config.json",
        "zed" => "~/.config/zed/settings.json, or .zed/settings.json in the folder of a project",
        _ => "claude_desktop_config.json, which Settings > Developer > Edit Config opens",
    }
}

/// What to do about the key.
pub fn key_advice(wanted: &Wanted) -> String {
    let Connection::Http { key_env, .. } = &wanted.connection else {
        return String::new();
    };
    match (key_env, wanted.client.word) {
        (None, _) if !wanted.has_variables() => String::new(),
        (None, _) => "If the broker asks for keys, add --key-env to this command.\n".to_owned(),
        (Some(_), "vscode") => "VS Code asks for the key once and keeps it.\n".to_owned(),
        (Some(variable), _) => format!(
            "Set {variable} where {} starts: export {variable}=KEY\n",
            wanted.client.label
        ),
    }
}

/// A word of a POSIX shell.
pub fn shell_word(text: &str) -> String {
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

    #[test]
    fn an_entry_is_recognised_in_the_forms_of_all_clients() {
        for entry in [
            json!({"command": "mcp-broker", "args": ["connect"]}),
            json!({"type": "stdio", "command": "/opt/mcp-broker", "args": ["connect", "--name", "x"]}),
            json!({"type": "local", "command": ["mcp-broker", "connect"]}),
            json!({"command": {"path": "/usr/bin/mcp-broker", "args": ["connect"]}}),
        ] {
            assert!(is_front(&entry), "{entry}");
        }
        for entry in [
            json!({"command": "npx", "args": ["connect"]}),
            json!({"command": "mcp-broker", "args": ["serve"]}),
            json!({"command": []}),
            json!({"url": "http://a/mcp"}),
        ] {
            assert!(!is_front(&entry), "{entry}");
        }
    }
}
