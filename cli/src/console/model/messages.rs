//! What the person and agents write to each other. Pure.

use rest::desk::Inbox;
use rest::messages::PersonsMessage;

use super::super::data::text;
use super::{Command, Effect, Model, Notice, PromptKind, Screen};
use crate::screen::Key;

/// Rows that the keys for a page move.
const PAGE_ROWS: usize = 10;
/// Messages that are read.
pub const MESSAGES_LEN: u64 = 100;
/// The pause before the messages are read again, because one that waits is not in the history yet.
const LATE_READ_MS: u64 = 1_000;
/// How often they are read again for that.
const LATE_READS_MAX: u8 = 5;

/// The last messages from and to the person.
#[derive(Debug, Default)]
pub struct Mail {
    /// The oldest first.
    pub messages: Vec<PersonsMessage>,
    /// The session of the person.
    own: String,
    /// Messages that wait for the person.
    pub waiting: u64,
    /// The selected message.
    pub at: usize,
    /// What the broker said of the inbox when it was read last.
    seen: Option<Inbox>,
    is_known: bool,
    /// When the messages are read again, and how often they were.
    read_again_ms: Option<u64>,
    late_reads: u8,
}

impl Mail {
    /// When the messages are to be read again.
    pub const fn read_again_ms(&self) -> Option<u64> {
        self.read_again_ms
    }

    /// Whether the person has written a message.
    pub fn is_own(&self, message: &PersonsMessage) -> bool {
        message.sender_id == self.own
    }

    /// The other side of a message: how it is addressed, and how it is called.
    pub fn peer<'a>(&self, message: &'a PersonsMessage) -> (&'a str, &'a str) {
        let (id, name) = if self.is_own(message) {
            (
                message.recipient_id.as_deref().unwrap_or("all"),
                &message.recipient_name,
            )
        } else {
            (message.sender_id.as_str(), &message.sender_name)
        };
        (id, name.as_deref().unwrap_or(id))
    }

    fn unread(&self) -> Vec<String> {
        let unread = self.messages.iter().filter(|message| message.unread);
        unread.map(|message| message.message_id.clone()).collect()
    }
}

impl Model {
    /// The broker says how many messages wait: they are read if that has changed.
    pub(super) fn take_inbox(&mut self, inbox: Inbox) {
        self.mail.waiting = inbox.waiting;
        if self.mail.seen.replace(inbox) != Some(inbox) {
            self.ask(Command::Messages);
        }
    }

    /// Reads the messages again if that is due.
    pub(super) fn read_late_messages(&mut self) {
        if self.mail.read_again_ms.is_some_and(|due| due <= self.now_ms) {
            self.mail.read_again_ms = None;
            self.ask(Command::Messages);
        }
    }

    /// A new connection counts from the beginning.
    pub(super) fn forget_inbox(&mut self) {
        self.mail.seen = None;
    }

    /// Takes in the last messages, the newest first.
    pub(super) fn take_messages(&mut self, own: String, mut messages: Vec<PersonsMessage>, waiting: u64) {
        messages.reverse();
        let mail = &mut self.mail;
        // A text that was shown stays although the broker no longer keeps it.
        for message in &mut messages {
            let mut known = mail.messages.iter();
            if let Some(known) = known.find(|known| known.message_id == message.message_id)
                && message.payload.is_none()
            {
                let payload = &mut message.message.envelope.payload;
                payload.clone_from(&known.payload);
            }
        }
        let was_last = mail.at + 1 >= mail.messages.len();
        let is_new = |message: &&PersonsMessage| {
            let mut known = mail.messages.iter();
            message.unread && known.all(|known| known.message_id != message.message_id)
        };
        let newest = messages.iter().rev().find(is_new).filter(|_| mail.is_known).cloned();
        let selected = mail.messages.get(mail.at).map(|message| message.message_id.clone());
        let at = messages
            .iter()
            .position(|message| Some(&message.message_id) == selected.as_ref());
        mail.at = at.filter(|_| !was_last).unwrap_or(messages.len().saturating_sub(1));
        (mail.own, mail.messages, mail.waiting, mail.is_known) = (own, messages, waiting, true);
        // Some storages write their history behind.
        let unread = mail.messages.iter().filter(|message| message.unread).count() as u64;
        let is_late = unread < waiting.min(MESSAGES_LEN) && mail.late_reads < LATE_READS_MAX;
        mail.late_reads = if is_late { mail.late_reads + 1 } else { 0 };
        mail.read_again_ms = is_late.then_some(self.now_ms + LATE_READ_MS);
        if let Some(message) = newest {
            let (_, sender) = self.mail.peer(&message);
            let notice = Notice {
                asker: sender.to_owned(),
                urgency: None,
                text: text(&message).unwrap_or_default().into_owned(),
            };
            if self.screen != Screen::Messages {
                self.say(format!("{} has written: m shows it", notice.asker));
            }
            self.effects.push(Effect::Notify(notice));
        }
    }

    pub(super) fn open_messages(&mut self) {
        self.open(Screen::Messages);
        self.mail.at = self.mail.messages.len().saturating_sub(1);
        self.ask(Command::Messages);
    }

    pub(super) fn press_in_messages(&mut self, key: &Key) {
        let last = self.mail.messages.len().saturating_sub(1);
        let at = self.mail.at;
        self.mail.at = match key {
            Key::Up | Key::Char('k') => at.saturating_sub(1),
            Key::Down | Key::Char('j') => (at + 1).min(last),
            Key::PageUp => at.saturating_sub(PAGE_ROWS),
            Key::PageDown => (at + PAGE_ROWS).min(last),
            Key::Home => 0,
            Key::End => last,
            Key::Enter | Key::Char('r') => return self.answer_message(),
            Key::Char('w') => return self.prompt(PromptKind::WriteTo, ""),
            Key::Char('x') => return self.mark_read(),
            Key::Char('?') => return self.open(Screen::Help),
            Key::Escape | Key::Char('q' | 'm') | Key::Backspace => return self.open(Screen::Desk),
            _ => return,
        };
    }

    fn answer_message(&mut self) {
        let Some(message) = self.mail.messages.get(self.mail.at) else {
            return self.prompt(PromptKind::WriteTo, "");
        };
        let (to, name) = self.mail.peer(message);
        let kind = PromptKind::Write {
            to: to.to_owned(),
            name: name.to_owned(),
            thread: Some(message.thread_id.clone()),
        };
        self.prompt(kind, "");
    }

    /// Tells the broker that the person has read all messages.
    pub fn mark_read(&mut self) {
        let unread = self.mail.unread();
        if unread.is_empty() {
            return self.say("no message is new".to_owned());
        }
        self.ask(Command::MarkRead(unread));
    }

    /// Writes to an agent. An answer to its last message goes into the thread of that message.
    pub fn write_to(&mut self, to: &str, text: &str) {
        let mut messages = self.mail.messages.iter().rev();
        let last = messages.find(|message| [self.mail.peer(message).0, self.mail.peer(message).1].contains(&to));
        let thread = last.map(|message| message.thread_id.clone());
        self.ask(Command::Write {
            to: to.to_owned(),
            text: text.to_owned(),
            thread,
        });
    }

    /// A message was sent. Those of the other side have been read.
    pub(super) fn written(&mut self, to: &str) {
        let of_peer = |message: &&PersonsMessage| {
            message.unread && (message.sender_id == to || message.sender_name.as_deref() == Some(to))
        };
        let read: Vec<String> = self
            .mail
            .messages
            .iter()
            .filter(of_peer)
            .map(|message| message.message_id.clone())
            .collect();
        self.ask(if read.is_empty() {
            Command::Messages
        } else {
            Command::MarkRead(read)
        });
    }
}
