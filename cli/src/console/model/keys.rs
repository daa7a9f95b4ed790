//! What keys do. Pure.

use rest::questions::FormQuestion;

use super::super::editor::Editor;
use super::{Command, Effect, Entry, Focus, Model, Prompt, PromptKind, Question, Screen, Work};
use crate::screen::Key;

/// Rows that the keys for a page move.
const PAGE_ROWS: isize = 10;
/// The columns of the frame around the answer.
const FRAME_COLUMNS: u16 = 6;

/// Characters do nothing in the list for so long after an answer was sent from it.
const AFTER_SENDING_MS: u64 = 1_000;

impl Model {
    /// What a key does.
    pub fn press(&mut self, key: Key, now_ms: u64) {
        self.now_ms = now_ms;
        self.settle();
        self.is_active();
        if self.is_typed_after_sending(&key) {
            return;
        }
        self.said = None;
        if key == Key::Ctrl('c') {
            self.quit();
        } else if let Some(prompt) = self.prompt.take() {
            self.press_in_prompt(prompt, key);
        } else {
            match self.screen {
                Screen::Desk if self.focus == Focus::Answer => self.press_in_answer(key),
                Screen::Desk => self.press_in_list(key),
                Screen::History => self.press_in_history(key),
                Screen::Messages => self.press_in_messages(&key),
                Screen::Help => self.screen = Screen::Desk,
                Screen::Whole | Screen::Yaps => self.press_in_text(key),
            }
        }
        self.settle();
    }

    /// Whether a character was typed for an answer that has just been sent: it is no key of the list.
    fn is_typed_after_sending(&self, key: &Key) -> bool {
        let is_list = self.screen == Screen::Desk && self.focus == Focus::List && self.prompt.is_none();
        is_list && matches!(key, Key::Char(_)) && self.sent_ms.is_some_and(|sent| self.now_ms < sent + AFTER_SENDING_MS)
    }

    /// As [`Self::press`], without a change of what was said.
    pub fn press_quietly(&mut self, key: Key) {
        let said = self.said.take();
        self.press(key, self.now_ms);
        self.said = said.or(self.said.take());
    }

    fn press_in_list(&mut self, key: Key) {
        match key {
            Key::Char('q') => self.quit(),
            Key::Up | Key::Char('k') => self.select_by(-1),
            Key::Down | Key::Char('j') => self.select_by(1),
            Key::PageUp => self.select_by(-PAGE_ROWS),
            Key::PageDown => self.select_by(PAGE_ROWS),
            Key::Home => self.select_at(0),
            Key::End => self.select_at(usize::MAX),
            Key::Enter | Key::Tab => self.begin(),
            Key::Char('/') => self.prompt(PromptKind::Search, &self.filter.clone()),
            Key::Char('H') => self.open_history(),
            Key::Char('y') => self.open(Screen::Yaps),
            Key::Char('m') => self.open_messages(),
            Key::Char('w') => self.prompt(PromptKind::WriteTo, ""),
            Key::Char('?') => self.open(Screen::Help),
            Key::Char('p') => {
                self.is_paused = !self.is_paused;
                self.ask(Command::Console(serde_json::json!({"paused": self.is_paused})));
            }
            Key::Char('a') => {
                self.is_away = !self.is_away;
                self.ask(Command::Console(serde_json::json!({"away": self.is_away})));
            }
            Key::Escape => {
                self.filter.clear();
                self.is_order_stale = true;
            }
            Key::Char(c) | Key::Alt(c) => self.press_for_question(c),
            Key::Ctrl('e') => self.edit(),
            Key::Paste(_) => self.say("Enter opens the answer, where a text can be pasted".to_owned()),
            _ => {}
        }
    }

    /// Keys for the selected question that are text in an answer.
    fn press_for_question(&mut self, c: char) {
        let Some(question) = self.question().filter(|question| question.is_open()) else {
            return;
        };
        let id = question.question_id.clone();
        match c {
            'd' => self.prompt(PromptKind::Decline(id), ""),
            'h' => self.prompt(PromptKind::HandTo(id), ""),
            'r' => self.ask(Command::Release(id)),
            'v' => self.open(Screen::Whole),
            'c' => {
                self.begin();
                if self.is_answering() && self.prompt.is_none() {
                    self.write(|_, _| ());
                }
            }
            'o' => {
                self.begin();
                if self.is_answering() && self.prompt.is_none() {
                    self.write(|entry, item| entry.is_other = !item.options.is_empty());
                }
            }
            // Of several options Space takes back a choice; the one choice stays.
            ' ' => self.write(|entry, item| {
                if item.multi_select || !entry.chosen.contains(&entry.at) {
                    entry.choose(item, entry.at);
                }
            }),
            '1'..='9' => self.write(|entry, item| entry.choose(item, c as usize - '1' as usize)),
            _ => {}
        }
    }

    fn press_in_answer(&mut self, key: Key) {
        let has_choices = self.has_choices();
        let width = self.answer_columns();
        match key {
            Key::Escape => self.step_back(),
            Key::Tab => self.step(1),
            Key::BackTab => self.step(-1),
            Key::PageUp => self.scroll = self.scroll.saturating_sub(PAGE_ROWS.unsigned_abs()),
            Key::PageDown => self.scroll += PAGE_ROWS.unsigned_abs(),
            Key::Ctrl('d') => self.send(),
            Key::Ctrl('e') => self.edit(),
            Key::Alt(c) => self.press_for_question(c),
            Key::Char(c @ ('1'..='9' | ' ')) if has_choices => self.press_for_question(c),
            Key::Up if has_choices => self.move_choice(-1),
            Key::Down if has_choices => self.move_choice(1),
            Key::Char(c) => self.type_text(c.encode_utf8(&mut [0; 4])),
            Key::Enter => self.type_text("\n"),
            Key::Paste(text) => self.type_text(&text),
            Key::Backspace => self.write(|entry, _| entry.editor.backspace()),
            Key::Delete => self.write(|entry, _| entry.editor.delete()),
            Key::Ctrl('w') => self.write(|entry, _| entry.editor.delete_word()),
            Key::Ctrl('u') => self.write(|entry, _| entry.editor.delete_to_line_start()),
            Key::Ctrl('k') => self.write(|entry, _| entry.editor.delete_to_line_end()),
            Key::Ctrl('z') => self.write(|entry, _| entry.editor.undo()),
            Key::Ctrl('y') => self.write(|entry, _| entry.editor.redo()),
            moving => {
                if let Some(entry) = self.entry() {
                    move_cursor(&mut entry.editor, &moving, width);
                }
            }
        }
    }

    /// Whether digits and Space choose: the answer has options and no text yet.
    fn has_choices(&self) -> bool {
        let Some((question, work)) = self.question().zip(self.work()) else {
            return self
                .question()
                .is_some_and(|question| question.options.as_ref().is_some_and(|options| !options.is_empty()));
        };
        let items = question.items();
        let has_options = items.get(work.at).is_some_and(|item| !item.options.is_empty());
        let entry = work.entries.get(work.at);
        has_options && entry.is_none_or(|entry| entry.editor.is_empty() && !entry.is_other)
    }

    fn answer_columns(&self) -> usize {
        usize::from(self.size.0.saturating_sub(FRAME_COLUMNS))
    }

    /// Opens the answer to the selected question.
    fn begin(&mut self) {
        let Some(question) = self.question() else { return };
        if question.sensitive {
            return self.say("the asker wants this answered on the page /desk only".to_owned());
        }
        // With the question comes the draft, which an answer that begins earlier would replace.
        if !question.is_whole() {
            self.wanted.clone_from(&self.selected);
            return self.say("the question is still loading".to_owned());
        }
        self.work_of_selected();
        self.focus = Focus::Answer;
    }

    /// The next question of the form, or back to the list.
    fn step(&mut self, by: isize) {
        let Some(work) = self.selected.as_ref().and_then(|id| self.works.get_mut(id)) else {
            return self.step_back();
        };
        match work.at.checked_add_signed(by).filter(|at| *at < work.entries.len()) {
            Some(at) => work.at = at,
            None => self.step_back(),
        }
    }

    fn step_back(&mut self) {
        self.focus = Focus::List;
        self.save_drafts();
        self.is_order_stale = true;
        if let Some(id) = self.selected.clone()
            && !self.is_open(&id)
        {
            self.forget(&id);
        }
    }

    fn work_of_selected(&mut self) -> Option<&mut Work> {
        let question = self.questions.get(self.selected.as_deref()?)?;
        let id = question.question_id.clone();
        Some(self.works.entry(id).or_insert_with(|| Work::of(question)))
    }

    /// The answer that the person writes, unless it is under way or the question has ended.
    pub(super) fn entry(&mut self) -> Option<&mut Entry> {
        let is_open = self.question().is_some_and(Question::is_open);
        let work = self.work_of_selected().filter(|work| is_open && !work.is_sending)?;
        work.entries.get_mut(work.at)
    }

    fn type_text(&mut self, text: &str) {
        let mut is_whole = true;
        self.write(|entry, _| is_whole = entry.editor.insert(text));
        if !is_whole {
            self.say("an answer has at most 64 KiB: the rest was left out".to_owned());
        }
    }

    /// Changes the answer, unless another person writes one: then this one is asked first.
    fn write(&mut self, change: impl FnOnce(&mut Entry, &FormQuestion)) {
        let Some(question) = self.question().filter(|question| question.is_open()) else {
            return;
        };
        if question.sensitive || !question.is_whole() {
            return;
        }
        let id = question.question_id.clone();
        let item = {
            let at = self.work().map_or(0, |work| work.at);
            question.items().into_iter().nth(at).unwrap_or_default()
        };
        let claim = question.claimed_by.as_ref();
        let other = claim.filter(|claim| claim.human != self.options.human);
        let is_claimed = self.work().is_some_and(|work| work.is_claimed);
        if let Some(from) = other.map(|claim| claim.human.clone())
            && !is_claimed
        {
            return self.prompt(PromptKind::TakeOver { question: id, from }, "");
        }
        if let Some(entry) = self.entry() {
            change(entry, &item);
            self.changed();
        }
    }

    /// The answer was changed: the broker gets the claim, the keystroke and the draft when they are due.
    pub(super) fn changed(&mut self) {
        let now_ms = self.now_ms;
        let Some(id) = self.selected.clone() else { return };
        let Some(work) = self.works.get_mut(&id) else { return };
        work.changed();
        if !work.is_claimed {
            self.claim(&id);
        } else if work.type_at(now_ms) {
            self.ask(Command::Typed(id));
        }
        self.tick(now_ms);
    }

    fn move_choice(&mut self, by: isize) {
        let options = self.question().map(Question::items).unwrap_or_default();
        let at = self.work().map_or(0, |work| work.at);
        let last = options.get(at).map_or(0, |item| item.options.len().saturating_sub(1));
        if let Some(entry) = self.entry() {
            entry.at = entry.at.saturating_add_signed(by).min(last);
        }
    }

    fn send(&mut self) {
        let Some(question) = self.question().filter(|question| question.is_open()) else {
            return self.say("the question has ended: the text is kept, Ctrl-E opens it".to_owned());
        };
        let (id, items) = (question.question_id.clone(), question.items());
        let Some(work) = self.works.get_mut(&id).filter(|work| !work.is_sending) else {
            return;
        };
        if let Some(at) = work.missing(&items) {
            work.at = at;
            return self.say(format!("question {} of {} needs an answer", at + 1, items.len()));
        }
        if let Some(at) = work.next_open() {
            work.at = at;
            return self.say(format!("question {} of {} has no answer yet", at + 1, items.len()));
        }
        if items.len() > 1 && work.first_open().is_some() {
            let open = work.entries.iter().filter(|entry| entry.is_empty()).count();
            return self.prompt(PromptKind::SendOpen { question: id, open }, "");
        }
        if work.is_empty() && !std::mem::replace(&mut work.is_empty_asked, true) {
            return self.say("the answer is empty: Ctrl-D again sends it".to_owned());
        }
        self.send_as_it_is(id);
    }

    fn send_as_it_is(&mut self, id: String) {
        let pair = self.works.get_mut(&id).zip(self.questions.get(&id));
        if let Some((work, question)) = pair.filter(|(work, question)| !work.is_sending && question.is_open()) {
            work.is_sending = true;
            let body = work.answer(question);
            self.ask(Command::Answer { question: id, body });
        }
    }

    fn edit(&mut self) {
        let Some(id) = self.selected.clone() else { return };
        if self.question().is_some_and(|question| question.sensitive) {
            return self.begin();
        }
        if self.is_open(&id) {
            self.begin();
        }
        let work = self.works.get(&id);
        let text = work.and_then(|work| work.entries.get(work.at));
        let text = text.map(|entry| entry.editor.text().to_owned()).unwrap_or_default();
        self.effects.push(Effect::Edit(text));
    }

    pub(super) fn open(&mut self, screen: Screen) {
        self.screen = screen;
        self.scroll = 0;
    }

    fn open_history(&mut self) {
        self.open(Screen::History);
        self.filter.clear();
        self.is_order_stale = true;
        self.history.is_loading = true;
        self.ask(Command::History { cursor: None });
    }

    fn press_in_history(&mut self, key: Key) {
        let last = self.history.rows(&self.filter).len().saturating_sub(1);
        let at = self.history.at;
        let move_by = |rows: isize| at.saturating_add_signed(rows).min(last);
        self.history.at = match key {
            Key::Up | Key::Char('k') => move_by(-1),
            Key::Down | Key::Char('j') => move_by(1),
            Key::PageUp => move_by(-PAGE_ROWS),
            Key::PageDown => move_by(PAGE_ROWS),
            Key::Home => 0,
            Key::End => last,
            Key::Char('/') => return self.prompt(PromptKind::Search, &self.filter.clone()),
            Key::Char('?') => return self.open(Screen::Help),
            Key::Enter | Key::Char('v') => {
                if let Some(question) = self.history.selected(&self.filter) {
                    let id = question.question_id.clone();
                    self.ask(Command::Read(id));
                    self.history.is_opened = true;
                    self.open(Screen::Whole);
                }
                return;
            }
            Key::Escape | Key::Char('q' | 'H') | Key::Backspace => {
                self.filter.clear();
                self.is_order_stale = true;
                return self.open(Screen::Desk);
            }
            _ => return,
        };
        if self.history.at == last
            && let Some(cursor) = self.history.next_page()
        {
            self.ask(Command::History { cursor: Some(cursor) });
        }
    }

    fn press_in_text(&mut self, key: Key) {
        let page = PAGE_ROWS.unsigned_abs();
        match key {
            Key::Up | Key::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            Key::Down | Key::Char('j') => self.scroll += 1,
            Key::PageUp => self.scroll = self.scroll.saturating_sub(page),
            Key::PageDown | Key::Char(' ') => self.scroll += page,
            Key::Home => self.scroll = 0,
            Key::Escape | Key::Char('q' | 'v' | 'y') | Key::Backspace | Key::Enter => {
                let from_history = self.screen == Screen::Whole && std::mem::take(&mut self.history.is_opened);
                self.open(if from_history { Screen::History } else { Screen::Desk });
            }
            _ => {}
        }
    }

    pub(super) fn prompt(&mut self, kind: PromptKind, text: &str) {
        let mut input = Editor::default();
        input.insert(text);
        self.prompt = Some(Prompt { kind, input });
    }

    fn press_in_prompt(&mut self, mut prompt: Prompt, key: Key) {
        if let PromptKind::TakeOver { question, .. } = &prompt.kind {
            if key == Key::Char('y') {
                self.work_of_selected();
                self.claim(&question.clone());
            }
            return;
        }
        if let PromptKind::SendOpen { question, .. } = &prompt.kind {
            if key == Key::Char('y') {
                self.send_as_it_is(question.clone());
            } else if let Some(work) = self.works.get_mut(question) {
                work.at = work.first_open().unwrap_or(work.at);
            }
            return;
        }
        let is_search = prompt.kind == PromptKind::Search;
        match key {
            Key::Enter => return self.finish(prompt),
            Key::Escape if is_search => return self.search(""),
            Key::Escape => return,
            Key::Char(c) => drop(prompt.input.insert(c.encode_utf8(&mut [0; 4]))),
            Key::Paste(text) => drop(prompt.input.insert(&text.replace(['\r', '\n'], " "))),
            Key::Backspace => prompt.input.backspace(),
            Key::Delete => prompt.input.delete(),
            Key::Ctrl('w') => prompt.input.delete_word(),
            Key::Ctrl('u') => prompt.input.delete_to_line_start(),
            moving => move_cursor(&mut prompt.input, &moving, usize::MAX),
        }
        if is_search {
            self.search(prompt.input.text());
        }
        self.prompt = Some(prompt);
    }

    fn search(&mut self, text: &str) {
        text.clone_into(&mut self.filter);
        self.history.at = 0;
        self.is_order_stale = true;
    }

    fn finish(&mut self, prompt: Prompt) {
        let text = prompt.input.text().trim();
        let text = (!text.is_empty()).then(|| text.to_owned());
        match prompt.kind {
            PromptKind::Decline(question) => self.ask(Command::Decline { question, reason: text }),
            PromptKind::HandTo(question) => {
                if let Some(to) = text {
                    self.prompt(PromptKind::HandNote { question, to }, "");
                }
            }
            PromptKind::HandNote { question, to } => {
                self.save_drafts();
                self.ask(Command::HandOver {
                    question,
                    to,
                    note: text,
                });
            }
            PromptKind::WriteTo => {
                if let Some(to) = text {
                    let (name, thread) = (to.clone(), None);
                    self.prompt(PromptKind::Write { to, name, thread }, "");
                }
            }
            PromptKind::Write { to, thread, .. } => match (text, thread) {
                (Some(text), None) => self.write_to(&to, &text),
                (Some(text), thread) => self.ask(Command::Write { to, text, thread }),
                (None, _) => {}
            },
            PromptKind::Search | PromptKind::TakeOver { .. } | PromptKind::SendOpen { .. } => {}
        }
    }
}

fn move_cursor(editor: &mut Editor, key: &Key, width: usize) {
    match key {
        Key::Left => editor.left(),
        Key::Right => editor.right(),
        Key::WordLeft => editor.word_left(),
        Key::WordRight => editor.word_right(),
        Key::Home | Key::Ctrl('a') => editor.home(),
        Key::End => editor.end(),
        Key::Up => drop(editor.up(width)),
        Key::Down => drop(editor.down(width)),
        _ => {}
    }
}
