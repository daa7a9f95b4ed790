//! A question as the broker shows it, and how it looks on a terminal.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use serde::Deserialize;

use crate::output::Output;
use crate::table::{Table, escaped};

/// Lines of a context that are shown.
const CONTEXT_LINES_MAX: usize = 200;

/// The parts of a question that are shown. Lists have no content.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the names of the JSON")]
pub struct Question {
    pub question_id: String,
    pub revision: u64,
    pub state: String,
    pub desk_state: Option<String>,
    pub asked_at: String,
    pub expires_at: Option<String>,
    pub urgency: String,
    pub to: String,
    pub asker: Asker,
    pub summary: String,
    pub question: Option<String>,
    pub questions: Option<Vec<Item>>,
    pub context: Option<String>,
    pub options: Option<Vec<Choice>>,
    pub multi_select: bool,
    pub links: Vec<Link>,
    pub offered_to: Option<Who>,
    pub claimed_by: Option<Who>,
    pub answer: Option<Answer>,
    pub answered_by: Option<Who>,
    pub answered_at: Option<String>,
    pub declined_by: Option<Who>,
    pub by: Option<String>,
    pub reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asker {
    pub session_id: String,
    pub name: Option<String>,
    pub status: Option<String>,
}

impl Asker {
    /// The name of the agent, or else its id.
    pub fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.session_id)
    }
}

/// One question of a form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Item {
    pub id: String,
    pub question: String,
    pub options: Vec<Choice>,
    pub multi_select: bool,
    pub required: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Choice {
    pub value: String,
    pub label: String,
    pub description: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Link {
    pub title: String,
    pub uri: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Who {
    pub human: String,
    pub typing: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Answer {
    pub selected: Vec<String>,
    pub other: Option<String>,
    pub text: Option<String>,
    pub answers: Option<std::collections::BTreeMap<String, Part>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Part {
    pub selected: Vec<String>,
    pub other: Option<String>,
    pub text: Option<String>,
}

impl Question {
    /// The state, and who has the question: `waiting`, `claimed by mara`, `answered by lena`.
    pub fn stage(&self) -> String {
        let (stage, who) = match self.state.as_str() {
            "pending" => {
                let holder = self.claimed_by.as_ref().or(self.offered_to.as_ref());
                (self.desk_state.as_deref().unwrap_or("pending"), holder)
            }
            state => (state, self.answered_by.as_ref().or(self.declined_by.as_ref())),
        };
        match (who, &self.by) {
            (Some(who), _) if stage == "offered" => format!("{stage} to {}", who.human),
            (Some(who), _) => format!("{stage} by {}", who.human),
            (None, Some(by)) if stage == "cancelled" => format!("{stage} by {by}"),
            (None, _) => stage.to_owned(),
        }
    }

    /// The question with its content, for people. Every text of an agent is escaped; its line breaks stay.
    pub fn text(&self, output: &Output) -> String {
        let mut head = Table::without_headings();
        let expires = self
            .expires_at
            .as_ref()
            .map_or_else(|| "never".to_owned(), |at| output.time(at));
        for (name, value) in [
            ("question", self.question_id.as_str()),
            ("from", self.asker.shown()),
            ("to", self.to.as_str()),
            ("urgency", self.urgency.as_str()),
            ("state", self.stage().as_str()),
            ("asked", output.time(&self.asked_at).as_str()),
            ("expires", expires.as_str()),
        ] {
            head.row([name, value]);
        }
        let mut text = output.table(&head);
        let question = self.question.as_deref().unwrap_or(&self.summary);
        if self.questions.is_none() {
            let _ = write!(text, "\n{}\n", lines(question));
            text.push_str(&options(self.options.as_deref().unwrap_or_default(), self.multi_select));
        }
        for item in self.questions.iter().flatten() {
            let needed = if item.required { " (required)" } else { "" };
            let _ = write!(text, "\n[{}]{needed} {}\n", escaped(&item.id), lines(&item.question));
            text.push_str(&options(&item.options, item.multi_select));
        }
        if let Some(context) = &self.context {
            let _ = write!(text, "\n{}\n", lines(context));
        }
        for link in &self.links {
            let _ = write!(text, "\n{}: {}", escaped(&link.title), escaped(&link.uri));
        }
        text.push_str(&self.end());
        text
    }

    /// How the question ended; empty while it is open.
    fn end(&self) -> String {
        let mut text = String::new();
        if let Some(answer) = &self.answer {
            let _ = write!(
                text,
                "\nanswer: {}\n",
                part(&answer.selected, answer.other.as_ref(), answer.text.as_ref())
            );
            for (id, answer) in answer.answers.iter().flatten() {
                let shown = part(&answer.selected, answer.other.as_ref(), answer.text.as_ref());
                let _ = writeln!(text, "answer [{}]: {shown}", escaped(id));
            }
        }
        if let Some(reason) = &self.reason {
            let _ = write!(text, "\nreason: {}\n", lines(reason));
        }
        text
    }
}

/// The colour of an urgency.
pub fn urgency_style(urgency: &str) -> Style {
    match urgency {
        "high" => AnsiColor::Red.on_default(),
        "low" => Style::new().dimmed(),
        _ => Style::new(),
    }
}

fn options(options: &[Choice], is_multi: bool) -> String {
    let mut text = String::new();
    for option in options {
        let mark = if is_multi { "[ ]" } else { "( )" };
        let _ = write!(text, "  {mark} {}: {}", escaped(&option.value), escaped(&option.label));
        if let Some(description) = &option.description {
            let _ = write!(text, " ({})", escaped(description));
        }
        text.push('\n');
    }
    text
}

fn part(selected: &[String], other: Option<&String>, text: Option<&String>) -> String {
    let parts = selected.iter().chain(other).chain(text);
    parts.map(|text| lines(text)).collect::<Vec<_>>().join(", ")
}

/// A text of several lines, each escaped.
pub fn lines(text: &str) -> String {
    let mut shown: Vec<_> = text.lines().take(CONTEXT_LINES_MAX).map(escaped).collect();
    let left = text.lines().count() - shown.len();
    if left > 0 {
        shown.push(format!("({left} more lines: --json shows them)"));
    }
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn utc() -> Output {
        Output::default().with_utc(true)
    }

    #[test]
    fn a_question_is_shown_with_its_texts_escaped() {
        let question: Question = from_value(json!({
            "question_id": "q1", "state": "pending", "desk_state": "claimed", "urgency": "high", "to": "desk",
            "asked_at": "2026-11-24T10:00:00Z", "expires_at": null, "asker": {"session_id": "s1", "name": "al\u{1b}ice"},
            "summary": "Drop", "question": "Drop\nit?\u{1b}[2J", "multi_select": false,
            "options": [{"value": "yes\u{202e}", "label": "Drop\nit"}], "context": "1\r\n2\u{7}",
            "claimed_by": {"human": "mara", "console": null, "until": "x", "typing": true}, "offered_to": null,
        }))
        .unwrap();
        assert_eq!(question.stage(), "claimed by mara");
        let text = question.text(&utc());
        assert!(text.contains("from      al\\u{1b}ice\n"), "{text}");
        assert!(text.contains("\nDrop\nit?\\u{1b}[2J\n"), "{text}");
        assert!(text.contains("  ( ) yes\\u{202e}: Drop\\nit\n"), "{text}");
        assert!(text.contains("\n1\n2\\u{7}\n"), "{text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }

    #[test]
    fn a_closed_question_is_shown_with_its_answer() {
        let question: Question = from_value(json!({
            "question_id": "q1", "state": "answered", "asker": {"session_id": "s1"}, "summary": "Which?",
            "answer": {"selected": ["a"], "other": null, "text": "soon", "answers": null, "images": []},
            "answered_by": {"human": "lena", "via": "console"},
        }))
        .unwrap();
        assert_eq!(question.stage(), "answered by lena");
        assert!(question.text(&utc()).ends_with("\nanswer: a, soon\n"));
        let cancelled: Question = from_value(json!({"state": "cancelled", "by": "alice", "reason": "done"})).unwrap();
        assert_eq!(cancelled.stage(), "cancelled by alice");
        assert!(lines(&"x\n".repeat(500)).ends_with("(300 more lines: --json shows them)"));
    }
}
