//! Screens of the console, drawn into memory and compared with files. `UPDATE_GOLDEN=1` writes the files.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use rest::desk::Desk;
use rest::questions::Question;
use serde_json::{Value, json};

use super::model::{Command, Connection, Effect, Focus, Model, Options, Screen, Update};
use super::view;
use crate::screen::Key;
use crate::screen::test_screens::{self, drawn};

/// 2026-11-23T05:04:00Z.
const NOW_MS: u64 = 1_795_410_240_000;

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn with(mut value: Value, more: Value) -> Value {
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    value
}

/// A question as lists have it.
fn brief(id: &str, asker: &str, urgency: &str, minutes: u64, summary: &str) -> Value {
    json!({
        "question_id": id, "revision": 1, "state": "pending", "desk_state": "waiting", "urgency": urgency, "to": "desk",
        "asked_at": actors::clock::rfc3339_text(NOW_MS - minutes * 60_000), "expires_at": "2026-11-24T05:00:00.000Z",
        "asker": {"session_id": "s1", "name": asker, "status": "active", "away_seconds": 0}, "summary": summary,
    })
}

fn here() -> Value {
    json!({"human": "mara", "console": "c-1"})
}

fn drop_table() -> Value {
    with(
        brief("q1", "alice", "high", 4, "Drop the old table?"),
        json!({"desk_state": "offered", "offered_to": here()}),
    )
}

fn drop_table_whole() -> Value {
    with(
        drop_table(),
        json!({
            "question": "Drop the old table?", "context": "Migration 42; 1.2 M rows, the last write was in May.",
            "options": [{"value": "drop", "label": "Drop it", "description": "irreversible"}, {"value": "keep", "label": "Keep it"}],
            "multi_select": false, "allow_other": true,
        }),
    )
}

fn question(model: &mut Model, value: Value) {
    model.apply(Update::Question(Box::new(parsed(value))), NOW_MS);
}

fn whole(model: &mut Model, value: Value, draft: Option<&str>) {
    let update = Update::Whole {
        question: Box::new(parsed(value)),
        draft: draft.map(str::to_owned),
    };
    model.apply(update, NOW_MS);
}

fn press(model: &mut Model, keys: &[Key]) -> Vec<Effect> {
    model.take_effects();
    for key in keys {
        model.press(key.clone(), NOW_MS);
    }
    model.take_effects()
}

fn text(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

fn commands(effects: Vec<Effect>) -> Vec<Command> {
    let commands = effects.into_iter().filter_map(|effect| match effect {
        Effect::Ask(command) => Some(command),
        _ => None,
    });
    commands
        .filter(|command| !matches!(command, Command::Console(change) if change["active"] == true))
        .collect()
}

fn connected() -> Model {
    let options = Options {
        human: "mara".to_owned(),
        project: Some("shop".to_owned()),
        ..Options::default()
    };
    let mut model = Model::new(options, NOW_MS);
    model.apply(Update::Connected(Some("c-1".to_owned())), NOW_MS);
    let desk: Desk = parsed(json!({
        "humans": [{"human": "lena", "presence": "idle"}, {"human": "mara", "presence": "present"}],
        "consoles": [{"console": "c-1", "human": "mara"}],
    }));
    model.apply(Update::Desk(desk), NOW_MS);
    model
}

/// The desk of the picture in the documentation.
fn desk() -> Model {
    let mut model = connected();
    let claim = json!({"desk_state": "claimed", "claimed_by": {"human": "lena", "console": "c-2", "typing": true}});
    question(
        &mut model,
        with(brief("q3", "carol", "low", 0, "Name for the crate?"), claim),
    );
    question(
        &mut model,
        with(
            brief("q2", "bob", "medium", 1, "Async or threads?"),
            json!({"offered_to": here()}),
        ),
    );
    question(&mut model, drop_table());
    for (seq, sender, message) in [(1, "alice", "starting migration"), (2, "bob", "reading package.json")] {
        let at = format!("2026-11-23T05:03:0{seq}.000Z");
        let yap = json!({"seq": seq, "sender_name": sender, "message": message, "at": at});
        model.apply(Update::Yap(Box::new(parsed(yap))), NOW_MS);
    }
    model.settle();
    whole(&mut model, drop_table_whole(), None);
    model.settle();
    model
}

fn backend(model: &Model, width: u16, height: u16) -> Terminal<TestBackend> {
    drawn(width, height, |frame| {
        view::draw(frame, model);
    })
}

fn screen(model: &Model, width: u16, height: u16) -> String {
    test_screens::text(&backend(model, width, height))
}

fn assert_golden(name: &str, model: &mut Model) {
    for (width, height) in [(80, 24), (120, 40)] {
        model.resized(width, height);
        test_screens::assert_golden("console", name, &backend(model, width, height));
    }
}

#[test]
fn every_view_is_drawn() {
    let mut model = Model::new(Options::default(), NOW_MS);
    assert_golden("opening", &mut model);
    assert_golden("empty", &mut connected());
    let mut model = desk();
    assert_golden("list", &mut model);
    press(&mut model, &[Key::Enter, Key::Char('1')]);
    press(&mut model, &text("but dump it first"));
    press(
        &mut model,
        &[Key::Enter, Key::Paste("日本語 e\u{301} to s3".to_owned())],
    );
    assert_golden("answer", &mut model);
    press(&mut model, &[Key::Escape, Key::Char('d')]);
    press(&mut model, &text("ask Lena"));
    assert_golden("decline", &mut model);
    press(&mut model, &[Key::Escape, Key::Char('?')]);
    assert_golden("help", &mut model);
    press(&mut model, &[Key::Escape, Key::Char('v')]);
    assert_golden("whole", &mut model);
    press(&mut model, &[Key::Escape, Key::Char('y')]);
    assert_golden("yaps", &mut model);
    press(&mut model, &[Key::Escape]);
    let lost = Update::Lost {
        reason: "cannot reach http://127.0.0.1:8000: refused".to_owned(),
        attempt: 3,
    };
    model.apply(lost, NOW_MS);
    assert_golden("lost", &mut model);
}

#[test]
fn a_form_and_the_history_are_drawn() {
    let mut model = connected();
    let form = with(
        brief("q1", "bob", "low", 70, "Two questions about the crate"),
        json!({"offered_to": here(), "handover": {"from": "lena", "to": "mara", "note": "you know it"}, "questions": [
            {"id": "name", "question": "What is its name?", "required": true},
            {"id": "deps", "question": "Which dependencies?", "multi_select": true,
             "options": [{"value": "a", "label": "serde"}, {"value": "b", "label": "tokio"}]},
        ]}),
    );
    question(&mut model, form.clone());
    model.settle();
    whole(&mut model, form, None);
    press(
        &mut model,
        &[Key::Enter, Key::Tab, Key::Char('1'), Key::Down, Key::Char(' ')],
    );
    assert_golden("form", &mut model);
    let sent = press(&mut model, &[Key::Ctrl('d')]);
    assert!(sent.is_empty(), "a required answer is missing: {sent:?}");
    assert_eq!(model.work().unwrap().at, 0, "the missing one is shown");
    press(&mut model, &[Key::Escape]);
    let asked = press(&mut model, &[Key::Char('H')]);
    assert_eq!(commands(asked), [Command::History { cursor: None }]);
    let answered = with(
        brief("q9", "alice", "high", 90, "Drop the old table?"),
        json!({"state": "answered", "answered_by": {"human": "mara"}, "answered_at": "2026-11-23T05:03:57.000Z"}),
    );
    let declined = with(
        brief("q8", "carol", "low", 95, "A name?"),
        json!({"state": "declined", "declined_by": {"human": "lena"}, "reason": "no"}),
    );
    let history = Update::History {
        questions: vec![parsed(declined), parsed(answered.clone())],
        cursor: Some("next".to_owned()),
        is_first: true,
    };
    model.apply(history, NOW_MS);
    assert_golden("history", &mut model);
    let read = press(&mut model, &[Key::Enter]);
    assert_eq!(commands(read), [Command::Read("q9".to_owned())]);
    let answer =
        json!({"question": "Drop the old table?", "answer": {"selected": ["drop"], "text": "but dump it first"}});
    whole(&mut model, with(answered, answer), None);
    assert_golden("past", &mut model);
    press(&mut model, &[Key::Escape]);
    let more = press(&mut model, &[Key::End]);
    let next = Command::History {
        cursor: Some("next".to_owned()),
    };
    assert_eq!(commands(more), [next]);
}

#[test]
fn a_small_terminal_says_so() {
    assert!(screen(&desk(), 59, 24).contains("too small"));
    assert!(screen(&desk(), 80, 19).contains("too small"));
    assert!(screen(&desk(), 60, 20).contains("Drop the old table?"));
}

#[test]
fn without_colours_there_are_none() {
    for has_colours in [false, true] {
        let mut model = desk();
        model.options.has_colours = has_colours;
        let terminal = backend(&model, 80, 24);
        let cells = terminal.backend().buffer().content();
        let is_coloured = cells
            .iter()
            .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        assert_eq!(is_coloured, has_colours);
    }
}

#[test]
fn hostile_texts_are_shown_escaped() {
    let hostile = "\u{1b}[31m\u{202e}\u{7}<b>\u{9b}2J";
    let mut model = connected();
    let evil = with(
        brief("q1", hostile, "high", 1, hostile),
        json!({"offered_to": here(), "question": hostile.repeat(40), "context": "x".repeat(65_536),
            "options": [{"value": "a", "label": hostile, "description": hostile}],
            "handover": {"from": hostile, "to": hostile, "note": hostile}, "links": [{"title": hostile, "uri": hostile}]}),
    );
    question(&mut model, evil.clone());
    whole(&mut model, evil, Some(hostile));
    let yap = json!({"seq": 1, "sender_name": hostile, "message": hostile, "task_context": hostile});
    model.apply(Update::Yap(Box::new(parsed(yap))), NOW_MS);
    model.settle();
    for key in ['v', 'y', '?'] {
        press(&mut model, &[Key::Escape, Key::Char(key)]);
        assert_plain(&screen(&model, 80, 24));
        press(&mut model, &[Key::Escape]);
        assert_plain(&screen(&model, 80, 24));
    }
}

fn assert_plain(shown: &str) {
    let is_harmful = |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
    assert!(!shown.chars().any(is_harmful), "{shown}");
}

#[path = "tests_keys.rs"]
mod keys;
