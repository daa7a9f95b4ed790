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

/// `dev call`, without the name of the broker.
pub fn call_command() -> Command {
    Command::new("call")
        .about("Call a tool of a broker for development and print its answer as JSON")
        .args(call::args())
        .after_help(CODES)
}

/// `dev repl`, without the name of the broker.
pub fn repl_command() -> Command {
    Command::new("repl")
        .about("Call tools of a broker for development at a prompt, or with lines from a pipe")
        .after_help(CODES)
}
