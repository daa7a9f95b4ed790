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

use std::process::ExitCode;

use actors::model::{BrokerError, SessionName};
use clap::Args;

use super::access::{BrokerAccess, BrokerFlags, EnvVars, variable, with_default};
use super::call::{Call, Run, done};
use super::error::CliError;
use super::output::{EXIT_CODES, Output};
use super::screen;
use super::usage_errors::refused;
use common::config::{self, NOTIFY_COMMAND_ENV, NOTIFY_TEXT_ENV};
use common::user_broker::{Instance, LocalPaths};
use feed::{Caller, Place};
use model::Options;
use notify::Notifier;
use settings::Console;

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

/// Answer the questions of agents in a terminal.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES,
    mut_args(with_default("the broker of this user, which is started")))]
pub struct ConsoleFlags {
    #[arg(
        long,
        value_name = "NAME",
        help = "Person who answers\n[default: the person of the key, else the name of the user]"
    )]
    name: Option<String>,
    #[arg(
        long = "role",
        value_name = "ROLE",
        value_delimiter = ',',
        help = "Role of that person, to which questions may be \
        addressed; may be repeated.\nA key has roles of its own"
    )]
    roles: Vec<String>,
    #[arg(
        long,
        value_name = "PROJECT",
        help = "The project, for a key that may act in several\n[default: that of the key, else default]"
    )]
    project: Option<String>,
    /// Lines instead of a screen, for pipes and screen readers.
    #[arg(long)]
    plain: bool,
    /// Ring the bell of the terminal when a question comes.
    #[arg(long)]
    bell: bool,
    #[arg(long, value_name = "WHAT", value_parser = ["yaps"], hide_possible_values = true,
        help = "Show no yaps: the lines of agents that want no answer\n[allowed: yaps]")]
    mute: Vec<String>,
    #[arg(long, value_name = "COMMAND", help = format!("Run this when a question comes, with a title and a text as its last \
        arguments, such as\nnotify-send\n[env: {NOTIFY_COMMAND_ENV}]"))]
    notify_command: Option<String>,
    #[arg(long, help = format!("Notifications show the question too, not only who asks\n[env: {NOTIFY_TEXT_ENV}=true]"))]
    notify_text: bool,
    #[command(flatten)]
    broker: BrokerFlags,
}

impl Run for ConsoleFlags {
    /// Shows the desk until the person quits.
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        let console = self.read(call.env).map_err(refused)?;
        if console.is_plain {
            return done(lines::run(console));
        }
        screen::check_terminal(NAME, "mcp-broker console --plain", console.term.as_deref())?;
        done(terminal::run(console))
    }
}

impl ConsoleFlags {
    fn read(self, env: &EnvVars) -> Result<Console, String> {
        let access = BrokerAccess::read(&self.broker, env)?;
        let place = if self.broker.name_broker(env, true)? {
            Place::Given(access)
        } else {
            let paths = LocalPaths::of(&Instance::default()).map_err(|error| error.to_string())?;
            Place::User {
                paths: Box::new(paths),
                access,
            }
        };
        let text = |name: &str| variable(env, name).map(|value| value.to_string_lossy().into_owned());
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        let is_id = |project: &&String| project.bytes().all(|byte| byte.is_ascii_graphic());
        if let Some(project) = self.project.as_ref().filter(|project| !is_id(project)) {
            let shown = config::quoted_value("", project);
            return Err(format!(
                "project = {shown} (--project) is not allowed; allowed: the id of a project"
            ));
        }
        let user = user_name(env);
        let command = self.notify_command.or_else(|| text(NOTIFY_COMMAND_ENV));
        let has_text = self.notify_text || text(NOTIFY_TEXT_ENV).is_some_and(|text| text == "true");
        Ok(Console {
            place,
            options: Options {
                human: self.name.clone().unwrap_or_else(|| user.clone()),
                project: self.project.clone(),
                has_colours: !Output::new(false, false, env).plain,
                mutes_yaps: !self.mute.is_empty(),
            },
            caller: Caller {
                name: self.name,
                user,
                roles: self.roles,
                project: self.project,
            },
            notifier: Notifier::new(self.bell, command.as_deref(), has_text, env),
            is_plain: self.plain,
            editor: text("VISUAL")
                .or_else(|| text("EDITOR"))
                .unwrap_or_else(|| "vi".to_owned()),
            term: text("TERM"),
        })
    }
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

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
