//! `call` and `repl`: tools of any broker, from a script or by hand.
//!
//! `caller` has the connection, `arguments` reads what a person writes, `complete` what the prompt completes.

mod arguments;
mod call;
mod caller;
mod complete;
mod repl;

use clap::{Arg, ArgMatches, Command};

use super::access::{self, BrokerAccess, EnvVars};
use super::error::CliError;
use super::flags::text;
use super::usage_errors::redact_keys;
use common::user_broker::Instance;

pub use call::read as read_call;
pub use caller::Target;
pub use repl::read as read_repl;

/// The names of the commands.
pub const CALL: &str = "call";
pub const REPL: &str = "repl";

/// Exit codes of both.
const CODES: &str = "\
Exit codes: 0 done, 1 the tool refused or there was no answer, 2 wrong command line, 3 the broker does not run.";

const CALL_ABOUT: &str = "\
Call a tool of a broker, its own or one of a backend, and print the answer as JSON.

The arguments are one JSON object, or words of the form key=value. A value is text where the schema of the tool wants a
string; elsewhere it is JSON if it can be read as JSON, and text otherwise. Each call has a connection of its own: to act
as the session of an earlier call, pass its session_id.

  mcp-broker call list_sessions '{\"status\": \"all\", \"limit\": 5}'
  mcp-broker call register_session name=alice metadata.team=red
  mcp-broker call github__search_code query=main";

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
    Command::new(CALL)
        .about("Call a tool of a broker and print its answer as JSON")
        .long_about(CALL_ABOUT)
        .args(call::args())
        .after_help(CODES)
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
