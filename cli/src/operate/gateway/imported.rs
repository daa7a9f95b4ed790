//! Reads the servers of a file of another program, and writes them as backends of the configuration file. Pure.
//!
//! Known are `mcpServers` (Claude Code, Claude Desktop, Cursor, Windsurf), `servers` with `inputs` (VS Code), and `servers` of
//! `.mcpmon.yaml`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use actors::{json::string, model::BackendName};
use serde_json::{Map, Value};

use common::config::{FilePattern, check_backends, one_line, parse_url};

/// Members of a server that are imported; `type` says what the others say already.
const KNOWN: [&str; 13] = [
    "command",
    "cmd",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "disabled",
    "type",
    "envFile",
    "watch",
    "extensions",
    "ext",
];
/// Members that hold for other programs, with the reason why they are left out.
const LEFT_OUT: [(&str, &str); 2] = [
    (
        "envFile",
        "set the variables of the file in env, or in the environment of the broker and in pass_env",
    ),
    (
        "timeout",
        "set call_timeout if the calls of this server take longer than a minute",
    ),
];
/// The endings of files that mcpmon watches if its file does not say.
const WATCHED_EXTENSIONS: &str = "py";

/// The endings of files that are programs, or belong to them.
const FILE_ENDINGS: [&str; 18] = [
    "cjs", "conf", "cts", "db", "jar", "js", "json", "lua", "mjs", "mts", "php", "py", "rb", "sh", "toml", "ts",
    "yaml", "yml",
];

/// Why a server is left out that could be used.
const TAKEN: &str = "the configuration has it already";
const ITSELF: &str = "it is this broker itself";

/// The servers of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The backends, sorted by their names in the file.
    pub backends: Vec<ImportedBackend>,
    /// What was changed or left out, for the user.
    pub notes: Vec<String>,
    /// A server was left out because it cannot be used.
    pub has_unusable: bool,
}

/// A server as a backend.
#[derive(Debug, PartialEq, Eq)]
pub struct ImportedBackend {
    pub name: BackendName,
    /// Its table, as TOML.
    pub table: String,
}

/// What the references in a file mean.
#[derive(Debug, Default)]
pub struct References {
    /// The values of `${input:NAME}`.
    pub inputs: BTreeMap<String, String>,
    /// The value of `${workspaceFolder}`, and the folder in which the client starts its servers.
    pub folder: String,
}

/// Reads the servers of a parsed file. `taken` are names that the configuration has already.
///
/// # Errors
/// The file has no servers.
pub fn import(file: &Value, references: &References, taken: &BTreeSet<String>) -> Result<Imported, String> {
    let servers = ["mcpServers", "servers"]
        .into_iter()
        .find_map(|member| object(&file[member]));
    let servers = servers.ok_or("it has neither mcpServers nor servers")?;
    let mut imported = Imported::default();
    let mut names = taken.clone();
    for (given, server) in &servers {
        match imported_backend(given, server, references, (taken, &names)) {
            Ok((backend, notes)) => {
                if backend.name.as_str() != given {
                    imported
                        .notes
                        .push(format!("{given}: its name becomes {}", backend.name));
                }
                names.insert(backend.name.to_string());
                imported.notes.extend(notes);
                imported.backends.push(backend);
            }
            // The others are imported without it.
            Err(reason) => {
                imported.has_unusable |= ![TAKEN, ITSELF].contains(&reason.as_str());
                imported.notes.push(format!("{given}: left out, because {reason}"));
            }
        }
    }
    Ok(imported)
}

/// A server under a name that is not used, and what was left out of it. `taken` are the names of the configuration, `used`
/// those and the ones of the servers before it.
fn imported_backend(
    given: &str,
    server: &Value,
    references: &References,
    (taken, used): (&BTreeSet<String>, &BTreeSet<String>),
) -> Result<(ImportedBackend, Vec<String>), String> {
    if taken.contains(&base_name(given)) {
        return Err(TAKEN.to_owned());
    }
    let server = members(server).ok_or("a server is an object or a command")?;
    let name = legal_name(given, used)?;
    let (table, notes) = table_of(&name, &server, references)?;
    // A broker refuses its file as a whole.
    check_backends(&table).map_err(|reason| one_line(&reason))?;
    Ok((ImportedBackend { name, table }, notes))
}

/// An object. Some languages write an empty one as an empty list.
fn object(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(members) => Some(members.clone()),
        Value::Array(empty) if empty.is_empty() => Some(Map::new()),
        _ => None,
    }
}

/// A server as a table of this name, and what was left out of it.
///
/// # Errors
/// It cannot be a backend: why.
pub fn table_of(
    name: &BackendName,
    server: &Map<String, Value>,
    references: &References,
) -> Result<(String, Vec<String>), String> {
    if is_this_broker(server) {
        return Err(ITSELF.to_owned());
    }
    let mut notes = Vec::new();
    let table = table(name, server, references, &mut notes)?;
    Ok((table, notes))
}

/// The members of a server that are not null. `.mcpmon.yaml` may have a command line alone, which is for a shell.
fn members(server: &Value) -> Option<Map<String, Value>> {
    match server {
        Value::Object(server) => {
            let mut server = server.clone();
            server.retain(|_, value| !value.is_null());
            Some(with_command_word(server))
        }
        Value::String(line) if line.contains(char::is_whitespace) => {
            let args = Value::from(vec!["-c", line.as_str()]);
            Some(Map::from_iter([
                ("command".to_owned(), "sh".into()),
                ("args".to_owned(), args),
            ]))
        }
        Value::String(command) => Some(Map::from_iter([("command".to_owned(), command.as_str().into())])),
        _ => None,
    }
}

/// A server whose command is one word: `.mcpmon.yaml` may have a list, of which the other words come before the arguments.
fn with_command_word(mut server: Map<String, Value>) -> Map<String, Value> {
    let words = ["command", "cmd"]
        .into_iter()
        .find_map(|member| server.get(member)?.as_array().cloned());
    if let Some([command, rest @ ..]) = words.as_deref() {
        let args = server.get("args").and_then(Value::as_array).into_iter().flatten();
        let args: Vec<Value> = rest.iter().chain(args).cloned().collect();
        let command = command.clone();
        server.extend([("command".to_owned(), command), ("args".to_owned(), args.into())]);
    }
    server
}

/// Whether a server is this program: a broker must not be its own backend.
fn is_this_broker(server: &Map<String, Value>) -> bool {
    let command = server.get("command").and_then(Value::as_str).unwrap_or_default();
    let args = server.get("args").and_then(Value::as_array).into_iter().flatten();
    let is_broker = |word: &str| word == "mcp-broker";
    is_broker(command.rsplit('/').next().unwrap_or_default()) || args.filter_map(Value::as_str).any(is_broker)
}

/// A name as a legal one.
fn base_name(given: &str) -> String {
    let replaced: String = given
        .to_lowercase()
        .chars()
        .map(|c| {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                c
            } else {
                '-'
            }
        })
        .collect();
    let cut: String = replaced.trim_matches('-').chars().take(28).collect();
    match cut.trim_end_matches('-') {
        "" => "server".to_owned(),
        base => base.to_owned(),
    }
}

/// A legal name that is not taken.
fn legal_name(given: &str, taken: &BTreeSet<String>) -> Result<BackendName, String> {
    let base = base_name(given);
    let numbered = (2..100).map(|at| format!("{base}-{at}"));
    [base.clone()]
        .into_iter()
        .chain(numbered)
        .filter(|name| !taken.contains(name))
        .find_map(|name| BackendName::parse(&name).ok())
        .ok_or_else(|| "no name can be made of it".to_owned())
}

fn table(
    name: &BackendName,
    server: &Map<String, Value>,
    references: &References,
    notes: &mut Vec<String>,
) -> Result<String, String> {
    let mut table = format!("[backends.{name}]\n");
    let text = |value: &Value| word(value).map(|text| resolved(&text, references)).transpose();
    let command = server.get("command").or(server.get("cmd"));
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(table, "{key} = {value}");
    };
    match (command, server.get("url")) {
        (Some(command), _) => {
            let command = text(command)?.ok_or("command is no text")?;
            line("command", &toml_string(&command));
            let mut args = Vec::new();
            if let Some(given) = server.get("args") {
                let given = given.as_array().ok_or("args is no list")?;
                args = given
                    .iter()
                    .map(|argument| text(argument)?.ok_or_else(|| "an argument is no text".to_owned()))
                    .collect::<Result<_, _>>()?;
                let quoted: Vec<String> = args.iter().map(|argument| toml_string(argument)).collect();
                line("args", &format!("[{}]", quoted.join(", ")));
            }
            let watch = server.get("watch").map(|folder| watched(folder, server)).transpose()?;
            let cwd = match server.get("cwd") {
                Some(cwd) => Some(text(cwd)?.ok_or("cwd is no text")?),
                None => (watch.is_some() || names_relative_path(&command, &args)).then(String::new),
            };
            if let Some(cwd) = cwd {
                line("cwd", &toml_string(&in_folder(&references.folder, &cwd)));
            }
            if let Some(watch) = watch {
                line("watch", &format!("[{}]", toml_string(&watch)));
            }
        }
        (None, Some(url)) => {
            let url = text(url)?.ok_or("url is no text")?;
            // One with references is known when the backend starts.
            if !url.contains("${") {
                parse_url(&url).map_err(|reason| format!("url: {reason}"))?;
            }
            line("url", &toml_string(&url));
            // Other values are found out when the backend starts.
            if server.get("type").and_then(Value::as_str) == Some("sse") {
                line("transport", &toml_string("sse"));
            }
        }
        (None, None) => return Err("it has neither a command nor a url".to_owned()),
    }
    for (key, member) in [("env", "env"), ("headers", "headers")] {
        if let Some(values) = server.get(member) {
            let values = object(values).ok_or_else(|| format!("{member} is no object"))?;
            if values.values().any(|value| !value.is_null()) {
                line(key, &inline_table(&values, references)?);
            }
        }
    }
    if server.get("disabled") == Some(&Value::Bool(true)) {
        line("disabled", "true");
    }
    for (member, value) in server {
        let left_out = LEFT_OUT.iter().find(|(known, _)| known == member);
        match left_out {
            Some((_, advice)) => notes.push(format!("{name}: {member} is left out; {advice}")),
            None if KNOWN.contains(&member.as_str()) => {}
            None => {
                notes.push(format!("{name}: {member} is not known, and kept as a comment"));
                let _ = writeln!(
                    table,
                    "# {} = {}",
                    toml_string(member),
                    without_delete(&value.to_string())
                );
            }
        }
    }
    Ok(table)
}

/// Whether a program is found, or finds a file that its arguments name, in its working directory. The broker works in another
/// one than the client.
fn names_relative_path(command: &str, args: &[String]) -> bool {
    let is_file = |word: &str| {
        let ending = word.rsplit_once('.').map(|(_, ending)| ending);
        let has_ending = ending.is_some_and(|ending| FILE_ENDINGS.contains(&ending));
        // Neither an option nor a package or an image.
        let is_path = word.starts_with(|c: char| c.is_alphanumeric() || c == '_') && !word.contains(['@', ':', '=']);
        has_ending && is_path
    };
    let is_dotted = |word: &str| matches!(word, "." | "..") || word.starts_with("./") || word.starts_with("../");
    is_dotted(command)
        || (command.contains('/') && is_relative(command))
        || args
            .iter()
            .flat_map(|argument| argument.split_whitespace())
            .any(|word| is_dotted(word) || is_file(word))
}

/// Whether a path starts at the working directory, as far as its text shows.
#[must_use]
pub fn is_relative(path: &str) -> bool {
    !path.starts_with(['/', '~', '$'])
}

/// A folder that may be relative to another one.
fn in_folder(folder: &str, path: &str) -> String {
    match path.trim_start_matches("./") {
        "" | "." => folder.to_owned(),
        below if is_relative(path) => format!("{}/{below}", folder.trim_end_matches('/')),
        _ => path.to_owned(),
    }
}

fn watched(folder: &Value, server: &Map<String, Value>) -> Result<String, String> {
    let folder = folder.as_str().ok_or("watch is no text")?;
    let given = server.get("extensions").or(server.get("ext"));
    let extensions = given.map_or(Some(WATCHED_EXTENSIONS), Value::as_str);
    watched_pattern(folder, extensions.ok_or("extensions is no text")?)
}

/// The pattern of the files that mcpmon watches: those with some endings below a folder, which is relative to where it runs.
///
/// # Errors
/// The folder or the endings cannot be part of a pattern.
pub fn watched_pattern(folder: &str, extensions: &str) -> Result<String, String> {
    let folder = if folder == "/" {
        ""
    } else {
        folder.trim_end_matches('/')
    };
    let extensions: Vec<&str> = extensions
        .split(',')
        .map(|extension| extension.trim().trim_start_matches('.'))
        .filter(|extension| !extension.is_empty())
        .collect();
    let ending = match extensions[..] {
        [one] => one.to_owned(),
        _ => format!("{{{}}}", extensions.join(",")),
    };
    let pattern = format!("{folder}/**/*.{ending}");
    FilePattern::parse(&pattern).map_err(|reason| format!("watch: {reason}"))?;
    Ok(pattern)
}

fn inline_table(values: &Map<String, Value>, references: &References) -> Result<String, String> {
    let mut entries = Vec::new();
    for (key, value) in values.iter().filter(|(_, value)| !value.is_null()) {
        let value = word(value).ok_or_else(|| format!("the value of {key} is no text"))?;
        let value = resolved(&value, references)?;
        entries.push(format!("{} = {}", toml_string(key), toml_string(&value)));
    }
    Ok(format!("{{ {} }}", entries.join(", ")))
}

/// A text. A number and a word such as `true` give the text of theirs.
fn word(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(_) | Value::Bool(_) => Some(Cow::Owned(value.to_string())),
        _ => None,
    }
}

/// Replaces what only the other program knows, once: what takes its place stays as it is. Variables stay, too: the broker
/// replaces them when it starts the backend.
fn resolved(text: &str, references: &References) -> Result<String, String> {
    let text = text.replace("${workspaceFolder}", &references.folder);
    let (mut done, mut rest) = (String::new(), text.as_str());
    while let Some((before, after)) = rest.split_once("${input:") {
        let (name, after) = after
            .split_once('}')
            .ok_or("a reference \"${input:\" has no closing bracket")?;
        let value = references
            .inputs
            .get(name)
            .ok_or_else(|| format!("it asks for {name}: give it with --input {name}=VALUE"))?;
        done.push_str(before);
        done.push_str(value);
        rest = after;
    }
    done.push_str(rest);
    Ok(done)
}

/// A basic string of TOML, whose escapes are those of JSON.
#[must_use]
pub fn toml_string(text: &str) -> String {
    without_delete(&string(text))
}

/// JSON text in which the one control character is escaped that JSON allows in a string and TOML does not.
fn without_delete(json: &str) -> String {
    json.replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests;
