//! `gateway watch`: one program for the one MCP client that has started it, started again when its files change.

use std::{
    collections::BTreeMap,
    ffi::OsString,
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
use clap::{Arg, ArgAction, ArgMatches, Command, builder::ValueParser};
use futures_util::FutureExt;

use super::{
    imported::watched_pattern,
    run::{self, cannot_start},
};
use crate::{
    access::first_broker_flag,
    broker::{Broker, GatewayOfClient, Observer, StandardStreams},
    error::CliError,
    flags::{switch, text},
};
use common::{
    config::ENV_PREFIX,
    telemetry::{self, LineTime, LogFile},
};
use common::{environment::literal, telemetry::STDERR_TARGET};
use front::Stdout;

/// The name of the command.
pub const NAME: &str = "watch";

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

/// The command with its help.
pub fn command() -> Command {
    let has_output = |name, short, help| switch(name, help).short(short);
    Command::new(NAME)
        .about("Serve one program on stdin and stdout, and start it again when its files change")
        .long_about(ABOUT)
        .arg(
            text("watch", "DIR", "Folder whose files are watched")
                .short('w')
                .default_value("."),
        )
        .arg(
            text("ext", "EXT,EXT", "Endings of the files that are watched")
                .short('e')
                .default_value("py"),
        )
        .arg(switch(
            "no-handover",
            "Stop the running program before the changed one starts, for programs of which only one can run",
        ))
        .arg(has_output("quiet", 'q', "Log errors alone").conflicts_with_all(["verbose", "debug"]))
        .arg(has_output("verbose", 'v', "The default: changes of files are logged"))
        .arg(switch("debug", "Log everything, as MCP_BROKER_LOG_LEVEL=debug does"))
        .arg(has_output(
            "timestamps",
            't',
            "The default: each line of the log has its time",
        ))
        .arg(
            Arg::new("log-file")
                .short('l')
                .long("log-file")
                .value_name("FILE")
                .value_parser(ValueParser::path_buf())
                .help("Write the log to this file too"),
        )
        .arg(switch(
            "notify-tools-changed",
            "The default: the client is notified of changed tools after each restart",
        ))
        .arg(
            switch("no-notify-tools-changed", "The client is not notified of changed tools")
                .overrides_with("notify-tools-changed"),
        )
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .help("The program and its arguments, after --")
                .required(true)
                .last(true)
                .num_args(1..)
                .action(ArgAction::Append),
        )
        .after_help(AFTER_HELP)
}

/// A program that is ready to be served.
#[derive(Debug)]
pub struct Watched {
    command: Vec<String>,
    folder: String,
    endings: String,
    pattern: String,
    announces_lists: bool,
    hands_over: bool,
    log_level: String,
    log_file: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
}

/// Reads the arguments.
///
/// # Errors
/// [`CliError::Usage`] with one line for the user.
pub fn read(matches: &ArgMatches, env: Vec<(OsString, OsString)>) -> Result<Watched, CliError> {
    if let Some(flag) = first_broker_flag(matches) {
        let line = format!("--{flag} is not known here: gateway watch asks no broker");
        return Err(CliError::Usage(line));
    }
    let given = |name: &str| matches.get_one::<String>(name).map(String::as_str).unwrap_or_default();
    let wrong = |reason: String| CliError::Usage(format!("--watch: {reason}"));
    Ok(Watched {
        command: matches.get_many("command").into_iter().flatten().cloned().collect(),
        folder: given("watch").to_owned(),
        endings: given("ext").to_owned(),
        announces_lists: !matches.get_flag("no-notify-tools-changed"),
        pattern: watched_pattern(given("watch"), given("ext")).map_err(wrong)?,
        hands_over: !matches.get_flag("no-handover"),
        log_level: if matches.get_flag("debug") {
            "debug".to_owned()
        } else if matches.get_flag("quiet") {
            "error".to_owned()
        } else {
            format!("info,{STDERR_TARGET}=debug")
        },
        log_file: matches.get_one("log-file").cloned(),
        env,
    })
}

impl Watched {
    /// Serves the client until it ends or a signal comes, and returns the exit code of the process.
    ///
    /// # Errors
    /// [`CliError::Usage`] when a setting is wrong, [`CliError::Failed`] when the gateway cannot start.
    pub fn run(self, broker: &dyn Broker) -> Result<ExitCode, CliError> {
        // First, so that no other part of the program can write to stdout.
        let stdout = Stdout::take().map_err(cannot_start)?;
        let mut sources = run::sources(None, Some(&self.log_level), &self.env);
        sources.defaults.push(("log_format", "pretty".to_owned()));
        let (mut config, _) = sources.load().map_err(|error| CliError::Usage(error.to_string()))?;
        let opened = |file: &PathBuf| {
            let wrong = |error| CliError::Failed(format!("{} cannot be written: {error}", file.display()));
            LogFile::open(file).map_err(wrong)
        };
        let file = self.log_file.as_ref().map(opened).transpose()?;
        let _log = telemetry::init_non_blocking(&config, file, LineTime::Spaced).map_err(cannot_start)?;
        let endings: Vec<&str> = self
            .endings
            .split(',')
            .map(|ending| ending.trim().trim_start_matches('.'))
            .collect();
        let (folder, endings) = (&self.folder, endings.join(", ."));
        tracing::info!("Watching {folder} for .{endings} changes");
        let restarts = Arc::<AtomicU64>::default();
        let (command, announces_lists) = (self.command.join(" "), self.announces_lists);
        let counted = Arc::clone(&restarts);
        let observer: Observer =
            Box::new(move |gateway| follow(gateway, command, announces_lists, counted).boxed_local());
        let backend = self.backend().map_err(CliError::Usage)?;
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

    fn backend(self) -> Result<BackendConfig, String> {
        let name = BackendName::parse(BACKEND).map_err(|error| error.to_string())?;
        let mut command = self.command.into_iter();
        let names = self.env.iter().filter_map(|(name, _)| name.to_str());
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
        backend.watch = vec![self.pattern];
        backend.watches_writes = true;
        backend.hands_over = self.hands_over;
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
