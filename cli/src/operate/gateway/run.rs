//! `gateway run`: a gateway in this process, for the one MCP client that has started it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt::Write as _,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use actors::model::BackendsConfig;

use super::servers_file::{self, Inputs};
use crate::{
    access::{EnvVars, variable},
    broker::{Broker, FollowedBackends, GatewayOfClient, StandardStreams},
    error::CliError,
    short::counted,
};
use common::{
    config::{self, BackendDefaults, CONFIG_ENV, Config, DefaultValue, Flag, Sources, parse_backends},
    telemetry::{self, LineTime},
};
use front::Stdout;

/// Files that are looked for in the working directory.
const FILES: [&str; 4] = [".mcpmon.yaml", ".mcpmon.yml", "mcpmon.yaml", "mcpmon.yml"];
/// The file that is looked for after them, below the home of the user.
const HOME_FILE: &str = ".config/mcpmon/config.yaml";
/// Settings whose default differs from that of a broker: a client waits about 2 s before it sends SIGTERM, and a single server
/// takes the place of the one that the client had.
const DEFAULTS: [(&str, &str); 2] = [("shutdown_grace", "2s"), ("gateway_prefix", "auto")];
/// Settings that belong to brokers with other clients.
const FIXED: [(&str, &str); 3] = [
    ("storage", "memory"),
    ("enable_multi_project", "false"),
    ("desk", "false"),
];
/// Characters of the name of the server.
const NAME_LEN_MAX: usize = 64;

const ABOUT: &str = "\
Serve the backends of one file on stdin and stdout, to the MCP client that starts this command.

It is a gateway of its own: it opens no port, keeps nothing, and uses no broker. It stops with its
client, and stops all programs that it has started. An entry of a client:

  {\"mcpServers\": {\"tools\": {\"command\": \"mcp-broker\", \"args\": [\"gateway\", \"run\", \"--config\", \"/path/.mcpmon.yaml\"]}}}

FILE is a configuration file of the broker with [backends.NAME], or one that gateway import reads: mcpServers, the
mcp.json of VS Code, .mcpmon.yaml. Without --config it is the first of .mcpmon.yaml, .mcpmon.yml, mcpmon.yaml and
mcpmon.yml in the working directory, and ~/.config/mcpmon/config.yaml. Changes of the file take effect at once.

Tools are listed as backend__tool, and those of a single backend under their own names. Only MCP goes to stdout,
the log goes to stderr. Settings of the gateway come from the file and from MCP_BROKER_* variables.";

const EXIT_CODES: &str = "\
Exit codes: 0 the client has ended or a signal came, 1 failed, 2 wrong command line or file, 70 the gateway gave up.";

/// Serve the backends of one file on stdin and stdout, without a broker.
#[derive(Debug, clap::Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES)]
pub struct Run {
    /// File with the backends.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(long, value_name = "NAME", value_parser = server_name,
        help = "Name of this server, as the client sees it\n[default: mcp-broker]")]
    name: Option<String>,
    #[command(flatten)]
    inputs: Inputs,
    #[arg(long, help = "Log everything, as MCP_BROKER_LOG_LEVEL=debug does")]
    debug: bool,
}

fn server_name(text: &str) -> Result<String, String> {
    let is_allowed = (1..=NAME_LEN_MAX).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    is_allowed
        .then(|| text.to_owned())
        .ok_or_else(|| format!("1 to {NAME_LEN_MAX} characters"))
}

impl Run {
    /// Serves the client until it ends or a signal comes, and returns the exit code of the process.
    ///
    /// # Errors
    /// [`CliError::Usage`] when there is no file that can be used, [`CliError::Failed`] when the gateway cannot start.
    pub fn run(self, env: &EnvVars, broker: &dyn Broker) -> Result<ExitCode, CliError> {
        let inputs = self.inputs.by_name()?;
        // First, so that no other part of the program can write to stdout.
        let stdout = Stdout::take().map_err(cannot_start)?;
        let file = match self.config.clone() {
            Some(file) => file,
            None => found_file(env).map_err(CliError::Usage)?,
        };
        let Served {
            config,
            read,
            notes,
            announces_lists,
        } = self.served(&file, inputs, env).map_err(CliError::Usage)?;
        let log = telemetry::init_non_blocking(&config, None, LineTime::Standard).map_err(cannot_start)?;
        config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let backends = config.backends.values().map(Vec::len).sum::<usize>();
        for note in &notes {
            log.print_status(&config, "WARN", &format!("{}: {note}", file.display()));
        }
        let line = format!("serving {} of {}", counted(backends as u64, "backend"), file.display());
        log.print_status(&config, "INFO", &line);
        let gateway = GatewayOfClient {
            followed: Some(FollowedBackends { file, read }),
            name: self.name,
            announces_lists,
            ..of_client(stdout)?
        };
        broker.serve_gateway(&config, gateway).map_err(cannot_start)
    }

    fn served(&self, file: &Path, inputs: BTreeMap<String, String>, env: &EnvVars) -> Result<Served, String> {
        let cannot_be_used = |reason: String| config::one_line(&format!("{} cannot be used: {reason}", file.display()));
        let is_own = servers_file::is_own(file).map_err(cannot_be_used)?;
        let log_level = self.debug.then_some("debug");
        let mut sources = sources(is_own.then(|| file.into()), log_level, env);
        if !is_own && let Some(level) = servers_file::log_level(file).map_err(cannot_be_used)? {
            sources.defaults.push(("log_level", level.to_owned()));
        }
        let (mut config, _) = sources.load().map_err(|error| error.to_string())?;
        if is_own {
            let read = move || {
                let (config, _) = sources.load().map_err(|error| error.to_string())?;
                Ok(config.backends)
            };
            return Ok(Served {
                config,
                read: Box::new(read),
                notes: Vec::new(),
                announces_lists: true,
            });
        }
        let announces_lists = servers_file::announces_lists(file).map_err(cannot_be_used)?;
        let (defaults, file) = (config.backend_defaults(), file.to_owned());
        let read = move || servers_of(&file, &inputs, defaults);
        let (backends, notes) = read().map_err(cannot_be_used)?;
        config.backends = backends;
        Ok(Served {
            config,
            read: Box::new(move || read().map(|(backends, _)| backends)),
            notes,
            announces_lists,
        })
    }
}

/// The first file that exists.
fn found_file(env: &EnvVars) -> Result<PathBuf, String> {
    let folder = std::env::current_dir().map_err(|error| format!("the working directory is unknown: {error}"))?;
    let home = variable(env, "HOME").map(|home| Path::new(home).join(HOME_FILE));
    let mut files = FILES.iter().map(|name| folder.join(name)).chain(home.clone());
    files.find(|file| file.exists()).ok_or_else(|| {
        let mut line = format!(
            "no file with backends: looked for {} in {}",
            FILES.join(", "),
            folder.display()
        );
        if let Some(home) = home {
            let _ = write!(line, ", and for {}", home.display());
        }
        line + "; name one with --config"
    })
}

/// Why a gateway cannot start, for the user.
pub(super) fn cannot_start(error: io::Error) -> CliError {
    CliError::Failed(format!("the gateway cannot start: {error}"))
}

/// The settings of a gateway that is alone.
pub(super) fn sources(file: Option<OsString>, log_level: Option<&str>, env: &[(OsString, OsString)]) -> Sources {
    let mut flags: Vec<Flag> = FIXED.iter().map(|&(key, value)| (key, value.into())).collect();
    if let Some(level) = log_level {
        flags.push(("log_level", level.into()));
    }
    let defaults = DEFAULTS.iter();
    Sources {
        defaults: defaults
            .map(|&(key, value)| -> DefaultValue { (key, value.to_owned()) })
            .collect(),
        file,
        flags,
        env: env.iter().filter(|(name, _)| name != CONFIG_ENV).cloned().collect(),
    }
}

/// A gateway for the client on stdin and stdout, which gets notifications of changed lists.
///
/// # Errors
/// The gateway cannot start.
pub(super) fn of_client(stdout: Stdout) -> Result<GatewayOfClient, CliError> {
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(cannot_start)?;
    let output = stdout.into_descriptor();
    Ok(GatewayOfClient {
        client: StandardStreams { input, output },
        followed: None,
        name: None,
        announces_lists: true,
        observer: None,
    })
}

/// What is served.
struct Served {
    config: Config,
    /// Reads the backends again.
    read: Box<dyn Fn() -> Result<Arc<BackendsConfig>, String>>,
    /// What the user should know of the file.
    notes: Vec<String>,
    /// The client gets notifications of changed lists.
    announces_lists: bool,
}

/// The servers of a file of another program as backends, and what was changed or left out.
fn servers_of(
    file: &Path,
    inputs: &BTreeMap<String, String>,
    defaults: BackendDefaults,
) -> Result<(Arc<BackendsConfig>, Vec<String>), String> {
    let imported = servers_file::read(file, inputs, &BTreeSet::new())?;
    if imported.has_unusable && imported.backends.is_empty() {
        return Err(imported.notes.join("; "));
    }
    let tables: Vec<_> = imported.backends.into_iter().map(|backend| backend.table).collect();
    let backends = parse_backends(&tables.join("\n"), defaults)?;
    Ok((Arc::new(backends), imported.notes))
}
