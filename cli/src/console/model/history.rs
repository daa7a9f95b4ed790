//! Questions of the past, as they are read page by page. Pure.

use rest::questions::Question;

use super::super::data::place_in_history;

/// Questions that are kept.
const KEPT_MAX: usize = 2_000;

/// The questions of the project, the newest first, as far as they were read.
#[derive(Debug, Default)]
pub struct History {
    questions: Vec<Question>,
    /// Where the next page begins.
    cursor: Option<String>,
    pub is_loading: bool,
    /// One of them is shown.
    pub is_opened: bool,
    pub at: usize,
}

impl History {
    /// The questions that a filter lets through.
    pub fn rows(&self, filter: &str) -> Vec<&Question> {
        let questions = self.questions.iter();
        questions
            .filter(|question| super::list::matches(question, filter))
            .collect()
    }

    /// The selected one.
    pub fn selected(&self, filter: &str) -> Option<&Question> {
        self.rows(filter).get(self.at).copied()
    }

    /// The page to ask for, if there is another one and none is under way.
    pub fn next_page(&mut self) -> Option<String> {
        if self.is_loading || self.questions.len() >= KEPT_MAX {
            return None;
        }
        let cursor = self.cursor.clone()?;
        self.is_loading = true;
        Some(cursor)
    }

    /// Takes in a page.
    pub fn take(&mut self, questions: Vec<Question>, cursor: Option<String>, is_first: bool) {
        if is_first {
            self.questions.clear();
            self.at = 0;
        }
        self.is_loading = false;
        self.cursor = cursor;
        self.questions.extend(questions);
        self.questions
            .sort_by(|a, b| place_in_history(a).cmp(&place_in_history(b)));
        self.questions.dedup_by(|a, b| a.question_id == b.question_id);
    }

    /// Takes in what is known of a question now.
    pub fn merge(&mut self, question: &Question) {
        let mut known = self.questions.iter_mut();
        if let Some(known) = known.find(|known| known.question_id == question.question_id) {
            known.merge(question.clone());
        }
    }
}
