//! `desk`: questions of agents on a terminal.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::Stdio,
};

use serde_json::{Value, json};
use test_client::http::Request;

use super::program::{Run, RunningServer, TIMEOUTS_OFF, get, objects, post, program, run, run_with_input};

fn broker() -> RunningServer {
    RunningServer::broker(&TIMEOUTS_OFF)
}

/// Asks a question in the name of `alice` and returns its id.
fn ask(address: SocketAddr, question: &str, arguments: &Value) -> String {
    let mut body = json!({"from": "alice", "question": question});
    for (name, value) in arguments.as_object().unwrap() {
        body[name] = value.clone();
    }
    let asked = post(address, "/api/v1/questions", &body);
    asked["question_id"].as_str().unwrap().to_owned()
}

fn question(address: SocketAddr, id: &str) -> Value {
    get(address, &format!("/api/v1/questions/{id}"))
}

#[test]
fn a_question_is_listed_shown_taken_and_answered() {
    let broker = broker();
    let address = broker.address;
    let nothing = run(address, &["desk", "list"]);
    assert_eq!(
        (nothing.code, nothing.stdout.as_str()),
        (Some(3), "no questions\n"),
        "{nothing:?}"
    );
    let options = json!([{"value": "drop", "label": "Drop it", "description": "irreversible"}, "keep"]);
    let arguments = json!({"options": options, "urgency": "high", "context": "Migration\u{1b}[2J 42"});
    let id = ask(address, "Drop the old\u{202e} table?", &arguments);
    let listed = run(address, &["desk", "list"]).succeeds();
    assert!(
        listed.contains("high") && listed.contains("alice") && listed.contains(&id),
        "{listed}"
    );
    assert!(listed.contains("Drop the old\\u{202e} table?"), "{listed}");
    let shown = run(address, &["desk", "show", &id]).succeeds();
    assert!(shown.contains("  ( ) drop: Drop it (irreversible)\n"), "{shown}");
    assert!(shown.contains("Migration\\u{1b}[2J 42\n"), "{shown}");
    let json = run(address, &["desk", "show", &id, "--json"]).succeeds();
    assert_eq!(objects(&json)[0]["question_id"], id.as_str());
    let taken = run(address, &["desk", "take", &id, "--human=mara"]).succeeds();
    assert_eq!(taken, "took the question of alice\n");
    assert_eq!(question(address, &id)["claimed_by"]["human"], "mara");
    let words = [
        "desk",
        "answer",
        &id,
        "--human=mara",
        "--select=drop",
        "but dump it first",
    ];
    assert_eq!(run(address, &words).succeeds(), "answered the question of alice\n");
    let answered = question(address, &id);
    assert_eq!(answered["answered_by"], json!({"human": "mara", "via": "api"}));
    assert_eq!(
        (&answered["answer"]["selected"], &answered["answer"]["text"]),
        (&json!(["drop"]), &json!("but dump it first"))
    );
    for words in [
        &["desk", "answer", &id, "again"][..],
        &["desk", "decline", &id],
        &["desk", "take", &id],
    ] {
        let line = run(address, words).fails_with(3);
        assert!(line.starts_with("question_closed") && line.contains("mara"), "{line}");
    }
    let shown = run(address, &["desk", "show", &id]).succeeds();
    assert!(
        shown.contains("answered by mara") && shown.contains("answer: drop, but dump it first\n"),
        "{shown}"
    );
    let all = run(address, &["desk", "list", "--state=answered", "--json"]).succeeds();
    assert_eq!(objects(&all).len(), 1);
}

#[test]
fn an_answer_comes_from_stdin_and_in_the_name_of_the_user() {
    let broker = broker();
    let address = broker.address;
    let id = ask(address, "What now?", &json!({}));
    let line = run_with_input(address, &["desk", "answer", &id, "-"], "\n").fails_with(2);
    assert!(line.starts_with("stdin has no text"), "{line}");
    let output = program(address, &["desk", "answer", &id, "two\nlines"])
        .env("USER", "lena")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let answered = question(address, &id);
    assert_eq!(
        (&answered["answered_by"]["human"], &answered["answer"]["text"]),
        (&json!("lena"), &json!("two\nlines"))
    );
    let id = ask(address, "And now?", &json!({}));
    run_with_input(address, &["desk", "answer", &id, "-"], "first\nsecond\n\n").succeeds();
    assert_eq!(question(address, &id)["answer"]["text"], "first\nsecond");
    let id = ask(address, "How much?", &json!({}));
    run(address, &["desk", "answer", &id, "-5"]).succeeds();
    assert_eq!(question(address, &id)["answer"]["text"], "-5");
    let id = ask(address, "Or?", &json!({}));
    let declined = run(address, &["desk", "decline", &id, "--reason=ask Lena"]).succeeds();
    assert_eq!(declined, "declined the question of alice\n");
    assert_eq!(question(address, &id)["reason"], "ask Lena");
}

#[test]
fn what_cannot_be_done_is_told_with_its_code() {
    let broker = broker();
    let address = broker.address;
    let id = ask(address, "Which?", &json!({"options": ["a", "b"], "allow_other": false}));
    let unknown = "0198f3a2-0000-7000-8000-000000000000";
    for (words, code, begin) in [
        (&["desk", "show", unknown][..], 1, "question_not_found"),
        (&["desk", "answer", unknown, "a"], 1, "question_not_found"),
        (&["desk", "answer", &id, "--select=c"], 1, "invalid_argument"),
        (
            &["desk", "answer", &id, "--select=a", "--if-revision=999"],
            1,
            "precondition_failed",
        ),
        (
            &["desk", "answer", &id, "--answers=7"],
            2,
            "--answers is not a JSON object",
        ),
    ] {
        let line = run(address, words).fails_with(code);
        assert!(line.starts_with(begin), "{words:?}: {line}");
    }
    assert_eq!(run(address, &["desk", "answer", &id]).code, Some(2));
    assert_eq!(question(address, &id)["state"], "pending");
}

#[test]
fn a_key_of_a_person_needs_no_name() {
    let admin = "admin_tests_0123456789abcdef0123456789abcdef0123456789abcdef";
    let broker = RunningServer::broker(&[&TIMEOUTS_OFF[..], &["--enable-auth", "--admin-key", admin]].concat());
    let address = broker.address;
    let run = |key: &str, words: &[&str]| {
        Run::of(
            program(address, words)
                .env("MCP_BROKER_API_KEY", key)
                .env("USER", "root"),
        )
    };
    run(admin, &["project", "create", "acme", "--name=Acme"]).succeeds();
    let create = |flags: &[&str]| {
        let made = run(
            admin,
            &[&["project", "keys", "acme", "--create", "--json"], flags].concat(),
        )
        .succeeds();
        objects(&made)[0]["api_key"].as_str().unwrap().to_owned()
    };
    let agent = create(&[]);
    let mara = create(&["--scope=answer", "--human=mara", "--role=oncall,dba"]);
    let listed = run(admin, &["project", "keys", "acme"]).succeeds();
    assert!(listed.contains("mara (dba, oncall)"), "{listed}");
    let body = json!({"from": "alice", "question": "?", "to": "oncall"});
    let mut asked = Request::with_json("POST", "/api/v1/questions", &body);
    asked.add("X-API-Key", &agent);
    let asked = asked.ask(address).unwrap().json();
    let id = asked["question_id"].as_str().unwrap();
    let line = run(&agent, &["desk", "answer", id, "a"]).fails_with(1);
    assert!(line.starts_with("forbidden"), "{line}");
    assert!(run(&mara, &["desk", "list"]).succeeds().contains("oncall"));
    assert_eq!(run(&mara, &["desk", "answer", id, "a", "--human=lena"]).code, Some(1));
    let answered = run(&mara, &["desk", "answer", id, "a", "--json"]).succeeds();
    assert_eq!(objects(&answered)[0]["answered_by"]["human"], "mara");
}

#[test]
fn a_watcher_sees_questions_change_and_a_console_is_present() {
    let broker = broker();
    let address = broker.address;
    let mut child = program(address, &["desk", "watch", "--json", "--console", "--human=mara"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut awaits = |topic: &str, fits: &dyn Fn(&Value) -> bool| loop {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        if event["topic"] == topic && fits(&event["data"]) {
            return event["data"].clone();
        }
    };
    let console = awaits("desk", &|_| true)["console"].clone();
    let id = ask(address, "Who is there?", &json!({}));
    awaits("question", &|question| {
        question["question_id"] == id.as_str() && question["mine"] == true
    });
    assert_eq!(get(address, "/api/v1/desk")["consoles"][0]["console"], console);
    run(address, &["desk", "answer", &id, "mara", "--human=mara"]).succeeds();
    awaits("question", &|question| question["state"] == "answered");
    child.kill().unwrap();
    child.wait().unwrap();
    ask(address, "Second?", &json!({}));
    let lines = run(address, &["desk", "watch", "--topics=questions", "--limit=2"]).succeeds();
    assert!(
        lines
            .lines()
            .any(|line| line.starts_with("question") && line.contains("alice: Second?")),
        "{lines}"
    );
}
