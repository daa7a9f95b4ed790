//! All commands, in the groups of the help. A command is its file, and its entry here.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::access::{self, EnvVars};
use super::broker::Broker;
use super::call::{Call, done};
use super::error::CliError;
use super::operate::{
    self, AnyJob, dead_letters::DeadLetters, desk::Desk, gateway, inbox::Inbox, messages::Messages,
    protocols::Protocols, send::Send, sessions::Sessions, tail::Tail, wait::Wait,
};
use super::{
    completions, config_entry, connect, console, context, demo, doctor, healthcheck, hook, keygen, local_command, man,
    project, serve, setup, tool_calls, top, usage_errors,
};

/// A command: its arguments with their help, and what reads and runs it.
#[derive(Clone, Copy)]
enum Entry {
    /// It reads its arguments itself.
    Alone(
        &'static str,
        fn() -> Command,
        fn(Call<'_>) -> Result<ExitCode, CliError>,
    ),
    /// It asks a running broker, which the flags of [`operate::asking`] name.
    Asking(AnyJob),
}

impl Entry {
    fn name(self) -> &'static str {
        match self {
            Self::Alone(name, ..) => name,
            Self::Asking(job) => job.name,
        }
    }

    fn command(self) -> Command {
        match self {
            Self::Alone(_, command, _) => command(),
            Self::Asking(job) => operate::asking(job.command()),
        }
    }
}

const fn alone(name: &'static str, command: fn() -> Command, run: fn(Call<'_>) -> Result<ExitCode, CliError>) -> Entry {
    Entry::Alone(name, command, run)
}

const fn asking<J: operate::Job>(name: &'static str) -> Entry {
    Entry::Asking(AnyJob::new::<J>(name))
}

/// The groups with their commands, in the order of the help. The help shows no group without a heading.
static GROUPS: [(&str, &[Entry]); 6] = [
    (
        "Agents",
        &[
            alone("setup", setup::command, |call| {
                done(setup::run(&setup::read(&call.matches, call.env)?))
            }),
            alone(connect::NAME, connect::command, |call| {
                done(connect::run(connect::read(&call.matches, call.env)?))
            }),
            alone(hook::NAME, hook::command, |call| hook::read(&call.matches)?.run()),
            alone("config", config_entry::command, |call| {
                done(config_entry::run(&config_entry::read(&call.matches, call.env)?))
            }),
            alone(gateway::NAME, || operate::asking(gateway::command()), gateway::run),
        ],
    ),
    (
        "People",
        &[
            alone(console::NAME, console::command, |call| {
                done(console::run(console::read(&call.matches, call.env)?))
            }),
            asking::<Desk>("desk"),
            asking::<Send>("send"),
            asking::<Inbox>("inbox"),
            asking::<Wait>("wait"),
        ],
    ),
    (
        "Look",
        &[
            alone(
                "status",
                || local_command::of_user("status"),
                |call| local_command::run("status", call),
            ),
            alone("top", top::command, |call| {
                done(top::run(top::read(&call.matches, call.env)?))
            }),
            asking::<Sessions>("sessions"),
            asking::<Messages>("messages"),
            asking::<DeadLetters>("dead-letters"),
            asking::<Protocols>("protocols"),
            asking::<Tail>("tail"),
            alone(
                "logs",
                || local_command::of_user("logs"),
                |call| local_command::run("logs", call),
            ),
        ],
    ),
    (
        "Operate",
        &[
            alone("serve", serve::command, |call| {
                Ok(serve::run(serve::read(call.matches, call.env.to_vec())?, call.broker))
            }),
            alone(
                "start",
                || local_command::of_user("start"),
                |call| local_command::run("start", call),
            ),
            alone(
                "stop",
                || local_command::of_user("stop"),
                |call| local_command::run("stop", call),
            ),
            alone(
                "restart",
                || local_command::of_user("restart"),
                |call| local_command::run("restart", call),
            ),
            alone("local", local_command::command, |call| {
                local_command::run("local", call)
            }),
            alone("project", project::command, |call| {
                done(project::run(&project::read(call.matches, call.env)?))
            }),
            alone("keygen", keygen::command, |_| done(keygen::run())),
            alone(context::NAME, context::command, |call| {
                done(context::run(context::read(&call.matches)?))
            }),
            alone("doctor", doctor::command, |call| {
                doctor::run(doctor::read(call.matches, call.env)?, call.broker)
            }),
            alone("healthcheck", healthcheck::command, |call| {
                done(healthcheck::run(&healthcheck::read(&call.matches, call.env)?))
            }),
            alone("completions", completions::command, |call| {
                done(completions::run(completions::read(&call.matches), all()))
            }),
            alone("man", man::command, |call| {
                done(man::run(&man::read(&call.matches), all()))
            }),
        ],
    ),
    (
        "Develop",
        &[
            alone("demo", demo::command, |call| {
                done(demo::run(&demo::read(&call.matches), call.broker))
            }),
            alone("dev", local_command::dev_command, |call| {
                local_command::run("dev", call)
            }),
            alone(tool_calls::CALL, tool_calls::call, |call| {
                tool_calls::run_call(&call.matches, tool_calls::target(&call.matches, call.env)?)
            }),
            alone(tool_calls::REPL, tool_calls::repl, |call| {
                tool_calls::read_repl(tool_calls::target(&call.matches, call.env)?).run()
            }),
        ],
    ),
    (
        "",
        &[alone(local_command::ALIASES, local_command::aliases, |call| {
            local_command::run(local_command::ALIASES, call)
        })],
    ),
];

/// Runs the command that a command line names.
///
/// # Errors
/// What went wrong, for the user.
pub fn run(mut matches: ArgMatches, env: &EnvVars, broker: &'static dyn Broker) -> Result<ExitCode, CliError> {
    let (name, matches) = matches.remove_subcommand().unwrap_or_default();
    let mut entries = GROUPS.iter().flat_map(|(_, entries)| *entries);
    match entries.find(|entry| entry.name() == name) {
        Some(Entry::Alone(.., run)) => run(Call { matches, env, broker }),
        Some(Entry::Asking(job)) => done(operate::run(*job, &matches, env)),
        None => Err(CliError::Usage(usage_errors::no_command(&all()))),
    }
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
    let flags = access::with_broker_of_user(access::flags()).map(|flag| flag.global(false));
    let options = program.clone().args(flags).help_template("{all-args}").render_help();
    let styles = program.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let entries = || GROUPS.iter().flat_map(|(_, entries)| *entries);
    let width = entries().map(|entry| entry.name().len()).max().unwrap_or_default();
    let mut program = program.subcommand_required(true).arg_required_else_help(true);
    let mut groups = String::new();
    for (heading, entries) in &GROUPS {
        let mut lines = String::new();
        for entry in *entries {
            let command = entry.command();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let (name, space) = (entry.name(), width - entry.name().len());
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
                assert_eq!(command.get_name(), entry.name());
                assert_eq!(command.is_hide_set(), heading.is_empty(), "{}", entry.name());
            }
        }
    }
}
