//! How a question looks on a terminal.

use std::fmt::Write as _;

use actors::model::QuestionChoice;
use anstyle::{AnsiColor, Style};
use rest::questions::Question;

use crate::output::Output;
use crate::table::{Table, escaped};

/// Lines of a context that are shown.
const CONTEXT_LINES_MAX: usize = 200;

/// The question with its content, for people. Every text of an agent is escaped; its line breaks stay.
pub fn text(asked: &Question, output: &Output) -> String {
    let expires = asked
        .expires_at
        .as_ref()
        .map_or_else(|| "never".to_owned(), |at| output.time(at));
    let head = Table::of_facts([
        ("question", asked.question_id.as_str()),
        ("from", asked.asker()),
        ("to", asked.to.as_str()),
        ("urgency", asked.urgency.as_str()),
        ("state", asked.stage().as_str()),
        ("asked", output.time(&asked.asked_at).as_str()),
        ("expires", expires.as_str()),
    ]);
    let mut text = output.table(&head);
    let question = asked.question.as_deref().unwrap_or(&asked.summary);
    if asked.questions.is_none() {
        let _ = write!(text, "\n{}\n", lines(question));
        text.push_str(&options(
            asked.options.as_deref().unwrap_or_default(),
            asked.multi_select.unwrap_or(false),
        ));
    }
    for item in asked.questions.iter().flatten() {
        let needed = if item.required { " (required)" } else { "" };
        let _ = write!(text, "\n[{}]{needed} {}\n", escaped(&item.id), lines(&item.question));
        text.push_str(&options(&item.options, item.multi_select));
    }
    if let Some(context) = &asked.context {
        let _ = write!(text, "\n{}\n", lines(context));
    }
    for link in asked.links.iter().flatten() {
        let _ = write!(text, "\n{}: {}", escaped(&link.title), escaped(&link.uri));
    }
    text.push_str(&end(asked));
    text
}

/// How the question ended; empty while it is open.
fn end(question: &Question) -> String {
    let mut text = String::new();
    if let Some(answer) = question.answer() {
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
    if let Some(reason) = question.reason() {
        let _ = write!(text, "\nreason: {}\n", lines(reason));
    }
    text
}

/// The colour of an urgency.
pub fn urgency_style(urgency: &str) -> Style {
    match urgency {
        "high" => AnsiColor::Red.on_default(),
        "low" => Style::new().dimmed(),
        _ => Style::new(),
    }
}

fn options(options: &[QuestionChoice], is_multi: bool) -> String {
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
        let text = text(&question, &utc());
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
        assert!(text(&question, &utc()).ends_with("\nanswer: a, soon\n"));
        let cancelled: Question = from_value(json!({"state": "cancelled", "by": "alice", "reason": "done"})).unwrap();
        assert_eq!(cancelled.stage(), "cancelled by alice");
        assert!(lines(&"x\n".repeat(500)).ends_with("(300 more lines: --json shows them)"));
    }
}
