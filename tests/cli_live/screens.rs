//! Commands in a real terminal: `top`, tables that fit, colours, and questions.

use std::process::Command;

use crate::program::{BrokerProcess, Run, TIMEOUTS_OFF, broker_with, delete, eventually, prepare, run, send, tool};

/// A terminal of tmux with one command in it. When it has ended, the screen stays and shows its exit code.
struct Screen {
    server: String,
}

impl Screen {
    /// Starts a command in a terminal of this size. `None` where tmux is not installed.
    fn start(broker: &BrokerProcess, size: (u16, u16), environment: &str, words: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            let required = std::env::var_os("TMUX_TESTS").is_some_and(|value| value == "required");
            assert!(!required, "TMUX_TESTS=required, and there is no tmux");
            eprintln!("skipped: there is no tmux");
            return None;
        }
        let screen = Self {
            server: format!("mcp-broker-{}", uuid::Uuid::new_v4().simple()),
        };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        let url = format!("MCP_BROKER_URL=http://{}", broker.address);
        let binary = env!("CARGO_BIN_EXE_mcp-broker");
        let variables = format!("TERM=$TERM LANG=C.UTF-8 {url} {environment}");
        let command = format!("echo before; env -i {variables} '{binary}' {words}; echo \"ended with $?\"; cat");
        let words = [
            "-u",
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            &command,
        ];
        screen.tmux(&words);
        Some(screen)
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.env_remove("TMUX").args(["-L", &self.server]).args(words);
        Run::of(&mut command).succeeds()
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen has this text, and returns all of it.
    fn shows(&self, wanted: &str) -> String {
        self.shows_that(wanted, |text| text.contains(wanted))
    }

    fn shows_that(&self, what: &str, is_shown: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        eventually(
            || format!("the screen shows {what}, and not\n{}", self.text()),
            || {
                last = self.text();
                is_shown(&last).then_some(())
            },
        );
        last
    }

    fn presses(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the command has ended, and returns its exit code.
    fn ends(&self) -> i32 {
        let text = self.shows("ended with ");
        let (_, rest) = text.split_once("ended with ").unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.server, "kill-server"]).output();
    }
}

#[test]
fn top_shows_sessions_messages_and_what_is_opened() {
    let broker = broker_with(&["alice", "bob"]);
    let Some(screen) = Screen::start(&broker, (80, 24), "", "top --interval=1s") else {
        return;
    };
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
fn top_follows_the_size_of_the_terminal() {
    let broker = broker_with(&["alice"]);
    let Some(screen) = Screen::start(&broker, (80, 24), "", "top") else {
        return;
    };
    let id = tool(broker.address, "register_session", &serde_json::json!({"name": "zoe"}));
    let id = id["session_id"].as_str().unwrap();
    let text = screen.shows("zoe");
    assert!(!text.contains(id), "80 columns are too narrow for an id: {text}");
    screen.tmux(&["resize-window", "-x", "200", "-y", "60"]);
    screen.shows(id);
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
fn top_tells_that_its_broker_is_gone_and_goes_on_when_it_is_back() {
    let broker = broker_with(&["alice"]);
    let port = broker.address.port();
    let Some(screen) = Screen::start(&broker, (200, 60), "", "top --interval=1s") else {
        return;
    };
    screen.shows("alice");
    broker.stop();
    let text = screen.shows("no answer for");
    assert!(text.contains("alice"), "the last answer stays: {text}");
    let broker = BrokerProcess::start_at_port(port, &TIMEOUTS_OFF);
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
fn top_restores_the_terminal_when_a_signal_ends_it() {
    let broker = broker_with(&["alice"]);
    let Some(screen) = Screen::start(&broker, (80, 24), "", "top") else {
        return;
    };
    screen.shows("alice");
    let shell = screen.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let shell = shell.trim();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    let pid = rustix::process::Pid::from_raw(children.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(screen.ends(), 128 + 15);
    let text = screen.text();
    assert!(text.contains("before") && !text.contains("alice"), "{text}");
}

#[test]
fn top_refuses_what_cannot_show_a_screen() {
    let broker = broker_with(&[]);
    let line = run(broker.address, &["top"]).fails_with(2);
    assert!(line.starts_with("top needs a terminal"), "{line}");
    let line = run(broker.address, &["--json", "top"]).fails_with(2);
    assert!(line.contains("mcp-broker tail --json"), "{line}");
    let line = run(broker.address, &["top", "--interval=2m"]).fails_with(2);
    assert!(line.contains("1s to 1m"), "{line}");
    for (environment, says) in [("TERM=dumb", "TERM says dumb"), ("TERM=", "TERM is not set")] {
        let Some(screen) = Screen::start(&broker, (200, 24), environment, "top") else {
            return;
        };
        assert_eq!(screen.ends(), 2);
        assert!(screen.text().contains(says), "{}", screen.text());
    }
}

#[test]
fn tables_fit_the_terminal_and_have_colours_there() {
    let broker = broker_with(&["alice"]);
    send(broker.address, "alice", "alice", "to myself");
    for (words, whole) in [
        ("sessions", "CONNECTED"),
        ("messages", "PROTOCOL"),
        ("inbox alice", "STATUS"),
    ] {
        let Some(screen) = Screen::start(&broker, (80, 24), "", words) else {
            return;
        };
        assert_eq!(screen.ends(), 0);
        // `-J` joins what the terminal had to wrap.
        let text = screen.tmux(&["capture-pane", "-p", "-J"]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains(whole) && text.contains("--wide shows all"), "{text}");
        let coloured = screen.tmux(&["capture-pane", "-p", "-e"]);
        assert!(coloured.contains("\u{1b}[1m"), "{coloured:?}");
    }
    let Some(screen) = Screen::start(&broker, (80, 24), "NO_COLOR=1", "sessions --wide") else {
        return;
    };
    assert_eq!(screen.ends(), 0);
    let plain = screen.tmux(&["capture-pane", "-p", "-e", "-J"]);
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    assert!(plain.lines().any(|line| line.chars().count() > 80), "{plain}");
}

#[test]
fn a_redrive_of_all_asks_first_on_a_terminal() {
    let broker = broker_with(&["alice", "gone", "heir"]);
    for at in 0..3 {
        send(broker.address, "alice", "gone", &at.to_string());
    }
    delete(broker.address, "/api/v1/sessions/gone?forget=true");
    let words = "dead-letters redrive --all --to=heir";
    let Some(screen) = Screen::start(&broker, (80, 24), "", words) else {
        return;
    };
    screen.shows("Send 3 dead letters again? [y/N]");
    screen.presses(&["n", "Enter"]);
    assert_eq!(screen.ends(), 1);
    assert!(screen.text().contains("nothing was changed"), "{}", screen.text());
    let Some(screen) = Screen::start(&broker, (80, 24), "", words) else {
        return;
    };
    screen.shows("[y/N]");
    screen.presses(&["y", "Enter"]);
    assert_eq!(screen.ends(), 0);
    screen.shows("sent 3 dead letters again");
}
