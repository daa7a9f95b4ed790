//! `console`: the desk of a person in a terminal, where the questions of agents are answered.
//!
//! `model` holds what is shown and what keys and the broker change, with `editor` for the texts; `view` draws. They are
//! pure, and so is `plain`, the same as lines. `feed` asks the broker in threads of its own, over REST and its stream of
//! events. `terminal` joins all of them in the loop of the screen, and `lines` does so for `plain`.

mod data;
mod editor;
mod feed;
mod lines;
mod model;
mod notify;
mod plain;
mod settings;
mod terminal;
mod view;

use actors::model::{BrokerError, SessionName};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::access::{self, BrokerAccess, EnvVars, variable};
use super::error::CliError;
use super::flags::{given, many, switch, text};
use super::output::{EXIT_CODES, Output};
use super::screen;
use super::usage_errors::redact_keys;
use common::config::{self, NOTIFY_COMMAND_ENV, NOTIFY_TEXT_ENV};
use common::user_broker::{Instance, LocalPaths};
use feed::{Caller, Place};
use model::Options;
use notify::Notifier;
pub use settings::Console;

/// The name of the command.
pub const NAME: &str = "console";

/// The name of a person whom neither a flag nor the system names.
const HUMAN_DEFAULT: &str = "human";

const ABOUT: &str = "\
Answer the questions of agents in a terminal.

Agents ask with the tool clarify. The console lists the open questions, the most urgent first, shows one with its options
and takes the answer, which may have several lines: Enter begins a line, Ctrl-D sends.
The broker keeps unsent text as a draft, so that neither its restart nor the end of the console loses it. ? shows all keys.

Without --url it uses the broker of this user, and starts it if it does not run. An API key of scope answer
names the person who answers. --plain writes and reads lines, for pipes and screen readers.";

/// The command with its help.
pub fn command() -> Command {
    let name = text("name", "NAME", "")
        .help("Person who answers\n[default: the person of the key, else the name of the user]");
    Command::new(NAME)
        .about("Answer the questions of agents in a terminal")
        .long_about(ABOUT)
        .arg(name)
        .arg(many(
            "role",
            "ROLE",
            "Role of that person, to which questions may be addressed; may be repeated.\nA key has roles of its own",
        ))
        .arg(text(
            "project",
            "PROJECT",
            "The project, for a key that may act in several\n[default: that of the key, else default]",
        ))
        .arg(switch(
            "plain",
            "Lines instead of a screen, for pipes and screen readers",
        ))
        .arg(switch("bell", "Ring the bell of the terminal when a question comes"))
        .arg(
            Arg::new("mute")
                .long("mute")
                .value_name("WHAT")
                .value_parser(["yaps"])
                .hide_possible_values(true)
                .action(ArgAction::Append)
                .help("Show no yaps: the lines of agents that want no answer\n[allowed: yaps]"),
        )
        .arg(text("notify-command", "COMMAND", "").help(format!(
            "Run this when a question comes, with a title and a text as its last arguments, such as\n\
             notify-send\n[env: {NOTIFY_COMMAND_ENV}]"
        )))
        .arg(
            Arg::new("notify-text")
                .long("notify-text")
                .action(ArgAction::SetTrue)
                .help(format!(
                    "Notifications show the question too, not only who asks\n[env: {NOTIFY_TEXT_ENV}=true]"
                )),
        )
        .args(access::with_url_help(
            access::broker_flags(),
            format!(
                "Address of the broker\n[default: the broker of this user, which is started] [env: {}]",
                config::URL_ENV
            ),
        ))
        .after_help(EXIT_CODES)
}

/// Reads the arguments.
///
/// # Errors
/// [`CliError::Usage`] with one line for the user.
pub fn read(matches: &ArgMatches, env: &EnvVars) -> Result<Console, CliError> {
    let usage = |line: String| CliError::Usage(redact_keys(&line));
    let access = BrokerAccess::read(matches, env).map_err(usage)?;
    let place = if access::names_broker(matches, env, true).map_err(usage)? {
        Place::Given(access)
    } else {
        let paths = LocalPaths::of(&Instance::default()).map_err(|error| usage(error.to_string()))?;
        Place::User {
            paths: Box::new(paths),
            access,
        }
    };
    let text = |name: &str| variable(env, name).map(|value| value.to_string_lossy().into_owned());
    let name = given(matches, "name");
    if let Some(name) = &name {
        check_name(name).map_err(usage)?;
    }
    let user = user_name(env);
    let roles = matches.get_many::<String>("role").into_iter().flatten();
    let project = given(matches, "project");
    if let Some(project) = project
        .as_ref()
        .filter(|project| !project.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        let shown = config::quoted_value("", project);
        return Err(usage(format!(
            "project = {shown} (--project) is not allowed; allowed: the id of a project"
        )));
    }
    let command = given(matches, "notify-command").or_else(|| text(NOTIFY_COMMAND_ENV));
    let has_text = matches.get_flag("notify-text") || text(NOTIFY_TEXT_ENV).is_some_and(|text| text == "true");
    Ok(Console {
        place,
        options: Options {
            human: name.clone().unwrap_or_else(|| user.clone()),
            project: project.clone(),
            has_colours: !Output::new(false, false, env).plain,
            mutes_yaps: matches.contains_id("mute"),
        },
        caller: Caller {
            name,
            user,
            roles: roles.cloned().collect(),
            project,
        },
        notifier: Notifier::new(matches.get_flag("bell"), command.as_deref(), has_text, env),
        is_plain: matches.get_flag("plain"),
        editor: text("VISUAL")
            .or_else(|| text("EDITOR"))
            .unwrap_or_else(|| "vi".to_owned()),
        term: text("TERM"),
    })
}

fn check_name(name: &str) -> Result<(), String> {
    let refused = |why: BrokerError| {
        let shown = config::quoted_value("", name);
        format!("name = {shown} (--name) is not allowed: {why}")
    };
    SessionName::parse(name).map(drop).map_err(refused)
}

fn user_name(env: &EnvVars) -> String {
    let named = ["USER", "LOGNAME", "USERNAME"].into_iter();
    let mut named = named.filter_map(|name| variable(env, name)?.to_str());
    let usable = named.find(|name| check_name(name).is_ok());
    usable.unwrap_or(HUMAN_DEFAULT).to_owned()
}

/// Shows the desk until the person quits.
///
/// # Errors
/// [`CliError::Usage`] without a terminal that can show it, [`CliError::Failed`] when the terminal fails,
/// [`CliError::Signalled`] when a signal ends it.
pub fn run(console: Console) -> Result<(), CliError> {
    if console.is_plain {
        return lines::run(console);
    }
    screen::check_terminal(NAME, "mcp-broker console --plain", console.term.as_deref())?;
    terminal::run(console)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
