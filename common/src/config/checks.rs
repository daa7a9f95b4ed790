//! The rules between settings.

use super::{
    error::{ConfigError, RawSetting, Source},
    layers::Layers,
    rules::{AdminKey, RedisAddress, Rule},
    table::Config,
    web_rules::DeskSecret,
};
use crate::token_file::TokenFile;

/// Checks the rules between settings. Each value has passed its own rule.
///
/// # Errors
/// The first pair of values that exclude each other.
pub fn check_between_settings(config: &Config, layers: &Layers) -> Result<(), ConfigError> {
    if !config.is_loopback() && !config.allow_anonymous && !config.enable_auth {
        let allowed = "a loopback address, because authentication is off, or any address with enable_auth = true or \
                       allow_anonymous = true";
        return Err(ConfigError::not_allowed(&layers.given("host"), allowed));
    }
    check_credentials(config, layers)?;
    check_redis(config, layers)?;
    check_desk(config, layers)?;
    if config.local_auth && config.local_fifo.is_some() {
        let allowed = "none with local_auth, because a FIFO does not tell its clients apart";
        return Err(ConfigError::not_allowed(&layers.given("local_fifo"), allowed));
    }
    if let Some(Err(reason)) = config.metrics_token_file.as_deref().map(TokenFile::open) {
        let allowed = format!("a readable file with a token ({reason})");
        return Err(ConfigError::not_allowed(&layers.given("metrics_token_file"), &allowed));
    }
    if config.allowed_hosts.is_empty() {
        let allowed = "at least one host name, or * for every name";
        return Err(ConfigError::not_allowed(&layers.given("allowed_hosts"), allowed));
    }
    let heartbeat = ("heartbeat_interval", config.heartbeat_interval);
    let stale = ("stale_threshold", config.stale_threshold);
    let disconnect = ("disconnect_threshold", config.disconnect_threshold);
    let words = ["shorter", "longer"];
    check_less(layers, heartbeat, stale, words)?;
    check_less(layers, stale, disconnect, words)?;
    check_budgets(config, layers)
}

fn check_credentials(config: &Config, layers: &Layers) -> Result<(), ConfigError> {
    if config.admin_key.is_some() && config.admin_key_file.is_some() {
        let allowed = "none together with admin_key";
        return Err(ConfigError::not_allowed(&layers.given("admin_key_file"), allowed));
    }
    if let Err(reason) = config.admin_digest() {
        let allowed = format!("a file whose first line is {} ({reason})", AdminKey.allowed());
        return Err(ConfigError::not_allowed(&layers.given("admin_key_file"), &allowed));
    }
    let jwt = [
        ("jwt_issuer", &config.jwt_issuer),
        ("jwt_audience", &config.jwt_audience),
        ("jwt_jwks", &config.jwt_jwks),
    ];
    let missing = jwt.iter().find(|(_, value)| value.is_none());
    let given = jwt.iter().find(|(_, value)| value.is_some());
    if let (Some((missing, _)), Some((given, _))) = (missing, given) {
        return Err(ConfigError::needs(&layers.given(given), missing));
    }
    let has_admin = config.admin_key.is_some() || config.admin_key_file.is_some();
    if config.enable_auth && !has_admin && config.jwt_issuer.is_none() {
        let what =
            "admin_key, admin_key_file or jwt_issuer: without one, no key could be made; mcp-broker keygen prints one";
        return Err(ConfigError::needs(&layers.given("enable_auth"), what));
    }
    Ok(())
}

fn check_desk(config: &Config, layers: &Layers) -> Result<(), ConfigError> {
    if !config.desk_webhooks.is_empty() && config.desk_secret_file.is_none() {
        return Err(ConfigError::needs(&layers.given("desk_webhooks"), "desk_secret_file"));
    }
    config.desk_secret().map(drop).map_err(|reason| {
        let allowed = format!("a file whose first line is {} ({reason})", DeskSecret::allowed());
        ConfigError::not_allowed(&layers.given("desk_secret_file"), &allowed)
    })
}

fn check_redis(config: &Config, layers: &Layers) -> Result<(), ConfigError> {
    let password = layers.given("redis_password_file");
    if config.redis_password_file.is_some() {
        if config.redis_url_file.is_some() {
            return Err(ConfigError::not_allowed(&password, "none together with redis_url_file"));
        }
        return config.redis_address().map(drop).map_err(|reason| {
            let allowed = format!("a file whose first line is the password for redis_url ({reason})");
            ConfigError::not_allowed(&password, &allowed)
        });
    }
    let file = layers.given("redis_url_file");
    if config.redis_url_file.is_some() && layers.given("redis_url").source != Source::Default {
        return Err(ConfigError::not_allowed(&file, "none together with redis_url"));
    }
    config.redis_address().map(drop).map_err(|reason| {
        let allowed = format!("a file whose first line is {} ({reason})", RedisAddress.allowed());
        ConfigError::not_allowed(&file, &allowed)
    })
}

/// Checks that a configured message budget exceeds the largest message. Defaults are raised instead:
/// [`Config::message_budget_bytes`].
fn check_budgets(config: &Config, layers: &Layers) -> Result<(), ConfigError> {
    let payload = ("max_payload_mb", config.max_payload_mb);
    let budgets = [
        ("queue_max_mb", config.queue_max_mb),
        ("waiting_max_mb", config.waiting_max_mb),
        ("dead_letters_max_mb", config.dead_letters_max_mb),
        ("messages_max_mb", config.messages_max_mb),
    ];
    budgets
        .into_iter()
        .filter(|(key, _)| layers.given(key).source != Source::Default)
        .try_for_each(|budget| check_less(layers, payload, budget, ["less", "more"]))
}

/// Checks `less < more`. The error names a setting that the user has set, and never a default.
fn check_less<T: PartialOrd>(
    layers: &Layers,
    less: (&str, T),
    more: (&str, T),
    [less_word, more_word]: [&str; 2],
) -> Result<(), ConfigError> {
    if less.1 < more.1 {
        return Ok(());
    }
    let (less, more) = (layers.given(less.0), layers.given(more.0));
    let bound =
        |word: &str, other: &RawSetting| format!("{word} than {} = {:?} ({})", other.key, other.text, other.location());
    if less.source == Source::Default {
        return Err(ConfigError::not_allowed(&more, &bound(more_word, &less)));
    }
    Err(ConfigError::not_allowed(&less, &bound(less_word, &more)))
}
