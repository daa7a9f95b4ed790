//! `call` and `repl`: tools of any broker, from a script or by hand.
//!
//! `caller` has the connection, `arguments` reads what a person writes, `complete` what the prompt completes.

mod arguments;
mod call;
mod caller;
mod complete;
mod repl;

use std::process::ExitCode;

use clap::Args;

use super::access::{AskingFlags, HEADING};
use super::call::{Call, Run};
use super::error::CliError;
use common::user_broker::Instance;

pub use call::CallArguments;
pub use caller::Target;
pub use repl::run as run_repl;

/// Exit codes of both.
pub const CODES: &str = "\
Exit codes: 0 done, 1 the tool refused or there was no answer, 2 wrong command line, 3 the broker does not run.";

/// The help of `repl`.
pub const REPL_ABOUT: &str = "\
Call tools of a broker at a prompt, or with lines from a pipe: TOOL {json} or TOOL key=value.

All lines share one connection, and so one session. The line help lists the commands; Tab completes
commands, tools and arguments. On a terminal the last 1,000 lines are kept in repl-history, which no other user may read.

  mcp-broker repl
  echo 'list_sessions {\"status\": \"all\"}' | mcp-broker repl";

// `call` for any broker. Its help is that of its arguments.
#[derive(Debug, Args)]
pub struct CallCommand {
    #[command(flatten)]
    call: CallArguments,
    #[command(flatten)]
    target: TargetFlags,
}

impl Run for CallCommand {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        self.call.run(self.target.target(call)?)
    }
}

/// Call tools of a broker at a prompt, or with lines from a pipe.
#[derive(Debug, Args)]
#[command(long_about = REPL_ABOUT, after_help = CODES)]
pub struct ReplCommand {
    #[command(flatten)]
    target: TargetFlags,
}

impl Run for ReplCommand {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        run_repl(self.target.target(call)?)
    }
}

// The broker whose tools are called. A doc comment would be the help of the command.
#[derive(Debug, Args)]
struct TargetFlags {
    #[command(flatten)]
    asking: AskingFlags,
    /// A broker for development, as mcp-broker dev start starts it.
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "default",
        value_parser = Instance::dev, conflicts_with = "url", help_heading = HEADING)]
    dev: Option<Instance>,
    /// Another broker of this user.
    #[arg(long, value_name = "NAME", value_parser = Instance::parse, conflicts_with_all = ["dev", "url"],
        help_heading = HEADING)]
    instance: Option<Instance>,
}

impl TargetFlags {
    /// The broker that the flags name; without one that of the user.
    fn target(self, call: &Call<'_>) -> Result<Target, CliError> {
        match self.dev.or(self.instance) {
            Some(instance) => Ok(Target::Instance(instance)),
            None => Target::of(&self.asking.broker, call.env),
        }
    }
}
