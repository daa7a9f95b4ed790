//! `connect`: the stdio front of an agent. It holds a connection to the broker of this user, or to the one that `--url`
//! names.

mod remote;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use actors::model::SessionName;
use clap::builder::PossibleValuesParser;
use clap::{ArgMatches, Args, Command};

use super::access::{self, BrokerAccess, BrokerFlags, EnvVars, with_url_help};
use super::call::{Call, Run, done};
use super::error::CliError;
use super::flags::one_of;
use super::usage_errors::refused;
use common::config::{self, CODEX_ENV, NAME_ENV, Rule, Size, Span, URL_ENV, WAKE_ENV};
use common::user_broker::{Instance, LocalPaths, StartPolicy, config_file_of_user};
use front::{
    self, Identity, Inbox, Log, Naming, OfferedEra, Options, Pane, Stdout, WakeMode, WakeOptions,
    dial::{Dial, LocalDial},
};
pub use remote::RemoteDial;

/// The name of the command.
pub const NAME: &str = "connect";

/// The variable of the setting `max_payload_mb`, which a broker that this command starts inherits.
const PAYLOAD_ENV: &str = "MCP_BROKER_MAX_PAYLOAD_MB";
/// The default of that setting, and its maximum.
const PAYLOAD_MB_DEFAULT: usize = 10;
const PAYLOAD_MB_MAX: usize = 64;
/// The variable of the setting `gateway_list_wait`, its default and its bounds.
const LIST_WAIT_ENV: &str = "MCP_BROKER_GATEWAY_LIST_WAIT";
/// The setting of the broker that chooses which of its tools are listed.
const TOOLS_ENV: &str = "MCP_BROKER_TOOLS";
const LIST_WAIT_DEFAULT: Duration = Duration::from_secs(3);
const LIST_WAIT: Span = Span(Duration::ZERO..=Duration::from_secs(60));
/// Bytes of the envelope around the largest payload.
const ENVELOPE_LEN_MAX: usize = 64 * 1024;

const ERAS: [&str; 3] = ["auto", "legacy", "modern"];

const ABOUT: &str = "\
Connect an agent to the broker: speak MCP on stdin and stdout.

This is all that the configuration of an agent needs:

  {\"mcpServers\": {\"broker\": {\"command\": \"mcp-broker\", \"args\": [\"connect\"]}}}

mcp-broker setup CLIENT writes it. The first agent starts the broker of this user, the others find it, and it stops
30 minutes after its last use (idle_shutdown). It keeps messages on disk. When the broker stops or restarts, this command
keeps running, connects again, and restores the session with its name and inbox. With --url it connects to a shared broker.";

const EXIT_CODES: &str = "\
Exit codes: 0 the client has ended, 1 failed, 2 wrong command line, or the files of the broker cannot be used.";

/// Connect an agent to the broker: speak MCP on stdin and stdout.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES,
    mut_args(with_url_help(format!("Address of a shared broker, to use over WebSocket\n\
        [default: the broker of this user] [env: {URL_ENV}]"))))]
pub struct ConnectFlags {
    #[arg(long, value_name = "NAME",
        help = format!("Register the agent under this name\n[env: {NAME_ENV}] [default: the agent registers itself]"))]
    name: Option<String>,
    #[arg(
        long,
        help = "Without --name, register the agent under the name of its folder, with a number if another\n\
        conversation has that name. A resumed conversation gets its name back"
    )]
    auto_name: bool,
    #[arg(
        long,
        value_name = "NAME",
        help = "Which broker of this user; dev/NAME is one that mcp-broker dev start has \
        started\n[default: default]"
    )]
    instance: Option<String>,
    /// Do not start a broker; calls wait 10 s for a running one.
    #[arg(long)]
    no_start: bool,
    #[arg(long, value_name = "ERA", value_parser = PossibleValuesParser::new(ERAS), hide_possible_values = true,
        help = one_of(&ERAS, "The revisions of MCP to offer. legacy: up to 2025-11-25; modern: 2026-07-28;\n\
        auto: all, but legacy to Claude Code\n[default: auto]"))]
    era: Option<String>,
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(WakeMode::NAMES), hide_possible_values = true,
        help = one_of(&WakeMode::NAMES, "How to wake the idle agent when messages wait. auto: by the inbox of Claude Code or \
        the queue of\nCodex; channel: by a channel of Claude Code; tmux: by keys to its terminal; off: never\n\
        [env: MCP_BROKER_WAKE] [default: auto]"))]
    wake: Option<String>,
    #[arg(
        long,
        value_name = "PANE",
        help = "The pane of tmux for --wake tmux, such as %3\n[default: that of TMUX_PANE]"
    )]
    wake_tmux: Option<String>,
    #[command(flatten)]
    broker: BrokerFlags,
}

/// Reads a command line that begins with this command, without the arguments of all others: an agent waits for it. `None`
/// if it is wrong or asks for help, which the whole command line explains better.
pub fn matches_alone(args: &[OsString]) -> Option<ArgMatches> {
    let (first, rest) = args.get(1..)?.split_first()?;
    if first != NAME {
        return None;
    }
    let command = ConnectFlags::augment_args(Command::new(NAME)).no_binary_name(true);
    command.try_get_matches_from(rest).ok()
}

/// What to connect, and to which broker.
struct Connect {
    identity: Identity,
    naming: Naming,
    era: OfferedEra,
    wake: WakeOptions,
    frame_len_max: usize,
    /// How long the first lists wait for a broker at a URL.
    list_wait: Duration,
    broker: Broker,
}

enum Broker {
    Local { instance: Instance, policy: StartPolicy },
    Remote(BrokerAccess),
}

impl Run for ConnectFlags {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        let connect = self.read(call.env).map_err(refused)?;
        done(connect.run())
    }
}

impl ConnectFlags {
    fn read(&self, env: &EnvVars) -> Result<Connect, String> {
        let variable = |name: &str| access::variable(env, name)?.to_str().map(str::to_owned);
        // An agent changes its broker by its own entry alone, not by what a person uses at the moment.
        let is_remote = self.broker.name_broker(env, false)?;
        let broker = if is_remote {
            if let Some(flag) = self.flag_of_user() {
                return Err(format!(
                    "--{flag} is for the broker of this user, and --url, --context or a variable names another"
                ));
            }
            Broker::Remote(BrokerAccess::read(&self.broker, env)?)
        } else {
            let instance = self.instance.as_ref().map_or(Ok(Instance::default()), |name| {
                let shown = quoted(name);
                let refused = |allowed| format!("instance = {shown} (--instance) is not allowed; allowed: {allowed}");
                Instance::parse(name).map_err(refused)
            });
            let policy = if self.no_start {
                StartPolicy::NoStart
            } else {
                StartPolicy::Start
            };
            Broker::Local {
                instance: instance?,
                policy,
            }
        };
        let payload_mb = variable(PAYLOAD_ENV).and_then(|text| Size(0..=usize::MAX).parse(text.trim()).ok());
        let payload_mb = if is_remote {
            PAYLOAD_MB_MAX
        } else {
            payload_mb.unwrap_or(PAYLOAD_MB_DEFAULT)
        };
        Ok(Connect {
            naming: self.naming(variable(NAME_ENV))?,
            wake: self.wake(variable)?,
            identity: Identity::from_environment(variable, std::env::current_dir().ok()),
            era: match self.era.as_deref() {
                Some("legacy") => OfferedEra::Legacy,
                Some("modern") => OfferedEra::Modern,
                _ => OfferedEra::Auto,
            },
            list_wait: read_list_wait(variable(LIST_WAIT_ENV))?,
            frame_len_max: payload_mb.clamp(1, PAYLOAD_MB_MAX) * 1024 * 1024 + ENVELOPE_LEN_MAX,
            broker,
        })
    }

    /// The first given flag that is for the broker of this user alone.
    fn flag_of_user(&self) -> Option<&'static str> {
        let given = [
            ("instance", self.instance.is_some()),
            ("no-start", self.no_start),
            ("wake", self.wake.is_some()),
            ("wake-tmux", self.wake_tmux.is_some()),
        ];
        given.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    fn naming(&self, variable: Option<String>) -> Result<Naming, String> {
        let flag = self.name.clone().map(|name| (name, "--name"));
        let Some((name, source)) = flag.or(variable.map(|name| (name, NAME_ENV))) else {
            return Ok(if self.auto_name {
                Naming::Automatic
            } else {
                Naming::ByAgent
            });
        };
        let refused = |error| format!("name = {} ({source}) is not allowed: {error}", quoted(&name));
        SessionName::parse(&name).map(Naming::Given).map_err(refused)
    }

    fn wake(&self, variable: impl Fn(&str) -> Option<String>) -> Result<WakeOptions, String> {
        let name = self.wake.clone();
        let name = name.or_else(|| variable(WAKE_ENV).filter(|name| !name.is_empty()));
        let mode = match name {
            None => WakeMode::default(),
            Some(name) => WakeMode::parse(&name).ok_or_else(|| {
                let names = WakeMode::NAMES.join(", ");
                format!("wake = {} ({WAKE_ENV}) is not allowed; allowed: {names}", quoted(&name))
            })?,
        };
        let pane = match &self.wake_tmux {
            Some(name) => Some(Pane::parse(name).ok_or_else(|| {
                format!(
                    "--wake-tmux = {} is not allowed; name a pane as tmux does, such as %3",
                    quoted(name)
                )
            })?),
            None => variable("TMUX_PANE").and_then(|name| Pane::parse(&name)),
        };
        if mode == WakeMode::Tmux && pane.is_none() {
            return Err("wake = tmux needs a pane: set --wake-tmux, or run in tmux".to_owned());
        }
        Ok(WakeOptions {
            mode,
            inbox: Inbox::from_environment(&variable),
            codex: variable(CODEX_ENV)
                .filter(|program| !program.is_empty())
                .unwrap_or_else(|| "codex".to_owned())
                .into(),
            pane,
        })
    }
}

fn quoted(text: &str) -> String {
    config::quoted_value("", text)
}

fn read_list_wait(text: Option<String>) -> Result<Duration, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(LIST_WAIT_DEFAULT);
    };
    let refused = |_| {
        let allowed = LIST_WAIT.allowed();
        format!(
            "gateway_list_wait = {} ({LIST_WAIT_ENV}) is not allowed; allowed: {allowed}",
            quoted(&text)
        )
    };
    LIST_WAIT.parse(&text).map_err(refused)
}

impl Connect {
    /// Serves the client until it ends.
    ///
    /// # Errors
    /// [`CliError::Usage`] when the files of the broker cannot be used, [`CliError::Failed`] when the system refuses a thread or
    /// a descriptor.
    fn run(self) -> Result<(), CliError> {
        let failed = |error: std::io::Error| CliError::Failed(format!("the front cannot start: {error}"));
        // First, so that no other part of the program can write to stdout.
        let stdout = Stdout::take().map_err(failed)?;
        let expects_other_lists =
            matches!(&self.broker, Broker::Local { instance, .. } if expects_other_lists(instance));
        let is_remote = matches!(&self.broker, Broker::Remote(_));
        let is_named = self.naming == Naming::Automatic;
        let (dial, log): (Arc<dyn Dial>, Option<PathBuf>) = match self.broker {
            Broker::Local { instance, policy } => {
                let paths = LocalPaths::of(&instance).map_err(|error| CliError::Usage(error.to_string()))?;
                check_writable(&paths)?;
                let log = log_beside(&paths);
                (Arc::new(LocalDial { paths, policy }), Some(log))
            }
            Broker::Remote(access) => {
                let paths = LocalPaths::of(&Instance::default());
                (Arc::new(RemoteDial { access }), paths.ok().as_ref().map(log_beside))
            }
        };
        let options = Options {
            identity: self.identity,
            naming: self.naming,
            era: self.era,
            wake: self.wake,
            frame_len_max: self.frame_len_max,
            expects_other_lists,
            list_wait: is_remote.then_some(self.list_wait),
            awaits_introduction: expects_other_lists || is_remote || is_named,
            log: Log::at(log.as_deref()),
        };
        match front::run(options, stdout, dial) {
            Ok(never) => match never {},
            Err(error) => Err(failed(error)),
        }
    }
}

/// Whether a broker of this user seems to have backends, or another list of tools than usual. A wrong guess costs a client
/// that the first lists wait for the broker, or that the front notifies it of changed lists.
fn expects_other_lists(instance: &Instance) -> bool {
    if std::env::var_os(TOOLS_ENV).is_some() {
        return true;
    }
    let named = std::env::var_os(config::CONFIG_ENV).map(PathBuf::from);
    let file = named.or_else(|| config_file_of_user().filter(|_| instance.dev_name().is_none()));
    let text = file.and_then(|file| std::fs::read_to_string(file).ok());
    text.is_some_and(|text| ["backends", "tools"].iter().any(|word| text.contains(word)))
}

/// The log of all fronts, next to that of the broker.
fn log_beside(paths: &LocalPaths) -> PathBuf {
    paths.log.with_file_name("connect.log")
}

/// Checks that a broker can be started or found, before the client is answered.
fn check_writable(paths: &LocalPaths) -> Result<(), CliError> {
    let writable = rustix::fs::access(&paths.folder, rustix::fs::Access::WRITE_OK);
    if paths.socket.exists() {
        return Ok(());
    }
    writable.map_err(|error| {
        let error = std::io::Error::from(error);
        CliError::Usage(format!("{} cannot be used: {error}", paths.folder.display()))
    })
}
