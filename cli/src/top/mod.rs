//! `top`: the broker on one screen, as it changes.
//!
//! `model` holds what is shown and what the keys do, `grid` turns lists into sorted and filtered rows, and `view` draws:
//! they are pure. `feed` asks the broker in threads of its own. Only [`run`] touches the terminal.

mod data;
mod feed;
mod grid;
mod model;
mod view;
mod watched;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use actors::clock::now;
use clap::{ArgMatches, Command};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::DefaultTerminal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::access::{self, BrokerAccess, EnvVars};
use super::client::Client;
use super::error::CliError;
use super::flags::duration;
use super::output::{EXIT_CODES, Output};
use super::usage_errors::redact_keys;
use feed::Feed;
use model::{Key, Model, Wish};

/// The longest time until a key, a signal or an answer of the broker is seen.
const TICK: Duration = Duration::from_millis(100);

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

/// Reads the arguments. `before` holds the flags before the command.
///
/// # Errors
/// [`CliError::Usage`] with one line for the user.
pub fn read(matches: &ArgMatches, before: &ArgMatches, env: &EnvVars) -> Result<Top, CliError> {
    if before.get_flag("json") {
        let line = "--json is not known before top; see mcp-broker sessions --json and mcp-broker tail --json";
        return Err(CliError::Usage(line.to_owned()));
    }
    let seconds = matches.get_one::<u64>("interval").copied().unwrap_or(INTERVAL_SECONDS);
    let access = BrokerAccess::read([matches, before], env).map_err(|line| CliError::Usage(redact_keys(&line)))?;
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
    check_terminal(top.term.as_deref())?;
    let access = top.access.or_broker_of_user().map_err(CliError::Failed)?;
    let signals = Signals::catch().map_err(|error| CliError::Failed(format!("signals cannot be caught: {error}")))?;
    let model = Model::new(&access.url.text, top.has_colours);
    let feed = Feed::start(&Client::new(access), top.interval);
    let failed = |error: std::io::Error| CliError::Failed(format!("the terminal cannot be used: {error}"));
    // A panic restores the terminal too: ratatui sets a hook.
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let restored = RestoredTerminal;
    watch(&mut terminal, model, &feed, &signals, &read_keys()).map_err(failed)?;
    drop(restored);
    signals
        .caught()
        .map_or(Ok(()), |signal| Err(CliError::Signalled(signal)))
}

/// Refuses what cannot show a screen.
fn check_terminal(term: Option<&str>) -> Result<(), CliError> {
    let instead = "use mcp-broker sessions, mcp-broker messages or mcp-broker tail instead";
    let refuse = |why: &str| Err(CliError::Usage(format!("{why}; {instead}")));
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return refuse("top needs a terminal for its input and its output, and one of them is a pipe or a file");
    }
    match term {
        None | Some("") => refuse("top needs a terminal that can move its cursor, and TERM is not set"),
        Some("dumb") => refuse("top needs a terminal that can move its cursor, and TERM says dumb"),
        Some(_) => Ok(()),
    }
}

/// Restores the terminal when it is dropped.
struct RestoredTerminal;

impl Drop for RestoredTerminal {
    fn drop(&mut self) {
        // The terminal may be gone; then there is nothing to restore.
        let _ = ratatui::try_restore();
    }
}

/// The signals that end the program: the screen is restored first.
struct Signals {
    caught: Arc<AtomicUsize>,
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        let caught = Arc::new(AtomicUsize::new(0));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, Arc::clone(&caught), number)?;
        }
        Ok(Self { caught })
    }

    fn caught(&self) -> Option<i32> {
        let signal = self.caught.load(Ordering::Relaxed);
        i32::try_from(signal).ok().filter(|signal| *signal != 0)
    }
}

/// Reads the terminal in a thread: once the terminal has gone, the read of it never returns.
fn read_keys() -> Receiver<Event> {
    let (sender, keys) = mpsc::sync_channel(64);
    std::thread::spawn(move || while event::read().is_ok_and(|event| sender.send(event).is_ok()) {});
    keys
}

fn watch(
    terminal: &mut DefaultTerminal,
    mut model: Model,
    feed: &Feed,
    signals: &Signals,
    keys: &Receiver<Event>,
) -> std::io::Result<()> {
    let mut is_changed = true;
    loop {
        model.tick(now().unix_ms);
        // During an outage its time is shown.
        if is_changed || model.outage.is_some() {
            terminal.draw(|frame| view::draw(frame, &model))?;
        }
        let key = keys.recv_timeout(TICK);
        is_changed = key.is_ok();
        let wish = match key {
            Ok(event) => pressed(&mut model, &event),
            Err(RecvTimeoutError::Timeout) => Wish::Nothing,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(std::io::Error::other("it cannot be read"));
            }
        };
        match wish {
            Wish::Quit => return Ok(()),
            Wish::Watch(watched) => feed.watch(watched),
            Wish::Nothing => {}
        }
        if signals.caught().is_some() {
            return Ok(());
        }
        if feed.has_failed() {
            return Err(std::io::Error::other("the thread that asks the broker has panicked"));
        }
        feed.updates(|update| {
            model.apply(update, now().unix_ms);
            is_changed = true;
        });
    }
}

fn pressed(model: &mut Model, event: &Event) -> Wish {
    let Event::Key(KeyEvent {
        code,
        modifiers,
        kind: KeyEventKind::Press | KeyEventKind::Repeat,
        ..
    }) = event
    else {
        return Wish::Nothing;
    };
    if modifiers.contains(KeyModifiers::CONTROL) && matches!(code, KeyCode::Char('c')) {
        return Wish::Quit;
    }
    let key = match code {
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Next,
        KeyCode::BackTab => Key::Previous,
        KeyCode::Char(c) => Key::Char(*c),
        _ => return Wish::Nothing,
    };
    model.press(key)
}

#[cfg(test)]
mod tests;
