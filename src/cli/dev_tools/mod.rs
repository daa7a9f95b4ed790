//! `dev call` and `dev repl`: tools of a broker for development, from a script or by hand, over its socket.

mod arguments;
mod call;
mod caller;
mod complete;
mod repl;

use clap::Command;

pub use call::{Call, read as read_call};
pub use repl::Repl;

/// Exit codes of both.
const CODES: &str = "\
Exit codes: 0 done, 1 the tool refused or there was no answer, 2 wrong command line, 3 the broker does not run.";

const CALL_ABOUT: &str = "\
Call a tool of a broker for development and print its answer as JSON.

Where the schema of the tool wants a string, a value is one. Elsewhere a value that is JSON is taken as JSON, and
other values are text.

  mcp-broker dev call register_session name=alice metadata.team=red
  mcp-broker dev call send_message recipient_id=bob protocol_name=chat protocol_version=1.0.0 payload.text='hi bob'
  mcp-broker dev call list_sessions --json '{\"status\": \"all\", \"limit\": 5}'";

const REPL_ABOUT: &str = "\
Call tools of a broker for development at a prompt, or with lines from a pipe.

All lines are of one connection, so that a session stays. The line help says what can be written; Tab completes
commands, tools and arguments. On a terminal the last 1,000 lines are kept in repl-history, which no other user may read.

  echo 'list_sessions status=all' | mcp-broker dev repl";

/// `dev call`, without the name of the broker.
pub fn call_command() -> Command {
    Command::new("call")
        .about("Call a tool of a broker for development and print its answer as JSON")
        .long_about(CALL_ABOUT)
        .args(call::args())
        .after_help(CODES)
}

/// `dev repl`, without the name of the broker.
pub fn repl_command() -> Command {
    Command::new("repl")
        .about("Call tools of a broker for development at a prompt, or with lines from a pipe")
        .long_about(REPL_ABOUT)
        .after_help(CODES)
}
