//! `local serve`: runs the broker of a user. Other commands start it in the background.

use std::{
    ffi::OsString,
    fs::DirBuilder,
    io::{self, Write},
    mem,
    os::unix::fs::DirBuilderExt,
    process::ExitCode,
};

use rustix::{fs::Mode, process};

use super::options::DevOptions;
use crate::broker::{Broker, Serving};
use common::{
    config::{self, Config, DefaultValue, Flag, SettingValue, Source, Sources, StorageKind},
    exit,
    telemetry::{self, LogFile},
    user_broker::{
        Info, Instance, LifeLock, LocalPaths, LockError, Readiness, build_id, config_file_of_user, running_version,
        started_at, write_private,
    },
};

/// Which broker of a user is run, and how.
#[derive(Debug)]
pub struct LocalServe {
    pub instance: Instance,
    /// It stays in the session of its terminal, and logs to stderr.
    pub is_foreground: bool,
    /// The environment.
    pub env: Vec<(OsString, OsString)>,
}

/// Runs the broker until it ends, and returns the exit code of the process.
pub fn run(serve: LocalServe, broker: &dyn Broker) -> ExitCode {
    if !serve.is_foreground {
        // Fails for the leader of a process group: a person has started it from a shell, where it stays.
        let _ = process::setsid();
    }
    process::umask(Mode::from_raw_mode(0o077));
    let is_foreground = serve.is_foreground;
    prepare(serve).map_or_else(
        |error| {
            fail(is_foreground, error);
            ExitCode::from(exit::USAGE)
        },
        |prepared| prepared.run(broker),
    )
}

/// Says why the broker does not serve.
fn fail(is_foreground: bool, error: String) {
    if is_foreground {
        telemetry::print_error(false, &error);
    } else {
        telemetry::print_error(true, &error);
        announce(&Readiness::Failed { error });
    }
}

/// Writes the readiness line. The process that started this one may have given up.
fn announce(readiness: &Readiness) {
    let mut stdout = io::stdout().lock();
    let _ = stdout
        .write_all(readiness.line().as_bytes())
        .and_then(|()| stdout.flush());
}

/// A broker before its start.
struct Prepared {
    paths: LocalPaths,
    config: Config,
    /// Where it was read.
    sources: Sources,
    values: Vec<SettingValue>,
    /// Where the log goes; `None` for stderr.
    log: Option<LogFile>,
}

fn prepare(serve: LocalServe) -> Result<Prepared, String> {
    let paths = LocalPaths::of(&serve.instance).map_err(|error| error.to_string())?;
    let life = LifeLock::take(&paths).map_err(|error| match error {
        LockError::Held => format!("a broker of the instance {} runs already", serve.instance),
        LockError::Io(error) => format!("{} cannot be used: {error}", paths.life_lock.display()),
    })?;
    // The process keeps the lock until it has ended, because it uses the data folder until then.
    mem::forget(life);
    name_folder(&paths);
    let log = if serve.is_foreground {
        None
    } else {
        let opened = LogFile::open(&paths.log);
        Some(opened.map_err(|error| format!("the log {} cannot be written: {error}", paths.log.display()))?)
    };
    let sources = sources(&paths, serve.env);
    let (mut config, values) = sources.load().map_err(|error| error.to_string())?;
    config.has_no_http = paths.instance.dev_name().is_some() && DevOptions::read(&paths).has_no_http();
    check(&config, serve.is_foreground)?;
    Ok(Prepared {
        paths,
        config,
        sources,
        values,
        log,
    })
}

/// Whether a broker of this instance could be started with the present settings: they are read as a start reads them.
///
/// # Errors
/// One line for the user.
pub fn check_settings(instance: &Instance, env: Vec<(OsString, OsString)>) -> Result<(), String> {
    let paths = LocalPaths::look_up(instance).map_err(|error| error.to_string())?;
    let (config, _) = sources(&paths, env).load().map_err(|error| error.to_string())?;
    check(&config, false)
}

/// Where the broker of this instance reads its settings.
pub fn sources(paths: &LocalPaths, env: Vec<(OsString, OsString)>) -> Sources {
    Sources {
        defaults: defaults(paths),
        file: config_file(paths, &env),
        flags: flags(paths),
        env,
    }
}

/// Names the runtime folder next to the data, for clients with another environment. Without it these start a broker of their
/// own, if they may.
fn name_folder(paths: &LocalPaths) {
    let mut text = paths.folder.clone().into_os_string();
    text.push("\n");
    let written = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(paths.state_folder())
        .and_then(|()| write_private(&paths.pointer(), text.as_encoded_bytes()));
    if let Err(error) = written {
        tracing::debug!(%error, "the path of the runtime folder could not be written next to the data");
    }
}

/// The configuration file of the user, if there is one and the environment names no other. A broker for tests has none.
fn config_file(paths: &LocalPaths, env: &[(OsString, OsString)]) -> Option<OsString> {
    let is_named = env.iter().any(|(name, _)| name == config::CONFIG_ENV);
    if is_named || paths.instance.dev_name().is_some() {
        return None;
    }
    let file = config_file_of_user().filter(|file| file.exists());
    file.map(std::path::PathBuf::into_os_string)
}

/// Refuses a setting that `serve` accepts: a relative folder, because a broker in the background works in `/`.
fn check(config: &Config, is_foreground: bool) -> Result<(), String> {
    if config.storage == StorageKind::Disk && config.data_dir.is_relative() && !is_foreground {
        return Err(format!(
            "data_dir = {} is not allowed; allowed: an absolute path, because the broker works in the folder /",
            config::quoted_value("", &config.data_dir.to_string_lossy())
        ));
    }
    Ok(())
}

/// The settings of a broker of a user, below the environment and the file.
fn defaults(paths: &LocalPaths) -> Vec<DefaultValue> {
    let is_dev = paths.instance.dev_name().is_some();
    let [storage, idle_shutdown, port] = if is_dev {
        ["memory", "0", "0"]
    } else {
        ["disk", "30m", "8000"]
    };
    vec![
        ("storage", storage.to_owned()),
        ("data_dir", paths.data.display().to_string()),
        ("idle_shutdown", idle_shutdown.to_owned()),
        ("port", port.to_owned()),
        ("workers", "1".to_owned()),
        ("shutdown_grace", "5s".to_owned()),
        ("message_history_payloads", "true".to_owned()),
    ]
}

/// The settings that neither the environment nor a file changes, because clients would not find the broker.
fn flags(paths: &LocalPaths) -> Vec<Flag> {
    let mut flags = match paths.instance.dev_name() {
        Some(_) => DevOptions::read(paths).flags(paths),
        None => Vec::new(),
    };
    flags.push(("local_socket", paths.socket.clone().into()));
    flags
}

impl Prepared {
    fn run(self, broker: &dyn Broker) -> ExitCode {
        match &self.log {
            Some(log) => telemetry::init_to_file(&self.config, log.clone()),
            None => telemetry::init(&self.config),
        }
        self.config
            .warnings()
            .iter()
            .for_each(|warning| tracing::warn!("{warning}"));
        let is_foreground = self.log.is_none();
        let info_path = self.paths.info.clone();
        match broker.serve(self.serving()) {
            Ok(code) => {
                let _ = std::fs::remove_file(info_path);
                code
            }
            Err(error) => {
                fail(is_foreground, error.to_string());
                ExitCode::from(exit::USAGE)
            }
        }
    }

    fn serving(self) -> Serving {
        let is_own_port = self
            .values
            .iter()
            .any(|value| value.name == "port" && value.source != Source::Default);
        let Self {
            paths,
            config,
            sources,
            values,
            log,
        } = self;
        let served = config.clone();
        Serving {
            sources: Some(sources),
            // Clients use the socket.
            may_take_free_port: !is_own_port,
            is_announced: true,
            ready: Box::new(move |address| {
                let http = (!config.has_no_http).then(|| format!("http://{address}"));
                let written = info(&paths, &config, http.clone()).write(&paths.info);
                written.map_err(|error| named(&paths.info, &error))?;
                announce(&Readiness::Ready {
                    ready: true,
                    pid: std::process::id(),
                    version: running_version().to_owned(),
                    socket: paths.socket,
                    http,
                });
                log.map_or(Ok(()), |log| log.take_output())
            }),
            ..Serving::new(served, values)
        }
    }
}

fn info(paths: &LocalPaths, config: &Config, http: Option<String>) -> Info {
    let storage = match config.storage {
        StorageKind::Memory => "memory",
        StorageKind::Disk => "disk",
        StorageKind::Redis => "redis",
    };
    Info {
        pid: std::process::id(),
        version: running_version().to_owned(),
        build: build_id().to_owned(),
        started_at: started_at().to_owned(),
        socket: paths.socket.clone(),
        http,
        storage: storage.to_owned(),
        data: config.data_dir.clone(),
        log: paths.log.clone(),
    }
}

fn named(path: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{} cannot be written: {error}", path.display()))
}
