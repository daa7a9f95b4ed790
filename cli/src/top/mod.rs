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
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;

use super::access::{BrokerAccess, BrokerFlags, variable};
use super::call::{Call, Run, done};
use super::client::Client;
use super::error::CliError;
use super::flags::seconds;
use super::output::{EXIT_CODES, Output};
use super::screen::{self, Happening, Program, Screen};
use super::usage_errors::refused;
use feed::Feed;
use model::{Model, Update, Wish};

const ABOUT: &str = "\
Watch a broker on one screen: sessions, rates, queues, dead letters, replicas and events, as they change.

Keys: 1 to 5 or Tab choose a view, arrows move, Enter opens a session or a message, Esc goes back,
s and r sort, / filters, ? shows the help, q quits. A key of scope observer sees everything except payloads.";

const INTERVAL_SECONDS: u64 = 2;
const INTERVAL_SECONDS_MAX: u64 = 60;

/// Watch a broker on one screen: sessions, rates, queues, dead letters, replicas.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES)]
pub struct Top {
    #[command(flatten)]
    broker: BrokerFlags,
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=INTERVAL_SECONDS_MAX),
        help = "Time between two requests to the broker, at most 60s\n[default: 2s]")]
    interval: Option<u64>,
}

impl Run for Top {
    /// Shows the broker until the user quits.
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        let access = BrokerAccess::read(&self.broker, call.env).map_err(refused)?;
        let term = variable(call.env, "TERM").map(|term| term.to_string_lossy().into_owned());
        let instead = "mcp-broker sessions, mcp-broker messages or mcp-broker tail";
        screen::check_terminal("top", instead, term.as_deref())?;
        let access = access.or_broker_of_user().map_err(CliError::Failed)?;
        let has_colours = !Output::new(false, false, call.env).plain;
        let interval = Duration::from_secs(self.interval.unwrap_or(INTERVAL_SECONDS));
        done(screen::run(|updates| Watching {
            model: Model::new(&access.url.text, has_colours),
            feed: Feed::start(&Client::new(access), interval, updates),
        }))
    }
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
