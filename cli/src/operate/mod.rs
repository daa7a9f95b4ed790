//! The commands by which a person or a script uses a running broker: what is there, what was said, what is stuck.
//!
//! Each file has one command: its arguments, what it asks the broker, and what it prints. Only [`Job::run`] does I/O.

mod dead_letter;
pub mod dead_letters;
pub mod desk;
pub mod event_line;
mod events;
mod export;
pub mod gateway;
pub mod inbox;
mod job;
mod life;
mod lists;
mod lookup;
mod message;
pub mod messages;
mod names;
mod payload;
mod progress;
pub mod protocols;
mod redrive;
mod register;
pub mod send;
pub mod sessions;
pub mod tail;
mod texts;
mod tools;
pub mod wait;

use std::process::ExitCode;

use clap::{Args, Command};

use super::access::{AskingFlags, BrokerAccess, OUTPUT};
use super::call::{Call, done};
use super::client::Client;
use super::error::CliError;
use super::output::{EXIT_CODES, Output};
use super::usage_errors::{redact_keys, refused};

pub use events::{EventStream, Frame};
use job::Context;
pub use job::Job;
pub use lists::Pages;
pub use message::progress as message_progress;
pub use names::Names;
pub use sessions::fields as session_fields;

// The flags of all commands of this folder. A doc comment would be the help of the command.
#[derive(Debug, Args)]
struct Flags {
    #[command(flatten)]
    asking: AskingFlags,
    /// Show whole times and ids, and do not cut tables to the width of the terminal.
    #[arg(long, global = true, help_heading = OUTPUT)]
    wide: bool,
    /// Show times in UTC, and not in the zone of this machine.
    #[arg(long, global = true, help_heading = OUTPUT)]
    utc: bool,
}

/// A command of this folder with the flags that all of them have.
pub fn asking(command: Command) -> Command {
    let epilogue = match command.get_after_help() {
        Some(own) => format!("{own}\n\n{EXIT_CODES}"),
        None => EXIT_CODES.to_owned(),
    };
    Flags::augment_args(command).after_help(epilogue)
}

/// Runs a command, and reads which broker it asks.
///
/// # Errors
/// What went wrong, for the user.
pub fn run<J: Job>(call: Call<'_>) -> Result<ExitCode, CliError> {
    let job: J = call.read()?;
    done(with_context(&call, |context| job.run(context)))
}

/// Runs what asks the broker that the arguments name.
///
/// # Errors
/// What went wrong, for the user.
fn with_context(call: &Call<'_>, run: impl FnOnce(&Context) -> Result<(), CliError>) -> Result<(), CliError> {
    let Flags { asking, wide, utc } = call.read()?;
    let access = BrokerAccess::read(&asking.broker, call.env).map_err(refused)?;
    let access = access.or_broker_of_user().map_err(CliError::Failed)?;
    let context = Context {
        client: Client::new(access),
        output: Output::new(asking.json, wide, call.env).with_utc(utc),
    };
    run(&context).map_err(|error| match error {
        CliError::Failed(line) => CliError::Failed(redact_keys(&line)),
        CliError::Nothing(line) => CliError::Nothing(line.map(|line| redact_keys(&line))),
        other => other,
    })
}
