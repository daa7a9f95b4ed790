//! What the keys of the console and the broker do.

use super::*;

#[test]
fn a_first_keystroke_claims_and_later_ones_save_the_draft_now_and_then() {
    let mut model = desk();
    let id = || "q1".to_owned();
    press(&mut model, &[Key::Enter]);
    let first = commands(press(&mut model, &text("a")));
    let draft = |text: &str| Command::SaveDraft {
        question: id(),
        text: text.to_owned(),
    };
    assert_eq!(first, [Command::Claim(id()), draft("a")]);
    assert_eq!(commands(press(&mut model, &text("b"))), []);
    assert_eq!(model.next_draft_ms(), Some(NOW_MS + 1_000));
    model.tick(NOW_MS + 1_000);
    assert_eq!(commands(model.take_effects()), [draft("ab")]);
    model.press(Key::Char('c'), NOW_MS + 10_000);
    assert_eq!(commands(model.take_effects()), [Command::Typed(id()), draft("abc")]);
}

#[test]
fn digits_choose_until_a_text_is_written() {
    let mut model = desk();
    press(&mut model, &[Key::Enter, Key::Char('2')]);
    assert!(model.work().unwrap().entries[0].chosen.contains(&1));
    press(&mut model, &text("x1 2"));
    let entry = &model.work().unwrap().entries[0];
    assert_eq!(entry.editor.text(), "x1 2");
    let sent = commands(press(&mut model, &[Key::Ctrl('d')]));
    let body = json!({"selected": ["keep"], "text": "x1 2", "via": "console"});
    let answer = Command::Answer {
        question: "q1".to_owned(),
        body,
    };
    assert_eq!(sent, std::slice::from_ref(&answer));
    assert_eq!(commands(press(&mut model, &text("y"))), [], "the answer is under way");
    model.apply(Update::Done(answer), NOW_MS);
    model.settle();
    assert_eq!(model.said.as_deref(), Some("sent to alice"));
    assert_eq!((model.selected.as_deref(), model.focus), (Some("q2"), Focus::List));
}

#[test]
fn an_empty_answer_is_asked_about_once() {
    let mut model = desk();
    assert_eq!(commands(press(&mut model, &[Key::Enter, Key::Ctrl('d')])), []);
    assert!(model.said.as_deref().unwrap().contains("empty"));
    let sent = commands(press(&mut model, &[Key::Ctrl('d')]));
    assert!(
        matches!(&sent[..], [Command::Answer { body, .. }] if body["text"] == ""),
        "{sent:?}"
    );
}

/// A form of three questions, of which none needs an answer.
fn form() -> Value {
    let items =
        json!([{"id": "a", "question": "Name?"}, {"id": "b", "question": "Which?"}, {"id": "c", "question": "When?"}]);
    with(drop_table(), json!({"question": null, "questions": items}))
}

#[test]
fn half_a_form_is_sent_after_every_question_was_shown_and_the_rest_confirmed() {
    let mut model = connected();
    question(&mut model, drop_table());
    whole(&mut model, form(), None);
    press(&mut model, &[Key::Enter]);
    press(&mut model, &text("x1"));
    assert_eq!(commands(press(&mut model, &[Key::Ctrl('d')])), []);
    assert_eq!(model.said.as_deref(), Some("question 2 of 3 has no answer yet"));
    // What is typed next is the answer to the second question.
    press(&mut model, &text("away"));
    assert!(!model.is_away);
    assert_eq!(model.work().unwrap().entries[1].editor.text(), "away");
    assert_eq!(commands(press(&mut model, &[Key::Ctrl('d'), Key::Ctrl('d')])), []);
    assert!(screen(&model, 80, 24).contains("one question has no answer. Send without it? [y/N]"));
    assert_eq!(commands(press(&mut model, &[Key::Char('n')])), []);
    assert_eq!(model.work().unwrap().at, 2, "the open question is shown");
    let sent = commands(press(&mut model, &[Key::Ctrl('d'), Key::Char('y')]));
    let answers = json!({"a": {"text": "x1"}, "b": {"text": "away"}});
    assert!(
        matches!(&sent[..], [Command::Answer { body, .. }] if body["answers"] == answers),
        "{sent:?}"
    );
}

#[test]
fn a_whole_form_is_sent_from_its_last_question() {
    let mut model = connected();
    question(&mut model, drop_table());
    whole(&mut model, form(), None);
    press(&mut model, &[Key::Enter]);
    for answer in ["one", "two", "six"] {
        press(&mut model, &text(answer));
        let sent = commands(press(&mut model, &[Key::Ctrl('d')]));
        assert_eq!(sent.len(), usize::from(answer == "six"), "{answer}: {sent:?}");
    }
}

#[test]
fn characters_typed_after_an_answer_was_sent_are_no_keys_of_the_list() {
    let mut model = desk();
    press(&mut model, &[Key::Enter]);
    press(&mut model, &text("xyes"));
    let sent = commands(press(&mut model, &[Key::Ctrl('d')]));
    model.apply(Update::Done(sent[0].clone()), NOW_MS + 5_000);
    model.settle();
    model.take_effects();
    let mut type_at = |at_ms: u64, typed: &str| {
        for key in text(typed) {
            model.press(key, NOW_MS + at_ms);
        }
        (model.is_away, model.is_paused, commands(model.take_effects()).len())
    };
    assert_eq!(type_at(5_000, "ap1q"), (false, false, 0));
    assert_eq!(type_at(5_999, "ap1q"), (false, false, 0));
    assert_eq!(type_at(6_000, "a"), (true, false, 1));
    assert_eq!(model.said, None, "what was said is over with the first key that counts");
}

#[test]
fn nothing_moves_while_the_person_writes() {
    let mut model = desk();
    press(&mut model, &[Key::Enter]);
    press(&mut model, &text("but"));
    let before = screen(&model, 80, 24);
    question(
        &mut model,
        with(brief("q0", "zoe", "high", 9, "Urgent?"), json!({"offered_to": here()})),
    );
    let yap = json!({"seq": 3, "sender_name": "zoe", "message": "hello", "at": "2026-11-23T05:03:09.000Z"});
    model.apply(Update::Yap(Box::new(parsed(yap))), NOW_MS);
    model.settle();
    let after = screen(&model, 80, 24);
    let answer = |text: &str| text.lines().skip(5).take(15).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(answer(&before), answer(&after));
    assert_eq!(
        before.lines().nth(1),
        after.lines().nth(1),
        "the first row stays the first"
    );
    assert!(after.contains("zoe") && after.contains("hello"));
    press(&mut model, &[Key::Escape]);
    assert_eq!(
        model.rows().next().unwrap().question_id,
        "q0",
        "then the list is sorted again"
    );
    assert_eq!(model.selected.as_deref(), Some("q1"), "and the selection stays");
}

#[test]
fn a_question_that_ends_elsewhere_says_by_whom_and_keeps_the_text() {
    let mut model = desk();
    press(&mut model, &[Key::Enter]);
    press(&mut model, &text("xmy text"));
    let ended = json!({"revision": 3, "state": "answered", "answered_by": {"human": "lena"},
        "answered_at": "2026-11-23T05:03:57.000Z"});
    question(&mut model, with(drop_table(), ended));
    model.settle();
    let shown = screen(&model, 80, 24);
    assert!(
        shown.contains("lena answered 3 s ago; your text is kept as a draft"),
        "{shown}"
    );
    assert!(shown.contains("xmy text"), "{shown}");
    assert_eq!(commands(press(&mut model, &text("z"))), [], "it takes no text");
    let edit = press(&mut model, &[Key::Ctrl('e')]);
    assert!(edit.contains(&Effect::Edit("xmy text".to_owned())), "{edit:?}");
    press(&mut model, &[Key::Escape]);
    assert_eq!(model.rows().len(), 2);
    assert!(model.work_for("q1").unwrap().has_text(), "the history shows it");
}

#[test]
fn a_late_answer_keeps_its_text() {
    let mut model = desk();
    press(&mut model, &[Key::Enter]);
    press(&mut model, &text("xmine"));
    let sent = commands(press(&mut model, &[Key::Ctrl('d')]));
    let refused = Update::Refused {
        command: sent[0].clone(),
        line: "question_closed: lena answered".to_owned(),
        is_gone: false,
        is_closed: true,
    };
    model.apply(refused, NOW_MS);
    assert_eq!(commands(model.take_effects()), [Command::Read("q1".to_owned())]);
    assert!(model.said.as_deref().unwrap().starts_with("not sent: "));
    assert_eq!(model.work().unwrap().entries[0].editor.text(), "xmine");
}

#[test]
fn the_question_of_another_person_is_taken_after_a_confirmation() {
    let mut model = desk();
    press(&mut model, &[Key::End]);
    assert_eq!(model.selected.as_deref(), Some("q3"));
    let text_of_q3 = with(
        brief("q3", "carol", "low", 0, "Name?"),
        json!({"question": "Name for the crate?",
        "claimed_by": {"human": "lena", "console": "c-2", "typing": true}}),
    );
    whole(&mut model, text_of_q3, None);
    let asked = commands(press(&mut model, &[Key::Enter, Key::Char('x')]));
    assert_eq!(asked, []);
    assert!(screen(&model, 80, 24).contains("lena is writing an answer. Take it over? [y/N]"));
    assert_eq!(commands(press(&mut model, &[Key::Char('n')])), []);
    press(&mut model, &[Key::Char('x')]);
    let taken = commands(press(&mut model, &[Key::Char('y')]));
    assert_eq!(taken, [Command::Claim("q3".to_owned())]);
    press(&mut model, &[Key::Char('x')]);
    assert_eq!(model.work().unwrap().entries[0].editor.text(), "x");
}

#[test]
fn declining_and_handing_over_ask_for_the_words() {
    let mut model = desk();
    let keys = [vec![Key::Char('d')], text("ask Lena"), vec![Key::Enter]].concat();
    let declined = Command::Decline {
        question: "q1".to_owned(),
        reason: Some("ask Lena".to_owned()),
    };
    assert_eq!(commands(press(&mut model, &keys)), [declined]);
    let keys = [
        vec![Key::Char('h')],
        text("lena"),
        vec![Key::Enter],
        text("a note"),
        vec![Key::Enter],
    ]
    .concat();
    let handed = Command::HandOver {
        question: "q1".to_owned(),
        to: "lena".to_owned(),
        note: Some("a note".to_owned()),
    };
    assert_eq!(commands(press(&mut model, &keys)), [handed]);
    let moved = json!({"revision": 2, "offered_to": {"human": "lena", "console": "c-2"}});
    question(&mut model, with(drop_table(), moved));
    assert_eq!(model.said.as_deref(), Some("the question of alice moved to lena"));
}

#[test]
fn a_new_connection_gets_the_drafts_and_the_claim_again() {
    let mut model = desk();
    press(&mut model, &[Key::Enter]);
    press(&mut model, &text("xone"));
    let lost = |attempt| Update::Lost {
        reason: "gone".to_owned(),
        attempt,
    };
    model.apply(lost(1), NOW_MS);
    assert_eq!(
        model.next_draft_ms(),
        None,
        "nothing is sent while there is no connection"
    );
    press(&mut model, &text(" two"));
    model.take_effects();
    model.apply(Update::Connected(Some("c-9".to_owned())), NOW_MS);
    let draft = Command::SaveDraft {
        question: "q1".to_owned(),
        text: "xone two".to_owned(),
    };
    assert_eq!(commands(model.take_effects()), [draft, Command::Claim("q1".to_owned())]);
    assert_eq!(model.connection, Connection::Open);
    // What has ended meanwhile is asked for while the person is at it, and leaves the list otherwise.
    model.apply(
        Update::Pending(vec![parsed(brief("q7", "zoe", "low", 0, "New?"))]),
        NOW_MS,
    );
    assert_eq!(commands(model.take_effects()), [Command::Read("q1".to_owned())]);
    model.settle();
    let ids: Vec<&str> = model.rows().map(|question| question.question_id.as_str()).collect();
    assert_eq!(ids, ["q1", "q7"]);
}

#[test]
fn a_stored_draft_is_shown_and_not_lost() {
    let mut model = connected();
    question(&mut model, drop_table());
    press(&mut model, &[Key::Enter]);
    assert_eq!(model.focus, Focus::List, "the draft comes with the question");
    whole(&mut model, drop_table_whole(), Some("two\nlines"));
    model.settle();
    assert!(screen(&model, 80, 24).contains("two"));
    press(&mut model, &[Key::Char('!')]);
    assert_eq!(model.work().unwrap().entries[0].editor.text(), "two\nlines!");
}

#[test]
fn a_question_that_comes_is_announced_once() {
    let mut model = connected();
    question(&mut model, drop_table());
    let is_notice = |effect: &Effect| matches!(effect, Effect::Notify(notice) if notice.asker == "alice");
    assert!(model.take_effects().iter().any(is_notice));
    question(&mut model, with(drop_table(), json!({"revision": 2})));
    question(&mut model, brief("q2", "bob", "low", 1, "Not for this console"));
    assert!(
        !model
            .take_effects()
            .iter()
            .any(|effect| matches!(effect, Effect::Notify(_)))
    );
}

#[test]
fn an_idle_console_wakes_at_most_once_a_minute() {
    let mut model = connected();
    assert_eq!(model.next_tick_ms(), None, "there is no age to show");
    question(&mut model, drop_table());
    model.settle();
    let next = model.next_tick_ms().unwrap();
    assert!(next - NOW_MS <= 60_000 && next.is_multiple_of(60_000), "{next}");
    model.tick(next);
    assert_eq!(model.next_tick_ms(), Some(next + 60_000));
    press(&mut model, &[Key::Char('?')]);
    assert_eq!(model.next_tick_ms(), None, "the help shows no ages");
}

#[test]
fn two_thousand_questions_scroll_and_are_searched() {
    let mut model = connected();
    let many = |at: u64| {
        parsed::<Question>(brief(
            &format!("q{at:04}"),
            "alice",
            "medium",
            5_000 - at,
            &format!("Question {at}?"),
        ))
    };
    model.apply(Update::Pending((0..2_000).map(many).collect()), NOW_MS);
    model.settle();
    assert!(screen(&model, 80, 24).contains("1 of 2000"));
    press(&mut model, &[Key::End]);
    let shown = screen(&model, 80, 24);
    assert!(
        shown.contains("2000 of 2000") && shown.contains("Question 1999?"),
        "{shown}"
    );
    press(&mut model, &[Key::Char('/')]);
    press(&mut model, &text("ALICE 1234?"));
    model.settle();
    assert_eq!(model.rows().len(), 1);
    press(&mut model, &[Key::Enter, Key::Escape]);
    assert_eq!(model.rows().len(), 2_000);
}

#[test]
fn quitting_saves_the_draft() {
    let mut model = desk();
    press(&mut model, &[Key::Enter]);
    press(&mut model, &text("xab"));
    let effects = press(&mut model, &[Key::Ctrl('c')]);
    assert_eq!(effects.last(), Some(&Effect::Quit));
    assert!(matches!(&commands(effects)[..], [Command::SaveDraft { text, .. }] if text == "xab"));
}

#[test]
fn pause_and_away_outlive_a_connection() {
    let mut model = connected();
    let paused = commands(press(&mut model, &[Key::Char('p')]));
    assert_eq!(paused, [Command::Console(json!({"paused": true}))]);
    model.apply(Update::Connected(Some("c-2".to_owned())), NOW_MS);
    let again = commands(model.take_effects());
    assert_eq!(again, [Command::Console(json!({"paused": true, "away": false}))]);
    assert_eq!(model.screen, Screen::Desk);
}

fn message(id: &str, from: &str, to: &str, unread: bool, text: &str) -> Value {
    json!({"message_id": id, "sender_id": format!("s-{from}"), "sender_name": from, "recipient_id": format!("s-{to}"),
        "recipient_name": to, "timestamp": "2026-11-23T05:03:09.000Z", "thread_id": "t1", "status": "queued",
        "unread": unread, "payload": {"text": text}})
}

fn messages(model: &mut Model, newest_first: Vec<Value>) {
    let waiting = newest_first.iter().filter(|message| message["unread"] == true).count() as u64;
    let messages = newest_first.into_iter().map(parsed).collect();
    let session_id = "s-mara".to_owned();
    model.apply(
        Update::Messages {
            session_id,
            messages,
            waiting,
        },
        NOW_MS,
    );
}

#[test]
fn messages_are_read_when_the_inbox_has_changed_and_shown_with_m() {
    let mut model = connected();
    let desk = |waiting: u64| {
        let desk = json!({"humans": [], "consoles": [], "inbox": {"waiting": waiting, "changes": waiting}});
        Update::Desk(parsed(desk))
    };
    model.apply(desk(0), NOW_MS);
    assert_eq!(commands(model.take_effects()), [Command::Messages]);
    model.apply(desk(0), NOW_MS);
    assert_eq!(commands(model.take_effects()), [], "nothing has changed");
    messages(&mut model, vec![message("m1", "mara", "alice", false, "Which port?")]);
    model.apply(desk(1), NOW_MS);
    assert_eq!(commands(model.take_effects()), [Command::Messages]);
    let all = || {
        vec![
            message("m2", "alice", "mara", true, "8080, **as** before"),
            message("m1", "mara", "alice", false, "Which port?"),
        ]
    };
    messages(&mut model, all());
    assert_eq!(model.said.as_deref(), Some("alice has written: m shows it"));
    let notices = model
        .take_effects()
        .into_iter()
        .filter(|effect| matches!(effect, Effect::Notify(_)));
    assert_eq!(notices.count(), 1);
    messages(&mut model, all());
    let notices = model
        .take_effects()
        .into_iter()
        .filter(|effect| matches!(effect, Effect::Notify(_)));
    assert_eq!(notices.count(), 0, "each is told once");
    press(&mut model, &[Key::Char('m')]);
    let shown = screen(&model, 80, 24);
    for wanted in ["1 message", "you to alice", "Which port?", "8080, **as** before", "new"] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    let keys = [vec![Key::Enter], text("thanks"), vec![Key::Enter]].concat();
    let written = commands(press(&mut model, &keys));
    let answer = Command::Write {
        to: "s-alice".to_owned(),
        text: "thanks".to_owned(),
        thread: Some("t1".to_owned()),
    };
    assert_eq!(written, std::slice::from_ref(&answer));
    model.apply(Update::Done(answer), NOW_MS);
    let read = Command::MarkRead(vec!["m2".to_owned()]);
    assert_eq!(
        commands(model.take_effects()),
        [read],
        "an answer says that the message was read"
    );
}

#[test]
fn a_message_that_waits_and_is_not_in_the_history_yet_is_read_again_a_few_times() {
    let mut model = connected();
    let late = |model: &mut Model, at_ms: u64| {
        let (session_id, messages) = ("s-mara".to_owned(), Vec::new());
        let update = Update::Messages {
            session_id,
            messages,
            waiting: 1,
        };
        model.apply(update, at_ms);
        model.next_draft_ms()
    };
    let mut now_ms = NOW_MS;
    for _ in 0..5 {
        assert_eq!(late(&mut model, now_ms), Some(now_ms + 1_000));
        now_ms += 1_000;
        model.tick(now_ms);
        assert_eq!(commands(model.take_effects()), [Command::Messages]);
    }
    assert_eq!(late(&mut model, now_ms), None, "not for ever");
}

#[test]
fn a_first_message_to_an_agent_has_no_thread_and_is_not_lost_when_it_is_refused() {
    let mut model = connected();
    let keys = [
        vec![Key::Char('w')],
        text("bob"),
        vec![Key::Enter],
        text("stop"),
        vec![Key::Enter],
    ]
    .concat();
    let written = commands(press(&mut model, &keys));
    let wanted = Command::Write {
        to: "bob".to_owned(),
        text: "stop".to_owned(),
        thread: None,
    };
    assert_eq!(written, std::slice::from_ref(&wanted));
    let refused = Update::Refused {
        command: wanted,
        line: "session_not_found: bob".to_owned(),
        is_gone: false,
        is_closed: false,
    };
    model.apply(refused, NOW_MS);
    assert_eq!(
        model.said.as_deref(),
        Some("not sent: session_not_found: bob; you wrote: stop")
    );
}
