//! The console as lines: stdin, stdout, and the loop that joins them with the feed.

use std::io::{BufRead, Read};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use actors::clock::now;

use super::editor::TEXT_BYTES_MAX;
use super::feed::Feed;
use super::model::Update;
use super::plain::{Out, Plain};
use super::settings::Console;
use crate::error::CliError;
use crate::output::{Written, write};

/// How long the end waits until the broker has the last answer.
const END_MAX: Duration = Duration::from_secs(10);

enum Input {
    Line(String),
    /// The end of stdin.
    End,
    Feed(Update),
    Drained,
}

/// Asks the person line by line until stdin ends.
///
/// # Errors
/// Stdout cannot be written.
pub fn run(console: Console) -> Result<(), CliError> {
    let (inputs, received) = mpsc::channel();
    let (feed_inputs, end_inputs) = (inputs.clone(), inputs.clone());
    let feed = Feed::start(
        console.place,
        console.caller,
        |work| drop(std::thread::spawn(work)),
        move |update| feed_inputs.send(Input::Feed(update)).is_ok(),
        move || drop(end_inputs.send(Input::Drained)),
    );
    std::thread::spawn(move || read_lines(&inputs));
    let mut plain = Plain::new(console.options, now().unix_ms);
    let mut feed = Some(feed);
    loop {
        let mut notices = Vec::new();
        for out in plain.take() {
            match out {
                Out::Line(line) => {
                    if write(&format!("{line}\n"))? == Written::Closed {
                        return Ok(());
                    }
                }
                Out::Ask(command) => {
                    if let Some(feed) = &feed {
                        feed.ask(command);
                    }
                }
                Out::Notify(notice) => notices.push(notice),
                Out::Quit => {
                    drop(feed.take());
                    return end(&received, plain);
                }
            }
        }
        let bytes = console.notifier.notify(&notices);
        if !bytes.is_empty() {
            write(&bytes)?;
        }
        match next(&received, plain.next_tick_ms()) {
            None => plain.tick(now().unix_ms),
            Some(Input::Line(line)) => plain.read(&line, now().unix_ms),
            Some(Input::Feed(update)) => plain.apply(update, now().unix_ms),
            Some(Input::End) => plain.read("/quit", now().unix_ms),
            Some(Input::Drained) => {}
        }
    }
}

fn next(inputs: &Receiver<Input>, due_ms: Option<u64>) -> Option<Input> {
    let Some(due_ms) = due_ms else {
        return inputs.recv().ok();
    };
    let pause = Duration::from_millis(due_ms.saturating_sub(now().unix_ms));
    inputs.recv_timeout(pause).ok()
}

/// Waits until the broker has answered the last command, and shows what it says.
fn end(inputs: &Receiver<Input>, mut plain: Plain) -> Result<(), CliError> {
    let deadline = Instant::now() + END_MAX;
    while let Ok(input) = inputs.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        match input {
            Input::Drained => return Ok(()),
            Input::Feed(update @ (Update::Done(_) | Update::Refused { .. })) => {
                plain.apply(update, now().unix_ms);
                for out in plain.take() {
                    if let Out::Line(line) = out {
                        write(&format!("{line}\n"))?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn read_lines(inputs: &Sender<Input>) {
    let mut stdin = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let read = stdin.by_ref().take(TEXT_BYTES_MAX as u64).read_until(b'\n', &mut line);
        let input = match read {
            Ok(0) | Err(_) => Input::End,
            Ok(_) => Input::Line(String::from_utf8_lossy(&line).into_owned()),
        };
        let is_end = matches!(input, Input::End);
        if inputs.send(input).is_err() || is_end {
            return;
        }
    }
}
