//! `call` and `repl`: tools of any broker, from a script or by hand.
//!
//! `caller` has the connection, `arguments` reads what a person writes, `complete` what the prompt completes.

mod arguments;
mod call;
mod caller;
mod complete;
mod repl;

use std::process::ExitCode;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::access::{self, BrokerAccess, EnvVars};
use super::error::CliError;
use super::flags::text;
use super::usage_errors::redact_keys;
use common::user_broker::Instance;

pub use call::CallArguments;
pub use caller::Target;
pub use repl::read as read_repl;

/// The names of the commands.
pub const CALL: &str = "call";
pub const REPL: &str = "repl";

/// Exit codes of both.
const CODES: &str = "\
Exit codes: 0 done, 1 the tool refused or there was no answer, 2 wrong command line, 3 the broker does not run.";

const REPL_ABOUT: &str = "\
Call tools of a broker at a prompt, or with lines from a pipe: TOOL {json} or TOOL key=value.

All lines share one connection, and so one session. The line help lists the commands; Tab completes
commands, tools and arguments. On a terminal the last 1,000 lines are kept in repl-history, which no other user may read.

  mcp-broker repl
  echo 'list_sessions {\"status\": \"all\"}' | mcp-broker repl";

/// `call` for any broker.
pub fn call() -> Command {
    for_any_broker(call_command())
}

/// `repl` for any broker.
pub fn repl() -> Command {
    for_any_broker(repl_command())
}

fn for_any_broker(command: Command) -> Command {
    let dev = Arg::new("dev")
        .long("dev")
        .value_name("NAME")
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("default")
        .value_parser(Instance::dev)
        .conflicts_with("url")
        .help_heading("Broker")
        .help("A broker for development, as mcp-broker dev start starts it");
    let instance = text("instance", "NAME", "Another broker of this user")
        .value_parser(Instance::parse)
        .conflicts_with_all(["dev", "url"])
        .help_heading("Broker");
    command
        .args(access::with_broker_of_user(access::flags()))
        .args([dev, instance])
}

/// `call`, without the flags that say which broker.
pub fn call_command() -> Command {
    CallArguments::augment_args(Command::new(CALL))
}

/// `repl`, without the flags that say which broker.
pub fn repl_command() -> Command {
    Command::new(REPL)
        .about("Call tools of a broker at a prompt, or with lines from a pipe")
        .long_about(REPL_ABOUT)
        .after_help(CODES)
}

/// The broker that the flags name; without one that of the user.
///
/// # Errors
/// [`CliError::Usage`] with one line for the user.
pub fn target(matches: &ArgMatches, env: &EnvVars) -> Result<Target, CliError> {
    let instance = |name: &str| matches.try_get_one::<Instance>(name).ok().flatten().cloned();
    if let Some(instance) = instance("dev").or_else(|| instance("instance")) {
        return Ok(Target::Instance(instance));
    }
    let access = BrokerAccess::read(matches, env).map_err(|line| CliError::Usage(redact_keys(&line)))?;
    Ok(if access.url.is_default() {
        Target::OfUser(access)
    } else {
        Target::Url(access)
    })
}

/// Calls the tool that the arguments name.
///
/// # Errors
/// What went wrong, for the user.
pub fn run_call(matches: &ArgMatches, target: Target) -> Result<ExitCode, CliError> {
    let call = CallArguments::from_arg_matches(matches).map_err(|error| CliError::Usage(error.to_string()))?;
    call.run(target)
}
