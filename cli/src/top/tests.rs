//! Screens of `top`, drawn into memory and compared with files, and what its keys do. `UPDATE_GOLDEN=1` writes the files.

use serde_json::json;

use super::data::{Detail, Snapshot};
use super::model::{Model, Update, Wish};
use super::view;
use super::watched::{Target, Watched};
use crate::screen::Key;
use crate::screen::test_screens::{self, drawn};

/// 2026-11-23T05:01:00Z.
const NOW_MS: u64 = 1_795_410_060_000;

fn id(number: usize) -> String {
    format!("0190a5d2-c000-7000-8000-{number:012}")
}

fn message(number: usize, from: &str, to: Option<usize>) -> serde_json::Value {
    json!({
        "message_id": id(100 + number), "project_id": "default", "sender_id": id(1), "sender_name": from,
        "recipient_id": to.map(id), "timestamp": format!("2026-11-23T05:00:{number:02}.123Z"), "protocol_name": "note",
        "protocol_version": "1.0.0", "headers": {"priority": "high", "correlation_id": "q1"}, "status": "acknowledged",
        "recipients": {"queued": 0, "delivered": 0, "acknowledged": 1, "expired": 0, "dead_lettered": 0},
    })
}

fn session(number: usize, name: &str, status: &str, queue: u64) -> serde_json::Value {
    json!({
        "session_id": id(number), "name": name, "project_id": "default", "status": status, "queue_size": queue,
        "connection_time": "2026-11-23T04:00:00.000Z", "last_heartbeat": format!("2026-11-23T05:00:{number:02}.000Z"),
        "capabilities": {"supported_protocols": {"note": ["1.0.0", "1.1.0"]}, "supported_features": ["fast"]},
        "metadata": {"team": "east"},
    })
}

fn stats(accepted: u64) -> serde_json::Value {
    let wave: Vec<u64> = (0..180).map(|at| at % 12 * 10).collect();
    let latency =
        json!({"count": 10, "sum_seconds": 1.0, "p50_seconds": 0.000_025, "p95_seconds": 0.001, "p99_seconds": 0.0012});
    json!({
        "replicas": 2,
        "replica_list": [
            {"id": id(201), "version": "0.1.0", "started_at": "2026-11-23T01:00:00.000Z", "sessions": 2, "is_self": true},
            {"id": id(202), "version": "0.1.0", "started_at": "2026-11-22T01:00:00.000Z", "sessions": 1, "is_self": false},
        ],
        "messages": {"received": 1, "accepted": accepted, "refused": 0, "delivered": accepted / 2, "acknowledged": 10},
        "sessions": {"active": 2, "stale": 1, "disconnected": 1},
        "inboxes": {"waiting": 42, "longest": 30, "over_warning": 1},
        "connections": {"websocket": 2, "http": 1},
        "storage": {"dead_letters": 7, "dead_letter_bytes": 700, "message_bytes": 123_456, "session_bytes": 1},
        "desk": {"open": 1, "urgent": 1}, "backends": {"all": 2, "ready": 1, "failed": 1},
        "health": {"status": "healthy", "storage_backend": "memory"}, "version": "0.1.0",
        "protocols": 4,
        "broker": {"uptime_seconds": 12_345, "accept": latency, "deliver": latency, "store_operation": latency},
        "series": {"step_seconds": 10, "from": 0, "points": {
            "messages_accepted": wave, "messages_delivered": wave, "messages_waiting": [null, 1, 2, 42]}},
        "partial": ["0190a5d2-c000-7000-8000-00000000dead"],
    })
}

fn parsed<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn snapshot(at_ms: u64, accepted: u64) -> Snapshot {
    let hostile = "\u{1b}[31m<b>\u{202e}evil 日本語".to_owned() + &"x".repeat(65_536);
    let letter = json!({
        "message": message(7, "alice", Some(9)), "session_id": id(9), "session_name": "carol", "reason": "recipient_gone",
        "at": "2026-11-23T05:00:07.000Z", "deliveries": 2,
    });
    Snapshot {
        at_ms,
        stats: parsed(stats(accepted)),
        sessions: vec![
            parsed(session(1, "alice", "active", 0)),
            parsed(session(2, "bob", "stale", 30)),
            parsed(session(3, &hostile, "active", 9)),
            parsed(session(4, "dora", "disconnected", 3)),
        ],
        messages: vec![parsed(message(2, "alice", Some(2))), parsed(message(1, "alice", None))],
        dead_letters: vec![parsed(letter)],
        questions: vec![parsed(json!({
            "question_id": id(301), "urgency": "high", "asked_at": "2026-11-23T05:00:09.000Z", "to": "desk",
            "asker": {"session_id": id(1), "name": "alice"}, "desk_state": "waiting", "summary": "Drop the table?",
        }))],
        backends: vec![
            parsed(
                json!({"name": "github", "state": "ready", "since": "2026-11-23T05:00:00.000Z", "tools": 12, "calls": 3}),
            ),
            parsed(json!({
                "name": "docs", "state": "failed", "since": "2026-11-23T05:00:01.000Z",
                "reason": "the variable DOCS_TOKEN is not set",
            })),
        ],
        ..Snapshot::default()
    }
}

/// A model after two looks at the broker, two seconds apart.
fn model() -> Model {
    let mut model = Model::new("http://127.0.0.1:8000", false);
    model.tick(NOW_MS);
    model.apply(Update::Polled(Box::new(snapshot(NOW_MS - 2000, 1000))), NOW_MS);
    model.apply(Update::Polled(Box::new(snapshot(NOW_MS, 1250))), NOW_MS);
    model.apply(
        Update::Event("05:00:29.123  message      accepted       alice -> bob".to_owned()),
        NOW_MS,
    );
    model
}

/// What the model asks for in the view of sessions.
fn watch(target: Option<Target>) -> Wish {
    Wish::Watch(Watched {
        target,
        ..Watched::default()
    })
}

fn screen(model: &Model, width: u16, height: u16) -> String {
    test_screens::text(&drawn(width, height, |frame| view::draw(frame, model)))
}

fn assert_golden(name: &str, model: &Model) {
    for (width, height) in [(80, 24), (200, 60)] {
        test_screens::assert_golden("top", name, &drawn(width, height, |frame| view::draw(frame, model)));
    }
}

#[test]
fn every_view_is_drawn() {
    let mut model = model();
    for (key, name) in ['1', '2', '3', '4', '5', '6', '7'].into_iter().zip([
        "sessions",
        "messages",
        "dead-letters",
        "replicas",
        "events",
        "desk",
        "backends",
    ]) {
        model.press(Key::Char(key));
        assert_golden(name, &model);
    }
    model.press(Key::Char('?'));
    assert_golden("help", &model);
}

#[test]
fn the_first_screen_and_an_outage_are_drawn() {
    let mut first = Model::new("http://127.0.0.1:8000", false);
    assert_golden("first", &first);
    first.apply(Update::Failed("cannot reach http://127.0.0.1:8000".to_owned()), NOW_MS);
    let mut model = model();
    let reason = "cannot reach http://127.0.0.1:8000: connection refused; is it running? see --url";
    model.apply(Update::Failed(reason.to_owned()), NOW_MS);
    model.apply(Update::Failed(reason.to_owned()), NOW_MS + 60_000);
    model.tick(NOW_MS + 65_000);
    assert!(
        screen(&model, 80, 24).contains("no answer for 1 min 5 s"),
        "the time of the first failure counts"
    );
    assert_golden("outage", &model);
    model.apply(Update::Polled(Box::new(snapshot(NOW_MS, 5))), NOW_MS);
    assert!(!screen(&model, 80, 24).contains("no answer"));
    assert_eq!(model.rates.accepted, None, "counters of a restarted broker are no rate");
}

#[test]
fn a_session_and_a_message_are_opened_and_left() {
    let mut model = model();
    model.press(Key::Down);
    let wish = model.press(Key::Enter);
    let target = Some(Target::Session(id(2)));
    assert_eq!(wish, watch(target));
    assert!(screen(&model, 80, 24).contains("asking the broker"));
    let mut answer = snapshot(NOW_MS, 1250);
    let messages = vec![parsed(message(2, "alice", Some(2)))];
    answer.detail = Some(Detail::Session(
        Box::new(parsed(session(2, "bob", "stale", 30))),
        messages,
    ));
    model.apply(Update::Polled(Box::new(answer)), NOW_MS);
    assert_golden("session", &model);
    let target = Some(Target::Message(id(102)));
    assert_eq!(model.press(Key::Enter), watch(target));
    let mut answer = snapshot(NOW_MS, 1250);
    let events = json!([
        {"event": "queued", "at": "2026-11-23T05:00:02.000Z"},
        {"event": "delivered", "at": "2026-11-23T05:00:03.000Z", "delivery": 1},
        {"event": "dead_lettered", "at": "2026-11-23T05:00:04.000Z", "reason": "rejected"},
    ]);
    let recipient = json!({"session_id": id(2), "name": "bob", "status": "dead_lettered", "events": events});
    let life = json!({
        "message_id": id(102), "message": message(2, "alice", Some(2)), "accepted_at": "2026-11-23T05:00:02.000Z",
        "recipients": [recipient], "incomplete": false,
    });
    answer.detail = Some(Detail::Message(Box::new(parsed(life))));
    model.apply(Update::Polled(Box::new(answer)), NOW_MS);
    assert_golden("message", &model);
    assert_eq!(model.press(Key::Escape), watch(Some(Target::Session(id(2)))));
    assert_eq!(model.press(Key::Escape), watch(None));
    assert_eq!(model.press(Key::Escape), watch(None), "there is nothing to leave");
    assert_eq!(model.press(Key::Char('q')), Wish::Quit);
}

#[test]
fn rows_are_sorted_and_filtered_by_keys() {
    let mut model = model();
    let first = |model: &Model| model.grid().unwrap().rows[0].cells[0].clone();
    assert_eq!(first(&model), "alice");
    for _ in 0..3 {
        model.press(Key::Char('s'));
    }
    model.press(Key::Char('r'));
    assert_eq!(first(&model), "bob", "the longest queue first");
    assert!(screen(&model, 80, 24).contains("QUEUE▼"));
    for key in "/DORA".chars() {
        model.press(Key::Char(key));
    }
    assert_eq!(first(&model), "dora");
    assert_golden("filter", &model);
    model.press(Key::Enter);
    assert_eq!(model.press(Key::Char('q')), Wish::Quit, "the filter is no longer typed");
    for key in "/nothing matches".chars() {
        model.press(Key::Char(key));
    }
    assert!(screen(&model, 80, 24).contains("no row matches the filter"));
    model.press(Key::Escape);
    assert_eq!(model.grid().unwrap().rows.len(), 4);
}

#[test]
fn the_broker_sorts_sessions_and_filters_what_does_not_fit() {
    let mut model = model();
    let mut asked = Vec::new();
    for key in "sssr/bo".chars() {
        asked.push(model.press(Key::Char(key)));
    }
    asked.push(model.press(Key::Enter));
    let sorted = |session_sort, session_filter| {
        Wish::Watch(Watched {
            session_sort,
            session_filter,
            ..Watched::default()
        })
    };
    let by_queue = Some(("queue_size", true));
    assert_eq!(asked[0], sorted(Some(("name", false)), None));
    assert_eq!((&asked[3], &asked[4]), (&sorted(by_queue, None), &Wish::Nothing));
    assert_eq!(asked[7], sorted(by_queue, None), "four sessions are filtered here");
    let mut many = snapshot(NOW_MS, 1250);
    many.stats.sessions.active = 5000;
    model.apply(Update::Polled(Box::new(many)), NOW_MS);
    model.press(Key::Char('/'));
    assert_eq!(model.press(Key::Enter), sorted(by_queue, Some("bo".to_owned())));
    model.press(Key::Char('2'));
    assert_eq!(model.press(Key::Char('s')), Wish::Nothing);
}

#[test]
fn every_size_of_a_terminal_is_drawn() {
    let mut model = model();
    for width in [1, 20, 49, 50, 51, 79, 120] {
        for height in (1..45).step_by(4) {
            screen(&model, width, height);
        }
    }
    model.press(Key::Char('?'));
    screen(&model, 50, 14);
    assert!(screen(&model, 30, 5).contains("too small"));
}

#[test]
fn a_million_keys_and_events_keep_the_model_bounded() {
    let mut model = model();
    for at in 0..10_000 {
        model.apply(Update::Event(format!("event {at}")), NOW_MS);
        model.press(Key::Char('/'));
        model.press(Key::Char('x'));
    }
    assert!(model.filter.chars().count() <= 32);
    model.press(Key::Escape);
    model.press(Key::Char('5'));
    assert_eq!(model.grid().unwrap().rows.len(), 500);
    assert_eq!(
        model.grid().unwrap().rows[0].cells[0],
        "event 9999",
        "the last event is the first row"
    );
}

#[test]
fn colours_are_left_out_without_them() {
    let mut coloured = model();
    coloured.has_colours = true;
    let colours = |model: &Model| {
        let terminal = drawn(80, 24, |frame| view::draw(frame, model));
        let cells = terminal.backend().buffer().content().iter();
        cells.filter(|cell| cell.fg != ratatui::style::Color::Reset).count()
    };
    assert!(colours(&coloured) > 0);
    assert_eq!(colours(&model()), 0);
}
