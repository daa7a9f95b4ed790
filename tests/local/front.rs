//! A front of an agent for tests: `mcp-broker connect` with pipes, in folders of its own.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{WAIT_TIMEOUT, broker_program, eventually};

/// The folders of one user. Dropping it ends the user's broker.
pub struct User {
    folder: PathBuf,
}

impl User {
    pub fn new() -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let folder = std::env::temp_dir().join(format!("mb-{}", &id[..8]));
        for name in ["r", "s", "h"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(folder.join("r"), private).unwrap();
        Self { folder }
    }

    /// A project folder of this name.
    pub fn project(&self, name: &str) -> PathBuf {
        let path = self.folder.join("h").join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// The program with the environment of this user.
    pub fn program(&self) -> Command {
        let mut program = broker_program();
        program
            .env("XDG_RUNTIME_DIR", self.folder.join("r"))
            .env("XDG_STATE_HOME", self.folder.join("s"))
            .env("HOME", self.folder.join("h"))
            // The port of the default belongs to the machine.
            .env("MCP_BROKER_PORT", "0")
            .current_dir(self.project("cellar"));
        program
    }

    /// A front without arguments.
    pub fn front(&self) -> FrontBuilder {
        let mut program = self.program();
        program.arg("connect");
        FrontBuilder { program }
    }

    /// Starts the broker.
    pub fn start_broker(&self) {
        let started = self.program().args(["local", "start"]).output().unwrap();
        assert!(started.status.success(), "{started:?}");
    }

    /// The process of the broker, once it serves.
    pub fn broker_pid(&self) -> u32 {
        eventually("the broker runs", || {
            let text = fs::read_to_string(self.folder.join("r/mcp-broker/broker.json")).ok()?;
            let info: Value = serde_json::from_str(&text).ok()?;
            let pid = u32::try_from(info["pid"].as_u64()?).ok()?;
            Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
        })
    }

    /// Kills the broker with SIGKILL, and waits until it is gone.
    pub fn kill_broker(&self) {
        let pid = self.broker_pid();
        kill(pid, rustix::process::Signal::KILL);
        eventually("the broker is gone", || is_gone(pid).then_some(()));
    }

    /// The processes with the environment of this user.
    fn processes(&self) -> Vec<u32> {
        let own = format!("XDG_RUNTIME_DIR={}", self.folder.join("r").display());
        let of_user = |pid: &u32| {
            let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            variables
                .split(|byte| *byte == 0)
                .any(|variable| variable == own.as_bytes())
                && !is_gone(*pid)
        };
        let folders = fs::read_dir("/proc").unwrap().flatten();
        let pids = folders.filter_map(|folder| folder.file_name().to_str()?.parse().ok());
        pids.filter(of_user).collect()
    }

    pub fn connect_log(&self) -> String {
        fs::read_to_string(self.folder.join("s/mcp-broker/connect.log")).unwrap_or_default()
    }

    pub fn runtime_folder(&self) -> PathBuf {
        self.folder.join("r/mcp-broker")
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let stopped = self.program().args(["local", "stop", "--grace=2s"]).output();
        if thread::panicking() {
            eprintln!("{stopped:?}\n{}", self.connect_log());
            let log = fs::read_to_string(self.folder.join("s/mcp-broker/broker.log")).unwrap_or_default();
            eprintln!("{}", log.lines().rev().take(30).collect::<Vec<_>>().join("\n"));
        }
        // A front that has ended may have left a broker that had not begun to serve.
        for pid in self.processes() {
            kill(pid, rustix::process::Signal::KILL);
            eventually("the process is gone", || is_gone(pid).then_some(()));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Whether a process has ended. Its parent may not have taken note.
fn is_gone(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat"));
    state.map_or(true, |state| state.contains(") Z "))
}

pub fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// A front before its start.
pub struct FrontBuilder {
    program: Command,
}

impl FrontBuilder {
    pub fn args(mut self, args: &[&str]) -> Self {
        self.program.args(args);
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.program.env(name, value);
        self
    }

    /// In the environment that Claude Code gives.
    pub fn of_claude_code(self, project: &Path, conversation: &str) -> Self {
        self.env("CLAUDECODE", "1")
            .env("CLAUDE_PROJECT_DIR", project.to_str().unwrap())
            .env("CLAUDE_CODE_SESSION_ID", conversation)
    }

    pub fn in_folder(mut self, folder: &Path) -> Self {
        self.program.current_dir(folder);
        self
    }

    pub fn start(mut self) -> Front {
        self.program.stdin(Stdio::piped());
        let mut front = self.start_with_stdin();
        front.stdin = front.child.stdin.take();
        front
    }

    /// Starts it with the stdin that the program was given.
    pub fn with_stdin(mut self, stdin: Stdio) -> Front {
        self.program.stdin(stdin);
        self.start_with_stdin()
    }

    fn start_with_stdin(mut self) -> Front {
        let mut child = self
            .program
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, frames) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let line = line.unwrap();
                let frame = serde_json::from_str(&line).unwrap_or_else(|_| panic!("stdout has {line:?}"));
                if sender.send(frame).is_err() {
                    return;
                }
            }
        });
        let errors = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Front {
            child,
            stdin: None,
            frames,
            errors: Some(errors),
            kept: VecDeque::new(),
            last_id: 0,
        }
    }
}

/// A running front. Dropping it kills the process.
pub struct Front {
    pub child: Child,
    stdin: Option<ChildStdin>,
    frames: Receiver<Value>,
    errors: Option<thread::JoinHandle<String>>,
    /// Frames that were read before they were asked for.
    kept: VecDeque<Value>,
    last_id: u64,
}

impl Front {
    /// Sends a line as it is.
    pub fn sends_line(&mut self, line: &str) {
        self.sends_bytes(format!("{line}\n").as_bytes());
    }

    /// Sends bytes that need not be a whole line.
    pub fn sends_bytes(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub fn sends(&mut self, frame: &Value) {
        self.sends_line(&frame.to_string());
    }

    /// Sends a request; returns its id.
    pub fn asks(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        self.sends(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}));
        self.last_id
    }

    pub fn notifies(&mut self, method: &str, params: &Value) {
        self.sends(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// The next frame that fits; others are kept.
    pub fn awaits(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&fits) {
            return self.kept.remove(at).unwrap();
        }
        let until = Instant::now() + WAIT_TIMEOUT;
        loop {
            match self
                .frames
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(frame) if fits(&frame) => return frame,
                Ok(frame) => self.kept.push_back(frame),
                Err(RecvTimeoutError::Timeout) => panic!("timed out: {what}; other frames: {:?}", self.kept),
                Err(RecvTimeoutError::Disconnected) => panic!("stdout ended before {what}: {:?}", self.kept),
            }
        }
    }

    /// The response to the request with this id.
    pub fn answer(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        self.awaits(&format!("the answer to {id}"), |frame| {
            frame["id"] == id && frame.get("method").is_none()
        })
    }

    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.asks(method, params);
        self.answer(id)
    }

    pub fn notification(&mut self, method: &str) -> Value {
        self.awaits(method, |frame| frame["method"] == method)
    }

    /// Sends a call of a tool; returns its id.
    pub fn asks_tool(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.asks("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// The object of a call that succeeds.
    pub fn calls(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.asks_tool(tool, arguments);
        let answer = self.answer(id);
        assert_eq!(answer["result"]["isError"], false, "{tool}: {answer}");
        answer["result"]["structuredContent"].clone()
    }

    /// The error object of a call that fails.
    pub fn is_refused(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.asks_tool(tool, arguments);
        let answer = self.answer(id);
        assert_eq!(answer["result"]["isError"], true, "{tool}: {answer}");
        answer["result"]["structuredContent"].clone()
    }

    pub fn initialize(&mut self, client: &str) -> Value {
        self.initialize_with(client, &json!({}))
    }

    pub fn initialize_with(&mut self, client: &str, capabilities: &Value) -> Value {
        let answer = self.request(
            "initialize",
            &json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": client, "version": "1"}}),
        );
        self.sends(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer
    }

    /// Frames that have arrived and were not asked for.
    pub fn others(&mut self) -> Vec<Value> {
        let mut frames: Vec<Value> = self.kept.drain(..).collect();
        frames.extend(self.frames.try_iter());
        frames
    }

    /// Closes stdin.
    pub fn closes(&mut self) {
        self.stdin = None;
    }

    /// The end of the process and its output on stderr. Panics if it takes longer than a wait may.
    pub fn ends(mut self) -> (ExitStatus, String) {
        let status = eventually("the front ends", || self.child.try_wait().unwrap());
        (status, self.errors.take().unwrap().join().unwrap())
    }

    /// As [`Self::ends`], and how long that took.
    pub fn ends_within(self) -> (ExitStatus, String, Duration) {
        let start = Instant::now();
        let (status, errors) = self.ends();
        (status, errors, start.elapsed())
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking()
            && let Some(errors) = self.errors.take()
        {
            eprintln!("stderr of the front: {}", errors.join().unwrap_or_default());
        }
    }
}
