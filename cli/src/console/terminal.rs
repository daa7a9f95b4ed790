//! The console on a screen: what the loop of the screen brings goes into the model, and what the model wants is carried out.

use std::io::{Read, Write, stdout};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::process::Command as Program;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use actors::clock::now;
use crossterm::execute;
use crossterm::style::Print;
use crossterm::terminal::SetTitle;
use ratatui::DefaultTerminal;

use super::feed::Feed;
use super::model::{Effect, Model, Notice, Update};
use super::notify::Notifier;
use super::settings::Console;
use super::{editor::TEXT_BYTES_MAX, view};
use crate::error::CliError;
use crate::screen::{self, Happening, Key, Screen};

/// How long the end waits until the broker has the last drafts.
const END_MAX: Duration = Duration::from_secs(2);

/// Shows the desk until the person quits.
///
/// # Errors
/// The terminal fails, or a signal ends it.
pub fn run(console: Console) -> Result<(), CliError> {
    screen::run(|updates| {
        let (ended, drained) = mpsc::channel();
        let (updates, threads) = (updates.clone(), updates.clone());
        Desk {
            model: Model::new(console.options, now().unix_ms),
            feed: Feed::start(
                console.place,
                console.caller,
                |work| threads.spawn(move |_| work()),
                move |update| updates.send(update),
                move || _ = ended.send(()),
            ),
            drained,
            notifier: console.notifier,
            notices: Vec::new(),
            editor: console.editor,
            title: String::new(),
        }
    })
}

/// The desk on a screen.
struct Desk {
    model: Model,
    feed: Feed,
    /// Gets a message when the last command has been carried out.
    drained: Receiver<()>,
    notifier: Notifier,
    /// What has come since the last drawing.
    notices: Vec<Notice>,
    editor: String,
    /// The title of the window as it is.
    title: String,
}

impl screen::Program for Desk {
    type Update = Update;

    fn draw(&mut self, terminal: &mut DefaultTerminal) -> std::io::Result<()> {
        let bytes = self.notifier.notify(&std::mem::take(&mut self.notices));
        if !bytes.is_empty() {
            execute!(stdout(), Print(bytes))?;
        }
        self.model.settle();
        for effect in self.model.take_effects() {
            // Settling brings commands only.
            if let Effect::Ask(command) = effect {
                self.feed.ask(command);
            }
        }
        let model = &self.model;
        let mut scroll_max = 0;
        terminal.draw(|frame| scroll_max = view::draw(frame, model))?;
        self.model.scroll = self.model.scroll.min(scroll_max);
        let title = match self.model.waiting() {
            (0, _) => "desk".to_owned(),
            (open, _) => format!("({open}) desk"),
        };
        if title != self.title {
            execute!(stdout(), SetTitle(&title))?;
            self.title = title;
        }
        Ok(())
    }

    fn next_tick_ms(&self) -> Option<u64> {
        self.model.next_tick_ms()
    }

    fn take(&mut self, happening: Happening<Update>, now_ms: u64, screen: &mut Screen<Self>) -> std::io::Result<bool> {
        match happening {
            Happening::Key(key) => self.model.press(key, now_ms),
            Happening::Size(width, height) => self.model.resized(width, height),
            Happening::Update(update) => self.model.apply(update, now_ms),
            Happening::Tick => self.model.tick(now_ms),
        }
        for effect in self.model.take_effects() {
            match effect {
                Effect::Ask(command) => self.feed.ask(command),
                Effect::Edit(text) => match screen.lend(|| edited(&self.editor, &text))? {
                    Ok(text) => self.model.edited(&text, now().unix_ms),
                    Err(line) => self.model.failed(line),
                },
                Effect::Notify(notice) => self.notices.push(notice),
                Effect::Quit => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Waits until the broker has the last drafts.
    fn end(self) {
        drop(self.feed);
        let _ = self.drained.recv_timeout(END_MAX);
    }

    fn lends_at(key: &Key) -> bool {
        *key == Key::Ctrl('e')
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
