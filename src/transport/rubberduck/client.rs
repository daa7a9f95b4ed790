//! One rubberduck program: its connections, and the lines that wait for the newest of them.
//!
//! A program opens two connections under one id and reads both. Both stay: closing one would make the program connect
//! again and again, and writing to both would ask each question twice. The newest connection gets the lines; when it
//! closes, the one before it does, beginning with the line that was not written whole.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actors::{
    clock::{mono_ms, now},
    model::MessageId,
};
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use super::wire::{Clarification, ClientKey, IncomingYap, Response, Stamp};
use crate::auth::Identity;

/// Bytes that may wait for a program before it gets no further questions and yaps. One line may exceed it.
const WAITING_BYTES_MAX: usize = 256 * 1024;
/// Requests of one program that may wait to be carried out, before no further line of it is read.
pub const COMMANDS_LEN_MAX: usize = 32;
/// Time without a line of a console after which its person counts as away.
pub const SILENCE_MAX: Duration = Duration::from_secs(15);

/// What a program asks of the broker.
#[derive(Debug)]
pub enum Command {
    Clarification(Clarification),
    Yap(IncomingYap),
    Response(Response),
}

/// A line for the program.
#[derive(Debug)]
pub struct Line {
    pub bytes: Vec<u8>,
    /// The message of the inbox that this line stands for: it is acknowledged when the line has been written.
    pub notice: Option<MessageId>,
}

/// One program.
pub struct Client {
    pub key: ClientKey,
    pub identity: Arc<Identity>,
    pub commands: mpsc::Sender<Command>,
    /// The connections, the newest last.
    links: RefCell<Vec<u64>>,
    lines: RefCell<VecDeque<Line>>,
    waiting_bytes: Cell<usize>,
    /// Lines or connections have changed.
    changed: Notify,
    last_sign_ms: Cell<u64>,
    signs: Notify,
    written: RefCell<Vec<MessageId>>,
    is_refused: Cell<bool>,
}

impl Client {
    /// A program without connections, and what it will ask.
    pub fn new(key: ClientKey, identity: Arc<Identity>) -> (Rc<Self>, mpsc::Receiver<Command>) {
        let (commands, received) = mpsc::channel(COMMANDS_LEN_MAX);
        let client = Self {
            key,
            identity,
            commands,
            links: RefCell::default(),
            lines: RefCell::default(),
            waiting_bytes: Cell::default(),
            changed: Notify::new(),
            last_sign_ms: Cell::new(mono_ms()),
            signs: Notify::new(),
            written: RefCell::default(),
            is_refused: Cell::new(false),
        };
        (Rc::new(client), received)
    }

    /// Adds the newest connection.
    pub fn enter(&self, link: u64) {
        self.links.borrow_mut().push(link);
        self.changed.notify_waiters();
    }

    /// Removes a connection, and takes back the line that it has not written whole. Returns whether it was the last one.
    pub fn leave(&self, link: u64, unwritten: Option<Line>) -> bool {
        if let Some(line) = unwritten {
            self.waiting_bytes.set(self.waiting_bytes.get() + line.bytes.len());
            self.lines.borrow_mut().push_front(line);
        }
        let mut links = self.links.borrow_mut();
        links.retain(|other| *other != link);
        let is_gone = links.is_empty();
        drop(links);
        self.changed.notify_waiters();
        is_gone
    }

    /// Queues a line for the newest connection.
    pub fn send(&self, bytes: Vec<u8>) {
        self.send_for(bytes, None);
    }

    /// As [`Self::send`], for a line that stands for a message of the inbox.
    pub fn send_for(&self, bytes: Vec<u8>, notice: Option<MessageId>) {
        self.waiting_bytes.set(self.waiting_bytes.get() + bytes.len());
        self.lines.borrow_mut().push_back(Line { bytes, notice });
        self.changed.notify_waiters();
    }

    /// Waits until this connection is the newest and a line waits, and takes the line.
    pub async fn next_line(&self, link: u64) -> Line {
        loop {
            let changed = self.changed.notified();
            if self.links.borrow().last() == Some(&link)
                && let Some(line) = self.lines.borrow_mut().pop_front()
            {
                self.waiting_bytes.set(self.waiting_bytes.get() - line.bytes.len());
                self.changed.notify_waiters();
                return line;
            }
            changed.await;
        }
    }

    /// A line was written whole.
    pub fn note_written(&self, line: &Line) {
        if let Some(notice) = line.notice {
            self.written.borrow_mut().push(notice);
            self.changed.notify_waiters();
        }
    }

    /// The messages whose lines have been written, once.
    pub fn take_written(&self) -> Vec<MessageId> {
        self.written.take()
    }

    /// Waits until lines or connections change, from this call on.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Whether further questions and yaps may be queued.
    pub fn has_room(&self) -> bool {
        self.waiting_bytes.get() < WAITING_BYTES_MAX
    }

    /// Whether the last connection has closed.
    pub fn is_gone(&self) -> bool {
        self.links.borrow().is_empty()
    }

    /// The broker does not serve this program: its connections end once `why` has been written.
    pub fn refuse(&self, why: Vec<u8>) {
        self.send(why);
        self.is_refused.set(true);
        self.changed.notify_waiters();
    }

    /// Whether the connections have nothing more to do.
    pub fn is_over(&self) -> bool {
        self.is_refused.get() && self.lines.borrow().is_empty()
    }

    /// The program has sent a line.
    pub fn note_sign(&self) {
        let before = self.last_sign_ms.replace(mono_ms());
        if mono_ms().saturating_sub(before) >= u64::try_from(SILENCE_MAX.as_millis()).unwrap_or(u64::MAX) {
            self.signs.notify_waiters();
        }
    }

    /// Time since the last line of the program.
    pub fn silence(&self) -> Duration {
        Duration::from_millis(mono_ms().saturating_sub(self.last_sign_ms.get()))
    }

    /// Waits until the program has been silent for [`SILENCE_MAX`].
    pub async fn silent(&self) {
        while let Some(left) = SILENCE_MAX.checked_sub(self.silence()).filter(|left| !left.is_zero()) {
            tokio::time::sleep(left).await;
        }
    }

    /// Waits until a silent program sends a line again.
    pub async fn heard(&self) {
        let signs = self.signs.notified();
        if self.silence() >= SILENCE_MAX {
            signs.await;
        }
    }
}

/// The id and the time of the next line.
pub fn stamp() -> Stamp {
    Stamp {
        id: Uuid::new_v4(),
        now_ms: now().unix_ms,
    }
}

#[cfg(test)]
mod tests {
    // see below
}
