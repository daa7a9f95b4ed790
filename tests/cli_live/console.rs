//! The console in a real terminal, against the real broker: the test plays the agents over REST, and a person with the keys.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use test_client::{folder::Folder, http::Request};

use super::program::{RunningServer, TIMEOUTS_OFF, eventually_or, get, post, run, tool};
use crate::support::screen::Screen;

pub const SIZE: (u16, u16) = (100, 30);

/// A broker with agents of these names.
pub fn broker_with_agents(names: &[&str]) -> RunningServer {
    let broker = RunningServer::broker(&TIMEOUTS_OFF);
    register(&broker, names);
    broker
}

fn register(broker: &RunningServer, names: &[&str]) {
    for name in names {
        tool(broker.address, "register_session", &json!({"name": name}));
    }
}

/// A question of an agent; returns its id.
fn asks(broker: &RunningServer, from: &str, question: Value) -> String {
    let mut body = question;
    body["from"] = from.into();
    let asked = post(broker.address, "/api/v1/questions", &body);
    asked["question_id"]
        .as_str()
        .unwrap_or_else(|| panic!("{asked}"))
        .to_owned()
}

fn question(broker: &RunningServer, id: &str) -> Value {
    get(broker.address, &format!("/api/v1/questions/{id}"))
}

/// Waits until a question has ended so, and returns it.
fn ends_as(broker: &RunningServer, id: &str, state: &str) -> Value {
    let mut last = Value::Null;
    eventually_or(
        || format!("question {id} is {state}"),
        || {
            last = question(broker, id);
            (last["state"] == state).then_some(())
        },
    );
    last
}

/// A console of a person.
pub fn console(broker: &RunningServer, human: &str, size: (u16, u16), environment: &str) -> Screen {
    let environment = format!("MCP_BROKER_URL=http://{} {environment}", broker.address);
    let screen = Screen::start(size, &environment, &format!("console --name={human}"));
    screen.shows(&format!("{human} ● present"));
    screen
}

/// Types a text as the keys of a keyboard.
pub fn types(screen: &Screen, text: &str) {
    screen.presses(&["-l", text]);
}

/// Pastes a text as a terminal does, in brackets.
fn pastes(screen: &Screen, text: &str) {
    let file = std::env::temp_dir().join(format!("mcp-broker-paste-{}", uuid::Uuid::new_v4().simple()));
    fs::write(&file, text).unwrap();
    screen.tmux(&["load-buffer", file.to_str().unwrap()]);
    fs::remove_file(&file).unwrap();
    screen.tmux(&["paste-buffer", "-p"]);
}

/// The process of the console in a terminal.
fn pid(screen: &Screen) -> Pid {
    let shell = screen.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let shell = shell.trim();
    let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

/// Waits until the screen shows the whole question, so that its answer can be opened.
fn opens(screen: &Screen, text: &str) {
    screen.shows(text);
    screen.presses(&["Enter"]);
    screen.shows("Ctrl-D: send");
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn a_first_question_appears_and_gets_an_answer_of_several_lines() {
    let broker = broker_with_agents(&["alice"]);
    let screen = console(&broker, "mara", SIZE, "");
    screen.shows("no agent is asking anything");
    let context = json!({"question": "Drop the old table?", "context": "Migration 42; 1.2 M rows", "urgency": "high"});
    let id = asks(&broker, "alice", context);
    screen.shows("Migration 42; 1.2 M rows");
    let text = screen.shows("1 waiting (1 high)");
    assert!(text.contains("alice asks (high, now, expires in 23 h)"), "{text}");
    let title = screen.tmux(&["display-message", "-p", "#{pane_title}"]);
    assert_eq!(title.trim(), "(1) desk");
    opens(&screen, "Migration 42");
    pastes(&screen, "but dump it first\nto s3,\ttoo");
    screen.shows("to s3,    too");
    types(&screen, "!");
    screen.presses(&["Enter"]);
    types(&screen, "done 1 2 3");
    screen.shows("done 1 2 3");
    screen.presses(&["C-d"]);
    screen.shows("sent to alice");
    let ended = ends_as(&broker, &id, "answered");
    assert_eq!(
        ended["answer"]["text"], "but dump it first\nto s3,\ttoo!\ndone 1 2 3",
        "{ended}"
    );
    assert_eq!(
        ended["answered_by"],
        json!({"human": "mara", "via": "console"}),
        "{ended}"
    );
    // Letters do nothing in the first second after an answer.
    screen.presses(&["C-c"]);
    assert_eq!(screen.ends(), 0);
    assert!(
        screen.text().contains("before"),
        "the screen is restored: {}",
        screen.text()
    );
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn options_are_chosen_by_digits_and_by_space() {
    let broker = broker_with_agents(&["alice"]);
    let screen = console(&broker, "mara", SIZE, "");
    let options = json!([{"value": "drop", "label": "Drop it", "description": "irreversible"}, {"value": "keep", "label": "Keep it"}]);
    let id = asks(
        &broker,
        "alice",
        json!({"question": "Drop the old table?", "options": options}),
    );
    opens(&screen, "(2) Keep it");
    screen.presses(&["2", "1"]);
    screen.shows("(1)✓Drop it");
    // Behind the digit Space changes nothing: there is one choice.
    types(&screen, "2 of them");
    screen.shows("││ of them");
    screen.presses(&["C-d"]);
    let ended = ends_as(&broker, &id, "answered");
    assert_eq!(ended["answer"]["selected"], json!(["keep"]), "{ended}");
    let id = asks(
        &broker,
        "alice",
        json!({"question": "Which crates?", "options": ["serde", "tokio", "ureq"], "multi_select": true}),
    );
    opens(&screen, "[3] ureq");
    screen.presses(&["1", "Down", "Down", "Space"]);
    screen.shows("[3]✓ureq");
    screen.presses(&["C-d"]);
    let ended = ends_as(&broker, &id, "answered");
    assert_eq!(ended["answer"]["selected"], json!(["serde", "ureq"]), "{ended}");
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn a_form_is_answered_as_one() {
    let broker = broker_with_agents(&["alice"]);
    let screen = console(&broker, "mara", SIZE, "");
    let questions = json!([
        {"id": "name", "question": "What is its name?", "required": true},
        {"id": "db", "question": "Which database?", "options": ["sqlite", "postgres"]},
    ]);
    let id = asks(&broker, "alice", json!({"questions": questions}));
    opens(&screen, "question 1 of 2");
    screen.presses(&["C-d"]);
    screen.shows("question 1 of 2 needs an answer");
    types(&screen, "shop");
    screen.presses(&["C-d"]);
    screen.shows("question 2 of 2 has no answer yet");
    screen.presses(&["C-d"]);
    screen.shows("one question has no answer. Send without it? [y/N]");
    screen.presses(&["n"]);
    screen.shows("question 2 of 2");
    screen.presses(&["2"]);
    screen.shows("(2)✓postgres");
    screen.presses(&["C-d"]);
    let ended = ends_as(&broker, &id, "answered");
    let answers = &ended["answer"]["answers"];
    assert_eq!(
        (&answers["name"]["text"], &answers["db"]["selected"]),
        (&json!("shop"), &json!(["postgres"])),
        "{ended}"
    );
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn declining_says_why_and_handing_over_moves_the_question_to_the_other_console() {
    let broker = broker_with_agents(&["alice"]);
    let mara = console(&broker, "mara", SIZE, "");
    let id = asks(&broker, "alice", json!({"question": "Drop the old table?"}));
    mara.shows("you");
    let lena = console(&broker, "lena", SIZE, "");
    mara.presses(&["h"]);
    mara.shows("hand over to");
    types(&mara, "lena");
    mara.presses(&["Enter"]);
    mara.shows("note for lena");
    types(&mara, "you know it");
    mara.presses(&["Enter"]);
    mara.shows("handed over to lena");
    lena.shows("mara handed it over to lena: you know it");
    lena.shows_that("the question is hers", |text| text.contains(" you "));
    mara.shows_that("the question is not mine", |text| {
        text.lines()
            .any(|line| line.contains("Drop the old table?") && line.contains("lena"))
    });
    lena.presses(&["d"]);
    lena.shows("decline, because");
    types(&lena, "ask the owner");
    lena.presses(&["Enter"]);
    lena.shows("declined; alice gets a message");
    let ended = ends_as(&broker, &id, "declined");
    assert_eq!(
        (&ended["reason"], &ended["declined_by"]["human"]),
        (&json!("ask the owner"), &json!("lena")),
        "{ended}"
    );
    mara.shows("no agent is asking anything");
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn the_first_answer_wins_and_the_other_text_is_kept() {
    let broker = broker_with_agents(&["alice"]);
    let mara = console(&broker, "mara", SIZE, "");
    let id = asks(&broker, "alice", json!({"question": "Async or threads?"}));
    opens(&mara, "Async or threads?");
    types(&mara, "my long thoughts");
    mara.shows("my long thoughts");
    let lena = console(&broker, "lena", SIZE, "");
    lena.shows("mara (typing)");
    opens(&lena, "Async or threads?");
    types(&lena, "t");
    lena.shows("mara is writing an answer. Take it over?");
    lena.presses(&["y"]);
    types(&lena, "hreads");
    lena.shows("hreads");
    lena.presses(&["C-d"]);
    lena.shows("sent to alice");
    mara.shows_that("the end with its author, and the text", |text| {
        text.contains("lena answered") && text.contains("your text is kept") && text.contains("my long thoughts")
    });
    assert_eq!(ends_as(&broker, &id, "answered")["answered_by"]["human"], "lena");
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn the_screen_follows_the_size_of_the_terminal() {
    let broker = broker_with_agents(&["alice"]);
    let screen = console(&broker, "mara", (140, 40), "");
    asks(
        &broker,
        "alice",
        json!({"question": "Drop the old table?", "context": "Migration 42"}),
    );
    opens(&screen, "Migration 42");
    types(&screen, "an answer");
    screen.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    let text = screen.shows_that("all of it on 80 columns", |text| {
        text.lines().next().is_some_and(|line| line.ends_with('┐')) && text.contains("an answer")
    });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 24, "{text}");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 80) && lines[23].ends_with('┘'),
        "{text}"
    );
    screen.tmux(&["resize-window", "-x", "40", "-y", "10"]);
    screen.shows("too small");
    screen.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    screen.shows("an answer");
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn a_yap_leaves_the_line_that_is_typed_alone() {
    let broker = broker_with_agents(&["alice"]);
    let screen = console(&broker, "mara", SIZE, "");
    asks(&broker, "alice", json!({"question": "Drop the old table?"}));
    opens(&screen, "Drop the old table?");
    types(&screen, "half a sen");
    let before = screen.shows("half a sen");
    let cursor = screen.tmux(&["display-message", "-p", "#{cursor_x},#{cursor_y}"]);
    post(
        broker.address,
        "/api/v1/yaps",
        &json!({"from": "alice", "message": "starting migration"}),
    );
    let after = screen.shows("starting migration");
    assert_eq!(
        cursor,
        screen.tmux(&["display-message", "-p", "#{cursor_x},#{cursor_y}"])
    );
    let part = |text: &str| text.lines().skip(1).take(22).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(part(&before), part(&after), "nothing above the yaps has moved");
    types(&screen, "tence");
    screen.shows("half a sentence");
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn a_restart_of_the_broker_and_a_crash_of_the_console_lose_no_text() {
    let folder = Folder::new();
    let data = folder.data_dir();
    let settings = [&TIMEOUTS_OFF[..], &["--storage=disk", &data]].concat();
    let broker = RunningServer::broker(&settings);
    register(&broker, &["alice"]);
    let port = broker.address.port();
    let screen = console(&broker, "mara", SIZE, "");
    let id = asks(&broker, "alice", json!({"question": "Drop the old table?"}));
    opens(&screen, "Drop the old table?");
    types(&screen, "first");
    screen.presses(&["Enter"]);
    broker.stop();
    screen.shows("no connection");
    types(&screen, "second");
    let broker = RunningServer::broker_at_port(port, &settings);
    let text = screen.shows_that("a connection", |text| text.contains("mara ● present"));
    assert!(text.contains("first") && text.contains("second"), "{text}");
    // The stored draft is what another console of the same person begins with.
    let path = format!("/api/v1/questions/{id}/draft");
    let request = Request::new("GET", &path, &[("X-Human", "mara")], "");
    let draft = || request.ask(broker.address).unwrap().json();
    eventually_or(
        || format!("the draft is stored: {}", draft()),
        || (draft()["text"] == "first\nsecond").then_some(()),
    );
    kill_process(pid(&screen), Signal::KILL).unwrap();
    screen.shows("Killed");
    let again = console(&broker, "mara", SIZE, "");
    again.shows("second");
    again.presses(&["Enter"]);
    again.shows("Ctrl-D: send");
    again.presses(&["C-d"]);
    again.shows("sent to alice");
    assert_eq!(ends_as(&broker, &id, "answered")["answer"]["text"], "first\nsecond");
    drop(broker);
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn a_console_that_dies_gives_its_question_to_another() {
    // The broker finds that a stream has no reader when it writes to it.
    let broker = RunningServer::broker(&["--heartbeat-interval=1s"]);
    register(&broker, &["alice"]);
    let mara = console(&broker, "mara", SIZE, "");
    asks(&broker, "alice", json!({"question": "Drop the old table?"}));
    mara.shows_that("the question is hers", |text| text.contains(" you "));
    let lena = console(&broker, "lena", SIZE, "");
    lena.shows_that("it is of mara", |text| {
        text.lines()
            .any(|line| line.contains("Drop the old table?") && line.contains("mara"))
    });
    kill_process(pid(&mara), Signal::KILL).unwrap();
    lena.shows_that("now it is hers", |text| {
        text.lines()
            .any(|line| line.contains("Drop the old table?") && line.contains("you"))
    });
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn colours_are_left_out_where_they_are_not_wanted() {
    let broker = broker_with_agents(&["alice"]);
    asks(
        &broker,
        "alice",
        json!({"question": "Drop the old table?", "urgency": "high"}),
    );
    for (environment, is_coloured) in [("", true), ("NO_COLOR=1", false)] {
        let screen = console(&broker, "mara", SIZE, environment);
        screen.shows("1 waiting");
        let raw = screen.tmux(&["capture-pane", "-p", "-e"]);
        let codes = raw
            .split('\u{1b}')
            .filter_map(|part| part.strip_prefix('[')?.split_once('m'));
        let has_colour = codes
            .flat_map(|(code, _)| code.split(';'))
            .any(|code| matches!(code.parse(), Ok(30..=38 | 40..=48 | 90..=97)));
        assert_eq!(has_colour, is_coloured, "{raw:?}");
        screen.presses(&["q"]);
        assert_eq!(screen.ends(), 0);
    }
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn wide_and_combining_characters_are_typed_and_arrive() {
    let broker = broker_with_agents(&["alice"]);
    let screen = console(&broker, "mara", SIZE, "");
    let id = asks(&broker, "alice", json!({"question": "名前は何ですか? e\u{301}"}));
    opens(&screen, "名前は何ですか? e\u{301}");
    types(&screen, "日本x");
    screen.presses(&["BSpace", "Left"]);
    types(&screen, "e\u{301}");
    screen.presses(&["End"]);
    types(&screen, "語");
    screen.shows("日e\u{301}本語");
    screen.presses(&["C-d"]);
    let ended = ends_as(&broker, &id, "answered");
    assert_eq!(ended["answer"]["text"], "日e\u{301}本語", "{ended}");
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn hostile_texts_of_agents_are_escaped() {
    let broker = broker_with_agents(&["alice"]);
    let screen = console(&broker, "mara", SIZE, "");
    let hostile = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}txt <b>";
    asks(
        &broker,
        "alice",
        json!({"question": hostile, "context": hostile, "options": [{"value": "a", "label": hostile}]}),
    );
    let text = screen.shows_that("the whole question", |text| {
        text.contains("\\u{1b}[2J") && text.contains("(1)")
    });
    assert!(
        text.contains("\\u{202e}txt <b>") && text.contains("alice asks"),
        "{text}"
    );
    assert_eq!(
        screen.tmux(&["display-message", "-p", "#{pane_title}"]).trim(),
        "(1) desk"
    );
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn two_thousand_questions_scroll() {
    let names: Vec<String> = (0..20).map(|at| format!("agent-{at:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let broker = broker_with_agents(&names);
    for at in 0..2_000 {
        asks(
            &broker,
            names[at / 100],
            json!({"question": format!("Question {at:04}?"), "urgency": "low"}),
        );
    }
    let screen = console(&broker, "mara", SIZE, "");
    screen.shows("2000 waiting");
    screen.shows("1 of 2000");
    screen.presses(&["End"]);
    screen.shows("Question 1999?");
    screen.presses(&["Up"]);
    screen.shows("1999 of 2000");
    screen.presses(&["/"]);
    types(&screen, "0777?");
    screen.presses(&["Enter"]);
    screen.shows("agent-07 asks");
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn an_answer_is_written_in_the_editor_of_the_system() {
    let broker = broker_with_agents(&["alice"]);
    let script = std::env::temp_dir().join(format!("mcp-broker-editor-{}", uuid::Uuid::new_v4().simple()));
    fs::write(&script, "printf '%s and more\\n' \"$(cat \"$1\")\" > \"$1\"").unwrap();
    let environment = format!("PATH=/usr/bin:/bin EDITOR='sh {}'", script.display());
    let screen = console(&broker, "mara", SIZE, &environment);
    let id = asks(&broker, "alice", json!({"question": "Drop the old table?"}));
    opens(&screen, "Drop the old table?");
    types(&screen, "begun");
    screen.presses(&["C-e"]);
    screen.shows("begun and more");
    types(&screen, "!");
    screen.shows("begun and more!");
    screen.presses(&["C-d"]);
    assert_eq!(ends_as(&broker, &id, "answered")["answer"]["text"], "begun and more!");
    fs::remove_file(script).unwrap();
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn a_signal_while_the_editor_has_the_terminal_ends_the_console_but_an_interrupt_does_not() {
    let broker = broker_with_agents(&["alice"]);
    let script = std::env::temp_dir().join(format!("mcp-broker-editor-{}", uuid::Uuid::new_v4().simple()));
    // The console is the parent of the shell, or of the shell that has started it.
    let lines = "console=$PPID\n\
        grep -q mcp-broker /proc/$console/comm || console=$(awk '/^PPid/ {print $2}' /proc/$console/status)\n\
        signal=INT; grep -q again \"$1\" && signal=TERM\n\
        kill -$signal $console; printf 'again' > \"$1\"";
    fs::write(&script, lines).unwrap();
    let environment = format!("PATH=/usr/bin:/bin EDITOR='sh {}'", script.display());
    let screen = console(&broker, "mara", SIZE, &environment);
    asks(&broker, "alice", json!({"question": "Drop the old table?"}));
    opens(&screen, "Drop the old table?");
    screen.presses(&["C-e"]);
    screen.shows("again");
    screen.presses(&["C-e"]);
    assert_eq!(screen.ends(), 128 + 15);
    fs::remove_file(script).unwrap();
}

#[test]
fn lines_ask_and_answer_without_a_terminal() {
    let broker = broker_with_agents(&["alice"]);
    let id = asks(
        &broker,
        "alice",
        json!({"question": "Drop the old table?", "options": ["drop", "keep"]}),
    );
    let mut child = crate::cli_live::program::program(broker.address, &["console", "--plain", "--name=mara"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut until = |wanted: &str| {
        lines
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains(wanted))
            .unwrap()
    };
    until("QUESTION [");
    until("(2) keep");
    until("Your answer");
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"2\n").unwrap();
    until("sent to alice");
    assert_eq!(ends_as(&broker, &id, "answered")["answer"]["selected"], json!(["keep"]));
    // What is answered last is sent before the end.
    let id = asks(&broker, "alice", json!({"question": "And now?"}));
    until("Your answer");
    std::io::Write::write_all(&mut stdin, b"nothing\n").unwrap();
    drop(stdin);
    until("sent to alice");
    assert!(child.wait().unwrap().success());
    assert_eq!(ends_as(&broker, &id, "answered")["answer"]["text"], "nothing");
}

#[test]
fn a_console_refuses_what_cannot_show_a_screen() {
    let broker = broker_with_agents(&[]);
    let line = run(broker.address, &["console"]).fails_with(2);
    assert!(
        line.starts_with("console needs a terminal") && line.contains("--plain"),
        "{line}"
    );
    let line = run(broker.address, &["--json", "console"]).fails_with(2);
    assert!(line.contains("mcp-broker desk list --json"), "{line}");
    let line = run(broker.address, &["console", "--plain", "--name=a@b"]).fails_with(2);
    assert!(line.contains("--name") && line.contains('@'), "{line}");
}
