//! What the full-screen commands share: the terminal, its keys, and the loop that waits on one channel for keys, signals and
//! what threads bring. A [`Program`] says what they change and how it is drawn.

mod keys;
#[cfg(test)]
pub mod test_screens;
mod theme;

use std::io::{Error, IsTerminal, Read, Result, stdout};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use actors::clock::now;
use crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, Event};
use crossterm::execute;
use crossterm::style::Print;
use crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::CliError;
pub use keys::Key;
pub use theme::{Theme, shown_text};

/// What the loop takes between two drawings at most: a stream that brings thousands of items shows the first ones soon. As
/// many wait; then their threads wait too.
const BATCH_MAX: usize = 512;
/// Keeps and restores the title of the window.
const PUSH_TITLE: &str = "\u{1b}[22;2t";
const POP_TITLE: &str = "\u{1b}[23;2t";

/// A program on the screen.
pub trait Program {
    /// What its threads bring.
    type Update: Send + 'static;

    /// Draws what is known.
    fn draw(&mut self, terminal: &mut DefaultTerminal) -> Result<()>;

    /// When [`Happening::Tick`] is due, in milliseconds since the Unix epoch.
    fn next_tick_ms(&self) -> Option<u64>;

    /// Takes in what has happened. Returns whether the program ends.
    fn take(&mut self, happening: Happening<Self::Update>, now_ms: u64, screen: &mut Screen<Self>) -> Result<bool>;

    /// The screen is gone: does what has to be done before the process ends.
    fn end(self)
    where
        Self: Sized,
    {
    }

    /// Whether a key may call for [`Screen::lend`]: the keys after it may be for the other program.
    fn lends_at(_key: &Key) -> bool {
        false
    }
}

/// What a program takes in.
pub enum Happening<U> {
    Key(Key),
    /// Columns and lines of the screen.
    Size(u16, u16),
    Update(U),
    /// The time of [`Program::next_tick_ms`] has come.
    Tick,
}

/// What the loop waits for.
enum Input<U> {
    /// What the terminal has sent, and when, in milliseconds since the Unix epoch.
    Terminal(Event, u64),
    /// The terminal is gone.
    Closed,
    Update(U),
    /// A thread of the program has panicked.
    Panicked,
    Signal,
}

/// Where the threads of a program send what they bring.
pub struct Updates<U>(SyncSender<Input<U>>);

impl<U> Clone for Updates<U> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<U: Send + 'static> Updates<U> {
    /// Waits while too many updates wait. Returns whether the program still runs.
    pub fn send(&self, update: U) -> bool {
        self.0.send(Input::Update(update)).is_ok()
    }

    /// Runs a part of the program in a thread, which ends with the process. If it panics, the program fails.
    pub fn spawn(&self, work: impl FnOnce(Self) + Send + 'static) {
        let (inputs, updates) = (self.0.clone(), self.clone());
        std::thread::spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| work(updates))).is_err() {
                let _ = inputs.send(Input::Panicked);
            }
        });
    }
}

/// The screen of a program that runs.
pub struct Screen<P: Program + ?Sized> {
    terminal: DefaultTerminal,
    inputs: Receiver<Input<P::Update>>,
    /// The last signal; 0 without one.
    caught: Arc<AtomicUsize>,
    /// Lets the thread that reads keys continue after one of [`Program::lends_at`].
    go_on: SyncSender<()>,
}

/// Shows a program until it ends. `start` makes it; its threads send their updates to what `start` gets.
///
/// # Errors
/// The terminal fails, a thread of the program panics, or a signal ends the program.
pub fn run<P: Program>(start: impl FnOnce(&Updates<P::Update>) -> P) -> std::result::Result<(), CliError> {
    let failed = |error: Error| CliError::Failed(format!("the terminal cannot be used: {error}"));
    let (inputs, received) = mpsc::sync_channel(BATCH_MAX);
    let caught = catch_signals(&inputs).map_err(failed)?;
    let mut program = start(&Updates(inputs.clone()));
    // A panic restores the terminal too: ratatui sets a hook.
    let terminal = ratatui::try_init().map_err(failed)?;
    let restored = RestoredTerminal;
    execute!(stdout(), EnableBracketedPaste, Print(PUSH_TITLE)).map_err(failed)?;
    let mut screen = Screen {
        terminal,
        inputs: received,
        caught: Arc::clone(&caught),
        go_on: read_keys(inputs, P::lends_at),
    };
    screen.show(&mut program).map_err(failed)?;
    drop((screen, restored));
    program.end();
    match caught.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(CliError::Signalled(i32::try_from(signal).unwrap_or_default())),
    }
}

impl<P: Program> Screen<P> {
    fn show(&mut self, program: &mut P) -> Result<()> {
        let size = self.terminal.size()?;
        let mut is_over = program.take(Happening::Size(size.width, size.height), now().unix_ms, self)?;
        while !is_over {
            program.draw(&mut self.terminal)?;
            let Some(first) = self.wait(program.next_tick_ms())? else {
                is_over = program.take(Happening::Tick, now().unix_ms, self)?;
                continue;
            };
            let mut first = Some(first);
            for _ in 0..BATCH_MAX {
                let Some(input) = first.take().or_else(|| self.inputs.try_recv().ok()) else {
                    break;
                };
                is_over = self.pass_on(input, program)?;
                if is_over {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits for the next input, or until a time, in milliseconds since the Unix epoch.
    fn wait(&mut self, until_ms: Option<u64>) -> Result<Option<Input<P::Update>>> {
        let received = match until_ms {
            None => self.inputs.recv().map_err(RecvTimeoutError::from),
            Some(until_ms) => {
                let pause = Duration::from_millis(until_ms.saturating_sub(now().unix_ms));
                self.inputs.recv_timeout(pause)
            }
        };
        match received {
            Ok(input) => Ok(Some(input)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Error::other("nothing reads it")),
        }
    }

    /// Passes an input on to the program. Returns whether the program ends.
    fn pass_on(&mut self, input: Input<P::Update>, program: &mut P) -> Result<bool> {
        match input {
            Input::Terminal(Event::Resize(width, height), at_ms) => {
                self.terminal.autoresize()?;
                program.take(Happening::Size(width, height), at_ms, self)
            }
            Input::Terminal(event, at_ms) => {
                let Some(key) = Key::of(&event) else { return Ok(false) };
                let lends = P::lends_at(&key);
                let is_over = program.take(Happening::Key(key), at_ms, self)?;
                if lends {
                    let _ = self.go_on.try_send(());
                }
                Ok(is_over)
            }
            Input::Update(update) => program.take(Happening::Update(update), now().unix_ms, self),
            Input::Panicked => Err(Error::other("a thread of this program has panicked")),
            Input::Closed => Ok(true),
            Input::Signal => Ok(self.caught.load(Ordering::Relaxed) != 0),
        }
    }

    /// Lends the terminal to another program while `work` runs.
    ///
    /// # Errors
    /// The terminal fails.
    pub fn lend<T>(&mut self, work: impl FnOnce() -> T) -> Result<T> {
        execute!(stdout(), DisableBracketedPaste)?;
        ratatui::try_restore()?;
        let done = work();
        // The panic hook of the first terminal stays.
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
        self.terminal.clear()?;
        // Ctrl-C in the other program was for the other program.
        let interrupt = usize::try_from(SIGINT).unwrap_or_default();
        let _ = self
            .caught
            .compare_exchange(interrupt, 0, Ordering::Relaxed, Ordering::Relaxed);
        Ok(done)
    }
}

/// Refuses what cannot show a screen. `instead` says which commands need none.
///
/// # Errors
/// [`CliError::Usage`].
pub fn check_terminal(command: &str, instead: &str, term: Option<&str>) -> std::result::Result<(), CliError> {
    let needs = format!("{command} needs a terminal");
    let why = if !stdout().is_terminal() || !std::io::stdin().is_terminal() {
        "for its input and its output, and one of them is a pipe or a file"
    } else {
        match term {
            None | Some("") => "that can move its cursor, and TERM is not set",
            Some("dumb") => "that can move its cursor, and TERM says dumb",
            Some(_) => return Ok(()),
        }
    };
    Err(CliError::Usage(format!("{needs} {why}; use {instead} instead")))
}

/// Whether the screen is smaller than `width` columns or `height` lines; then that is drawn.
pub fn is_too_small(frame: &mut Frame<'_>, width: u16, height: u16) -> bool {
    let area = frame.area();
    let is_too_small = area.width < width || area.height < height;
    if is_too_small {
        let text = format!("This terminal is too small: {width} columns and {height} lines are needed.");
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
    }
    is_too_small
}

/// Keys and what they do, a line each.
pub fn help(keys: &[(&'static str, &'static str)], theme: &Theme) -> Paragraph<'static> {
    let line = |(keys, what): &(&str, &'static str)| {
        Line::from(vec![
            Span::raw(format!(" {keys:<30}")),
            Span::styled(*what, theme.label()),
        ])
    };
    Paragraph::new(keys.iter().map(line).collect::<Vec<_>>())
}

/// A place in the middle of an area, as large as it fits.
pub fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    }
}

/// Restores the terminal when it is dropped.
struct RestoredTerminal;

impl Drop for RestoredTerminal {
    fn drop(&mut self) {
        // The terminal may be gone; then there is nothing to restore.
        let _ = execute!(stdout(), DisableBracketedPaste, Print(POP_TITLE));
        let _ = ratatui::try_restore();
    }
}

/// Passes on signals that end the program, so that the screen is restored first.
fn catch_signals<U: Send + 'static>(inputs: &SyncSender<Input<U>>) -> Result<Arc<AtomicUsize>> {
    let caught = Arc::new(AtomicUsize::new(0));
    let (mut read, write) = UnixStream::pair()?;
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let number = usize::try_from(signal).unwrap_or_default();
        signal_hook::flag::register_usize(signal, Arc::clone(&caught), number)?;
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
    }
    let inputs = inputs.clone();
    std::thread::spawn(
        move || {
            while read.read(&mut [0]).is_ok_and(|len| len > 0) && inputs.send(Input::Signal).is_ok() {}
        },
    );
    Ok(caught)
}

/// Reads the terminal in a thread: once the terminal has gone, the read of it never returns. After a key of
/// [`Program::lends_at`] the thread waits until it may continue.
fn read_keys<U: Send + 'static>(inputs: SyncSender<Input<U>>, lends_at: fn(&Key) -> bool) -> SyncSender<()> {
    let (go_on, wait) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        loop {
            let Ok(event) = event::read() else {
                let _ = inputs.send(Input::Closed);
                return;
            };
            let lends = Key::of(&event).is_some_and(|key| lends_at(&key));
            if inputs.send(Input::Terminal(event, now().unix_ms)).is_err() || lends && wait.recv().is_err() {
                return;
            }
        }
    });
    go_on
}
