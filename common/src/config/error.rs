//! Errors of the configuration, and the source of each value.

use std::path::{Path, PathBuf};

use super::{names::ENV_PREFIX, one_line::one_line};

/// Where the value of a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Default,
    File(PathBuf),
    /// The name of the variable.
    Env(String),
    Flag,
}

impl Source {
    /// How a key is spelled at this source.
    pub fn spell(&self, key: &str) -> String {
        match self {
            Self::Default | Self::File(_) => key.to_owned(),
            Self::Env(_) => format!("{}{}", ENV_PREFIX, key.to_ascii_uppercase()),
            Self::Flag => format!("--{}", key.replace('_', "-")),
        }
    }

    /// Where to change the value of a key: `--port`, `MCP_BROKER_PORT`, the path of the file, or `default`.
    pub fn location(&self, key: &str) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::File(path) => path.display().to_string(),
            Self::Env(name) => name.clone(),
            Self::Flag => self.spell(key),
        }
    }
}

/// The unparsed value of one setting and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawSetting {
    pub key: String,
    pub text: String,
    pub source: Source,
}

impl RawSetting {
    /// Where to change it: `--port`, `MCP_BROKER_PORT`, the path of the file, or `default`.
    pub fn location(&self) -> String {
        self.source.location(&self.key)
    }

    /// Key, value and source, as refusals begin.
    fn shown(&self) -> String {
        let value = quoted_value(&self.key, &self.text);
        format!("{} = {value} ({})", self.key, self.location())
    }
}

/// Why the configuration is refused. One line that names the key, the value, its source and the allowed values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    /// The value is not allowed.
    pub(super) fn not_allowed(given: &RawSetting, allowed: &str) -> Self {
        Self::new(given, "is not allowed", allowed)
    }

    /// No setting has this name. `suggestion` says which have one.
    pub(super) fn unknown(given: &RawSetting, suggestion: &str) -> Self {
        Self(one_line(&format!(
            "{} is not a known setting; {suggestion}",
            given.shown()
        )))
    }

    /// A setting lacks another one.
    pub(super) fn needs(given: &RawSetting, what: &str) -> Self {
        Self(one_line(&format!("{} needs {what}", given.shown())))
    }

    /// The configuration file cannot be used.
    pub(super) fn file(given: &RawSetting, reason: &str) -> Self {
        let allowed = "a readable file in TOML (.toml) or YAML (.yaml, .yml) with one table of settings";
        Self::new(given, &format!("cannot be used: {reason}"), allowed)
    }

    /// A table of the configuration file cannot be used.
    pub(super) fn backend(path: &Path, key: &str, reason: &str) -> Self {
        Self(one_line(&format!(
            "{key} ({}) cannot be used: {reason}",
            path.display()
        )))
    }

    fn new(given: &RawSetting, problem: &str, allowed: &str) -> Self {
        Self(one_line(&format!("{} {problem}; allowed: {allowed}", given.shown())))
    }
}

const SHOWN_CHARS_MAX: usize = 120;

/// A value as the message quotes it: shortened, and hidden where the key's name suggests a secret.
pub fn quoted_value(key: &str, text: &str) -> String {
    let key = key.to_ascii_uppercase();
    if ["KEY", "SECRET", "TOKEN", "PASSWORD", "URL", "WEBHOOKS", "NTFY"]
        .iter()
        .any(|word| key.contains(word))
    {
        return "(hidden)".to_owned();
    }
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}
