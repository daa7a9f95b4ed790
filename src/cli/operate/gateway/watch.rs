//! `gateway watch`: one program for the one MCP client that has started it, started again when its files change.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, process::ExitCode, sync::Arc};

use actors::model::{BackendAddress, BackendConfig, BackendName, ProjectId};
use clap::{Arg, ArgAction, ArgMatches, Command, builder::ValueParser};

use super::run::{self, cannot_start};
use crate::{
    cli::{
        access::first_broker_flag,
        error::CliError,
        flags::{switch, text},
    },
    config::ENV_PREFIX,
    front::Stdout,
    gateway::{STDERR_TARGET, import::watched_pattern, literal},
    telemetry::{self, LogFile},
};

/// The name of the command.
pub const NAME: &str = "watch";

/// The name of the backend, which the client does not see: a single backend has bare names.
const BACKEND: &str = "watched";

const ABOUT: &str = "\
Serve one program on stdin and stdout, and start it again when its files change.

The client keeps its connection: the changed program is started beside the running one and takes its place once it has
answered, open calls end where they began, and the client is told of changed tools. A program that does not start
leaves the one before serving. The program has the environment of this command. Its stderr is in the log.

  {\"mcpServers\": {\"mine\": {\"command\": \"mcp-broker\",
    \"args\": [\"gateway\", \"watch\", \"--watch\", \"src\", \"--\", \"python\", \"server.py\"]}}}

The flags are those of mcpmon.";

const EXIT_CODES: &str = "\
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
            "End the running program before the changed one is started, for programs of which only one can run",
        ))
        .arg(has_output("quiet", 'q', "Log errors alone").conflicts_with_all(["verbose", "debug"]))
        .arg(has_output("verbose", 'v', "As without it: changes of files are logged"))
        .arg(switch("debug", "Log everything, as MCP_BROKER_LOG_LEVEL=debug does"))
        .arg(has_output(
            "timestamps",
            't',
            "As without it: each line of the log has its time",
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
            "As without it: the client is told of changed tools",
        ))
        .arg(switch(
            "no-notify-tools-changed",
            "As without it: a client that is not told would call tools that are gone",
        ))
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .help("The program and its arguments, after --")
                .required(true)
                .last(true)
                .num_args(1..)
                .action(ArgAction::Append),
        )
        .after_help(EXIT_CODES)
}

/// A program that is ready to be served.
#[derive(Debug)]
pub struct Watched {
    command: Vec<String>,
    pattern: String,
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
    pub fn run(self) -> Result<ExitCode, CliError> {
        // First, so that no other part of the program can write to stdout.
        let stdout = Stdout::take().map_err(cannot_start)?;
        let sources = run::sources(None, Some(&self.log_level), &self.env);
        let (mut config, _) = sources.load().map_err(|error| CliError::Usage(error.to_string()))?;
        let opened = |file: &PathBuf| {
            let wrong = |error| CliError::Failed(format!("{} cannot be written: {error}", file.display()));
            LogFile::open(file).map_err(wrong)
        };
        let file = self.log_file.as_ref().map(opened).transpose()?;
        let _log = telemetry::init_non_blocking(&config, file).map_err(cannot_start)?;
        let backend = self.backend().map_err(CliError::Usage)?;
        config.backends = Arc::new(BTreeMap::from([(
            ProjectId::default_project(),
            vec![Arc::new(backend)],
        )]));
        run::serve(&config, None, None, stdout)
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
        backend.hands_over = self.hands_over;
        Ok(backend)
    }
}
