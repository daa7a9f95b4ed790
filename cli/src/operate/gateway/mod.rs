//! `gateway`: the backend MCP servers that the agents of a project share.
//!
//! Each file has one group of subcommands. A subcommand that asks a broker reads its arguments into a [`Job`].

mod backend;
mod calls;
mod configuration_file;
mod entry;
mod import;
mod imported;
mod list;
mod logs;
mod ready;
mod run;
mod servers_file;
mod watch;

use std::process::ExitCode;

use clap::{Args, Command, Subcommand};

use super::job::{Context, Job};
use crate::call::{Call, done};
use crate::{
    access::AskingFlags,
    error::CliError,
    flags::id,
    operate,
    output::EXIT_CODES,
    tool_calls::{CallArguments, Target},
};
use backend::OfBackend;
use entry::{Add, Remove};
use import::Import;
use ready::Ready;
use run::Run;
use watch::Watch;

const ABOUT: &str = "\
The backend MCP servers that the agents of a project share.

The configuration file describes them, under [backends.NAME]. add and remove change the file, import copies the servers of an
MCP client into it. Administrators add others over REST; enable and disable are for these. run and watch are gateways of their
own for one client. The other subcommands ask a running broker. docs/gateway.md explains what agents see.";

/// Share MCP servers among agents: list, add, restart and import backends.
#[derive(Debug, Args)]
#[command(long_about = ABOUT)]
struct Gateway {
    #[command(subcommand)]
    asked: Asked,
}

#[derive(Debug, Subcommand)]
enum Asked {
    /// List the backends with their states.
    List,
    /// Show all details of a backend.
    Show(OfBackend),
    /// List the tools of a backend, with the names that clients see.
    Tools(OfBackend),
    /// List the open calls of the backends, the oldest first.
    Calls {
        /// Only the calls of this backend.
        #[arg(long, value_name = "NAME", value_parser = id)]
        backend: Option<String>,
    },
    /// Cancel an open call: its caller gets an error, and its backend is notified.
    Cancel {
        /// Id of the call, as calls shows it.
        #[arg(value_name = "ID", value_parser = id)]
        call: String,
    },
    Ready(Ready),
    /// Show the last lines that a backend has written to stderr.
    Logs {
        #[command(flatten)]
        of: OfBackend,
        /// Print new lines as they come.
        #[arg(long, short)]
        follow: bool,
    },
    /// Start a backend that does not run, without waiting for its next attempt.
    Start(OfBackend),
    /// Stop the process of a backend and start it again; its open calls fail.
    Restart(OfBackend),
    /// Stop the process of a backend, and hide its tools until it is started.
    Stop(OfBackend),
    /// Switch an added backend on; the storage keeps this.
    Enable(OfBackend),
    /// Switch an added backend off; the storage keeps this.
    Disable(OfBackend),
    Add(Add),
    Remove(Remove),
    Import(Import),
    Run(Run),
    Watch(Watch),
    // The former name of `mcp-broker call`. A doc comment would replace the help of the type.
    #[command(hide = true)]
    Call(CallArguments),
}

/// Adds the arguments with their help.
pub fn augment(command: Command) -> Command {
    operate::asking(Gateway::augment_args(command).mut_subcommands(with_exit_codes))
}

fn with_exit_codes(subcommand: Command) -> Command {
    if subcommand.get_after_help().is_some() {
        return subcommand;
    }
    subcommand.after_help(EXIT_CODES)
}

/// Runs the subcommand that the arguments name.
///
/// # Errors
/// What went wrong, for the user.
pub fn run(call: Call<'_>) -> Result<ExitCode, CliError> {
    let Gateway { asked } = call.read()?;
    match asked {
        Asked::Call(of_tool) => of_tool.run(Target::of(&call.read::<AskingFlags>()?.broker, call.env)?),
        Asked::Add(add) => done(add.run()),
        Asked::Remove(remove) => done(remove.run()),
        Asked::Import(import) => done(import.run()),
        Asked::Run(run) => {
            check_asks_none(&call, "run")?;
            run.run(call.env, call.broker)
        }
        Asked::Watch(watch) => {
            check_asks_none(&call, "watch")?;
            watch.run(call.env, call.broker)
        }
        asked => done(operate::with_context(&call, |context| ask(asked, context))),
    }
}

fn check_asks_none(call: &Call<'_>, name: &str) -> Result<(), CliError> {
    call.read::<AskingFlags>()?.first_given().map_or(Ok(()), |flag| {
        let line = format!("--{flag} is not known here: gateway {name} asks no broker");
        Err(CliError::Usage(line))
    })
}

fn ask(asked: Asked, context: &Context) -> Result<(), CliError> {
    match asked {
        Asked::Show(of) => list::show(context, &of),
        Asked::Tools(of) => list::tools(context, &of),
        Asked::Calls { backend } => calls::list(context, backend.as_ref()),
        Asked::Cancel { call } => calls::cancel(context, &call),
        Asked::Ready(ready) => ready.run(context),
        Asked::Logs { of, follow } => logs::show(context, &of, follow),
        Asked::Start(of) => list::order(context, &of, "start", "is being started"),
        Asked::Restart(of) => list::order(context, &of, "restart", "is being restarted"),
        Asked::Stop(of) => {
            let does = "is being stopped, and stays stopped until gateway start";
            list::order(context, &of, "stop", does)
        }
        Asked::Enable(of) => list::order(context, &of, "enable", "is switched on"),
        Asked::Disable(of) => list::order(context, &of, "disable", "is switched off"),
        // The others ask no broker.
        _ => list::list(context),
    }
}
