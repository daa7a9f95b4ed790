//! A broker that answers one request and records it, and runs of the client against it.

use std::{
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread::JoinHandle,
};

use serde_json::{Value, json};
use test_client::{
    http::{MessageReader, Request},
    process::broker_program,
    wait::WAIT_TIMEOUT,
};

/// The key of every test. The output of no run may contain it.
pub const KEY: &str = "admin_k1abcdef_000102030405060708090a0b0c0d0e0f1011121314151617";

pub const NEW_KEY: &str = "acme_k2_ffeeddccbbaa99887766554433221100";

/// A broker that answers one request.
pub struct FakeBroker {
    pub address: SocketAddr,
    pub served: JoinHandle<Request>,
}

impl FakeBroker {
    pub fn answering_with(status: &str, headers: &str, body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let asked = read(&stream);
            // A client that has closed the connection has read enough.
            let _ = stream.write_all(answer.as_bytes());
            asked
        });
        Self { address, served }
    }

    pub fn answering_json(body: &Value) -> Self {
        Self::answering_with("200 OK", "Content-Type: application/json\r\n", &body.to_string())
    }

    pub fn answering_problem(status: &str, code: &str, detail: &str) -> Self {
        let number: u16 = status[..3].parse().unwrap();
        let problem =
            json!({"type": "about:blank", "title": &status[4..], "status": number, "code": code, "detail": detail});
        Self::answering_with(
            status,
            "Content-Type: application/problem+json\r\n",
            &problem.to_string(),
        )
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Runs the client against this broker with the key in the environment.
    pub fn run_client(self, words: &[&str]) -> (ClientRun, Request) {
        let mut command = client(words);
        command.env("MCP_BROKER_API_KEY", KEY);
        self.run_command(command)
    }

    pub fn run_command(self, mut command: Command) -> (ClientRun, Request) {
        let ran = run_to_end(command.env("MCP_BROKER_URL", self.url()));
        // A client that never connects leaves the thread waiting: this connection ends it, with an empty request.
        drop(TcpStream::connect(self.address));
        (ran, self.served.join().unwrap())
    }
}

/// Reads one request; an empty one if the client sends none.
pub fn read(stream: &TcpStream) -> Request {
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    Request::read(&mut MessageReader::new(stream))
        .unwrap()
        .unwrap_or_default()
}

/// The exit code and the output of a run.
#[derive(Debug)]
pub struct ClientRun {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl ClientRun {
    /// The output on stdout of a run that succeeded.
    pub fn expect_stdout(&self) -> &str {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        &self.stdout
    }

    /// The single line on stderr of a run that ended with this code.
    pub fn expect_error(&self, code: i32) -> &str {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        let line = self.stderr.strip_suffix('\n').unwrap();
        assert!(!line.contains(char::is_control), "{line:?}");
        line.strip_prefix("error: ").unwrap_or_else(|| panic!("{self:?}"))
    }
}

/// The client with an empty environment.
pub fn client(words: &[&str]) -> Command {
    let mut command = broker_program();
    command.args(words).stdin(Stdio::null());
    command
}

pub fn run_to_end(command: &mut Command) -> ClientRun {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let ran = ClientRun {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    };
    assert!(
        !ran.stdout.contains(KEY) && !ran.stderr.contains(KEY),
        "the key was printed: {ran:?}"
    );
    ran
}

pub fn run(words: &[&str]) -> ClientRun {
    run_to_end(&mut client(words))
}

pub fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

pub fn acme() -> Value {
    json!({"project_id": "acme", "name": "Acme Corp", "description": null, "tags": ["east", "paid"], "active": true,
        "created_at": "2026-11-20T08:00:00Z", "config": {"allow_cross_project": true, "discoverable": false,
        "max_sessions": 50, "max_protocols": null, "queue_capacity": null, "rate_limit": 600}})
}

pub fn key(key_id: &str) -> Value {
    json!({"key_id": key_id, "label": "ci", "scope": "member", "status": "active", "created_at": "2026-11-20T08:00:00Z",
        "expires_at": null, "last_used_at": null})
}

pub fn permission() -> Value {
    json!({"target_project_id": "globex", "allowed_protocols": ["chat"], "message_rate_limit": 60,
        "granted_at": "2026-11-20T09:00:00Z"})
}
