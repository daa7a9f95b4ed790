//! All commands, in the groups of the help. A command is its file, and its entry here.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{ArgMatches, Args, Command};

use super::access::{AskingFlags, EnvVars};
use super::broker::Broker;
use super::call::{Call, Run};
use super::completions::Completions;
use super::config_entry::Config;
use super::connect::{self, ConnectFlags};
use super::console::{self, ConsoleFlags};
use super::context::ContextCommand;
use super::demo::Demo;
use super::error::CliError;
use super::healthcheck::HealthCheck;
use super::hook::{self, Hook};
use super::keygen::Keygen;
use super::local_command::{Aliases, Dev, Local, Restart, ShowLogs, Start, Status, Stop};
use super::man::Man;
use super::operate::{
    self, dead_letters::DeadLetters, desk::Desk, gateway, inbox::Inbox, messages::Messages, protocols::Protocols,
    send::Send, sessions::Sessions, tail::Tail, wait::Wait,
};
use super::project::Project;
use super::setup::SetupFlags;
use super::tool_calls::{CallCommand, ReplCommand};
use super::top::Top;
use super::{doctor, serve, usage_errors};

/// A command: its name, what adds its arguments with their help, and what reads and runs it.
#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    augment: fn(Command) -> Command,
    run: fn(Call<'_>) -> Result<ExitCode, CliError>,
}

impl Entry {
    fn command(self) -> Command {
        (self.augment)(Command::new(self.name))
    }
}

/// A command that is a type.
const fn alone<R: Run>(name: &'static str) -> Entry {
    Entry {
        name,
        augment: R::augment_args,
        run: |call| call.run::<R>(),
    }
}

/// A command that asks a running broker, which the flags of [`operate::asking`] name.
const fn asking<J: operate::Job>(name: &'static str) -> Entry {
    Entry {
        name,
        augment: |command| operate::asking(J::augment_args(command)),
        run: operate::run::<J>,
    }
}

/// The groups with their commands, in the order of the help. The help shows no group without a heading.
static GROUPS: [(&str, &[Entry]); 6] = [
    (
        "Agents",
        &[
            alone::<SetupFlags>("setup"),
            alone::<ConnectFlags>(connect::NAME),
            alone::<Hook>(hook::NAME),
            alone::<Config>("config"),
            Entry {
                name: "gateway",
                augment: gateway::augment,
                run: gateway::run,
            },
        ],
    ),
    (
        "People",
        &[
            alone::<ConsoleFlags>(console::NAME),
            asking::<Desk>("desk"),
            asking::<Send>("send"),
            asking::<Inbox>("inbox"),
            asking::<Wait>("wait"),
        ],
    ),
    (
        "Look",
        &[
            alone::<Status>("status"),
            alone::<Top>("top"),
            asking::<Sessions>("sessions"),
            asking::<Messages>("messages"),
            asking::<DeadLetters>("dead-letters"),
            asking::<Protocols>("protocols"),
            asking::<Tail>("tail"),
            alone::<ShowLogs>("logs"),
        ],
    ),
    (
        "Operate",
        &[
            Entry {
                name: "serve",
                augment: serve::augment,
                run: serve::run,
            },
            alone::<Start>("start"),
            alone::<Stop>("stop"),
            alone::<Restart>("restart"),
            alone::<Local>("local"),
            alone::<Project>("project"),
            alone::<Keygen>("keygen"),
            alone::<ContextCommand>("context"),
            Entry {
                name: "doctor",
                augment: doctor::augment,
                run: doctor::run,
            },
            alone::<HealthCheck>("healthcheck"),
            alone::<Completions>("completions"),
            alone::<Man>("man"),
        ],
    ),
    (
        "Develop",
        &[
            alone::<Demo>("demo"),
            alone::<Dev>("dev"),
            alone::<CallCommand>("call"),
            alone::<ReplCommand>("repl"),
        ],
    ),
    (
        "",
        &[Entry {
            name: "mcp",
            augment: Aliases::augment,
            run: |call| call.run::<Aliases>(),
        }],
    ),
];

/// Runs the command that a command line names.
///
/// # Errors
/// What went wrong, for the user.
pub fn run(mut matches: ArgMatches, env: &EnvVars, broker: &'static dyn Broker) -> Result<ExitCode, CliError> {
    let (name, matches) = matches.remove_subcommand().unwrap_or_default();
    let mut entries = GROUPS.iter().flat_map(|(_, entries)| *entries);
    let Some(entry) = entries.find(|entry| entry.name == name) else {
        return Err(CliError::Usage(usage_errors::no_command(&all())));
    };
    (entry.run)(Call {
        matches,
        env,
        broker,
        all,
    })
}

/// The program with all commands, flags and help texts. Its help shows the commands in their groups: clap has one heading
/// for all.
pub fn all() -> Command {
    let program = Command::new("mcp-broker")
        .about("A message broker for AI agents that speak MCP")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .after_help(format!(
            "mcp-broker COMMAND --help describes a command.\n\n{}",
            serve::EXIT_CODES
        ));
    // Which broker a command asks is said after the command.
    let options = AskingFlags::augment_args(program.clone()).mut_args(|flag| flag.global(false));
    let options = options.help_template("{all-args}").render_help();
    let styles = program.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let entries = || GROUPS.iter().flat_map(|(_, entries)| *entries);
    let width = entries().map(|entry| entry.name.len()).max().unwrap_or_default();
    let mut program = program.subcommand_required(true).arg_required_else_help(true);
    let mut groups = String::new();
    for (heading, entries) in &GROUPS {
        let mut lines = String::new();
        for entry in *entries {
            let command = entry.command();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let (name, space) = (entry.name, width - entry.name.len());
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "  {literal}{name}{literal:#}{:space$}  {about}", "");
            program = program.subcommand(command);
        }
        if !heading.is_empty() {
            let _ = writeln!(groups, "{header}{heading}:{header:#}\n{lines}");
        }
    }
    program.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{}{{after-help}}",
        options.ansi().to_string().trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_name_of_its_command_and_a_group_unless_it_is_hidden() {
        for (heading, entries) in &GROUPS {
            for entry in *entries {
                let command = entry.command();
                assert_eq!(command.get_name(), entry.name);
                assert_eq!(command.is_hide_set(), heading.is_empty(), "{}", entry.name);
            }
        }
    }
}
