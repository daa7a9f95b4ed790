//! Files of other programs that list MCP servers: finds out their form, and reads them as backends.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use ::config::{File, FileFormat as ConfigFormat, Source};
use serde_json::Value;

use crate::{
    agent_clients::FileFormat,
    client_file,
    error::CliError,
    operate::gateway::imported::{Imported, References, import},
};

/// The levels of the log as Python names them, and as the broker does.
const LOG_LEVELS: [(&str, &str); 6] = [
    ("DEBUG", "debug"),
    ("INFO", "info"),
    ("WARNING", "warn"),
    ("WARN", "warn"),
    ("ERROR", "error"),
    ("CRITICAL", "error"),
];

/// The flag for what a file asks for.
#[derive(Debug, clap::Args)]
pub struct Inputs {
    /// Value of an input that the file asks for.
    #[arg(long = "input", value_name = "NAME=VALUE", value_delimiter = ',')]
    given: Vec<String>,
}

impl Inputs {
    /// The values by the names of their inputs.
    ///
    /// # Errors
    /// One that is not NAME=VALUE.
    pub fn by_name(&self) -> Result<BTreeMap<String, String>, CliError> {
        let split = |input: &String| {
            let (name, value) = input.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        let wrong = |input: &String| CliError::Usage(format!("--input {input}: NAME=VALUE is expected"));
        self.given
            .iter()
            .map(|input| split(input).ok_or_else(|| wrong(input)))
            .collect()
    }
}

/// Whether a file is a configuration file of the broker: TOML, or YAML without servers.
///
/// # Errors
/// It cannot be read.
pub fn is_own(file: &Path) -> Result<bool, String> {
    if has_ending(file, &["toml"]) {
        return Ok(true);
    }
    if !is_yaml(file) {
        return Ok(false);
    }
    let parsed = parsed(file)?;
    Ok(["servers", "mcpServers"]
        .iter()
        .all(|member| parsed.get(member).is_none()))
}

/// Reads the servers of a file as backends. `taken` are names that the configuration has already.
///
/// # Errors
/// Why the file cannot be used.
pub fn read(file: &Path, inputs: &BTreeMap<String, String>, taken: &BTreeSet<String>) -> Result<Imported, String> {
    let references = References {
        inputs: inputs.clone(),
        folder: folder_of(file),
    };
    import(&parsed(file)?, &references, taken)
}

/// The level of the log that the `settings` of `.mcpmon.yaml` name, in the words of the broker. `None` if they name none.
///
/// # Errors
/// The file cannot be read, or the level is not known.
pub fn log_level(file: &Path) -> Result<Option<&'static str>, String> {
    let level = parsed(file)?["settings"]["log_level"].take();
    match level {
        Value::Null => Ok(None),
        Value::String(level) => {
            let known = LOG_LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&level));
            let names: Vec<_> = LOG_LEVELS.iter().map(|(name, _)| *name).collect();
            let wrong = || format!("settings.log_level: {level} is none of {}", names.join(", "));
            known.map(|(_, level)| Some(*level)).ok_or_else(wrong)
        }
        _ => Err("settings.log_level: a word is expected".to_owned()),
    }
}

/// Whether a client gets notifications of changed lists: unless `notify_on_change` in the `settings` of `.mcpmon.yaml` is false.
///
/// # Errors
/// The file cannot be read, or the value is neither true nor false.
pub fn announces_lists(file: &Path) -> Result<bool, String> {
    match parsed(file)?["settings"]["notify_on_change"].take() {
        Value::Null => Ok(true),
        Value::Bool(announces) => Ok(announces),
        _ => Err("settings.notify_on_change: true or false is expected".to_owned()),
    }
}

fn parsed(file: &Path) -> Result<Value, String> {
    let text = client_file::read(file)?.ok_or("there is no such file")?;
    if is_yaml(file) {
        parse_yaml(&text)
    } else {
        client_file::parse(FileFormat::Json, &text)
    }
}

fn is_yaml(file: &Path) -> bool {
    has_ending(file, &["yaml", "yml"])
}

fn has_ending(file: &Path, endings: &[&str]) -> bool {
    let ending = file.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| endings.contains(&ending))
}

fn parse_yaml(text: &str) -> Result<Value, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let table = File::from_str(text, ConfigFormat::Yaml).collect();
    let table = table.map_err(|error| error.to_string())?;
    let members = table.into_iter().map(|(key, value)| {
        let value = value.try_deserialize::<Value>().map_err(|error| error.to_string());
        value.map(|value| (key, value))
    });
    members.collect::<Result<_, _>>().map(Value::Object)
}

/// The folder of the project that a file belongs to: that of the file, or the one above `.vscode` and the like.
fn folder_of(file: &Path) -> String {
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let folder = file.parent().unwrap_or(Path::new("/"));
    let is_hidden = folder
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let folder = folder.parent().filter(|_| is_hidden).unwrap_or(folder);
    folder.display().to_string()
}
