//! The commands by which a person or a script uses a running broker: what is there, what was said, what is stuck.
//!
//! Each file has one command: its arguments, what it asks the broker, and what it prints. A new command is one file and one
//! line of [`VERBS`]. Only [`Job::run`] does I/O.

mod dead_letter;
mod dead_letters;
mod desk;
pub mod event_line;
mod events;
mod export;
pub mod gateway;
mod inbox;
mod job;
mod life;
mod lists;
mod lookup;
mod message;
mod messages;
mod names;
mod payload;
mod progress;
mod protocols;
mod redrive;
mod register;
mod send;
mod sessions;
mod tail;
mod texts;
mod tools;
mod wait;

use clap::{ArgMatches, Command};

use super::access::{self, BrokerAccess, EnvVars};
use super::client::Client;
use super::error::CliError;
use super::flags::switch;
use super::output::{EXIT_CODES, Output};
use super::usage_errors::redact_keys;

pub use dead_letter::DeadLetter;
pub use events::{EventStream, Frame};
use job::{Context, Job};
pub use life::LifePage;
pub use lists::{Pages, parsed};
pub use message::Message;
pub use names::Names;
pub use sessions::Session;

type ReadJob = fn(&ArgMatches) -> Box<dyn Job>;

/// A command: its arguments with their help, and how they are read.
struct Verb {
    command: fn() -> Command,
    read: ReadJob,
}

/// All commands, in the order of the help.
const VERBS: &[(&str, Verb)] = &[
    (
        sessions::NAME,
        Verb {
            command: sessions::command,
            read: sessions::read,
        },
    ),
    (
        protocols::NAME,
        Verb {
            command: protocols::command,
            read: protocols::read,
        },
    ),
    (
        messages::NAME,
        Verb {
            command: messages::command,
            read: messages::read,
        },
    ),
    (
        dead_letters::NAME,
        Verb {
            command: dead_letters::command,
            read: dead_letters::read,
        },
    ),
    (
        send::NAME,
        Verb {
            command: send::command,
            read: send::read,
        },
    ),
    (
        inbox::NAME,
        Verb {
            command: inbox::command,
            read: inbox::read,
        },
    ),
    (
        wait::NAME,
        Verb {
            command: wait::command,
            read: wait::read,
        },
    ),
    (
        desk::NAME,
        Verb {
            command: desk::command,
            read: desk::read,
        },
    ),
    (
        gateway::NAME,
        Verb {
            command: gateway::command,
            read: gateway::read,
        },
    ),
    (
        tail::NAME,
        Verb {
            command: tail::command,
            read: tail::read,
        },
    ),
];

/// The commands with their help.
pub fn commands() -> impl Iterator<Item = Command> {
    VERBS.iter().map(|(_, verb)| {
        let command = (verb.command)();
        let epilogue = match command.get_after_help() {
            Some(own) => format!("{own}\n\n{EXIT_CODES}"),
            None => EXIT_CODES.to_owned(),
        };
        let wide = switch(
            "wide",
            "Show whole times and ids, and do not cut tables to the width of the terminal",
        )
        .global(true)
        .help_heading("Output");
        let utc = switch("utc", "Show times in UTC, and not in the zone of this machine")
            .global(true)
            .help_heading("Output");
        command
            .args(access::with_broker_of_user(access::flags()))
            .args([wide, utc])
            .after_help(epilogue)
    })
}

/// Whether this is one of these commands.
pub fn is_known(name: &str) -> bool {
    VERBS.iter().any(|(known, _)| *known == name)
}

/// A command with the broker that it asks.
#[derive(Debug)]
pub struct Operation {
    access: BrokerAccess,
    output: Output,
    job: Box<dyn Job>,
}

/// Reads the arguments of a command. `before` holds the flags before it.
///
/// # Errors
/// [`CliError::Usage`] with one line for the user.
pub fn read(name: &str, matches: &ArgMatches, before: &ArgMatches, env: &EnvVars) -> Result<Operation, CliError> {
    let read = || {
        let (_, verb) = VERBS
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| format!("command {name:?} is not known"))?;
        let json = matches.get_flag("json") || before.get_flag("json");
        Ok(Operation {
            access: BrokerAccess::read([matches, before], env)?,
            output: Output::new(json, matches.get_flag("wide"), env).with_utc(matches.get_flag("utc")),
            job: (verb.read)(matches),
        })
    };
    read().map_err(|line: String| CliError::Usage(redact_keys(&line)))
}

impl Operation {
    /// Runs the command.
    ///
    /// # Errors
    /// What went wrong, for the user.
    pub fn run(self) -> Result<(), CliError> {
        let access = self.access.or_broker_of_user().map_err(CliError::Failed)?;
        let context = Context {
            client: Client::new(access),
            output: self.output,
        };
        self.job.run(&context).map_err(|error| match error {
            CliError::Failed(line) => CliError::Failed(redact_keys(&line)),
            CliError::Nothing(line) => CliError::Nothing(line.map(|line| redact_keys(&line))),
            other => other,
        })
    }
}
