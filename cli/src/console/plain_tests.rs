//! What the lines show and do.

use serde_json::{Value, json};

use super::*;

const NOW_MS: u64 = 1_795_410_060_000;

fn plain() -> Plain {
    let options = Options {
        human: "mara".to_owned(),
        ..Options::default()
    };
    let mut plain = Plain::new(options, NOW_MS);
    plain.apply(Update::Connected(Some("c-1".to_owned())), NOW_MS);
    plain.take();
    plain
}

fn question(id: &str, more: Value) -> Box<Question> {
    let mut question = json!({
        "question_id": id, "revision": 1, "state": "pending", "urgency": "high", "to": "desk",
        "asked_at": "2026-11-23T05:00:00.000Z", "asker": {"name": "alice"}, "summary": "Drop it?",
        "offered_to": {"human": "mara", "console": "c-1"},
    });
    let members = more.as_object().unwrap().clone();
    question.as_object_mut().unwrap().extend(members);
    Box::new(serde_json::from_value(question).unwrap())
}

fn asks(plain: &mut Plain, id: &str, more: Value) -> Vec<String> {
    plain.apply(Update::Question(question(id, json!({}))), NOW_MS);
    let whole = question(id, more);
    plain.apply(
        Update::Whole {
            question: whole,
            draft: None,
        },
        NOW_MS,
    );
    lines(plain.take())
}

fn lines(out: Vec<Out>) -> Vec<String> {
    let lines = out.into_iter().filter_map(|out| match out {
        Out::Line(line) => Some(line),
        _ => None,
    });
    lines.collect()
}

/// The answer that a line sends.
fn answer(plain: &mut Plain, line: &str) -> Option<Value> {
    plain.read(line, NOW_MS);
    plain.take().into_iter().find_map(|out| match out {
        Out::Ask(Command::Answer { body, .. }) => Some(body),
        _ => None,
    })
}

#[test]
fn a_question_is_announced_and_answered_by_a_line() {
    let mut plain = plain();
    let shown = asks(
        &mut plain,
        "q1",
        json!({"question": "Drop the old table?\u{1b}[2J", "context": "1.2 M rows"}),
    );
    assert_eq!(
        shown,
        [
            "QUESTION [05:00:00]",
            "   From: alice   Urgency: high",
            "   Context: 1.2 M rows",
            "   Question: Drop the old table?\\u{1b}[2J",
            "Your answer:",
        ]
    );
    assert_eq!(answer(&mut plain, "but dump it \\"), None);
    let sent = answer(&mut plain, "first").unwrap();
    assert_eq!(sent, json!({"text": "but dump it \nfirst", "via": "console"}));
    let command = Command::Answer {
        question: "q1".to_owned(),
        body: sent,
    };
    plain.apply(Update::Done(command), NOW_MS);
    assert_eq!(lines(plain.take()), ["sent to alice"]);
}

#[test]
fn the_end_of_a_question_may_come_before_the_broker_confirms_its_answer() {
    let mut plain = plain();
    asks(&mut plain, "q1", json!({"question": "Drop the old table?"}));
    let body = answer(&mut plain, "yes").unwrap();
    let ended = question("q1", json!({"revision": 2, "state": "answered"}));
    plain.apply(Update::Question(ended), NOW_MS);
    assert_eq!(plain.take(), []);
    // The next question comes meanwhile.
    plain.apply(Update::Question(question("q2", json!({}))), NOW_MS);
    let command = Command::Answer {
        question: "q1".to_owned(),
        body,
    };
    plain.apply(Update::Done(command), NOW_MS);
    let out = plain.take();
    assert!(out.contains(&Out::Ask(Command::Read("q2".to_owned()))), "{out:?}");
    assert_eq!(lines(out), ["sent to alice"]);
    let shown = asks(&mut plain, "q2", json!({"question": "And now?"}));
    assert_eq!(shown.last().unwrap(), "Your answer:");
}

#[test]
fn the_next_question_is_asked_after_another_person_has_answered_this_one() {
    for begun in ["", "begun \\"] {
        let mut plain = plain();
        asks(&mut plain, "q1", json!({"question": "Drop the old table?"}));
        plain.read(begun, NOW_MS);
        plain.take();
        let ended = question("q1", json!({"revision": 2, "state": "answered"}));
        plain.apply(Update::Question(ended), NOW_MS);
        assert_eq!(lines(plain.take()), ["The question was answered."], "{begun:?}");
        plain.apply(Update::Question(question("q2", json!({}))), NOW_MS);
        let out = plain.take();
        assert!(
            out.contains(&Out::Ask(Command::Read("q2".to_owned()))),
            "{begun:?}: {out:?}"
        );
        let shown = asks(&mut plain, "q2", json!({"question": "And now?"}));
        assert_eq!(shown.last().unwrap(), "Your answer:", "{begun:?}");
    }
}

#[test]
fn a_question_is_shown_although_its_text_is_of_an_earlier_revision() {
    let mut plain = plain();
    let waiting = question("q1", json!({"revision": 0, "offered_to": null}));
    plain.apply(Update::Question(waiting), NOW_MS);
    plain.apply(Update::Question(question("q1", json!({"revision": 2}))), NOW_MS);
    // The text was asked for when the question was waiting.
    let whole = json!({"offered_to": null, "question": "Drop the old table?"});
    plain.apply(
        Update::Whole {
            question: question("q1", whole),
            draft: None,
        },
        NOW_MS,
    );
    assert_eq!(lines(plain.take()).last().unwrap(), "Your answer:");
}

#[test]
fn numbers_choose_and_other_texts_do_not() {
    let options =
        json!({"question": "Which?", "options": [{"value": "a", "label": "A"}, {"value": "b", "label": "B"}]});
    for (line, wanted) in [
        ("2", json!({"selected": ["b"], "via": "console"})),
        ("3", json!({"other": "3", "via": "console"})),
        ("1,2", json!({"other": "1,2", "via": "console"})),
        ("//etc", json!({"other": "/etc", "via": "console"})),
    ] {
        let mut plain = plain();
        asks(&mut plain, "q1", options.clone());
        assert_eq!(answer(&mut plain, line), Some(wanted), "{line}");
    }
    let mut plain = plain();
    let mut several = options;
    several["multi_select"] = true.into();
    asks(&mut plain, "q1", several);
    let wanted = json!({"selected": ["a", "b"], "via": "console"});
    assert_eq!(answer(&mut plain, "2, 1"), Some(wanted));
}

#[test]
fn a_form_is_asked_question_by_question() {
    let mut plain = plain();
    let items = json!([{"id": "a", "question": "Name?", "required": true}, {"id": "b", "question": "Why?"}]);
    let shown = asks(&mut plain, "q1", json!({"questions": items}));
    assert!(shown.contains(&"   Question 1 of 2: Name?".to_owned()), "{shown:?}");
    plain.read("", NOW_MS);
    assert_eq!(lines(plain.take()), ["The answer is empty"]);
    plain.read("serde", NOW_MS);
    assert!(lines(plain.take()).contains(&"   Question 2 of 2: Why?".to_owned()));
    let wanted = json!({"answers": {"a": {"text": "serde"}}, "via": "console"});
    assert_eq!(answer(&mut plain, ""), Some(wanted));
}

#[test]
fn lines_with_a_slash_are_commands() {
    let mut plain = plain();
    asks(&mut plain, "q1", json!({"question": "Drop it?"}));
    let command = |plain: &mut Plain, line: &str| {
        plain.read(line, NOW_MS);
        plain.take()
    };
    let question = || "q1".to_owned();
    let out = command(&mut plain, "/hand lena she knows");
    let handed = Command::HandOver {
        question: question(),
        to: "lena".to_owned(),
        note: Some("she knows".to_owned()),
    };
    assert!(out.contains(&Out::Ask(handed)), "{out:?}");
    let out = command(&mut plain, "/decline ask Lena");
    let declined = Command::Decline {
        question: question(),
        reason: Some("ask Lena".to_owned()),
    };
    assert!(out.contains(&Out::Ask(declined)), "{out:?}");
    let out = lines(command(&mut plain, "/list"));
    assert_eq!(out, ["1 question", "   high alice: Drop it? [you]"]);
    assert!(lines(command(&mut plain, "/nonsense"))[0].starts_with("Unknown"));
    assert!(command(&mut plain, "/quit").contains(&Out::Quit));
}

#[test]
fn a_question_that_ends_elsewhere_makes_room_for_the_next() {
    let mut plain = plain();
    asks(&mut plain, "q1", json!({"question": "First?"}));
    let shown = asks(&mut plain, "q2", json!({"question": "Second?"}));
    assert_eq!(shown, [""; 0], "one question at a time");
    let ended = json!({"revision": 2, "state": "answered", "answered_by": {"human": "lena"}});
    plain.apply(Update::Question(question("q1", ended)), NOW_MS);
    let shown = lines(plain.take());
    assert_eq!(shown[0], "The question was answered by lena.");
    assert!(shown.contains(&"   Question: Second?".to_owned()), "{shown:?}");
}

#[test]
fn messages_are_lines_and_are_written_with_a_command() {
    let mut plain = plain();
    let message = json!({"message_id": "m1", "sender_id": "s1", "sender_name": "alice", "thread_id": "t1", "unread": true,
        "timestamp": "2026-11-23T05:03:09.000Z", "payload": {"text": "8080"}});
    let update = || Update::Messages {
        session_id: "s-mara".to_owned(),
        messages: vec![serde_json::from_value(message.clone()).unwrap()],
        waiting: 1,
    };
    plain.apply(update(), NOW_MS);
    let shown = lines(plain.take());
    assert_eq!(shown[..2], ["📋 MESSAGE [05:03:09] alice", "   8080"]);
    plain.apply(update(), NOW_MS);
    assert_eq!(lines(plain.take()), [""; 0], "each is shown once");
    plain.read("/write alice thank you", NOW_MS);
    let written = Command::Write {
        to: "alice".to_owned(),
        text: "thank you".to_owned(),
        thread: Some("t1".to_owned()),
    };
    assert!(plain.take().contains(&Out::Ask(written)));
    plain.read("/read", NOW_MS);
    assert!(
        plain
            .take()
            .contains(&Out::Ask(Command::MarkRead(vec!["m1".to_owned()])))
    );
    plain.read("/write alice", NOW_MS);
    assert!(lines(plain.take())[0].starts_with("❌"));
}
