//! The list of open questions: its order, its filter and its selection. Pure.

use rest::questions::Question;

use super::super::data::place;
use super::{Command, Focus, Model};

/// Whether a question has all words of a filter in its summary, its asker or the person it is addressed to.
pub fn matches(question: &Question, filter: &str) -> bool {
    let texts = [
        Some(question.summary.as_str()),
        question.question.as_deref(),
        question.context.as_deref(),
        question.asker.name.as_deref(),
        Some(question.to.as_str()),
        question.ended_by(),
    ];
    let text = texts
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
        .to_lowercase();
    filter.to_lowercase().split_whitespace().all(|word| text.contains(word))
}

impl Model {
    /// Brings the list up to date. While the person writes, nothing in it moves: new entries are at the end.
    pub fn settle(&mut self) {
        if std::mem::take(&mut self.is_order_stale) {
            if self.focus == Focus::Answer {
                self.append_new();
            } else {
                self.sort();
            }
        }
        let is_listed = self.selected.as_ref().is_some_and(|id| self.order.contains(id));
        if !is_listed {
            self.select_at(0);
        }
        self.read_selected();
    }

    fn sort(&mut self) {
        let at = self.position();
        let questions = self.questions.values();
        let mut listed: Vec<&Question> = questions.filter(|question| matches(question, &self.filter)).collect();
        listed.sort_by_key(|question| (!self.is_mine(question), place(question)));
        let order: Vec<String> = listed.iter().map(|question| question.question_id.clone()).collect();
        self.order = order;
        // The neighbour of a question that is gone is selected next.
        let is_listed = self.selected.as_ref().is_some_and(|id| self.order.contains(id));
        if !is_listed && let Some(at) = at {
            self.select_at(at);
        }
    }

    fn append_new(&mut self) {
        let known: std::collections::HashSet<&String> = self.order.iter().collect();
        let questions = self.questions.values();
        let mut new: Vec<&Question> = questions
            .filter(|question| !known.contains(&question.question_id) && matches(question, &self.filter))
            .collect();
        new.sort_by_key(|question| place(question));
        let new: Vec<String> = new.iter().map(|question| question.question_id.clone()).collect();
        let questions = &self.questions;
        self.order.retain(|id| questions.contains_key(id));
        self.order.extend(new);
    }

    /// The questions of the list.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &Question> {
        let rows: Vec<&Question> = self.order.iter().filter_map(|id| self.questions.get(id)).collect();
        rows.into_iter()
    }

    /// The place of the selected question.
    pub fn position(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.order.iter().position(|id| id == selected)
    }

    /// Selects the question at a place of the list, or the last one.
    pub(super) fn select_at(&mut self, at: usize) {
        let last = self.order.len().saturating_sub(1);
        self.selected = self.order.get(at.min(last)).cloned();
        self.scroll = 0;
    }

    /// Moves the selection.
    pub(super) fn select_by(&mut self, rows: isize) {
        let at = self.position().unwrap_or(0);
        self.select_at(at.saturating_add_signed(rows));
    }

    /// Asks for the whole text of the selected question, once.
    fn read_selected(&mut self) {
        let Some(id) = self.selected.clone() else { return };
        let is_whole = self.questions.get(&id).is_none_or(Question::is_whole);
        if !is_whole && self.reading.as_ref() != Some(&id) && self.console.is_some() {
            self.reading = Some(id.clone());
            self.ask(Command::Read(id));
        }
    }

    /// Whose a question is, for the list.
    pub fn whose(&self, question: &Question) -> String {
        if !question.is_open() {
            return question.state.clone();
        }
        let typing = |is_typing: bool| if is_typing { " (typing)" } else { "" };
        if self.is_mine(question) {
            return "you".to_owned();
        }
        let holder = question.holder();
        holder.map_or_else(String::new, |(human, is_typing)| {
            format!("{human}{}", typing(is_typing))
        })
    }
}
