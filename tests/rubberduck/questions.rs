//! Questions: who is shown them, who gets the answer, and what becomes of them when a program leaves.

use serde_json::{Value, json};

use super::program::{Broker, Program};

const SERVER: &str = "0b1f6a52-8c47-4f3a-9d51-1f0a3a9f7c02";
const OTHER: &str = "5d0e8c11-27aa-4a40-8e33-6a0f0a3b9d77";
const CONSOLE: &str = "c0a1b2c3-0000-4000-8000-000000000001";

fn error_of(console: &mut Program) -> String {
    let error = console.next("error")["error"].as_str().unwrap().to_owned();
    // The original console writes errors to a log: the person sees this line.
    assert_eq!(console.next("yap")["message"], error);
    error
}

#[test]
fn a_question_is_shown_and_the_answer_reaches_its_asker_alone() {
    let broker = Broker::start(&[]);
    let (mut alice, mut bob) = (broker.server(SERVER), broker.server(OTHER));
    let mut console = broker.console(CONSOLE);
    let asked = json!({
        "id": "7d1e", "question": "Async or threads?", "context": "two\nlines", "urgency": "high",
        "timestamp": 1_763_990_001_000_u64, "status": "pending",
    });
    alice.say("clarification", &asked);
    let shown = console.next("clarification");
    assert_eq!(
        [
            &shown["question"],
            &shown["context"],
            &shown["urgency"],
            &shown["status"],
            &shown["sourceClientId"]
        ],
        [
            "Async or threads?",
            "two\nlines",
            "high",
            "pending",
            "rubberduck-0b1f6a52"
        ]
    );
    console.answer(&shown, "async, because of \"x\"\nand y");
    let line = alice.line();
    assert_eq!(
        (&line["type"], &line["clientType"]),
        (&json!("response"), &json!("cli"))
    );
    let data = &line["data"];
    assert_eq!(
        (&data["requestId"], &data["response"]),
        (&json!("7d1e"), &json!("async, because of \"x\"\nand y"))
    );
    assert_eq!(line["clientId"], data["cliId"]);
    bob.has_got_nothing();
    alice.has_got_nothing();
}

#[test]
fn a_question_without_a_console_waits_for_one() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server(SERVER);
    alice.ask("q", "Who is there?", "medium");
    alice.has_got_nothing();
    let mut console = broker.console(CONSOLE);
    let shown = console.next("clarification");
    assert_eq!(shown["question"], "Who is there?");
    console.answer(&shown, "me");
    assert_eq!(alice.next("response")["response"], "me");
}

#[test]
fn messages_may_share_a_segment_or_be_split() {
    let broker = Broker::start(&[]);
    let mut console = broker.console(CONSOLE);
    let mut alice = Program::connect(broker.port, SERVER, "mcp-server");
    let lines = [
        alice.bytes("register", &json!({})),
        alice.bytes("clarification", &Program::clarification("1", "one?", "medium")),
        alice.bytes("clarification", &Program::clarification("2", "two? ä€", "medium")),
    ];
    alice.write(&lines.concat());
    assert_eq!(alice.next("sync")["status"], "registered");
    let shown: Vec<_> = (0..2).map(|_| console.next("clarification")).collect();
    assert_eq!([&shown[0]["question"], &shown[1]["question"]], ["one?", "two? ä€"]);
    let answer = console.bytes("response", &json!({"requestId": shown[0]["id"], "response": "yes"}));
    let (first, rest) = answer.split_at(answer.len() / 2);
    console.write(first);
    // The answer to another connection shows that the broker has read on meanwhile.
    alice.has_got_nothing();
    console.write(rest);
    let answered = alice.next("response");
    assert_eq!(
        (&answered["requestId"], &answered["response"]),
        (&json!("1"), &json!("yes"))
    );
}

#[test]
fn the_question_of_a_killed_console_moves_to_another() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server(SERVER);
    let mut first = broker.console(CONSOLE);
    alice.ask("q", "Drop it?", "high");
    let shown = first.next("clarification");
    let mut second = broker.console("c0a1b2c3-0000-4000-8000-000000000002");
    second.has_got_nothing();
    first.kill();
    let moved = second.next("clarification");
    assert_eq!((&moved["id"], &moved["question"]), (&shown["id"], &json!("Drop it?")));
    second.answer(&moved, "no");
    assert_eq!(alice.next("response")["response"], "no");
}

#[test]
fn a_high_question_overtakes_low_ones_that_the_console_has_not_got() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server(SERVER);
    let mut console = broker.console(CONSOLE);
    for number in 0..11 {
        alice.ask(&number.to_string(), &format!("low {number}"), "low");
    }
    alice.ask("high", "now!", "high");
    let shown: Vec<_> = (0..10).map(|_| console.next("clarification")).collect();
    let mut texts: Vec<_> = shown
        .iter()
        .map(|question| question["question"].as_str().unwrap())
        .collect();
    texts.sort_unstable();
    // Ten at most wait for the person, and the eleventh low question is not among them.
    let overtaken = (0..11)
        .map(|number| format!("low {number}"))
        .filter(|text| !texts.contains(&text.as_str()));
    let overtaken: Vec<_> = overtaken.collect();
    console.has_got_nothing();
    console.answer(&shown[0], "1");
    let next = console.next("clarification");
    if texts.contains(&"now!") {
        assert!(overtaken.contains(&next["question"].as_str().unwrap().to_owned()));
    } else {
        assert_eq!(next["question"], "now!");
    }
}

#[test]
fn the_newest_connection_of_a_client_gets_the_lines_and_the_older_one_takes_over() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server(SERVER);
    let (mut older, mut newest) = (broker.console(CONSOLE), broker.console(CONSOLE));
    alice.ask("1", "one?", "medium");
    let shown = newest.next("clarification");
    assert_eq!(shown["question"], "one?");
    older.has_got_nothing();
    newest.kill();
    // What the closed connection got and was not answered goes to the other.
    assert_eq!(older.next("clarification"), shown);
    alice.ask("2", "two?", "medium");
    assert_eq!(older.next("clarification")["question"], "two?");
    older.answer(&shown, "yes");
    assert_eq!(alice.next("response")["requestId"], "1");

    // The same for the program of an agent: the answer goes to its newest connection, and to no other.
    let mut again = broker.server(SERVER);
    alice.ask("3", "three?", "medium");
    let shown = older.next("clarification");
    older.answer(&shown, "3");
    assert_eq!(again.next("response")["requestId"], "3");
    alice.has_got_nothing();
}

#[test]
fn a_console_gets_what_is_open_after_it_has_registered_for_the_second_time() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server(SERVER);
    alice.ask("1", "one?", "medium");
    alice.has_got_nothing();
    // The original console listens on both connections, and only from the second registration on.
    let mut deaf = broker.console(CONSOLE);
    let mut listening = broker.console(CONSOLE);
    let shown = listening.next("clarification");
    assert_eq!(shown["question"], "one?");
    deaf.has_got_nothing();
    listening.answer(&shown, "yes");
    assert_eq!(alice.next("response")["response"], "yes");
}

#[test]
fn a_client_that_never_answers_is_offered_questions_last() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server(SERVER);
    // The original broker registers such a client.
    let mut silent = broker.console("c0a1b2c3-0000-4000-8000-000000000009");
    alice.ask("first", "first?", "medium");
    assert_eq!(silent.next("clarification")["question"], "first?");
    let mut console = broker.console(CONSOLE);
    broker.awaits_consoles(2);
    alice.ask("second", "second?", "medium");
    let second = console.next("clarification");
    console.answer(&second, "2");
    assert_eq!(alice.next("response")["response"], "2");
    // Now it has proven to answer, and gets all that its queue has room for.
    let ids: Vec<_> = (0..9).map(|at| at.to_string()).collect();
    for id in &ids {
        alice.ask(id, &format!("{id}?"), "medium");
    }
    let shown: Vec<_> = ids.iter().map(|_| console.next("clarification")).collect();
    assert_eq!(shown.len(), 9);
    silent.has_got_nothing();
}

#[test]
fn a_text_that_is_too_long_is_cut_with_a_mark_and_asked() {
    let broker = Broker::start(&[]);
    let (mut alice, mut console) = (broker.server(SERVER), broker.console(CONSOLE));
    let mut asked = Program::clarification("long", &"ä".repeat(20_000), "medium");
    asked["context"] = json!("x".repeat(100_000));
    alice.say("clarification", &asked);
    let shown = console.next("clarification");
    for text in [&shown["question"], &shown["context"]] {
        assert!(text.as_str().unwrap().ends_with("(cut: the text was too long)"));
    }
    console.answer(&shown, "yes");
    assert_eq!(alice.next("response")["response"], "yes");
}

#[test]
fn an_agent_that_connects_again_gets_the_answer_that_it_has_asked_for() {
    let broker = Broker::start(&[]);
    let mut console = broker.console(CONSOLE);
    let mut alice = broker.server(SERVER);
    alice.ask("q", "Still there?", "medium");
    let shown = console.next("clarification");
    alice.kill();
    let mut alice = broker.server(SERVER);
    console.answer(&shown, "yes");
    assert_eq!(
        alice.next("response"),
        json!({"requestId": "q", "response": "yes", "cliId": human(&broker)})
    );
}

/// The name of the person at the consoles. The test starts the broker without an environment.
fn human(_: &Broker) -> &'static str {
    "human"
}

#[test]
fn a_repeated_question_is_asked_once() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server(SERVER);
    let mut console = broker.console(CONSOLE);
    alice.ask("q", "Once?", "medium");
    let shown = console.next("clarification");
    alice.ask("q", "Once?", "medium");
    alice.ask("r", "And this?", "medium");
    // Requests of one program are carried out in their order: the repeated question was not asked.
    assert_eq!(console.next("clarification")["question"], "And this?");
    console.answer(&shown, "once");
    assert_eq!(alice.next("response")["response"], "once");
    alice.has_got_nothing();
}

#[test]
fn a_late_answer_is_told_who_was_first() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server(SERVER);
    let mut first = broker.console(CONSOLE);
    alice.ask("q", "Which?", "low");
    let shown = first.next("clarification");
    let mut second = broker.console("c0a1b2c3-0000-4000-8000-000000000002");
    second.answer(&shown, "mine");
    assert_eq!(alice.next("response")["response"], "mine");
    first.answer(&shown, "late");
    assert_eq!(error_of(&mut first), "already answered by human");
    alice.has_got_nothing();
    // A closed question is not shown: consoles would ask it, although its status says otherwise.
    second.has_got_nothing();
}

#[test]
fn a_person_is_told_that_the_agent_has_left() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server(SERVER);
    let mut console = broker.console(CONSOLE);
    alice.ask("q", "Hello?", "medium");
    let shown = console.next("clarification");
    alice.kill();
    while broker.get("/api/v1/sessions/rubberduck-0b1f6a52")["status"] != "disconnected" {}
    console.answer(&shown, "hello");
    let told = error_of(&mut console);
    assert_eq!(told, "rubberduck-0b1f6a52 has stopped waiting; your answer is kept");
}

#[test]
fn control_characters_of_an_agent_reach_no_terminal() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server(SERVER);
    let mut console = broker.console(CONSOLE);
    let data = json!({"id": "q", "question": "a\u{1b}[2Jb", "context": "\u{202e}c\r", "urgency": "low"});
    alice.say("clarification", &data);
    let shown = console.next("clarification");
    let texts: [&Value; 2] = [&shown["question"], &shown["context"]];
    assert_eq!(texts, ["a\\u{1b}[2Jb", "\\u{202e}c\\u{d}"]);
}
