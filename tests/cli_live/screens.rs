//! Commands in a real terminal: `top`, tables that fit, colours, and questions.

use super::program::{RunningServer, TIMEOUTS_OFF, broker_with, delete, eventually_or, prepare, run, send, tool};
use crate::support::screen::Screen;

/// A command of the binary in a terminal of this size, for a broker.
fn start(broker: &RunningServer, size: (u16, u16), environment: &str, words: &str) -> Screen {
    let environment = format!("MCP_BROKER_URL=http://{} {environment}", broker.address);
    Screen::start(size, &environment, words)
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn top_shows_sessions_messages_and_what_is_opened() {
    let broker = broker_with(&["alice", "bob"]);
    let screen = start(&broker, (80, 24), "", "top --interval=1s");
    let text = screen.shows("2 active");
    assert!(
        text.contains("healthy") && text.contains("alice") && !text.contains("before"),
        "{text}"
    );
    send(broker.address, "alice", "bob", "hello");
    screen.shows("1 waiting");
    screen.presses(&["2"]);
    screen.shows("note 1.0.0");
    screen.presses(&["Enter"]);
    screen.shows_that("the life of the message", |text| {
        text.contains("EVENT") && text.contains("queued")
    });
    screen.presses(&["1", "/"]);
    screen.presses(&["-l", "bob"]);
    screen.presses(&["Enter"]);
    screen.shows_that("bob alone", |text| {
        text.contains("filter: bob") && !text.contains("alice")
    });
    screen.presses(&["Enter"]);
    screen.shows_that("the session of bob", |text| {
        text.contains("connected") && text.contains("note 1.0.0")
    });
    screen.presses(&["Escape", "5"]);
    screen.shows("accepted");
    screen.presses(&["q"]);
    assert_eq!(screen.ends(), 0);
    let text = screen.text();
    assert!(
        text.contains("before") && !text.contains("Sessions"),
        "the screen is restored: {text}"
    );
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn top_follows_the_size_of_the_terminal() {
    let broker = broker_with(&["alice"]);
    let screen = start(&broker, (80, 24), "", "top");
    let id = tool(broker.address, "register_session", &serde_json::json!({"name": "zoe"}));
    // Lists show the id with zeros in place of the digits that act.
    let id = format!("{}00000000", &id["session_id"].as_str().unwrap()[..28]);
    let text = screen.shows("zoe");
    assert!(!text.contains(&id), "80 columns are too narrow for an id: {text}");
    screen.tmux(&["resize-window", "-x", "200", "-y", "60"]);
    screen.shows(&id);
    screen.tmux(&["resize-window", "-x", "40", "-y", "10"]);
    screen.shows("too small");
    screen.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    screen.shows_that("the sessions again", |text| {
        text.contains("zoe") && text.contains("q quit")
    });
    screen.presses(&["C-c"]);
    assert_eq!(screen.ends(), 0);
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn top_tells_that_its_broker_is_gone_and_goes_on_when_it_is_back() {
    let broker = broker_with(&["alice"]);
    let port = broker.address.port();
    let screen = start(&broker, (200, 60), "", "top --interval=1s");
    screen.shows("alice");
    broker.stop();
    let text = screen.shows("no answer for");
    assert!(text.contains("alice"), "the last answer stays: {text}");
    let broker = RunningServer::broker_at_port(port, &TIMEOUTS_OFF);
    prepare(broker.address, &["carol"]);
    screen.shows_that("carol without a banner", |text| {
        text.contains("carol") && !text.contains("no answer")
    });
    screen.presses(&["5"]);
    tool(broker.address, "register_session", &serde_json::json!({"name": "dora"}));
    screen.shows("dora");
    screen.presses(&["q"]);
    assert_eq!(screen.ends(), 0);
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn top_restores_the_terminal_when_a_signal_ends_it() {
    let broker = broker_with(&["alice"]);
    let screen = start(&broker, (80, 24), "", "top");
    screen.shows("alice");
    let pid = program_of(&screen);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(screen.ends(), 128 + 15);
    let text = screen.text();
    assert!(text.contains("before") && !text.contains("alice"), "{text}");
}

/// The program that the terminal shows.
fn program_of(screen: &Screen) -> rustix::process::Pid {
    let shell = screen.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let shell = shell.trim();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    rustix::process::Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn full_screens_end_with_their_terminal() {
    let broker = broker_with(&["alice"]);
    for (words, shows) in [("top", "alice"), ("console --name mara", "mara")] {
        let screen = start(&broker, (80, 24), "", words);
        screen.shows(shows);
        let pid = program_of(&screen);
        screen.tmux(&["kill-server"]);
        eventually_or(
            || format!("{words} has ended"),
            || rustix::process::test_kill_process(pid).is_err().then_some(()),
        );
    }
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn top_refuses_what_cannot_show_a_screen() {
    let broker = broker_with(&[]);
    let line = run(broker.address, &["top"]).fails_with(2);
    assert!(line.starts_with("top needs a terminal"), "{line}");
    let line = run(broker.address, &["--json", "top"]).fails_with(2);
    assert!(line.contains("mcp-broker tail --json"), "{line}");
    let line = run(broker.address, &["top", "--interval=2m"]).fails_with(2);
    assert!(line.contains("1s to 1m"), "{line}");
    for (environment, says) in [("TERM=dumb", "TERM says dumb"), ("TERM=", "TERM is not set")] {
        let screen = start(&broker, (200, 24), environment, "top");
        assert_eq!(screen.ends(), 2);
        assert!(screen.text().contains(says), "{}", screen.text());
    }
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn tables_fit_the_terminal_and_have_colours_there() {
    let broker = broker_with(&["alice"]);
    send(broker.address, "alice", "alice", "to myself");
    for (words, headings) in [
        ("sessions", "NAME   STATUS  QUEUE  LAST SEEN  CONNECTED  SESSION"),
        ("messages", "AGE"),
        ("inbox alice", "AGE"),
    ] {
        let screen = start(&broker, (80, 24), "", words);
        assert_eq!(screen.ends(), 0);
        // `-J` joins what the terminal had to wrap.
        let text = screen.tmux(&["capture-pane", "-p", "-J"]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        // Ages and the beginnings of ids leave room for all columns.
        assert!(
            text.contains(headings) && text.contains(" s ") && !text.contains('…'),
            "{text}"
        );
        let coloured = screen.tmux(&["capture-pane", "-p", "-e"]);
        assert!(coloured.contains("\u{1b}[1m"), "{coloured:?}");
    }
    let screen = start(&broker, (40, 24), "", "messages");
    assert_eq!(screen.ends(), 0);
    let text = screen.tmux(&["capture-pane", "-p", "-J"]);
    assert!(text.contains('…') && text.contains("--wide shows all"), "{text}");
    let screen = start(&broker, (80, 24), "NO_COLOR=1", "sessions --wide");
    assert_eq!(screen.ends(), 0);
    let plain = screen.tmux(&["capture-pane", "-p", "-e", "-J"]);
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    assert!(plain.lines().any(|line| line.chars().count() > 80), "{plain}");
    for (environment, words, time) in [
        ("TZ=UTC", "sessions --wide", "Z "),
        ("TZ=XXX-5", "sessions --wide", "+05:00 "),
        ("TZ=XXX-5", "sessions --wide --utc", "Z "),
    ] {
        let screen = start(&broker, (200, 24), environment, words);
        assert_eq!(screen.ends(), 0);
        let text = screen.text();
        assert!(text.contains(time), "{environment} {words}: {text}");
    }
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn a_redrive_of_all_asks_first_on_a_terminal() {
    let broker = broker_with(&["alice", "gone", "heir"]);
    for at in 0..3 {
        send(broker.address, "alice", "gone", &at.to_string());
    }
    delete(broker.address, "/api/v1/sessions/gone?forget=true");
    let words = "dead-letters redrive --all --to=heir";
    let screen = start(&broker, (80, 24), "", words);
    screen.shows("Send 3 dead letters again? [y/N]");
    screen.presses(&["n", "Enter"]);
    assert_eq!(screen.ends(), 1);
    assert!(screen.text().contains("nothing was changed"), "{}", screen.text());
    let screen = start(&broker, (80, 24), "", words);
    screen.shows("[y/N]");
    screen.presses(&["y", "Enter"]);
    assert_eq!(screen.ends(), 0);
    screen.shows("sent 3 dead letters again");
}
