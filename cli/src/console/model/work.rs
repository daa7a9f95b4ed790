//! The answer to one question while it is written: chosen options, texts, and what the broker knows of it. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use actors::model::QuestionChoice;
use rest::questions::{FormQuestion, Question};

use super::super::editor::Editor;

/// A draft is sent at most once in this time.
const DRAFT_MS: u64 = 1_000;
/// The broker is notified of keystrokes at most once in this time.
const TYPED_MS: u64 = 10_000;

/// What a person has begun for one question.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each says something else about the answer")]
pub struct Work {
    /// One for each question of a form.
    pub entries: Vec<Entry>,
    /// The entry that is shown.
    pub at: usize,
    /// The answer is under way: it is not changed.
    pub is_sending: bool,
    /// An empty answer was refused once.
    pub is_empty_asked: bool,
    /// The broker knows that this person writes.
    pub is_claimed: bool,
    /// The stored draft was read, or is not wanted, because the person has begun.
    pub has_begun: bool,
    is_unsaved: bool,
    saved_ms: Option<u64>,
    typed_ms: Option<u64>,
}

/// The answer to one question of a form, or to the one question.
#[derive(Debug, Default)]
pub struct Entry {
    pub editor: Editor,
    /// Places of the chosen options.
    pub chosen: BTreeSet<usize>,
    /// The option that Space chooses.
    pub at: usize,
    /// The text replaces an option, even next to chosen ones.
    pub is_other: bool,
}

impl Entry {
    /// Whether nothing is written or chosen.
    pub fn is_empty(&self) -> bool {
        self.editor.is_blank() && self.chosen.is_empty()
    }

    /// Chooses an option, or takes the choice back.
    pub fn choose(&mut self, item: &FormQuestion, at: usize) {
        if at >= item.options.len() {
            return;
        }
        self.at = at;
        if self.chosen.remove(&at) {
            return;
        }
        if !item.multi_select {
            self.chosen.clear();
        }
        self.chosen.insert(at);
    }

    /// The answer as the broker takes it: `selected`, `other`, `text`.
    fn part(&self, item: &FormQuestion) -> Map<String, Value> {
        let chosen = |at: &usize| {
            item.options
                .get(*at)
                .map(|option: &QuestionChoice| option.value.clone())
        };
        let selected: Vec<String> = self.chosen.iter().filter_map(chosen).collect();
        let mut part = Map::new();
        if !self.editor.is_blank() {
            let is_in_place = !item.options.is_empty() && selected.is_empty() && item.allow_other;
            let member = if self.is_other || is_in_place { "other" } else { "text" };
            part.insert(member.to_owned(), self.editor.text().into());
        }
        if !selected.is_empty() {
            part.insert("selected".to_owned(), selected.into());
        }
        part
    }
}

impl Work {
    /// Nothing is written yet.
    pub fn of(question: &Question) -> Self {
        let entries = question.items().iter().map(|_| Entry::default()).collect();
        Self {
            entries,
            ..Self::default()
        }
    }

    /// Makes room for the questions of a form, of which only the summary was known before.
    pub fn fit(&mut self, question: &Question) {
        self.entries.resize_with(question.items().len(), Entry::default);
        self.at = self.at.min(self.entries.len().saturating_sub(1));
    }

    /// Whether nothing is written or chosen.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(Entry::is_empty)
    }

    /// Whether a text is written.
    pub fn has_text(&self) -> bool {
        self.entries.iter().any(|entry| !entry.editor.is_blank())
    }

    /// The first question of a form that needs an answer and has none.
    pub fn missing(&self, items: &[FormQuestion]) -> Option<usize> {
        let pairs = items.iter().zip(&self.entries);
        let mut pairs = pairs.map(|(item, entry)| item.required && entry.is_empty());
        pairs.position(|is_missing| is_missing)
    }

    /// The first question of a form without an answer.
    pub fn first_open(&self) -> Option<usize> {
        self.entries.iter().position(Entry::is_empty)
    }

    /// The first question of a form without an answer behind the shown one.
    pub fn next_open(&self) -> Option<usize> {
        let mut behind = self.entries.iter().enumerate().skip(self.at + 1);
        behind.find_map(|(at, entry)| entry.is_empty().then_some(at))
    }

    /// The body of the request that answers.
    pub fn answer(&self, question: &Question) -> Value {
        let items = question.items();
        let pairs = items.iter().zip(&self.entries);
        let mut body = if question.is_form() {
            let answered = pairs.filter(|(_, entry)| !entry.is_empty());
            let answers: Map<String, Value> = answered
                .map(|(item, entry)| (item.id.clone(), Value::Object(entry.part(item))))
                .collect();
            Map::from_iter([("answers".to_owned(), Value::Object(answers))])
        } else {
            pairs.map(|(item, entry)| entry.part(item)).next().unwrap_or_default()
        };
        // An answer without a choice and without a text is an empty text.
        if body.is_empty() {
            body.insert("text".to_owned(), "".into());
        }
        body.insert("via".to_owned(), "console".into());
        Value::Object(body)
    }

    /// The draft as the broker keeps it: the text, or for a form the texts by the ids of the questions, as JSON.
    pub fn draft(&self, question: &Question) -> String {
        if !question.is_form() {
            let first = self.entries.first();
            return first.map(|entry| entry.editor.text().to_owned()).unwrap_or_default();
        }
        let items = question.items();
        let pairs = items.iter().zip(&self.entries);
        let texts = pairs.filter(|(_, entry)| !entry.editor.is_blank());
        let texts: Map<String, Value> = texts
            .map(|(item, entry)| (item.id.clone(), entry.editor.text().into()))
            .collect();
        if texts.is_empty() {
            return String::new();
        }
        json!(texts).to_string()
    }

    /// Takes in the stored draft, unless the person has begun already.
    pub fn take_draft(&mut self, question: &Question, draft: &str) {
        if self.has_begun || draft.is_empty() {
            return;
        }
        self.has_begun = true;
        let texts = serde_json::from_str::<Map<String, Value>>(draft).unwrap_or_default();
        let items = question.items();
        let is_known = question.is_form() && items.iter().any(|item| texts.contains_key(&item.id));
        if !is_known {
            if let Some(entry) = self.entries.first_mut() {
                entry.editor.replace(draft);
            }
            return;
        }
        for (item, entry) in items.iter().zip(&mut self.entries) {
            if let Some(text) = texts.get(&item.id).and_then(Value::as_str) {
                entry.editor.replace(text);
            }
        }
    }

    /// The text was changed.
    pub fn changed(&mut self) {
        self.has_begun = true;
        self.is_unsaved = true;
        self.is_empty_asked = false;
    }

    /// The draft must be sent again: the broker has not got it.
    pub fn unsave(&mut self) {
        self.is_unsaved = self.has_begun;
    }

    /// When the draft is to be sent, if it has changed.
    pub fn draft_due_ms(&self) -> Option<u64> {
        let due = self.saved_ms.map_or(0, |saved| saved + DRAFT_MS);
        self.is_unsaved.then_some(due)
    }

    /// The draft is being sent.
    pub fn save(&mut self, now_ms: u64) {
        self.is_unsaved = false;
        self.saved_ms = Some(now_ms);
    }

    /// A keystroke. Returns whether the broker is to be notified.
    pub fn type_at(&mut self, now_ms: u64) -> bool {
        let is_due = self.typed_ms.is_none_or(|typed| now_ms >= typed + TYPED_MS);
        if is_due {
            self.typed_ms = Some(now_ms);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(text: &str) -> Question {
        serde_json::from_str(text).unwrap()
    }

    fn single() -> Question {
        question(
            r#"{"question_id":"q1","state":"pending","question":"Drop it?","multi_select":false,
            "options":[{"value":"drop","label":"Drop it"},{"value":"keep","label":"Keep it"}]}"#,
        )
    }

    fn form() -> Question {
        question(
            r#"{"question_id":"q2","state":"pending","questions":[
            {"id":"a","question":"Name?","required":true},
            {"id":"b","question":"Which?","multi_select":true,"options":[{"value":"x","label":"X"},{"value":"y","label":"Y"}]}]}"#,
        )
    }

    #[test]
    fn a_text_stands_beside_a_choice_or_in_its_place() {
        let (question, item) = (single(), &single().items()[0]);
        let mut work = Work::of(&question);
        assert_eq!(work.answer(&question), json!({"text": "", "via": "console"}));
        work.entries[0].editor.insert("neither");
        assert_eq!(work.answer(&question), json!({"other": "neither", "via": "console"}));
        work.entries[0].choose(item, 0);
        work.entries[0].choose(item, 1);
        let answer = json!({"selected": ["keep"], "text": "neither", "via": "console"});
        assert_eq!(work.answer(&question), answer, "one choice replaces the other");
        work.entries[0].choose(item, 1);
        work.entries[0].choose(item, 7);
        assert!(
            work.entries[0].chosen.is_empty(),
            "a choice is taken back, and there is no option 8"
        );
    }

    #[test]
    fn a_form_has_an_answer_for_each_id() {
        let question = form();
        let mut work = Work::of(&question);
        let items = question.items();
        assert_eq!(work.missing(&items), Some(0));
        work.entries[0].editor.insert("serde");
        work.entries[1].choose(&items[1], 0);
        work.entries[1].choose(&items[1], 1);
        assert_eq!(work.missing(&items), None);
        let answers = json!({"a": {"text": "serde"}, "b": {"selected": ["x", "y"]}});
        assert_eq!(work.answer(&question), json!({"answers": answers, "via": "console"}));
    }

    #[test]
    fn a_draft_comes_back_and_replaces_nothing() {
        for question in [single(), form()] {
            let mut work = Work::of(&question);
            work.entries[0].editor.insert("two\nlines {\"a\":1}");
            let draft = work.draft(&question);
            let mut back = Work::of(&question);
            back.take_draft(&question, &draft);
            assert_eq!(back.entries[0].editor.text(), "two\nlines {\"a\":1}");
            back.take_draft(&question, "later");
            assert_eq!(back.entries[0].editor.text(), "two\nlines {\"a\":1}");
        }
        let mut work = Work::of(&form());
        work.take_draft(&form(), "written on the page");
        assert_eq!(work.entries[0].editor.text(), "written on the page");
    }

    #[test]
    fn drafts_and_keystrokes_are_reported_now_and_then() {
        let mut work = Work::default();
        assert_eq!(work.draft_due_ms(), None);
        work.changed();
        assert_eq!(work.draft_due_ms(), Some(0));
        work.save(5_000);
        work.changed();
        assert_eq!(work.draft_due_ms(), Some(6_000));
        assert!(work.type_at(5_000) && !work.type_at(14_999) && work.type_at(15_000));
    }
}
