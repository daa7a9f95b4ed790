//! `mcp-broker gateway run` and `gateway watch` as processes, with the test as their client.

use std::{
    fs,
    io::Read,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{
    harness::{Plan, marked, replace_configuration},
    support::{Agent, Wire, broker_program, eventually},
};

/// A gateway that runs. Dropping it asserts that all processes of its backends end.
pub struct Running {
    child: Child,
    /// The streams of the process, until a client takes them.
    wire: Option<Wire>,
    pub folder: PathBuf,
    marker: String,
    log: Arc<Mutex<String>>,
    /// Until it is read.
    stderr: Option<ChildStderr>,
}

/// A subcommand of `gateway` with these arguments, in this folder, which is also the home.
pub fn program(folder: &Path, subcommand: &str, args: &[&str]) -> Command {
    let mut program = broker_program();
    program
        .args(["gateway", subcommand])
        .args(args)
        .current_dir(folder)
        .env("HOME", folder)
        .env("PATH", "/usr/bin:/bin")
        .env("MCP_BROKER_GATEWAY_LIST_WAIT", "20s");
    program
}

/// Starts a program whose stdin and stdout are pipes.
pub fn with_pipes(mut program: Command) -> (Child, ChildStdin, ChildStdout) {
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (child, input, output)
}

impl Running {
    pub fn start(folder: PathBuf, marker: String, subcommand: &str, args: &[&str]) -> Self {
        let mut running = Self::start_unread(folder, marker, subcommand, args);
        running.reads_log();
        running
    }

    /// A gateway whose stderr is not read yet.
    pub fn start_unread(folder: PathBuf, marker: String, subcommand: &str, args: &[&str]) -> Self {
        // Clients such as those of Node.js have sockets for pipes.
        let (own, given) = UnixStream::pair().unwrap();
        let mut child = program(&folder, subcommand, args)
            .stdin(OwnedFd::from(given.try_clone().unwrap()))
            .stdout(OwnedFd::from(given))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stderr: child.stderr.take(),
            child,
            wire: Some(Wire::on_socket(own)),
            folder,
            marker,
            log: Arc::default(),
        }
    }

    /// Reads stderr from here on.
    pub fn reads_log(&mut self) {
        let (mut stderr, to) = (self.stderr.take().unwrap(), Arc::clone(&self.log));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = stderr.read(&mut bytes) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
    }

    /// The streams without a handshake.
    pub fn wire(&mut self) -> Wire {
        self.wire.take().expect("the streams have one client")
    }

    pub fn legacy(&mut self) -> Agent {
        Agent::legacy(self.wire(), "2025-11-25", &json!({}))
    }

    pub fn modern(&mut self) -> Agent {
        Agent::modern(self.wire(), json!({}))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What was written to stderr so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Replaces the configuration file.
    pub fn is_configured(&self, plan: impl FnOnce(Plan) -> Plan) {
        replace_configuration(&self.folder, &self.marker, plan);
    }

    pub fn marker(&self) -> &str {
        &self.marker
    }

    pub fn receives(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end of the process.
    pub fn ends(&mut self) -> ExitStatus {
        eventually("the gateway ends", || self.child.try_wait().unwrap())
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until no process of a backend is alive.
    pub fn awaits_no_processes(&self) {
        eventually("all processes of backends have ended", || {
            marked(&self.marker).is_empty().then_some(())
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("{}", self.log());
        } else {
            self.awaits_no_processes();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
