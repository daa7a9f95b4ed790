//! The console on a screen: the terminal, its threads, and the loop that joins keys, the feed and the model.

use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::process::Command as Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::{Duration, Instant};

use actors::clock::now;
use crossterm::event::{
    self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers,
};
use crossterm::execute;
use crossterm::style::Print;
use ratatui::DefaultTerminal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::feed::Feed;
use super::model::{Effect, Key, Model, Notice, Update};
use super::notify::Notifier;
use super::settings::Console;
use super::{editor::TEXT_BYTES_MAX, view};
use crate::error::CliError;

/// What the loop takes between two drawings at most: a stream that brings thousands of questions shows the first ones soon.
const BATCH_MAX: usize = 512;
/// How long the end waits until the broker has the last drafts.
const END_MAX: Duration = Duration::from_secs(2);
/// Keeps and restores the title of the window.
const PUSH_TITLE: &str = "\u{1b}[22;2t";
const POP_TITLE: &str = "\u{1b}[23;2t";

/// What the loop waits for.
enum Input {
    /// What the terminal has sent, and when, in milliseconds since the Unix epoch.
    Terminal(Event, u64),
    /// The terminal is gone.
    Closed,
    Feed(Update),
    /// The last command has been carried out.
    Drained,
    Signal,
}

/// Shows the desk until the person quits.
///
/// # Errors
/// The terminal fails, or a signal ends it.
pub fn run(console: Console) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::Failed(format!("the terminal cannot be used: {error}"));
    let (inputs, received) = mpsc::channel();
    let caught = catch_signals(&inputs).map_err(failed)?;
    let (feed_inputs, end_inputs) = (inputs.clone(), inputs.clone());
    let feed = Feed::start(
        console.place,
        console.caller,
        move |update| feed_inputs.send(Input::Feed(update)).is_ok(),
        move || drop(end_inputs.send(Input::Drained)),
    );
    // A panic restores the terminal too: ratatui sets a hook.
    let terminal = ratatui::try_init().map_err(failed)?;
    let restored = RestoredTerminal;
    execute!(std::io::stdout(), EnableBracketedPaste, Print(PUSH_TITLE)).map_err(failed)?;
    let go_on = read_keys(inputs);
    let mut screen = Screen {
        terminal,
        model: Model::new(console.options, now().unix_ms),
        feed: Some(feed),
        notifier: console.notifier,
        editor: console.editor,
        title: String::new(),
        go_on,
    };
    screen.run(&received).map_err(failed)?;
    drop(restored);
    match caught.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(CliError::Signalled(i32::try_from(signal).unwrap_or_default())),
    }
}

/// Restores the terminal when it is dropped.
struct RestoredTerminal;

impl Drop for RestoredTerminal {
    fn drop(&mut self) {
        // The terminal may be gone; then there is nothing to restore.
        let _ = execute!(std::io::stdout(), DisableBracketedPaste, Print(POP_TITLE));
        let _ = ratatui::try_restore();
    }
}

/// Passes on signals that end the program, so that the screen is restored first.
fn catch_signals(inputs: &Sender<Input>) -> std::io::Result<Arc<AtomicUsize>> {
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

/// Reads the terminal in a thread. After Ctrl-E it waits until it may continue: the keys are for the editor.
fn read_keys(inputs: Sender<Input>) -> SyncSender<()> {
    let (go_on, wait) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        loop {
            let Ok(event) = event::read() else {
                let _ = inputs.send(Input::Closed);
                return;
            };
            let is_editor = is_ctrl_e(&event);
            if inputs.send(Input::Terminal(event, now().unix_ms)).is_err() || is_editor && wait.recv().is_err() {
                return;
            }
        }
    });
    go_on
}

fn is_ctrl_e(event: &Event) -> bool {
    key(event) == Some(Key::Ctrl('e'))
}

struct Screen {
    terminal: DefaultTerminal,
    model: Model,
    feed: Option<Feed>,
    notifier: Notifier,
    editor: String,
    /// The title of the window as it is.
    title: String,
    go_on: SyncSender<()>,
}

impl Screen {
    fn run(&mut self, inputs: &Receiver<Input>) -> std::io::Result<()> {
        let size = self.terminal.size()?;
        self.model.resized(size.width, size.height);
        loop {
            self.draw()?;
            let Some(first) = self.wait(inputs) else { continue };
            let mut notices = Vec::new();
            let batch = std::iter::once(first).chain(inputs.try_iter().take(BATCH_MAX));
            for input in batch {
                let is_over = self.take(input)?;
                if self.carry_out(&mut notices, inputs)? || is_over {
                    self.end(inputs);
                    return Ok(());
                }
            }
            let bytes = self.notifier.notify(&notices);
            if !bytes.is_empty() {
                execute!(std::io::stdout(), Print(bytes))?;
            }
        }
    }

    /// Waits for the next input, or until the model has something to do.
    fn wait(&mut self, inputs: &Receiver<Input>) -> Option<Input> {
        let Some(due) = self.model.next_tick_ms() else {
            return inputs.recv().ok();
        };
        let pause = Duration::from_millis(due.saturating_sub(now().unix_ms));
        match inputs.recv_timeout(pause) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.model.tick(now().unix_ms);
                // A tick brings commands only.
                self.carry_out_commands();
                None
            }
        }
    }

    fn carry_out_commands(&mut self) {
        for effect in self.model.take_effects() {
            if let (Effect::Ask(command), Some(feed)) = (effect, &self.feed) {
                feed.ask(command);
            }
        }
    }

    /// Takes in an input. Returns whether it ends the program.
    fn take(&mut self, input: Input) -> std::io::Result<bool> {
        match input {
            Input::Terminal(Event::Resize(width, height), _) => {
                self.terminal.autoresize()?;
                self.model.resized(width, height);
            }
            Input::Terminal(event, at_ms) => {
                let Some(key) = key(&event) else { return Ok(false) };
                self.model.press(key, at_ms);
            }
            Input::Feed(update) => self.model.apply(update, now().unix_ms),
            Input::Drained => {}
            Input::Closed | Input::Signal => return Ok(true),
        }
        Ok(false)
    }

    /// Does what the model wants. Returns whether that ends the program.
    fn carry_out(&mut self, notices: &mut Vec<Notice>, inputs: &Receiver<Input>) -> std::io::Result<bool> {
        for effect in self.model.take_effects() {
            match effect {
                Effect::Ask(command) => {
                    if let Some(feed) = &self.feed {
                        feed.ask(command);
                    }
                }
                Effect::Edit(text) => self.edit(&text, inputs)?,
                Effect::Notify(notice) => notices.push(notice),
                Effect::Quit => return Ok(true),
            }
        }
        Ok(false)
    }

    fn draw(&mut self) -> std::io::Result<()> {
        self.model.settle();
        self.carry_out_commands();
        let model = &self.model;
        let mut scroll_max = 0;
        self.terminal.draw(|frame| scroll_max = view::draw(frame, model))?;
        self.model.scroll = self.model.scroll.min(scroll_max);
        let title = match self.model.waiting() {
            (0, _) => "desk".to_owned(),
            (open, _) => format!("({open}) desk"),
        };
        if title != self.title {
            execute!(std::io::stdout(), crossterm::terminal::SetTitle(&title))?;
            self.title = title;
        }
        Ok(())
    }

    /// Lets the person write in the editor of the system.
    fn edit(&mut self, text: &str, inputs: &Receiver<Input>) -> std::io::Result<()> {
        execute!(std::io::stdout(), DisableBracketedPaste)?;
        ratatui::try_restore()?;
        let edited = edited(&self.editor, text);
        // The panic hook of the first terminal stays.
        crossterm::terminal::enable_raw_mode()?;
        execute!(
            std::io::stdout(),
            crossterm::terminal::EnterAlternateScreen,
            EnableBracketedPaste
        )?;
        self.terminal.clear()?;
        match edited {
            Ok(text) => self.model.edited(&text, now().unix_ms),
            Err(line) => self.model.failed(line),
        }
        // Ctrl-C in the editor was for the editor.
        for input in inputs.try_iter() {
            if !matches!(input, Input::Signal) {
                self.take(input)?;
            }
        }
        let _ = self.go_on.try_send(());
        Ok(())
    }

    /// Waits until the broker has the last drafts.
    fn end(&mut self, inputs: &Receiver<Input>) {
        self.feed = None;
        let deadline = Instant::now() + END_MAX;
        while let Ok(input) = inputs.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if matches!(input, Input::Drained) {
                return;
            }
        }
    }
}

/// The text after the editor has ended.
fn edited(editor: &str, text: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("the editor cannot be used: {error}");
    let folder = std::env::temp_dir().join(format!("mcp-broker-{}", uuid::Uuid::new_v4().simple()));
    std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
    let path = folder.join("answer.md");
    let edit = || {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create_new(true).write(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        drop(file);
        // As git does: the variable may have arguments.
        let status = Program::new("sh")
            .args(["-c", &format!("{editor} \"$1\""), "sh"])
            .arg(&path)
            .status()?;
        if !status.success() {
            return Err(std::io::Error::other(format!("{editor} ended with {status}")));
        }
        let mut text = Vec::new();
        std::fs::File::open(&path)?
            .take(TEXT_BYTES_MAX as u64)
            .read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    let text = edit().map_err(failed);
    let _ = std::fs::remove_dir_all(&folder);
    text
}

/// The key of an event.
fn key(event: &Event) -> Option<Key> {
    let KeyEvent { code, modifiers, .. } = match event {
        Event::Paste(text) => return Some(Key::Paste(text.clone())),
        Event::Key(key) if matches!(key.kind, KeyEventKind::Press | KeyEventKind::Repeat) => key,
        _ => return None,
    };
    let has_ctrl = modifiers.contains(KeyModifiers::CONTROL);
    let has_alt = modifiers.contains(KeyModifiers::ALT);
    Some(match code {
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left if has_ctrl || has_alt => Key::WordLeft,
        KeyCode::Right if has_ctrl || has_alt => Key::WordRight,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Delete => Key::Delete,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Char(c) if has_ctrl => Key::Ctrl(c.to_ascii_lowercase()),
        KeyCode::Char(c) if has_alt => Key::Alt(*c),
        KeyCode::Char(c) => Key::Char(*c),
        _ => return None,
    })
}
