//! `gateway watch`: one program for the one MCP client that has started it, started again when its files change.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use actors::{
    gateway::{BackendShared, GatewayShared, StartReason},
    model::{BackendAddress, BackendConfig, BackendName, ProjectId},
};
use futures_util::FutureExt;

use super::{
    imported::watched_pattern,
    run::{self, cannot_start},
};
use crate::{
    access::EnvVars,
    broker::{Broker, GatewayOfClient, Observer, StandardStreams},
    error::CliError,
};
use common::{
    config::ENV_PREFIX,
    telemetry::{self, LineTime, LogFile},
};
use common::{environment::literal, telemetry::STDERR_TARGET};
use front::Stdout;

/// The name of the backend, which the client does not see: a single backend has bare names.
const BACKEND: &str = "watched";

const ABOUT: &str = "\
Serve one program on stdin and stdout, and start it again when its files change.

The client keeps its connection: the changed program starts next to the running one and replaces it once it has
answered, open calls finish where they began, and the client is notified of changed tools. If the changed program does
not start, the running one keeps serving. The program has the environment of this command. Its stderr is in the log.

  {\"mcpServers\": {\"mine\": {\"command\": \"mcp-broker\",
    \"args\": [\"gateway\", \"watch\", \"--watch\", \"src\", \"--\", \"python\", \"server.py\"]}}}

The flags and the words of the log are those of mcpmon.";

const AFTER_HELP: &str = "\
Logging levels:
  --quiet       only errors
  (default)     starts, restarts, changed files, and the stderr of the program
  --verbose     the same
  --debug       everything, including ignored files

Examples:
  mcp-broker gateway watch -- python server.py
  mcp-broker gateway watch --watch src --ext py,json -- python -m my_server
  mcp-broker gateway watch --debug --log-file watch.log -- node server.js

Exit codes: 0 the client has ended or a signal came, 1 failed, 2 wrong command line, 70 the gateway gave up.";

/// Serve one program on stdin and stdout, and start it again when its files change.
#[derive(Debug, clap::Args)]
#[command(long_about = ABOUT, after_help = AFTER_HELP)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
pub struct Watch {
    /// Folder whose files are watched.
    #[arg(long = "watch", short = 'w', value_name = "DIR", default_value = ".")]
    folder: String,
    /// Endings of the files that are watched.
    #[arg(long, short, value_name = "EXT,EXT", default_value = "py")]
    ext: String,
    /// Stop the running program before the changed one starts, for programs of which only one can run.
    #[arg(long)]
    no_handover: bool,
    /// Log errors alone.
    #[arg(long, short, conflicts_with_all = ["verbose", "debug"])]
    quiet: bool,
    /// The default: changes of files are logged.
    #[arg(long, short)]
    verbose: bool,
    #[arg(long, help = "Log everything, as MCP_BROKER_LOG_LEVEL=debug does")]
    debug: bool,
    /// The default: each line of the log has its time.
    #[arg(long, short)]
    timestamps: bool,
    /// Write the log to this file too.
    #[arg(long, short, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// The default: the client is notified of changed tools after each restart.
    #[arg(long)]
    notify_tools_changed: bool,
    /// The client is not notified of changed tools.
    #[arg(long, overrides_with = "notify_tools_changed")]
    no_notify_tools_changed: bool,
    /// The program and its arguments, after --.
    #[arg(value_name = "COMMAND", required = true, last = true, num_args = 1..)]
    command: Vec<String>,
}

impl Watch {
    /// Serves the client until it ends or a signal comes, and returns the exit code of the process.
    ///
    /// # Errors
    /// [`CliError::Usage`] when a setting is wrong, [`CliError::Failed`] when the gateway cannot start.
    pub fn run(self, env: &EnvVars, broker: &dyn Broker) -> Result<ExitCode, CliError> {
        let wrong = |reason: String| CliError::Usage(format!("--watch: {reason}"));
        let pattern = watched_pattern(&self.folder, &self.ext).map_err(wrong)?;
        // First, so that no other part of the program can write to stdout.
        let stdout = Stdout::take().map_err(cannot_start)?;
        let log_level = if self.debug {
            "debug".to_owned()
        } else if self.quiet {
            "error".to_owned()
        } else {
            format!("info,{STDERR_TARGET}=debug")
        };
        let mut sources = run::sources(None, Some(&log_level), env);
        sources.defaults.push(("log_format", "pretty".to_owned()));
        let (mut config, _) = sources.load().map_err(|error| CliError::Usage(error.to_string()))?;
        let opened = |file: &PathBuf| {
            let wrong = |error| CliError::Failed(format!("{} cannot be written: {error}", file.display()));
            LogFile::open(file).map_err(wrong)
        };
        let file = self.log_file.as_ref().map(opened).transpose()?;
        let _log = telemetry::init_non_blocking(&config, file, LineTime::Spaced).map_err(cannot_start)?;
        let endings: Vec<&str> = self
            .ext
            .split(',')
            .map(|ending| ending.trim().trim_start_matches('.'))
            .collect();
        let (folder, endings) = (&self.folder, endings.join(", ."));
        tracing::info!("Watching {folder} for .{endings} changes");
        let restarts = Arc::<AtomicU64>::default();
        let (command, announces_lists) = (self.command.join(" "), !self.no_notify_tools_changed);
        let counted = Arc::clone(&restarts);
        let observer: Observer =
            Box::new(move |gateway| follow(gateway, command, announces_lists, counted).boxed_local());
        let backend = self.backend(pattern, env).map_err(CliError::Usage)?;
        config.backends = Arc::new(BTreeMap::from([(
            ProjectId::default_project(),
            vec![Arc::new(backend)],
        )]));
        let of_client = run::of_client(stdout)?;
        let gateway = GatewayOfClient {
            client: with_open_input(of_client.client).map_err(cannot_start)?,
            announces_lists,
            observer: Some(observer),
            ..of_client
        };
        let code = broker.serve_gateway(&config, gateway).map_err(cannot_start)?;
        let count = restarts.load(Ordering::Relaxed);
        tracing::info!("Shutdown complete (restarts: {count})");
        Ok(code)
    }

    fn backend(self, pattern: String, env: &EnvVars) -> Result<BackendConfig, String> {
        let name = BackendName::parse(BACKEND).map_err(|error| error.to_string())?;
        let mut command = self.command.into_iter();
        let names = env.iter().filter_map(|(name, _)| name.to_str());
        let address = BackendAddress::Command {
            command: command.next().unwrap_or_default(),
            // A shell has replaced what it was to replace.
            args: command.map(|argument| literal(&argument)).collect(),
            env: BTreeMap::new(),
            pass_env: names
                .filter(|name| !name.starts_with(ENV_PREFIX))
                .map(str::to_owned)
                .collect(),
            cwd: None,
        };
        let mut backend = BackendConfig::new(name, address);
        backend.watch = vec![pattern];
        backend.watches_writes = true;
        backend.hands_over = !self.no_handover;
        Ok(backend)
    }
}

/// Logs starts and restarts in the words of mcpmon, which scripts look for. Like mcpmon it tells the client of changed tools
/// after each restart, whether they are others or not.
async fn follow(gateway: Arc<GatewayShared>, command: String, announces_lists: bool, restarts: Arc<AtomicU64>) {
    let find = || gateway.offered().backend(BACKEND).cloned();
    let Some(backend) = gateway.wait_for(find).await else {
        return;
    };
    let mut views = backend.views();
    let mut shown = None;
    loop {
        let pid = views.borrow_and_update().pid;
        if let Some(pid) = pid.filter(|_| pid != shown) {
            tracing::info!("Started: {command} (pid {pid})");
            let count = restarts_of(&backend);
            if restarts.swap(count, Ordering::Relaxed) != count {
                tracing::info!("Restart #{count} complete (pid {pid})");
                if announces_lists {
                    gateway.announce_tools();
                    tracing::info!("Sent tools/list_changed notification");
                }
            }
            shown = Some(pid);
        }
        if views.changed().await.is_err() {
            return;
        }
    }
}

/// How often the program was started because of its files.
fn restarts_of(backend: &BackendShared) -> u64 {
    backend.counters.starts.get(StartReason::Change)
}

/// The streams of a client. Where nothing can be read, as with `/dev/null`, there is no client that could end: the program runs
/// until a signal comes.
fn with_open_input(streams: StandardStreams) -> io::Result<StandardStreams> {
    let about = rustix::fs::fstat(&streams.input)?;
    let is_null = rustix::fs::FileType::from_raw_mode(about.st_mode) == rustix::fs::FileType::CharacterDevice
        && about.st_rdev == rustix::fs::makedev(1, 3);
    if !is_null {
        return Ok(streams);
    }
    let (input, kept) = io::pipe()?;
    // It is open as long as the process.
    std::mem::forget(kept);
    Ok(StandardStreams {
        input: input.into(),
        ..streams
    })
}
