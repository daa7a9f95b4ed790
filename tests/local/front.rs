//! A front of an agent for tests: `mcp-broker connect` with pipes, in folders of its own.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use test_client::mcp::{self, LEGACY};

use super::{
    home::{Home, kill},
    support::{WAIT_TIMEOUT, eventually},
};

impl Home {
    /// A front without arguments, in a project folder.
    pub fn front(&self) -> FrontBuilder {
        let mut program = self.command("connect");
        program.current_dir(self.project("cellar"));
        FrontBuilder { program }
    }
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
    pub fn receives(&self, signal: rustix::process::Signal) {
        kill(i32::try_from(self.child.id()).unwrap(), signal);
    }

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

    /// A frame that fits and has arrived, if there is one.
    pub fn takes(&mut self, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        self.kept.extend(self.frames.try_iter());
        let at = self.kept.iter().position(fits)?;
        self.kept.remove(at)
    }

    /// The ids of later requests are larger than this one.
    pub fn counts_from(&mut self, id: u64) {
        self.last_id = id;
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
        let answer = self.request("initialize", &mcp::hello(client, LEGACY, capabilities));
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
