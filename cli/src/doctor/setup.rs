//! What the checks look at: the configuration, the broker to call, the environment.

use std::ffi::OsString;

use crate::{
    access::{BrokerAccess, BrokerUrl, variable},
    broker::Broker,
    local_command::user_sources,
};
use common::{
    config::{self, Config, ConfigError, Flag, SettingValue},
    user_broker::{Instance, Living, LocalPaths},
};

/// What the checks look at.
#[derive(Debug)]
pub struct Setup {
    /// The settings of the broker, with the place that each came from; else why a start refuses them.
    pub settings: Result<(Config, Vec<SettingValue>), ConfigError>,
    /// Whether they are those of the broker of this user, which clients start, and not those of `serve`.
    pub is_of_user: bool,
    /// The broker to call.
    pub access: BrokerAccess,
    /// Whether the user named the broker. Else it may be missing.
    pub is_url_given: bool,
    /// What runs in this process if no broker runs.
    pub broker: Option<&'static dyn Broker>,
    env: Vec<(OsString, OsString)>,
}

impl Setup {
    /// Reads the configuration. Without a setting and a URL, it is that of the broker of this user, if one runs or has a
    /// file. Without a URL, the broker to call is that of the configuration on this machine.
    ///
    /// # Errors
    /// One line for the user.
    pub fn read(
        file: Option<OsString>,
        flags: Vec<Flag>,
        env: Vec<(OsString, OsString)>,
        mut access: BrokerAccess,
        is_url_given: bool,
    ) -> Result<Self, String> {
        let is_broker_given = is_url_given || file.is_some() || !flags.is_empty();
        let paths = LocalPaths::of(&Instance::default()).ok().filter(|_| !is_broker_given);
        let of_user = paths.and_then(|paths| {
            let living = Living::of(&paths).unwrap_or(Living::No);
            let sources = user_sources(&paths, env.clone());
            (living != Living::No || sources.file.is_some()).then_some((sources, living))
        });
        let (is_of_user, running) = match &of_user {
            Some((_, Living::Yes(info))) => (true, info.http.clone()),
            Some(_) => (true, None),
            None => (false, None),
        };
        let settings = match of_user {
            Some((sources, _)) => sources.load(),
            None => config::load_with_values(file, flags, env.clone()),
        };
        let configured = settings.as_ref().ok().map(|(config, _)| local_url(config));
        if let (false, Some(url)) = (is_url_given, running.or(configured)) {
            access.url = BrokerUrl::parse(&url, "default")?;
        }
        Ok(Self {
            settings,
            is_of_user,
            access,
            is_url_given,
            broker: None,
            env,
        })
    }

    /// The configuration, if it can be used.
    pub fn config(&self) -> Option<&Config> {
        self.settings.as_ref().ok().map(|(config, _)| config)
    }

    /// A variable of the environment that is not empty.
    pub fn variable(&self, name: &str) -> Option<String> {
        variable(&self.env, name).map(|value| value.to_string_lossy().into_owned())
    }

    /// A setup with the defaults.
    #[cfg(test)]
    pub fn for_test() -> Self {
        let access = BrokerAccess::read(&crate::access::BrokerFlags::default(), &[]).unwrap();
        Self::read(None, Vec::new(), Vec::new(), access, false).unwrap()
    }
}

/// Where a broker with this configuration is reached from this machine.
fn local_url(config: &Config) -> String {
    let host = if config.host.is_unspecified() {
        "127.0.0.1".parse().unwrap_or(config.host)
    } else {
        config.host
    };
    let port = if config.port == 0 { 8000 } else { config.port };
    format!("http://{}", std::net::SocketAddr::new(host, port))
}
