//! What the broker changes. Pure.

use rest::desk::{Desk, Yap};
use rest::questions::Question;
use serde_json::json;

use super::super::data::urgency;
use super::{Command, Connection, Effect, Focus, Model, Notice, Update, Work};

/// Characters of a text that could not be sent that are shown.
const SAID_CHARS_MAX: usize = 200;
/// Yaps that are kept.
const YAPS_MAX: usize = 200;
/// Questions with a begun answer that are closed and kept for their text.
const ENDED_KEPT_MAX: usize = 100;
/// Open questions that are kept; a project has at most 2,000.
const QUESTIONS_MAX: usize = 5_000;

impl Model {
    /// Takes in what the feed brings.
    pub fn apply(&mut self, update: Update, now_ms: u64) {
        self.now_ms = now_ms;
        match update {
            Update::Connected(console) => self.connected(console),
            Update::Lost { reason, attempt } => self.connection = Connection::Lost { reason, attempt },
            Update::Desk(desk) => {
                if let Some(human) = self.own_name(&desk) {
                    self.options.human = human;
                }
                let inbox = desk.inbox;
                self.desk = desk;
                self.is_order_stale = true;
                if let Some(inbox) = inbox {
                    self.take_inbox(inbox);
                }
            }
            Update::Question(question) => self.take_question(*question),
            Update::Yap(yap) => self.take_yap(*yap),
            Update::Pending(questions) => self.take_pending(questions),
            Update::Whole { question, draft } => self.take_whole(*question, draft),
            Update::History {
                questions,
                cursor,
                is_first,
            } => self.history.take(questions, cursor, is_first),
            Update::Messages {
                session_id,
                messages,
                waiting,
            } => self.take_messages(session_id, messages, waiting),
            Update::Done(command) => self.done(&command),
            Update::Refused {
                command,
                line,
                is_gone,
                is_closed,
            } => {
                if is_closed && let Some(question) = command.question() {
                    // How it ended, the person wants to know.
                    self.ask(Command::Read(question.to_owned()));
                }
                self.refused(&command, line, is_gone);
            }
        }
    }

    /// The name under which the broker knows this person: that of the key, which may differ from the one that was given.
    fn own_name(&self, desk: &Desk) -> Option<String> {
        let mut consoles = desk.consoles.iter();
        let own = consoles.find(|one| Some(&one.console) == self.console.as_ref())?;
        (own.human != self.options.human).then(|| own.human.clone())
    }

    fn connected(&mut self, console: Option<String>) {
        self.connection = Connection::Open;
        self.console = console;
        self.reading = None;
        self.forget_inbox();
        for work in self.works.values_mut() {
            // The broker may have lost what only its memory held.
            work.unsave();
            work.is_claimed = false;
        }
        self.save_drafts();
        if self.is_answering()
            && let Some(id) = self.selected.clone()
            && self.is_open(&id)
            && self.works.get(&id).is_some_and(|work| !work.is_empty())
        {
            self.claim(&id);
        }
        if self.is_paused || self.is_away {
            let state = json!({"paused": self.is_paused, "away": self.is_away});
            self.ask(Command::Console(state));
        }
    }

    fn take_question(&mut self, new: Question) {
        let id = new.question_id.clone();
        let was_mine = self.questions.get(&id).is_some_and(|old| self.is_mine(old));
        let is_known = self.questions.contains_key(&id);
        if !is_known && (!new.is_open() || self.questions.len() >= QUESTIONS_MAX) {
            return;
        }
        let question = self.questions.entry(id.clone()).or_default();
        question.merge(new);
        let question = &self.questions[&id];
        if let Some(work) = self.works.get_mut(&id) {
            work.fit(question);
        }
        let (is_open, is_mine) = (question.is_open(), self.is_mine(question));
        if is_open && is_mine && !was_mine && !self.is_answering_to(&id) {
            self.effects.push(Effect::Notify(Notice {
                asker: question.asker().to_owned(),
                urgency: Some(urgency(question).as_str()),
                text: question.summary.clone(),
            }));
        }
        if is_open && was_mine && !is_mine {
            let holder = question.holder().map(|(human, _)| human.to_owned());
            if let Some(human) = holder.filter(|human| *human != self.options.human) {
                let asker = question.asker().to_owned();
                self.say(format!("the question of {asker} moved to {human}"));
            }
        }
        self.is_order_stale = true;
        self.history.merge(&self.questions[&id]);
        if !is_open {
            self.ended(&id);
        }
    }

    fn is_answering_to(&self, id: &str) -> bool {
        self.is_answering() && self.selected.as_deref() == Some(id)
    }

    /// A question has ended. It stays on the screen while the person is at it, and its text is kept.
    fn ended(&mut self, id: &str) {
        if self
            .works
            .get(id)
            .is_some_and(|work| !work.is_sending && !work.has_text())
        {
            self.works.remove(id);
        }
        if !self.is_answering_to(id) {
            self.forget(id);
        }
    }

    /// Takes a question off the list. Its text is kept for the history.
    pub(super) fn forget(&mut self, id: &str) {
        self.questions.remove(id);
        self.is_order_stale = true;
        let ended: Vec<String> = self.works.keys().filter(|id| !self.is_open(id)).cloned().collect();
        if ended.len() > ENDED_KEPT_MAX {
            self.works.remove(&ended[0]);
        }
    }

    fn take_yap(&mut self, yap: Yap) {
        // A stream that was opened again brings the last ones once more.
        if yap.seq > 0 && self.yaps.iter().any(|known| known.seq == yap.seq) {
            return;
        }
        if self.yaps.len() >= YAPS_MAX {
            self.yaps.pop_front();
        }
        self.yaps.push_back(yap);
    }

    fn take_pending(&mut self, questions: Vec<Question>) {
        let open: std::collections::HashSet<&str> = questions.iter().map(|one| one.question_id.as_str()).collect();
        let gone: Vec<String> = self
            .questions
            .keys()
            .filter(|id| !open.contains(id.as_str()))
            .cloned()
            .collect();
        for question in questions {
            self.take_question(question);
        }
        for id in gone {
            if self.is_answering_to(&id) {
                // How it ended, the person wants to know.
                self.ask(Command::Read(id));
            } else {
                self.forget(&id);
            }
        }
        self.is_order_stale = true;
    }

    fn take_whole(&mut self, question: Question, draft: Option<String>) {
        let id = question.question_id.clone();
        self.history.merge(&question);
        self.take_question(question);
        let Some(question) = self.questions.get(&id) else {
            return;
        };
        let question_id = id.clone();
        let work = self.works.entry(id).or_insert_with(|| Work::of(question));
        work.fit(question);
        work.take_draft(question, draft.as_deref().unwrap_or_default());
        if self.wanted.take() == self.selected && self.selected.as_ref() == Some(&question_id) {
            self.focus = Focus::Answer;
        }
    }

    fn done(&mut self, command: &Command) {
        let said = match command {
            Command::Answer { question, .. } => {
                let said = format!("sent to {}", self.told);
                self.works.remove(question);
                self.leave(question);
                said
            }
            Command::Decline { question, .. } => {
                let said = format!("declined; {} gets a message", self.told);
                self.works.remove(question);
                self.leave(question);
                said
            }
            Command::HandOver { question, to, .. } => {
                if let Some(work) = self.works.get_mut(question) {
                    work.is_claimed = false;
                }
                self.focus = Focus::List;
                format!("handed over to {to}")
            }
            Command::Release(_) => "given back to the desk".to_owned(),
            Command::Write { to, .. } => {
                self.written(to);
                "sent".to_owned()
            }
            Command::MarkRead(_) => return self.ask(Command::Messages),
            _ => return,
        };
        self.say(said);
    }

    /// The person is done with a question.
    fn leave(&mut self, id: &str) {
        if self.is_answering_to(id) {
            self.focus = Focus::List;
        }
        self.sent_ms = Some(self.now_ms);
        self.forget(id);
    }

    fn refused(&mut self, command: &Command, line: String, is_gone: bool) {
        match command {
            Command::Answer { question, .. } => {
                if let Some(work) = self.works.get_mut(question) {
                    work.is_sending = false;
                }
                // How a closed question ended is next to it.
                self.say(format!("not sent: {line}"));
            }
            Command::Claim(question) | Command::Typed(question) => {
                if let Some(work) = self.works.get_mut(question) {
                    work.is_claimed = false;
                }
            }
            Command::Read(question) => {
                if is_gone {
                    self.forget(&question.clone());
                }
            }
            // The draft is sent with the next change, or when the broker is back.
            Command::Console(_) | Command::SaveDraft { .. } | Command::Messages => {}
            Command::Write { text, .. } => {
                let text: String = text.chars().take(SAID_CHARS_MAX).collect();
                self.say(format!("not sent: {line}; you wrote: {text}"));
            }
            Command::History { .. } => {
                self.history.is_loading = false;
                self.say(line);
            }
            _ => self.say(line),
        }
    }
}
