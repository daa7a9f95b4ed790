//! What the console shows, and what keys and the broker change. Pure: time is an argument, and what is to be done outside
//! comes out as effects.

mod history;
mod keys;
mod list;
mod messages;
mod updates;
mod work;

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

use super::editor::Editor;
pub use history::History;
pub use messages::{MESSAGES_LEN, Mail};
use rest::desk::{Desk, Yap};
use rest::messages::PersonsMessage;
use rest::questions::Question;
pub use work::{Entry, Work};

/// Ages are shown in minutes.
const MINUTE_MS: u64 = 60_000;
/// The broker hears that the person is there at most once in this time.
const ACTIVE_MS: u64 = 60_000;

/// A request to the broker.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// The whole question and the person's draft.
    Read(String),
    Claim(String),
    Release(String),
    Typed(String),
    SaveDraft {
        question: String,
        text: String,
    },
    Answer {
        question: String,
        body: Value,
    },
    Decline {
        question: String,
        reason: Option<String>,
    },
    HandOver {
        question: String,
        to: String,
        note: Option<String>,
    },
    /// Changes of this console: `paused`, `away`, `active`.
    Console(Value),
    /// The last messages from and to the person.
    Messages,
    /// A message to an agent.
    Write {
        to: String,
        text: String,
        thread: Option<String>,
    },
    /// The person has read these messages.
    MarkRead(Vec<String>),
    /// A page of all questions, the newest first.
    History {
        cursor: Option<String>,
    },
}

impl Command {
    /// The question that it is about.
    fn question(&self) -> Option<&str> {
        match self {
            Self::Read(question) | Self::Claim(question) | Self::Release(question) | Self::Typed(question) => {
                Some(question)
            }
            Self::SaveDraft { question, .. }
            | Self::Answer { question, .. }
            | Self::Decline { question, .. }
            | Self::HandOver { question, .. } => Some(question),
            Self::Console(_) | Self::History { .. } | Self::Messages | Self::Write { .. } | Self::MarkRead(_) => None,
        }
    }
}

/// What the program is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Ask(Command),
    /// Let the person write in the editor of the system.
    Edit(String),
    /// A question has come to this person.
    Notify(Notice),
    Quit,
}

/// A question or a message that has come, for notifications outside of the terminal's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The agent that asks or writes.
    pub asker: String,
    /// Of a question.
    pub urgency: Option<&'static str>,
    pub text: String,
}

/// What the feed brings.
#[derive(Debug)]
pub enum Update {
    /// The stream is open, for the console with this id.
    Connected(Option<String>),
    /// There is no connection; another attempt follows.
    Lost {
        reason: String,
        attempt: u32,
    },
    Desk(Desk),
    Question(Box<Question>),
    Yap(Box<Yap>),
    /// All open questions.
    Pending(Vec<Question>),
    Whole {
        question: Box<Question>,
        draft: Option<String>,
    },
    History {
        questions: Vec<Question>,
        cursor: Option<String>,
        is_first: bool,
    },
    /// The last messages, the newest first.
    Messages {
        /// The session of the person.
        session_id: String,
        messages: Vec<PersonsMessage>,
        waiting: u64,
    },
    Done(Command),
    Refused {
        command: Command,
        line: String,
        /// The broker does not know the question.
        is_gone: bool,
        /// The question has ended before.
        is_closed: bool,
    },
}

/// The connection to the broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Connection {
    #[default]
    Opening,
    Open,
    Lost {
        reason: String,
        attempt: u32,
    },
}

/// What the screen shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Screen {
    #[default]
    Desk,
    /// One question with its whole text.
    Whole,
    History,
    Messages,
    Yaps,
    Help,
}

/// Which part of the desk takes the keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Focus {
    #[default]
    List,
    Answer,
}

/// A line that asks the person for something.
#[derive(Debug)]
pub struct Prompt {
    pub kind: PromptKind,
    pub input: Editor,
}

/// What a prompt asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptKind {
    Decline(String),
    HandTo(String),
    HandNote {
        question: String,
        to: String,
    },
    Search,
    /// Whether to take a question from the person who writes.
    TakeOver {
        question: String,
        from: String,
    },
    /// The agent to whom the person writes.
    WriteTo,
    /// What the person writes.
    Write {
        to: String,
        name: String,
        thread: Option<String>,
    },
    /// Whether to send the answer to a form of which so many questions have none.
    SendOpen {
        question: String,
        open: usize,
    },
}

/// Who uses the console, and how it looks.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub human: String,
    pub project: Option<String>,
    pub has_colours: bool,
    pub mutes_yaps: bool,
}

/// The state of the console.
#[derive(Debug, Default)]
pub struct Model {
    pub options: Options,
    pub now_ms: u64,
    pub connection: Connection,
    pub console: Option<String>,
    pub desk: Desk,
    pub selected: Option<String>,
    pub focus: Focus,
    pub screen: Screen,
    /// Lines by which the text of the shown question is scrolled.
    pub scroll: usize,
    pub history: History,
    pub mail: Mail,
    pub prompt: Option<Prompt>,
    /// The result of the last action.
    pub said: Option<String>,
    pub filter: String,
    pub is_paused: bool,
    pub is_away: bool,
    pub yaps: VecDeque<Yap>,
    pub size: (u16, u16),
    questions: HashMap<String, Question>,
    works: HashMap<String, Work>,
    /// The ids of the list as it is shown.
    order: Vec<String>,
    is_order_stale: bool,
    /// The question whose whole text was asked for last.
    reading: Option<String>,
    active_ms: Option<u64>,
    /// The question whose answer is opened once its text is there.
    wanted: Option<String>,
    /// When an answer was sent last, as the broker confirmed it.
    sent_ms: Option<u64>,
    /// The agent to whom the last answer went: its question may leave the list before the broker confirms it.
    told: String,
    effects: Vec<Effect>,
}

impl Model {
    /// Before the first answer of the broker.
    pub fn new(options: Options, now_ms: u64) -> Self {
        Self {
            options,
            now_ms,
            size: (80, 24),
            ..Self::default()
        }
    }

    /// What is to be done now.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn ask(&mut self, command: Command) {
        if let Command::Answer { question, .. } | Command::Decline { question, .. } = &command
            && let Some(known) = self.questions.get(question)
        {
            self.told = known.asker().to_owned();
        }
        self.effects.push(Effect::Ask(command));
    }

    /// Time passes: drafts that are due are sent.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        if self.connection != Connection::Open {
            return;
        }
        self.read_late_messages();
        let due = |work: &Work| work.draft_due_ms().is_some_and(|due| due <= now_ms);
        let due: Vec<String> = self.works_where(due);
        for id in due {
            self.save_draft(&id);
        }
    }

    /// When a draft is to be sent, or the messages are to be read again.
    pub fn next_draft_ms(&self) -> Option<u64> {
        let drafts = self.works.iter().filter(|(id, _)| self.is_open(id));
        let drafts = drafts.filter_map(|(_, work)| work.draft_due_ms());
        let first = drafts.chain(self.mail.read_again_ms()).min();
        first.filter(|_| self.connection == Connection::Open)
    }

    /// When [`Self::tick`] has something to do, or an age on the screen changes.
    pub fn next_tick_ms(&self) -> Option<u64> {
        let shows_ages = self.screen == Screen::Desk && !self.order.is_empty();
        let minute = shows_ages.then(|| (self.now_ms / MINUTE_MS + 1) * MINUTE_MS);
        [self.next_draft_ms(), minute].into_iter().flatten().min()
    }

    fn works_where(&self, is_wanted: impl Fn(&Work) -> bool) -> Vec<String> {
        let works = self
            .works
            .iter()
            .filter(|(id, work)| self.is_open(id) && is_wanted(work));
        works.map(|(id, _)| id.clone()).collect()
    }

    fn is_open(&self, id: &str) -> bool {
        self.questions.get(id).is_some_and(Question::is_open)
    }

    fn save_draft(&mut self, id: &str) {
        if let (Some(question), Some(work)) = (self.questions.get(id), self.works.get_mut(id)) {
            work.save(self.now_ms);
            let text = work.draft(question);
            self.ask(Command::SaveDraft {
                question: id.to_owned(),
                text,
            });
        }
    }

    /// Sends all drafts that the broker has not got.
    fn save_drafts(&mut self) {
        for id in self.works_where(|work| work.draft_due_ms().is_some()) {
            self.save_draft(&id);
        }
    }

    /// A question of the list.
    pub fn known(&self, id: &str) -> Option<&Question> {
        self.questions.get(id)
    }

    /// Selects a question.
    pub fn select(&mut self, id: &str) {
        self.selected = Some(id.to_owned());
        self.settle();
    }

    /// The question that is selected.
    pub fn question(&self) -> Option<&Question> {
        self.questions.get(self.selected.as_deref()?)
    }

    /// The answer that the person has begun for the selected question.
    pub fn work(&self) -> Option<&Work> {
        self.works.get(self.selected.as_deref()?)
    }

    /// The text that the person has written for a question, even if it has ended.
    pub fn work_for(&self, id: &str) -> Option<&Work> {
        self.works.get(id)
    }

    /// Whether the person is at the answer.
    pub fn is_answering(&self) -> bool {
        self.focus == Focus::Answer && self.screen == Screen::Desk
    }

    /// Open questions, and those of them that are urgent.
    pub fn waiting(&self) -> (usize, usize) {
        let open = self.questions.values().filter(|question| question.is_open());
        open.fold((0, 0), |(all, high), question| {
            let is_high = super::data::urgency(question) == actors::model::Urgency::High;
            (all + 1, high + usize::from(is_high))
        })
    }

    /// Whether a question is offered to this console, or the person writes it.
    pub fn is_mine(&self, question: &Question) -> bool {
        let offered = question.offered_to.as_ref().map(|offer| &offer.console);
        offered.is_some_and(|console| self.console.as_ref() == Some(console))
            || question
                .claimed_by
                .as_ref()
                .is_some_and(|claim| claim.human == self.options.human)
    }

    fn say(&mut self, said: String) {
        self.said = Some(said);
    }

    /// Tells the broker that the person writes an answer to this question.
    fn claim(&mut self, id: &str) {
        if let Some(work) = self.works.get_mut(id) {
            work.is_claimed = true;
            work.type_at(self.now_ms);
            self.ask(Command::Claim(id.to_owned()));
        }
    }

    /// The text of the editor of the system.
    pub fn edited(&mut self, text: &str, now_ms: u64) {
        self.now_ms = now_ms;
        if let Some(entry) = self.entry() {
            // Editors end a text with a line feed that the writer does not mean.
            entry.editor.replace(text.strip_suffix('\n').unwrap_or(text));
            self.changed();
        }
    }

    /// Something outside has gone wrong.
    pub fn failed(&mut self, line: String) {
        self.say(line);
    }

    /// The size of the terminal.
    pub fn resized(&mut self, width: u16, height: u16) {
        self.size = (width, height);
    }

    /// Before the end: the broker gets all drafts.
    fn quit(&mut self) {
        self.save_drafts();
        self.effects.push(Effect::Quit);
    }

    /// The person did something: the broker is notified now and then.
    fn is_active(&mut self) {
        let is_due = self.active_ms.is_none_or(|active| self.now_ms >= active + ACTIVE_MS);
        if is_due && self.console.is_some() {
            self.active_ms = Some(self.now_ms);
            self.ask(Command::Console(json!({"active": true})));
        }
    }
}
