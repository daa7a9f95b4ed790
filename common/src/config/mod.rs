//! The settings of `serve`, declared in one table: flags, environment variables, keys of the file, help, documentation
//! and [`Config`] are generated from it.
//!
//! A setting is one entry of the `settings!` block of `table`. Values are parsed here; the rest of the program uses the
//! typed fields. This module knows no other room of the program except the syntax of a Redis URL.

mod backend_tools;
mod backends;
mod checks;
mod docs;
mod error;
mod file_pattern;
mod guess;
mod kinds;
mod layers;
mod names;
mod one_line;
mod rules;
mod server_url;
mod setting;
mod span;
mod table;
mod values;
mod web_rules;

use std::{ffi::OsString, path::PathBuf};

pub use backends::{BackendDefaults, check_backends, parse_backends, parse_table};
pub use docs::settings_markdown;
pub use error::quoted_value;
pub use error::{ConfigError, Source};
pub use file_pattern::FilePattern;
pub use guess::{few, nearest_name, suggestion};
pub use kinds::{ClarifyBy, GatewayCommands, GatewayPrefix, LogFormat, RedisFallback, StorageKind};
pub use layers::{DefaultValue, Flag};
pub use names::{
    API_KEY_ENV, CLIENT_ENVS, CODEX_ENV, CONFIG_ENV, CONTEXT_ENV, ENV_PREFIX, NAME_ENV, NOTIFY_COMMAND_ENV,
    NOTIFY_TEXT_ENV, URL_ENV, WAKE_ENV, unused_variables,
};
pub use one_line::one_line;
pub use rules::{Integer, Rule, Size, Span};
pub use rules::{RedisUrl, Shape, check_log_filter};
pub use server_url::parse_url;
pub use setting::Setting;
pub use table::{Config, SETTINGS};
pub use values::SettingValue;
pub use web_rules::{DeskSecret, NtfyTopic, WebUrl};
pub use web_rules::{OptionalTopic, OptionalWebUrl};

use layers::Layers;

/// Reads the configuration from the flags, the environment and the file that one of them names.
///
/// Variables without the prefix are ignored. Only the value with the highest precedence is checked, so a flag can
/// override a bad file.
///
/// # Errors
/// The first problem: an unusable file, an unknown key or variable, a value that is not allowed, or two values that
/// exclude each other.
pub fn load(
    config_flag: Option<OsString>,
    flags: Vec<Flag>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Config, ConfigError> {
    load_with_values(config_flag, flags, env).map(|(config, _)| config)
}

/// Reads the configuration like [`load`], and also returns where each value came from.
///
/// # Errors
/// Those of [`load`].
pub fn load_with_values(
    config_flag: Option<OsString>,
    flags: Vec<Flag>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(Config, Vec<SettingValue>), ConfigError> {
    load_over(Vec::new(), config_flag, flags, env)
}

/// Where a configuration is read from, so that it can be read again.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Defaults that replace those of the settings.
    pub defaults: Vec<DefaultValue>,
    /// The file that a flag names.
    pub file: Option<OsString>,
    pub flags: Vec<Flag>,
    pub env: Vec<(OsString, OsString)>,
}

impl Sources {
    /// Reads the configuration.
    ///
    /// # Errors
    /// Those of [`load`].
    pub fn load(&self) -> Result<(Config, Vec<SettingValue>), ConfigError> {
        let (defaults, file) = (self.defaults.clone(), self.file.clone());
        load_over(defaults, file, self.flags.clone(), self.env.iter().cloned())
    }

    /// The configuration file, if there is one.
    pub fn file(&self) -> Option<PathBuf> {
        let named = self.env.iter().find(|(name, _)| name == CONFIG_ENV);
        let named = || named.map(|(_, file)| file.clone());
        self.file.clone().or_else(named).map(PathBuf::from)
    }
}

/// Reads the configuration like [`load_with_values`], over defaults that replace those of the settings.
///
/// # Errors
/// Those of [`load`].
pub fn load_over(
    defaults: Vec<DefaultValue>,
    config_flag: Option<OsString>,
    flags: Vec<Flag>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(Config, Vec<SettingValue>), ConfigError> {
    let layers = Layers::read_all(SETTINGS, defaults, config_flag, flags, env)?;
    let config = table::read(&layers)?;
    checks::check_between_settings(&config, &layers)?;
    Ok((config, values::values(&layers)))
}

#[cfg(test)]
mod tests;
