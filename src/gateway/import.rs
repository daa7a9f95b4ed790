//! Reads the servers of a file of another program, and writes them as backends of the configuration file. Pure.
//!
//! Known are `mcpServers` (Claude Code, Claude Desktop, Cursor, Windsurf), `servers` with `inputs` (VS Code), and `servers` of
//! `.mcpmon.yaml`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use actors::{json::string, model::BackendName};
use serde_json::{Map, Value};

use crate::config::{FilePattern, parse_url};

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

/// The servers of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The backends, sorted by their names in the file.
    pub backends: Vec<ImportedBackend>,
    /// What was changed or left out, for the user.
    pub notes: Vec<String>,
}

/// A server as a backend.
#[derive(Debug, PartialEq, Eq)]
pub struct ImportedBackend {
    pub name: BackendName,
    /// Its table, as TOML.
    pub table: String,
}

/// What the references in a file stand for.
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
/// The file has no servers, or one of them cannot be read: why.
pub fn import(file: &Value, references: &References, taken: &BTreeSet<String>) -> Result<Imported, String> {
    let servers = ["mcpServers", "servers"]
        .into_iter()
        .find_map(|member| file[member].as_object());
    let servers = servers.ok_or("it has neither mcpServers nor servers")?;
    let mut imported = Imported::default();
    let mut names = taken.clone();
    for (given, server) in servers {
        if taken.contains(&base_name(given)) {
            imported
                .notes
                .push(format!("{given}: left out, because the configuration has it already"));
            continue;
        }
        let Some(server) = members(server) else {
            return Err(format!("{given}: a server is an object or a command"));
        };
        if is_this_broker(&server) {
            imported
                .notes
                .push(format!("{given}: left out, because it is this broker itself"));
            continue;
        }
        let name = legal_name(given, &names)?;
        if name.as_str() != given {
            imported.notes.push(format!("{given}: its name becomes {name}"));
        }
        names.insert(name.to_string());
        let notes = &mut imported.notes;
        let table = table(&name, &server, references, notes).map_err(|reason| format!("{given}: {reason}"))?;
        imported.backends.push(ImportedBackend { name, table });
    }
    Ok(imported)
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
        return Err("it is this broker itself".to_owned());
    }
    let mut notes = Vec::new();
    let table = table(name, server, references, &mut notes)?;
    Ok((table, notes))
}

/// The members of a server. `.mcpmon.yaml` may have a command line alone, which is for a shell.
fn members(server: &Value) -> Option<Map<String, Value>> {
    match server {
        Value::Object(server) => Some(with_command_word(server.clone())),
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
        .ok_or_else(|| format!("{given}: no name can be made of it"))
}

fn table(
    name: &BackendName,
    server: &Map<String, Value>,
    references: &References,
    notes: &mut Vec<String>,
) -> Result<String, String> {
    let mut table = format!("[backends.{name}]\n");
    let text = |value: &Value| value.as_str().map(|text| resolved(text, references)).transpose();
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
            let values = values.as_object().ok_or_else(|| format!("{member} is no object"))?;
            if !values.is_empty() {
                line(key, &inline_table(values, references)?);
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

/// Whether a path leads on from the working directory, as far as that can be seen in it.
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
    for (key, value) in values {
        let value = match value {
            Value::String(text) => resolved(text, references)?,
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return Err(format!("the value of {key} is no text")),
        };
        entries.push(format!("{} = {}", toml_string(key), toml_string(&value)));
    }
    Ok(format!("{{ {} }}", entries.join(", ")))
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
mod tests {
    use serde_json::json;

    use super::*;

    fn imported(file: &Value) -> Imported {
        import(file, &References::default(), &BTreeSet::new()).unwrap()
    }

    fn names(imported: &Imported) -> Vec<&str> {
        imported.backends.iter().map(|backend| backend.name.as_str()).collect()
    }

    #[test]
    fn mcp_servers_become_tables() {
        let imported = imported(&json!({"mcpServers": {
            "filesystem": {"command": "npx", "args": ["-y", "@scope/fs", "/tmp/a \"b\""], "env": {"A": "${HOME}", "N": 3}},
            "My Docs": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${T}"}},
        }}));
        assert_eq!(names(&imported), ["my-docs", "filesystem"]);
        assert_eq!(
            imported.backends[1].table,
            "[backends.filesystem]\ncommand = \"npx\"\nargs = [\"-y\", \"@scope/fs\", \"/tmp/a \\\"b\\\"\"]\n\
             env = { \"A\" = \"${HOME}\", \"N\" = \"3\" }\n"
        );
        assert!(imported.backends[0].table.contains("url = \"https://example.com/mcp\""));
        assert!(!imported.backends[0].table.contains("transport"), "it is found out");
        let old = serde_json::json!({"mcpServers": {"old": {"type": "sse", "url": "https://example.com/sse"}}});
        let old = import(&old, &References::default(), &BTreeSet::new()).unwrap();
        assert!(old.backends[0].table.contains("transport = \"sse\""));
        assert_eq!(imported.notes, ["My Docs: its name becomes my-docs"]);
    }

    #[test]
    fn the_files_of_vs_code_and_mcpmon_are_known() {
        let references = References {
            inputs: BTreeMap::from([("key".to_owned(), "k1".to_owned())]),
            folder: "/work".to_owned(),
        };
        let file = json!({"inputs": [], "servers": {
            "a": {"command": "x", "args": ["${workspaceFolder}/a", "${input:key}", "${env:B}"]},
            "b": "python server.py --fast",
            "c": {"cmd": "node", "watch": "src/", "ext": "js"},
            "d": {"cmd": "x", "watch": "/a", "extensions": "py, .json", "cwd": "/b"},
            "e": {"cmd": "x", "watch": "."},
            "f": {"command": ["python", "-u"], "args": ["server.py"]},
        }});
        let imported = import(&file, &references, &BTreeSet::new()).unwrap();
        assert!(
            imported.backends[0]
                .table
                .contains("args = [\"/work/a\", \"k1\", \"${env:B}\"]")
        );
        assert!(
            imported.backends[1]
                .table
                .contains("command = \"sh\"\nargs = [\"-c\", \"python server.py --fast\"]\ncwd = \"/work\"\n")
        );
        assert!(imported.backends[2].table.contains("command = \"node\""));
        for (at, lines) in [
            (2, "cwd = \"/work\"\nwatch = [\"src/**/*.js\"]\n"),
            (3, "cwd = \"/b\"\nwatch = [\"/a/**/*.{py,json}\"]\n"),
            (4, "cwd = \"/work\"\nwatch = [\"./**/*.py\"]\n"),
        ] {
            let table = &imported.backends[at].table;
            assert!(table.ends_with(lines), "{table}");
        }
        assert!(
            imported.backends[5]
                .table
                .contains("command = \"python\"\nargs = [\"-u\", \"server.py\"]\ncwd = \"/work\"\n")
        );
        assert_eq!(imported.notes, [""; 0]);
        let of_itself = References {
            inputs: BTreeMap::from([("key".to_owned(), "${input:key}".to_owned())]),
            folder: String::new(),
        };
        let imported = import(&file, &of_itself, &BTreeSet::new()).unwrap();
        assert!(
            imported.backends[0].table.contains("\"${input:key}\""),
            "it is replaced once"
        );
        let missing = import(&file, &References::default(), &BTreeSet::new()).unwrap_err();
        assert_eq!(missing, "a: it asks for key: give it with --input key=VALUE");
    }

    #[test]
    fn a_server_that_names_files_of_its_folder_keeps_the_folder() {
        let cwd_of = |server: Value| {
            let server = members(&server).unwrap();
            let references = References {
                folder: "/work".to_owned(),
                ..References::default()
            };
            let name = BackendName::parse("a").unwrap();
            let (table, _) = table_of(&name, &server, &references).unwrap();
            let cwd = table.lines().find_map(|line| line.strip_prefix("cwd = "));
            cwd.map(ToOwned::to_owned)
        };
        for (server, cwd) in [
            (json!({"command": "python3", "args": ["server.py"]}), Some("/work")),
            (
                json!({"command": "node", "args": ["--inspect", "dist/index.js"]}),
                Some("/work"),
            ),
            (
                json!({"command": "uv", "args": ["--directory", ".", "run", "tool"]}),
                Some("/work"),
            ),
            (json!({"command": "./run.sh"}), Some("/work")),
            (json!({"command": "bin/server"}), Some("/work")),
            (json!({"command": "x", "cwd": "sub"}), Some("/work/sub")),
            (json!({"command": "x", "cwd": "./sub/"}), Some("/work/sub/")),
            (json!({"command": "x", "cwd": "."}), Some("/work")),
            (json!({"command": "x", "cwd": "~/sub"}), Some("~/sub")),
            (json!({"command": "x", "cwd": "${DIR}/sub"}), Some("${DIR}/sub")),
            (json!("python server.py"), Some("/work")),
            (
                json!({"command": "npx", "args": ["-y", "@scope/server-files", "/data", "1.2"]}),
                None,
            ),
            (
                json!({"command": "docker", "args": ["run", "-i", "ghcr.io/org/server:1.py"]}),
                None,
            ),
            (
                json!({"command": "/opt/server.py", "args": ["--config=a.json", "/etc/a.json"]}),
                None,
            ),
            (json!({"command": "~/bin/server"}), None),
        ] {
            assert_eq!(cwd_of(server.clone()), cwd.map(toml_string), "{server}");
        }
    }

    #[test]
    fn the_broker_itself_and_what_is_there_are_left_out() {
        let file = json!({"mcpServers": {
            "broker": {"command": "/usr/bin/mcp-broker", "args": ["connect"]},
            "known": {"command": "x"},
            "Known": {"command": "y"},
            "New": {"command": "y"},
            "new": {"command": "y"},
            "mcp": {"command": "z"},
        }});
        let taken = BTreeSet::from(["known".to_owned()]);
        let imported = import(&file, &References::default(), &taken).unwrap();
        assert_eq!(names(&imported), ["new", "mcp-2", "new-2"]);
        assert_eq!(imported.notes.len(), 6, "{:?}", imported.notes);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (file, reason) in [
            (json!({}), "it has neither mcpServers nor servers"),
            (json!({"mcpServers": {"a": 1}}), "a: a server is an object or a command"),
            (
                json!({"mcpServers": {"a": {}}}),
                "a: it has neither a command nor a url",
            ),
            (
                json!({"mcpServers": {"a": {"command": "x", "args": "y"}}}),
                "a: args is no list",
            ),
            (
                json!({"mcpServers": {"a": {"url": "http://me:secret@host/"}}}),
                "a: url: it has a user or a password: send them in a header, headers = { Authorization = \"…\" }",
            ),
            (
                json!({"mcpServers": {"a": {"command": "x", "env": {"A": []}}}}),
                "a: the value of A is no text",
            ),
        ] {
            assert_eq!(
                import(&file, &References::default(), &BTreeSet::new()).unwrap_err(),
                reason
            );
        }
    }

    #[test]
    fn imported_tables_are_valid_configuration() {
        let file = json!({"mcpServers": {"a": {
            "command": "x\u{7f}\n\t\u{1}\\", "args": ["ü"], "env": {"A.b\"": "'"}, "disabled": true, "extra": ["\u{7f}"],
        }}});
        let table = &imported(&file).backends[0].table;
        let parsed: toml::Value = toml::from_str(table).unwrap();
        assert_eq!(parsed["backends"]["a"]["command"].as_str(), Some("x\u{7f}\n\t\u{1}\\"));
        assert_eq!(parsed["backends"]["a"]["env"]["A.b\""].as_str(), Some("'"));
    }
}
