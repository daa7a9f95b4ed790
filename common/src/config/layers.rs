//! Merges flags, environment, file and defaults, in this order of precedence. Each value keeps its source.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ::config::{File, FileFormat, Source as _, Value, ValueKind};

use actors::model::BackendsConfig;

use super::backends::{self, BACKENDS, BackendDefaults, PROJECTS, without_excerpt};
use super::error::{ConfigError, RawSetting, Source};
use super::guess::suggestion;
use super::names::{CLIENT_ENVS, CONFIG_ENV, ENV_PREFIX};
use super::rules::{NotAllowed, Rule, Shape};
use super::setting::Setting;
use super::span::{parse_duration, show_duration};

/// Settings of the original broker that have another name here.
const SUCCESSORS: [(&str, &str); 1] = [("auth_secret", "admin_key")];
/// Values of the original broker that have another name here: the key, their word and ours.
const ORIGINAL_VALUES: [(&str, &str, &str); 1] = [("log_format", "text", "pretty")];

/// A flag: the key of its setting and its value.
pub type Flag = (&'static str, OsString);

/// A default that replaces that of a setting: its key and its value.
pub type DefaultValue = (&'static str, String);

/// The value of each key; a later layer overwrites an earlier one.
pub struct Layers {
    settings: &'static [Setting],
    /// Defaults that replace those of the settings.
    defaults: Vec<DefaultValue>,
    given: BTreeMap<&'static str, RawSetting>,
    /// The file, and its tables of backends.
    file: Option<FileTables>,
    /// What was taken otherwise than it is written.
    notes: Vec<String>,
}

/// The tables of a file that are no settings.
struct FileTables {
    path: PathBuf,
    tables: BTreeMap<String, Value>,
}

impl Layers {
    /// Reads the values of these settings from the file that a flag or variable names, from the variables and the
    /// flags.
    ///
    /// # Errors
    /// An unusable file, an unknown key or variable, or a value that is not text.
    pub fn read_all(
        settings: &'static [Setting],
        defaults: Vec<DefaultValue>,
        config_flag: Option<OsString>,
        flags: Vec<Flag>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut env = broker_variables(env);
        let config_env = env
            .remove(CONFIG_ENV)
            .map(|path| (path, Source::Env(CONFIG_ENV.to_owned())));
        let mut layers = Self {
            settings,
            defaults,
            given: BTreeMap::new(),
            file: None,
            notes: Vec::new(),
        };
        if let Some((path, source)) = config_flag.map(|path| (path, Source::Flag)).or(config_env) {
            layers.add_file(Path::new(&path), source)?;
        }
        for (name, value) in env {
            let key = name.replacen(ENV_PREFIX, "", 1).to_ascii_lowercase();
            layers.add(given(key, value, Source::Env(name))?)?;
        }
        for (key, value) in flags {
            layers.add(given(key.to_owned(), value, Source::Flag)?)?;
        }
        layers.raise_thresholds();
        Ok(layers)
    }

    /// What was taken otherwise than it is written.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Raises the defaults of the thresholds of silence where a heartbeat interval that was set is not shorter.
    fn raise_thresholds(&mut self) {
        const HEARTBEAT: &str = "heartbeat_interval";
        const STALE: &str = "stale_threshold";
        const DISCONNECT: &str = "disconnect_threshold";
        let span = |key: &str| parse_duration(self.given(key).text.trim());
        let is_default = |key: &str| self.find(key).is_some() && self.given(key).source == Source::Default;
        let (Some(heartbeat), Some(stale)) = (span(HEARTBEAT), span(STALE)) else {
            return;
        };
        if heartbeat < stale || is_default(HEARTBEAT) || !is_default(STALE) || !is_default(DISCONNECT) {
            return;
        }
        let raised =
            [(STALE, heartbeat * 3), (DISCONNECT, heartbeat * 6)].map(|(key, span)| (key, show_duration(span)));
        let [stale, disconnect] = raised.each_ref().map(|(key, text)| format!("{key} = {text}"));
        self.notes.push(format!(
            "{stale} and {disconnect}, because heartbeat_interval is {}",
            show_duration(heartbeat)
        ));
        self.defaults.extend(raised);
    }

    /// The backends that the file describes.
    ///
    /// # Errors
    /// A value is not allowed.
    pub fn backends(&self, defaults: BackendDefaults) -> Result<BackendsConfig, ConfigError> {
        let Some(FileTables { path, tables }) = &self.file else {
            return Ok(BackendsConfig::new());
        };
        let read = backends::read_backends(tables.get(BACKENDS), tables.get(PROJECTS), defaults);
        read.map_err(|(key, reason)| ConfigError::backend(path, &key, &reason))
    }

    fn find(&self, key: &str) -> Option<&'static Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// Returns the value of a key, or its default.
    pub fn given(&self, key: &str) -> RawSetting {
        let default = || RawSetting {
            key: key.to_owned(),
            text: self.default_of(key),
            source: Source::Default,
        };
        self.given.get(key).cloned().unwrap_or_else(default)
    }

    /// The default of a key, which may be one that replaces that of its setting.
    pub fn default_of(&self, key: &str) -> String {
        match self.defaults.iter().find(|(name, _)| *name == key) {
            Some((_, text)) => text.clone(),
            None => self.find(key).map_or("", |setting| setting.default).to_owned(),
        }
    }

    /// Parses the value of a key.
    ///
    /// # Errors
    /// The value is not allowed.
    pub fn read<R: Rule>(&self, key: &str, rule: &R) -> Result<R::Value, ConfigError> {
        let given = self.given(key);
        rule.parse(given.text.trim())
            .map_err(|NotAllowed| ConfigError::not_allowed(&given, &rule.allowed()))
    }

    fn add(&mut self, mut given: RawSetting) -> Result<(), ConfigError> {
        if let Some((_, _, ours)) = ORIGINAL_VALUES
            .iter()
            .find(|(key, theirs, _)| (*key, *theirs) == (given.key.as_str(), given.text.trim()))
        {
            let theirs = std::mem::replace(&mut given.text, (*ours).to_owned());
            self.notes.push(format!(
                "{} = {theirs} is taken as {ours} ({})",
                given.key,
                given.location()
            ));
        }
        let is_spelled = |setting: &&Setting| match &given.source {
            Source::Env(name) => *name == setting.env(),
            _ => true,
        };
        let setting = self
            .find(&given.key)
            .filter(is_spelled)
            .ok_or_else(|| self.unknown(&given))?;
        self.given.insert(setting.key, given);
        Ok(())
    }

    fn unknown(&self, given: &RawSetting) -> ConfigError {
        let mut keys: Vec<&str> = self.settings.iter().map(|setting| setting.key).collect();
        match given.source {
            Source::Env(_) => keys.push("config"),
            Source::File(_) => keys.extend(["backends", "projects"]),
            Source::Default | Source::Flag => {}
        }
        let successor = SUCCESSORS.iter().find(|(name, _)| *name == given.key);
        let spell = |key: &str| given.source.spell(key);
        let suggestion = match successor {
            Some((_, key)) => format!("did you mean {}?", spell(key)),
            None => suggestion(&given.key, &keys, spell, "mcp-broker serve --help"),
        };
        ConfigError::unknown(given, &suggestion)
    }

    fn add_file(&mut self, path: &Path, source: Source) -> Result<(), ConfigError> {
        let (key, text) = ("config".to_owned(), path.display().to_string());
        let file = RawSetting { key, text, source };
        let table = read_file(path).map_err(|reason| ConfigError::file(&file, &reason))?;
        let (tables, settings): (BTreeMap<_, _>, BTreeMap<_, _>) = table
            .into_iter()
            .partition(|(key, _)| [BACKENDS, PROJECTS].contains(&key.as_str()));
        self.file = Some(FileTables {
            path: path.to_owned(),
            tables,
        });
        let mut entries = settings.into_iter();
        entries.try_for_each(|(key, value)| self.add_entry(key, &value, Source::File(path.to_owned())))
    }

    fn add_entry(&mut self, key: String, value: &Value, source: Source) -> Result<(), ConfigError> {
        let setting = self.find(&key);
        let is_list = setting.is_some_and(|setting| matches!(setting.shape, Shape::Many(_)));
        let text = if is_list { list_text(value) } else { scalar_text(value) };
        let shown = text.clone().unwrap_or_else(|| value.kind.to_string());
        let given = RawSetting {
            key,
            text: shown,
            source,
        };
        match setting {
            Some(setting) if text.is_none() => Err(ConfigError::not_allowed(&given, &(setting.allowed)())),
            _ => self.add(given),
        }
    }
}

/// Reads the table of a file, sorted by key, so that the first of several errors is always the same.
fn read_file(path: &Path) -> Result<BTreeMap<String, Value>, String> {
    let format = match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => FileFormat::Toml,
        Some("yaml" | "yml") => FileFormat::Yaml,
        _ => return Err("its name has none of the endings".to_owned()),
    };
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let table = File::from_str(text, format).collect();
    let table = table.map_err(|error| without_excerpt(&error.to_string()))?;
    Ok(table.into_iter().collect())
}

/// A list in the file equals the same items separated by commas elsewhere.
fn list_text(value: &Value) -> Option<String> {
    let ValueKind::Array(items) = &value.kind else {
        return scalar_text(value);
    };
    let items: Option<Vec<String>> = items.iter().map(scalar_text).collect();
    items.map(|items| items.join(","))
}

/// A single value as a flag would give it; `None` for a list, a table or an empty value.
fn scalar_text(value: &Value) -> Option<String> {
    match &value.kind {
        ValueKind::Table(_) | ValueKind::Array(_) | ValueKind::Nil => None,
        kind => Some(kind.to_string()),
    }
}

/// The broker's variables by name.
fn broker_variables(env: impl IntoIterator<Item = (OsString, OsString)>) -> BTreeMap<String, OsString> {
    let as_text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value));
    let mut variables: BTreeMap<String, OsString> = env.into_iter().filter_map(as_text).collect();
    variables.retain(|name, _| name.starts_with(ENV_PREFIX) && !CLIENT_ENVS.contains(&name.as_str()));
    let names = variables.keys();
    let services: BTreeSet<String> = names
        .filter_map(|name| name.strip_suffix("_SERVICE_HOST"))
        .map(ToOwned::to_owned)
        .collect();
    variables.retain(|name, value| !is_service_link(&services, name, &value.to_string_lossy()));
    variables
}

/// Whether a variable was set by Kubernetes: for a service named `mcp-broker`, every pod of the namespace gets
/// `MCP_BROKER_SERVICE_HOST` and `MCP_BROKER_PORT=tcp://10.0.0.7:8000`. Taken as settings, they would prevent the
/// start.
fn is_service_link(services: &BTreeSet<String>, name: &str, value: &str) -> bool {
    let starts_with_digit = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    services
        .iter()
        .filter_map(|service| name.strip_prefix(service.as_str()))
        .any(|rest| match rest {
            "_SERVICE_HOST" | "_SERVICE_PORT" => true,
            "_PORT" => value.contains("://"),
            _ => rest.starts_with("_SERVICE_PORT_") || rest.strip_prefix("_PORT_").is_some_and(starts_with_digit),
        })
}

fn given(key: String, value: OsString, source: Source) -> Result<RawSetting, ConfigError> {
    match value.into_string() {
        Ok(text) => Ok(RawSetting { key, text, source }),
        Err(value) => {
            let text = value.to_string_lossy().into_owned();
            Err(ConfigError::not_allowed(
                &RawSetting { key, text, source },
                "text in UTF-8",
            ))
        }
    }
}
