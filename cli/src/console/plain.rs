//! The console as lines, for pipes and screen readers: one question at a time. Pure.
//!
//! A line is pressed into the same [`Model`] as keys of the screen are.

use rest::desk::Yap;
use rest::messages::PersonsMessage;
use rest::questions::{FormQuestion, Question};

use super::data::{ms, text, urgency};
use super::model::{Command, Effect, Model, Notice, Options, Update, Work};
use super::view::{clock, name, prose};
use crate::screen::Key;

/// The columns of the lines.
const WIDTH: usize = 100;

const HELP: &str = "\
A line is the answer. A line that ends in \\ continues on the next one. Numbers choose options: 1 or 1,3.
/decline [REASON]   /hand NAME [NOTE]   /skip   /list   /pause   /help   /quit   //text is an answer that begins with /
/write NAME TEXT sends a message to an agent   /read marks the messages that came as read";

/// What the program is to do.
#[derive(Debug, PartialEq)]
pub enum Out {
    Line(String),
    Ask(Command),
    Notify(Notice),
    Quit,
}

/// The state of the lines.
#[derive(Debug)]
pub struct Plain {
    model: Model,
    /// The question that is asked.
    current: Option<String>,
    is_shown: bool,
    /// Questions that the person has put off.
    skipped: Vec<String>,
    is_connected: bool,
    is_lost: bool,
    /// New messages that were shown.
    told: Vec<String>,
    out: Vec<Out>,
}

impl Plain {
    /// Before the first answer of the broker.
    pub fn new(options: Options, now_ms: u64) -> Self {
        let mut plain = Self {
            model: Model::new(options, now_ms),
            current: None,
            is_shown: false,
            skipped: Vec::new(),
            is_connected: false,
            is_lost: false,
            told: Vec::new(),
            out: Vec::new(),
        };
        plain.line("mcp-broker console. /help shows what a line can be.".to_owned());
        plain
    }

    fn line(&mut self, line: String) {
        self.out.push(Out::Line(line));
    }

    /// What is to be done now.
    pub fn take(&mut self) -> Vec<Out> {
        std::mem::take(&mut self.out)
    }

    /// When [`Self::tick`] has something to do. Lines show no ages.
    pub fn next_tick_ms(&self) -> Option<u64> {
        self.model.next_draft_ms()
    }

    /// Time passes.
    pub fn tick(&mut self, now_ms: u64) {
        self.model.tick(now_ms);
        self.after();
    }

    /// Takes in what the feed brings.
    pub fn apply(&mut self, update: Update, now_ms: u64) {
        match &update {
            Update::Connected(_) if !self.is_connected || self.is_lost => {
                self.line("Connected".to_owned());
                (self.is_connected, self.is_lost) = (true, false);
            }
            Update::Lost { reason, .. } if !self.is_lost => {
                self.is_lost = true;
                let reason = crate::table::shortened(reason, 400);
                self.line(format!("No connection: {reason}. Trying again."));
            }
            Update::Yap(yap) if !self.model.options.mutes_yaps => self.yap(yap),
            _ => {}
        }
        // What a message says is shown whole, and no key leads to it.
        let said = matches!(update, Update::Messages { .. }).then(|| self.model.said.take());
        self.model.apply(update, now_ms);
        if let Some(said) = said {
            self.model.said = said;
            self.show_messages();
        }
        self.after();
    }

    fn show_messages(&mut self) {
        let unread = self.model.mail.messages.iter().filter(|message| message.unread);
        let unread: Vec<PersonsMessage> = unread.cloned().collect();
        for message in unread.iter().filter(|message| !self.told.contains(&message.message_id)) {
            let time = ms(&message.timestamp).map(clock).unwrap_or_default();
            let (_, sender) = self.model.mail.peer(message);
            let heading = format!("📋 MESSAGE [{time}] {}", name(sender));
            self.out.push(Out::Line(heading));
            for line in prose(&text(message).unwrap_or_default(), WIDTH) {
                self.out.push(Out::Line(format!("   {line}")));
            }
        }
        self.told = unread.iter().map(|message| message.message_id.clone()).collect();
    }

    fn yap(&mut self, yap: &Yap) {
        let time = ms(&yap.at).map(clock).unwrap_or_default();
        let sender = name(yap.sender_name.as_deref().unwrap_or(&yap.sender_id));
        self.line(format!("NOTE [{time}] from {sender}"));
        if let Some(count) = yap.folded() {
            return self.line(format!("   {count} more"));
        }
        for line in prose(&yap.message, WIDTH) {
            self.line(format!("   {line}"));
        }
        if let Some(context) = &yap.task_context {
            for line in prose(&format!("Context: {context}"), WIDTH) {
                self.line(format!("   {line}"));
            }
        }
    }

    /// Passes on what the model wants, and shows the next question.
    fn after(&mut self) {
        let ended = self.current.as_deref().map(|id| self.model.known(id));
        match ended {
            Some(None) => self.finish(),
            // The broker confirms or refuses what is being sent, maybe after the end that it has brought about.
            Some(Some(question)) if !question.is_open() && !self.is_sending() => {
                let by = question
                    .ended_by()
                    .map_or_else(String::new, |by| format!(" by {}", name(by)));
                let state = name(&question.state);
                self.line(format!("The question was {state}{by}."));
                self.model.press_quietly(Key::Escape);
                self.finish();
            }
            _ => {}
        }
        if self.current.is_none() {
            self.next();
        }
        self.show();
        if let Some(said) = self.model.said.take() {
            let said = crate::table::shortened(&said, 400);
            self.line(said);
        }
        for effect in self.model.take_effects() {
            match effect {
                Effect::Ask(command) => self.out.push(Out::Ask(command)),
                Effect::Notify(notice) => self.out.push(Out::Notify(notice)),
                Effect::Quit => self.out.push(Out::Quit),
                Effect::Edit(_) => {}
            }
        }
    }

    fn is_sending(&self) -> bool {
        let work = self.current.as_deref().and_then(|id| self.model.work_for(id));
        work.is_some_and(|work| work.is_sending)
    }

    fn finish(&mut self) {
        self.current = None;
        self.is_shown = false;
    }

    /// Begins the next question of this person.
    fn next(&mut self) {
        self.model.settle();
        let rows = self.model.rows();
        let mine: Vec<String> = rows
            .filter(|question| question.is_open() && !question.sensitive && self.model.is_mine(question))
            .map(|question| question.question_id.clone())
            .collect();
        let next = mine.into_iter().find(|id| !self.skipped.contains(id));
        if let Some(id) = next {
            self.model.select(&id);
            self.current = Some(id);
        }
    }

    /// Shows the question once its text is there.
    fn show(&mut self) {
        if self.is_shown {
            return;
        }
        let Some(question) = self.current.as_deref().and_then(|id| self.model.known(id)) else {
            return;
        };
        if !question.is_whole() {
            return;
        }
        let question = question.clone();
        self.is_shown = true;
        self.model.press_quietly(Key::Enter);
        let queued = self.model.rows().filter(|other| self.model.is_mine(other)).count();
        for line in announcement(&question, queued.saturating_sub(1)) {
            self.line(line);
        }
        self.show_item(&question);
    }

    fn show_item(&mut self, question: &Question) {
        let items = question.items();
        let at = self.model.work().map_or(0, |work| work.at);
        let item = &items[at.min(items.len() - 1)];
        for line in item_lines(item, at, items.len()) {
            self.line(line);
        }
        let draft = self.model.work().and_then(|work| work.entries.get(at));
        let draft = draft.map(|entry| entry.editor.text().to_owned()).unwrap_or_default();
        for line in prose(&draft, WIDTH) {
            self.line(format!("   Draft: {line}"));
        }
    }

    /// A line of the person.
    pub fn read(&mut self, line: &str, now_ms: u64) {
        self.model.tick(now_ms);
        let text = line.trim_end_matches(['\r', '\n']);
        match text.strip_prefix('/') {
            Some(rest) if !rest.starts_with('/') => self.command(rest),
            Some(rest) => self.answer(rest),
            None => self.answer(text),
        }
        self.after();
    }

    fn command(&mut self, text: &str) {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        match word {
            "help" => self.line(HELP.to_owned()),
            "quit" => self.press(&[Key::Ctrl('c')]),
            "pause" => {
                self.model.press_quietly(Key::Escape);
                self.press(&[Key::Char('p')]);
                let said = if self.model.is_paused { "paused" } else { "resumed" };
                self.line(format!("✅ {said}"));
                if self.current.is_some() {
                    self.press(&[Key::Enter]);
                }
            }
            "list" => self.list(),
            "read" => self.model.mark_read(),
            "write" => match rest.split_once(' ') {
                Some((to, text)) if !text.trim().is_empty() => self.model.write_to(to, text.trim()),
                _ => self.line("❌ A name or the text is missing".to_owned()),
            },
            "skip" => {
                if let Some(id) = self.current.take() {
                    self.skipped.retain(|other| *other != id);
                    self.skipped.push(id);
                    self.model.press_quietly(Key::Escape);
                }
                self.finish();
            }
            "decline" if self.is_shown => self.press(&[Key::Alt('d'), Key::Paste(rest.to_owned()), Key::Enter]),
            "hand" if self.is_shown && !rest.is_empty() => {
                let (to, note) = rest.split_once(' ').unwrap_or((rest, ""));
                let keys = [Key::Alt('h'), Key::Paste(to.to_owned()), Key::Enter];
                self.press(&keys);
                self.press(&[Key::Paste(note.trim().to_owned()), Key::Enter]);
            }
            "decline" | "hand" => self.line("No question is asked, or a name is missing".to_owned()),
            _ => self.line("Unknown; /help shows what a line can be".to_owned()),
        }
    }

    fn list(&mut self) {
        let rows: Vec<String> = self
            .model
            .rows()
            .map(|question| {
                let summary = crate::table::shortened(&question.summary, 200);
                let whose = name(&self.model.whose(question));
                let asker = name(question.asker());
                format!("   {} {asker}: {summary} [{whose}]", urgency(question).as_str())
            })
            .collect();
        let plural = if rows.len() == 1 { "" } else { "s" };
        self.line(format!("{} question{plural}", rows.len()));
        for row in rows {
            self.line(row);
        }
        // What was put off comes back.
        self.skipped.clear();
    }

    fn press(&mut self, keys: &[Key]) {
        for key in keys {
            self.model.press(key.clone(), self.model.now_ms);
        }
    }

    fn answer(&mut self, text: &str) {
        if !self.is_shown {
            if !text.trim().is_empty() {
                self.line("No question is asked now".to_owned());
            }
            return;
        }
        let Some(question) = self.model.question().cloned() else {
            return;
        };
        let items = question.items();
        let at = self.model.work().map_or(0, |work| work.at);
        let item = &items[at.min(items.len() - 1)];
        if let Some(numbers) = numbers(text, item) {
            for number in numbers {
                let mut keys = vec![Key::Up; item.options.len()];
                keys.extend(vec![Key::Down; number]);
                keys.push(Key::Char(' '));
                self.press(&keys);
            }
        } else if let Some(begun) = text.strip_suffix('\\') {
            return self.press(&[Key::Paste(format!("{begun}\n"))]);
        } else {
            self.press(&[Key::Paste(text.to_owned())]);
        }
        let is_empty = self.model.work().is_none_or(|work| work.entries[at].is_empty());
        if is_empty && (items.len() == 1 || item.required) {
            return self.line("The answer is empty".to_owned());
        }
        if at + 1 < items.len() {
            self.press(&[Key::Tab]);
            self.show_item(&question);
        } else if self.model.work().is_none_or(Work::is_empty) {
            self.line("❌ The answer is empty".to_owned());
        } else {
            self.press(&[Key::Ctrl('d')]);
            // Each question was asked: an empty line has left it without an answer.
            if self.model.prompt.is_some() {
                self.press(&[Key::Char('y')]);
            }
        }
    }
}

/// The places of options that a line names.
fn numbers(text: &str, item: &FormQuestion) -> Option<Vec<usize>> {
    if item.options.is_empty() {
        return None;
    }
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    let numbers: Option<Vec<usize>> = words
        .map(|word| {
            word.parse::<usize>()
                .ok()
                .filter(|number| (1..=item.options.len()).contains(number))
        })
        .map(|number| number.map(|number| number - 1))
        .collect();
    numbers.filter(|numbers| !numbers.is_empty() && (item.multi_select || numbers.len() == 1))
}

/// The text above a question.
fn announcement(question: &Question, queued: usize) -> Vec<String> {
    let time = ms(&question.asked_at).map(clock).unwrap_or_default();
    let more = if queued > 0 {
        format!(" ({queued} more queued)")
    } else {
        String::new()
    };
    let mut lines = vec![format!("QUESTION [{time}]{more}")];
    lines.push(format!(
        "   From: {}   Urgency: {}",
        name(question.asker()),
        urgency(question).as_str()
    ));
    if let Some(handover) = &question.handover {
        let note = handover
            .note
            .as_deref()
            .map(|note| format!(": {note}"))
            .unwrap_or_default();
        let text = format!("Handed over by {}{note}", handover.from);
        lines.extend(prose(&text, WIDTH).map(|line| format!("   {line}")));
    }
    if let Some(context) = &question.context {
        let text = format!("Context: {context}");
        lines.extend(prose(&text, WIDTH).map(|line| format!("   {line}")));
    }
    for link in question.links.iter().flatten() {
        let text = format!("{}: {}", link.title, link.uri);
        lines.extend(prose(&text, WIDTH).map(|line| format!("   {line}")));
    }
    lines
}

fn item_lines(item: &FormQuestion, at: usize, count: usize) -> Vec<String> {
    let number = if count > 1 {
        format!("Question {} of {count}: ", at + 1)
    } else {
        "Question: ".to_owned()
    };
    let mut lines: Vec<String> = prose(&format!("{number}{}", item.question), WIDTH)
        .map(|line| format!("   {line}"))
        .collect();
    for (at, option) in item.options.iter().enumerate() {
        let description = option.description.as_deref().map(|text| format!(": {text}"));
        let text = format!("({}) {}{}", at + 1, option.label, description.unwrap_or_default());
        lines.extend(prose(&text, WIDTH).map(|line| format!("   {line}")));
    }
    let what = match (item.options.is_empty(), item.multi_select) {
        (true, _) => "Your answer:",
        (false, true) => "Your answer (numbers, or a text):",
        (false, false) => "Your answer (a number, or a text):",
    };
    lines.push(what.to_owned());
    lines
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod tests;
