//! A user of a test: folders of its own, and the brokers that were started in them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use rustix::process::{Signal, geteuid};
use serde_json::Value;

use test_client::folder;
pub use test_client::process::{Running, is_alive, kill};

use crate::support::{Wire, eventually};

/// A user with folders of its own.
pub struct Home {
    pub path: folder::Home,
    /// The program that is run.
    pub program: PathBuf,
    variables: Vec<(String, String)>,
}

/// What a command has written, and its exit code.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Home {
    pub fn new() -> Self {
        Self {
            path: folder::Home::new().unwrap(),
            program: PathBuf::from(env!("CARGO_BIN_EXE_mcp-broker")),
            // The port of the default belongs to the machine.
            variables: vec![("MCP_BROKER_PORT".to_owned(), "0".to_owned())],
        }
    }

    /// All commands get this variable.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The runtime folder of the broker `default`.
    pub fn runtime(&self) -> PathBuf {
        self.path.join("run/mcp-broker")
    }

    pub fn socket(&self) -> PathBuf {
        self.runtime().join("broker.sock")
    }

    pub fn state(&self) -> PathBuf {
        self.path.join("state/mcp-broker")
    }

    /// The log of all fronts.
    pub fn connect_log(&self) -> String {
        fs::read_to_string(self.state().join("connect.log")).unwrap_or_default()
    }

    /// Writes the configuration file of the brokers of this user.
    pub fn has_configuration(&self, text: &str) {
        let folder = self.path.join(".config/mcp-broker");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("broker.toml"), text).unwrap();
    }

    /// A project folder of this name.
    pub fn project(&self, name: &str) -> PathBuf {
        let path = self.path.join("projects").join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(words.split(' ').filter(|word| !word.is_empty()))
            .current_dir("/")
            .env_clear()
            .envs(self.path.environment())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command.
    pub fn runs(&self, words: &str) -> Done {
        Done::of(self.command(words).output().unwrap())
    }

    /// Runs a command that must succeed.
    pub fn does(&self, words: &str) -> String {
        let done = self.runs(words);
        assert_eq!(done.code, 0, "{words}: {done:?}");
        done.stdout
    }

    /// The answer of a command with `--json` that must succeed.
    pub fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.does(words)).unwrap()
    }

    /// The process that a start or a status names.
    pub fn pid(&self, words: &str) -> i32 {
        let answer = self.json(words);
        answer["pid"].as_i64().unwrap_or_else(|| panic!("{answer}")) as i32
    }

    /// Waits until `status` ends with this code.
    pub fn awaits_status(&self, words: &str, code: i32) {
        eventually(&format!("{words} ends with {code}"), || {
            (self.runs(words).code == code).then_some(())
        });
    }

    /// A client of the broker `default`.
    pub fn client(&self) -> Wire {
        Wire::open_local(&self.socket())
    }

    /// Starts the broker `default`.
    pub fn start_broker(&self) {
        self.does("local start");
    }

    /// Kills the broker `default` with SIGKILL, once it serves, and waits until it is gone.
    pub fn kill_broker(&self) {
        let pid = eventually("the broker serves", || {
            let info = fs::read(self.runtime().join("broker.json")).ok()?;
            let info: Value = serde_json::from_slice(&info).ok()?;
            let pid = i32::try_from(info["pid"].as_i64()?).ok()?;
            is_alive(pid).then_some(pid)
        });
        kill(pid, Signal::KILL);
        eventually("the broker is gone", || (!is_alive(pid)).then_some(()));
    }

    /// The brokers that live in these folders.
    pub fn brokers(&self) -> Vec<i32> {
        let is_broker = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("local\0serve")
        };
        self.path.processes().into_iter().filter(is_broker).collect()
    }

    /// The processes that have a file open.
    pub fn holders_of(&self, path: &Path) -> Vec<i32> {
        let path = fs::canonicalize(path).unwrap();
        let has_it = |pid: &i32| {
            let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            open.filter_map(|entry| fs::read_link(entry.path()).ok())
                .any(|file| file == path)
        };
        self.path.processes().into_iter().filter(has_it).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.state().join("broker.log")).unwrap_or_default();
            eprintln!("--- the log of the broker:\n{log}---");
            eprintln!("--- the log of the fronts:\n{}---", self.connect_log());
        }
    }
}

impl Done {
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// The one line of a refusal, which leaves stdout empty.
    pub fn refusal(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        self.stderr.trim_end()
    }
}

/// Whether this process may become another user and mount file systems. CI runs as root; elsewhere the output says what
/// was not checked.
pub fn is_root(check: &str) -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("not checked, because it needs root: {check}");
    }
    is_root
}
