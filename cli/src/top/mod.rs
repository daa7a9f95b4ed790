//! `top`: the broker on one screen, as it changes.
//!
//! `model` holds what is shown and what the keys do, `grid` turns lists into sorted and filtered rows, and `view` draws:
//! they are pure. `feed` asks the broker in threads of its own. [`run`] joins them in the loop of the screen.

mod data;
mod feed;
mod grid;
mod model;
mod view;
mod watched;

use std::io;
use std::time::Duration;

use clap::{ArgMatches, Command};
use ratatui::DefaultTerminal;

use super::access::{self, BrokerAccess, EnvVars};
use super::client::Client;
use super::error::CliError;
use super::flags::duration;
use super::output::{EXIT_CODES, Output};
use super::screen::{self, Happening, Program, Screen};
use super::usage_errors::redact_keys;
use feed::Feed;
use model::{Model, Update, Wish};

const ABOUT: &str = "\
Watch a broker on one screen: sessions, rates, queues, dead letters, replicas and events, as they change.

Keys: 1 to 5 or Tab choose a view, arrows move, Enter opens a session or a message, Esc goes back,
s and r sort, / filters, ? shows the help, q quits. A key of scope observer sees everything except payloads.";

/// The command with its help.
pub fn command() -> Command {
    Command::new("top")
        .about("Watch a broker on one screen: sessions, rates, queues, dead letters, replicas")
        .long_about(ABOUT)
        .args(access::with_broker_of_user(access::broker_flags()))
        .arg(duration(
            "interval",
            1..=INTERVAL_SECONDS_MAX,
            "Time between two requests to the broker, at most 60s\n[default: 2s]",
        ))
        .after_help(EXIT_CODES)
}

const INTERVAL_SECONDS: u64 = 2;
const INTERVAL_SECONDS_MAX: u64 = 60;

/// What to watch.
#[derive(Debug)]
pub struct Top {
    access: BrokerAccess,
    interval: Duration,
    has_colours: bool,
    /// The type of the terminal, if the environment names one.
    term: Option<String>,
}

/// Reads the arguments.
///
/// # Errors
/// [`CliError::Usage`] with one line for the user.
pub fn read(matches: &ArgMatches, env: &EnvVars) -> Result<Top, CliError> {
    let seconds = matches.get_one::<u64>("interval").copied().unwrap_or(INTERVAL_SECONDS);
    let access = BrokerAccess::read(matches, env).map_err(|line| CliError::Usage(redact_keys(&line)))?;
    let term = env.iter().find(|(name, _)| name == "TERM");
    Ok(Top {
        access,
        interval: Duration::from_secs(seconds),
        has_colours: !Output::new(false, false, env).plain,
        term: term.map(|(_, term)| term.to_string_lossy().into_owned()),
    })
}

/// Shows the broker until the user quits.
///
/// # Errors
/// [`CliError::Usage`] without a terminal that can show it, [`CliError::Failed`] when the terminal fails,
/// [`CliError::Signalled`] when a signal ends it.
pub fn run(top: Top) -> Result<(), CliError> {
    let instead = "mcp-broker sessions, mcp-broker messages or mcp-broker tail";
    screen::check_terminal("top", instead, top.term.as_deref())?;
    let access = top.access.or_broker_of_user().map_err(CliError::Failed)?;
    screen::run(|updates| Watching {
        model: Model::new(&access.url.text, top.has_colours),
        feed: Feed::start(&Client::new(access), top.interval, updates),
    })
}

/// A broker on the screen.
struct Watching {
    model: Model,
    feed: Feed,
}

impl Program for Watching {
    type Update = Update;

    fn draw(&mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        terminal.draw(|frame| view::draw(frame, &self.model)).map(drop)
    }

    fn next_tick_ms(&self) -> Option<u64> {
        self.model.next_tick_ms()
    }

    fn take(&mut self, happening: Happening<Update>, now_ms: u64, _: &mut Screen<Self>) -> io::Result<bool> {
        self.model.tick(now_ms);
        match happening {
            Happening::Key(key) => match self.model.press(key) {
                Wish::Quit => return Ok(true),
                Wish::Watch(watched) => self.feed.watch(watched),
                Wish::Nothing => {}
            },
            Happening::Update(update) => self.model.apply(update, now_ms),
            Happening::Size(..) | Happening::Tick => {}
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
