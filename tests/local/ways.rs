//! The ways in which a client of an agent can be told something, as Claude Code and Codex offer them: the inbox socket, the
//! command `codex queue`, the prompt in a terminal.

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    sync::{Arc, Mutex, mpsc::Sender},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{front::FrontBuilder, home::Home, screen::Screen};

/// The token of the inbox of each client.
pub const TOKEN: &str = "inbox-token-5d1c";
/// A connection to the inbox on which no complete line comes for this time is closed.
pub const INBOX_SILENCE: Duration = Duration::from_secs(30);

/// A turn that a client has begun by itself.
#[derive(Debug, PartialEq)]
pub struct Turn {
    /// What began it: `inbox`, `channel`, `hook`, `queue`, `tmux` or `call`.
    pub by: &'static str,
    /// What the model is told.
    pub text: String,
}

/// What Claude Code does with a message of another session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InboxRule {
    /// A turn begins.
    Takes,
    /// It waits for the consent of the user, and its sender is not told.
    Holds,
}

/// The socket by which other sessions reach a Claude Code.
pub struct Inbox {
    pub path: PathBuf,
    pub listener: UnixListener,
}

impl Inbox {
    /// A socket that is listened at. Nothing accepts connections yet.
    pub fn of(user: &Home) -> Self {
        let path = user.path.join(format!("inbox-{}.sock", uuid::Uuid::new_v4().simple()));
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        Self { path, listener }
    }

    /// The lines of the next connection, until its end.
    pub fn takes(&self) -> Vec<String> {
        let (stream, _) = self.listener.accept().unwrap();
        lines_of(stream, INBOX_SILENCE)
    }

    /// Serves connections as Claude Code does, until the test ends.
    pub fn serves(&self, rule: Arc<Mutex<InboxRule>>, silence: Duration, turns: Sender<Turn>) {
        let listener = self.listener.try_clone().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                for text in peer_messages(&lines_of(stream.unwrap(), silence)) {
                    if *rule.lock().unwrap() == InboxRule::Takes && turns.send(Turn { by: "inbox", text }).is_err() {
                        return;
                    }
                }
            }
        });
    }
}

/// The complete lines of a connection, until its end or until none comes for this time.
fn lines_of(stream: UnixStream, silence: Duration) -> Vec<String> {
    stream.set_read_timeout(Some(silence)).unwrap();
    BufReader::new(stream).lines().map_while(Result::ok).collect()
}

/// The texts of the messages on a connection. Without the token in its first line there is none.
fn peer_messages(lines: &[String]) -> Vec<String> {
    let lines: Vec<Value> = lines
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if lines.first() != Some(&json!({"type": "auth", "token": TOKEN})) {
        return Vec::new();
    }
    let messages = lines[1..].iter().filter(|line| line["type"] == "user");
    let texts = messages.filter_map(|line| line["message"]["content"].as_str());
    texts.map(str::to_owned).collect()
}

/// A program `codex` that appends its arguments as a line to a file.
pub struct CodexProgram {
    pub path: PathBuf,
    seen: PathBuf,
}

impl CodexProgram {
    /// The program. It does `then` at its end.
    pub fn of(user: &Home, then: &str) -> Self {
        let program = Self {
            path: user.path.join("codex"),
            seen: user.path.join("codex-was-given"),
        };
        program.does(then);
        program
    }

    /// From now on it does this at its end.
    pub fn does(&self, then: &str) {
        let script = format!("#!/bin/sh\necho \"$*\" >> '{}'\n{then}\n", self.seen.display());
        // A program that runs cannot be written to.
        let new = self.path.with_extension("new");
        fs::write(&new, script).unwrap();
        fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, &self.path).unwrap();
    }

    /// The arguments of its runs so far, a line each.
    pub fn was_given(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.seen).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The prompt of Claude Code in a real terminal. Each line that is typed there begins a turn.
pub struct Prompt {
    screen: Screen,
    typed: PathBuf,
}

impl Prompt {
    /// An empty prompt.
    pub fn of(user: &Home) -> Self {
        let screen = Screen::start((100, 24), "", "--version");
        let typed = user.path.join("typed");
        let script = format!(
            "printf '❯ '; while IFS= read -r line; do echo \"$line\" >> '{}'; printf '❯ '; done",
            typed.display()
        );
        screen.tmux(&["respawn-pane", "-k", &script]);
        screen.shows("❯");
        Self { screen, typed }
    }

    /// Lets a front type into it.
    pub fn tells(&self, front: FrontBuilder) -> FrontBuilder {
        let ask = |format: &str| self.screen.tmux(&["display-message", "-p", format]).trim().to_owned();
        front
            .args(&["--wake", "tmux", "--wake-tmux", &ask("#{pane_id}")])
            .env("PATH", &std::env::var("PATH").unwrap())
            .env("TMUX", &format!("{},1,0", ask("#{socket_path}")))
    }

    /// The lines that were typed so far.
    pub fn typed(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.typed).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
