//! A program of rubberduck-mcp, as the broker sees it: one connection, the lines that it sends, and those that it gets.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::Instant,
};

use serde_json::{Value, json};

use test_client::{http::Request, process::RunningServer};

/// Longest time until the broker sends an awaited line.
pub use test_client::wait::WAIT_TIMEOUT;

/// A broker with a rubberduck port.
pub struct Broker {
    pub process: RunningServer,
    pub port: SocketAddr,
}

impl Broker {
    /// Starts the binary with a free rubberduck port, and these settings.
    pub fn start(settings: &[&str]) -> Self {
        let settings = [&["--rubberduck-port", "0"], settings].concat();
        let process = RunningServer::broker(&settings);
        let (_, rest) = process
            .announced
            .split_once("rubberduck programs are served at ")
            .unwrap();
        let end = rest.find(|c: char| !(c.is_ascii_digit() || ".:".contains(c))).unwrap();
        let port = rest[..end].parse().unwrap();
        Self { process, port }
    }

    /// What REST answers.
    pub fn get(&self, path: &str) -> Value {
        Request::get(path).ask(self.process.address).unwrap().json()
    }

    /// Waits until the desk has so many consoles: one takes its place some time after it has registered.
    pub fn awaits_consoles(&self, len: usize) {
        let began = Instant::now();
        while self.get("/api/v1/desk")["consoles"].as_array().unwrap().len() != len {
            assert!(began.elapsed() < WAIT_TIMEOUT, "the desk has not {len} consoles");
            thread::yield_now();
        }
    }

    /// Connects the MCP server of an agent.
    pub fn server(&self, id: &str) -> Program {
        Program::register(self.port, id, "mcp-server")
    }

    /// Connects a console.
    pub fn console(&self, id: &str) -> Program {
        Program::register(self.port, id, "cli")
    }
}

/// One connection.
pub struct Program {
    pub id: String,
    kind: &'static str,
    stream: TcpStream,
    lines: BufReader<TcpStream>,
}

impl Program {
    /// Connects, and says nothing.
    pub fn connect(port: SocketAddr, id: &str, kind: &'static str) -> Self {
        let stream = TcpStream::connect(port).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        Self {
            id: id.to_owned(),
            kind,
            stream,
            lines,
        }
    }

    /// Connects, registers, and waits for the confirmation.
    pub fn register(port: SocketAddr, id: &str, kind: &'static str) -> Self {
        let mut program = Self::connect(port, id, kind);
        program.say("register", &json!({}));
        let sync = program.line();
        assert_eq!((&sync["type"], &sync["clientId"]), (&json!("sync"), &json!("broker")));
        assert_eq!(sync["data"], json!({"status": "registered"}));
        program
    }

    /// The bytes of a line, in the order of the members that the real programs have.
    pub fn bytes(&self, kind: &str, data: &Value) -> String {
        let (id, client_type) = (&self.id, self.kind);
        format!(
            "{{\"id\":\"9b2c5a50-0d4c-4a35-9e0e-3d0f6f1f2a10\",\"type\":\"{kind}\",\"clientId\":\"{id}\",\
             \"clientType\":\"{client_type}\",\"timestamp\":1763990000000,\"data\":{data}}}\n"
        )
    }

    pub fn write(&mut self, bytes: &str) {
        self.stream.write_all(bytes.as_bytes()).unwrap();
    }

    pub fn say(&mut self, kind: &str, data: &Value) {
        let bytes = self.bytes(kind, data);
        self.write(&bytes);
    }

    /// The data of a question.
    pub fn clarification(id: &str, question: &str, urgency: &str) -> Value {
        json!({"id": id, "question": question, "urgency": urgency, "timestamp": 1_763_990_000_000_u64, "status": "pending"})
    }

    pub fn ask(&mut self, id: &str, question: &str, urgency: &str) {
        self.say("clarification", &Self::clarification(id, question, urgency));
    }

    pub fn answer(&mut self, question: &Value, answer: &str) {
        self.say("response", &json!({"requestId": question["id"], "response": answer}));
    }

    /// The next line.
    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        let len = self.lines.read_line(&mut line).expect("a line in time");
        assert!(len > 0, "the broker closed the connection");
        serde_json::from_str(&line).unwrap()
    }

    /// The data of the next line, which is of this kind.
    pub fn next(&mut self, kind: &str) -> Value {
        let mut line = self.line();
        assert_eq!(line["type"], kind, "{line}");
        line["data"].take()
    }

    /// Asserts that the broker has sent nothing: the answer to a line that it cannot read comes first.
    pub fn has_got_nothing(&mut self) {
        self.write("nothing?\n");
        assert_eq!(self.next("error"), json!({"error": "Invalid message format"}));
    }

    /// Asserts that the broker closes the connection, after these lines.
    pub fn is_closed(&mut self) {
        let mut line = String::new();
        assert_eq!(self.lines.read_line(&mut line).unwrap_or(0), 0, "{line}");
    }

    /// Ends like a killed process.
    pub fn kill(self) {
        self.stream.shutdown(Shutdown::Both).unwrap();
    }
}
