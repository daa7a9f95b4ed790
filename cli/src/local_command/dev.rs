//! `dev`: brokers for development, as many as the user likes.

use std::process::ExitCode;

use clap::{Arg, ArgAction, Args, Command, Subcommand, builder::PossibleValuesParser};
use serde_json::json;

use super::control::{clean_up, dev_instances, paths_of, start_dev};
use super::options::{DevOptions, FIFO, STORAGES, TRANSPORTS, parse_http};
use super::{AsJson, CODES, Grace, LogFlags, ReportFlags, STATUS_CODES, serve_here, started};
use crate::{
    call::{Call, Run, done},
    error::CliError,
    flags::one_of,
    output::print,
    tool_calls::{self, CallArguments, REPL_ABOUT, Target, run_repl},
};
use common::user_broker::Instance;

const DEV_ABOUT: &str = "\
Start, stop and show brokers for development on this machine, as many as you like.

Such a broker keeps its messages in memory, listens on a free port, and runs until you stop it. Agents find it
only with mcp-broker connect --instance dev/NAME.

  mcp-broker dev start --name try
  mcp-broker call --dev=try register_session name=alice
  mcp-broker repl --dev=try
  mcp-broker dev stop --name try";

/// Another name of the transport `fifo`.
const PIPE: &str = "pipe";

/// Start, stop and show brokers for development on this machine, as many as you like.
#[derive(Debug, Args)]
#[command(long_about = DEV_ABOUT, after_help = CODES)]
pub struct Dev {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Start(Start),
    Stop(Stop),
    Restart(Restart),
    Status(Status),
    Logs(ShowLogs),
    Cleanup(Cleanup),
    // The former names of `mcp-broker call --dev` and `mcp-broker repl --dev`.
    #[command(hide = true)]
    Call(CallTool),
    #[command(hide = true)]
    Repl(Repl),
}

impl Run for Dev {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        self.task.run(call)
    }
}

impl Task {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        match self {
            Self::Start(start) => start.run(call),
            Self::Stop(Stop { of, all, grace }) => done(grace.stop(&of.chosen(all)?)),
            Self::Restart(restart) => done(restart.grace.restart(&restart.of.name, &restart.output, call)),
            Self::Status(Status { output, of, all }) => output.status(&of.chosen(all)?, all, call),
            Self::Logs(logs) => done(logs.logs.show(&logs.of.name, call)),
            Self::Cleanup(cleanup) => done(cleanup.run()),
            Self::Call(of_tool) => of_tool.call.run(Target::Instance(of_tool.of.name)),
            Self::Repl(repl) => run_repl(Target::Instance(repl.of.name)),
        }
    }
}

/// The words of an earlier tool for the commands of `dev`, hidden from the help: `mcp dev-start` and so on.
#[derive(Debug, Subcommand)]
#[expect(clippy::enum_variant_names, reason = "the words of the earlier tool")]
enum Alias {
    DevStart(Start),
    DevStop(Stop),
    DevRestart(Restart),
    DevStatus(Status),
    DevLogs(ShowLogs),
    DevCleanup(Cleanup),
    #[command(hide = true)]
    DevCall(CallTool),
    #[command(hide = true)]
    DevRepl(Repl),
}

/// The commands of dev under other names.
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Aliases {
    #[command(subcommand)]
    alias: Alias,
}

impl Aliases {
    /// The arguments, with what the earlier tool has besides: another name of a transport, and a flag without effect.
    pub fn augment(command: Command) -> Command {
        Self::augment_args(command).mut_subcommands(|alias| {
            let experimental = Arg::new("experimental").long("experimental");
            alias
                .mut_args(with_pipe)
                .arg(experimental.action(ArgAction::SetTrue).help("").hide(true))
        })
    }
}

fn with_pipe(arg: Arg) -> Arg {
    if arg.get_id() != "transport" {
        return arg;
    }
    let transports = TRANSPORTS.iter().copied().chain([PIPE]);
    arg.value_parser(PossibleValuesParser::new(transports))
}

impl Run for Aliases {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        let task = match self.alias {
            Alias::DevStart(mut start) => {
                if start.transport == PIPE {
                    FIFO.clone_into(&mut start.transport);
                }
                Task::Start(start)
            }
            Alias::DevStop(stop) => Task::Stop(stop),
            Alias::DevRestart(restart) => Task::Restart(restart),
            Alias::DevStatus(status) => Task::Status(status),
            Alias::DevLogs(logs) => Task::Logs(logs),
            Alias::DevCleanup(cleanup) => Task::Cleanup(cleanup),
            Alias::DevCall(of_tool) => Task::Call(of_tool),
            Alias::DevRepl(repl) => Task::Repl(repl),
        };
        task.run(call)
    }
}

// Which broker for development. A doc comment would be the help of the command.
#[derive(Debug, Args)]
struct OfName {
    /// Name of the broker for development.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = Instance::dev)]
    name: Instance,
}

impl OfName {
    /// This broker, or all of them.
    fn chosen(self, all: bool) -> Result<Vec<Instance>, CliError> {
        if all { dev_instances() } else { Ok(vec![self.name]) }
    }
}

/// Start a broker for development and wait until it serves.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
struct Start {
    #[command(flatten)]
    of: OfName,
    #[arg(long, value_name = "WORD", default_value = TRANSPORTS[0], value_parser = PossibleValuesParser::new(TRANSPORTS),
        hide_possible_values = true, help = one_of(TRANSPORTS, "fifo: also a pair of FIFOs, for one client at a time"))]
    transport: String,
    /// Port of the HTTP server on 127.0.0.1; 0 takes a free one, off opens none.
    #[arg(long, value_name = "PORT", default_value = "0", value_parser = parse_http)]
    http: String,
    #[arg(long, value_name = "WORD", default_value = STORAGES[0], value_parser = PossibleValuesParser::new(STORAGES),
        hide_possible_values = true,
        help = one_of(STORAGES, "Where the broker keeps messages; memory loses them when the broker stops"))]
    storage: String,
    /// Run in this process until Ctrl-C, log to stderr, and print one line of JSON when it serves.
    #[arg(long)]
    foreground: bool,
    #[command(flatten)]
    output: AsJson,
}

impl Start {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        let instance = self.of.name;
        let options = DevOptions {
            transport: self.transport,
            http: self.http,
            storage: self.storage,
        };
        if self.foreground {
            options.write(&paths_of(&instance)?)?;
            return Ok(serve_here(instance, true, call));
        }
        let output = self.output.output(call);
        done(started(&instance, |paths| start_dev(paths, &options), &output))
    }
}

/// Stop a broker for development.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
struct Stop {
    #[command(flatten)]
    of: OfName,
    /// Stop all of them.
    #[arg(long, conflicts_with = "name")]
    all: bool,
    #[command(flatten)]
    grace: Grace,
}

/// Stop a broker for development and start it with the same options.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
struct Restart {
    #[command(flatten)]
    of: OfName,
    #[command(flatten)]
    grace: Grace,
    #[command(flatten)]
    output: AsJson,
}

/// Show whether a broker for development runs, and its agents.
#[derive(Debug, Args)]
#[command(after_help = STATUS_CODES)]
struct Status {
    #[command(flatten)]
    output: ReportFlags,
    #[command(flatten)]
    of: OfName,
    /// Show all of them.
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// Show the last lines of the log of the broker.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
struct ShowLogs {
    #[command(flatten)]
    logs: LogFlags,
    #[command(flatten)]
    of: OfName,
}

/// Remove the runtime folders of brokers for development that do not run; stop none.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
struct Cleanup {
    /// Only print what would be removed.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: AsJson,
}

impl Cleanup {
    fn run(&self) -> Result<(), CliError> {
        let removed = clean_up(self.dry_run)?;
        if self.output.json {
            return print(&format!("{}\n", json!({ "removed": removed })));
        }
        let verb = if self.dry_run { "would remove" } else { "removed" };
        for file in &removed {
            print(&format!("{verb} {file}\n"))?;
        }
        if removed.is_empty() {
            print("nothing to remove\n")?;
        }
        Ok(())
    }
}

// Its help is that of `call`.
#[derive(Debug, Args)]
struct CallTool {
    #[command(flatten)]
    call: CallArguments,
    #[command(flatten)]
    of: OfName,
    #[arg(long, help = "", hide = true)]
    json: bool,
}

/// Call tools of a broker at a prompt, or with lines from a pipe.
#[derive(Debug, Args)]
#[command(long_about = REPL_ABOUT, after_help = tool_calls::CODES)]
struct Repl {
    #[command(flatten)]
    of: OfName,
}
