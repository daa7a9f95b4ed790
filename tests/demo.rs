//! `mcp-broker demo`: it plays to its end, ends on a signal, and what it plays is seen through REST.

use std::{
    io::{BufRead, BufReader, Read},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use test_client::http::Request;

/// A running demo, killed when dropped.
struct Demo {
    process: Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
    printed: String,
}

impl Demo {
    fn start(words: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_mcp-broker"))
            .env_clear()
            .arg("demo")
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let printed = String::new();
        let mut demo = Self {
            process,
            output,
            address,
            printed,
        };
        let line = demo.reads_until("dashboard  http://");
        let (_, rest) = line.split_once("http://").unwrap();
        demo.address = rest.split_once("/dashboard").unwrap().0.parse().unwrap();
        demo
    }

    /// Reads up to the first line with this text, and returns the line.
    fn reads_until(&mut self, text: &str) -> String {
        loop {
            let start = self.printed.len();
            let len = self.output.read_line(&mut self.printed).unwrap();
            assert!(len > 0, "the demo ended without {text:?}: {}", self.printed);
            if self.printed[start..].contains(text) {
                return self.printed[start..].to_owned();
            }
        }
    }

    /// Waits for the end: the exit code, and what was printed to stdout and stderr.
    fn ends(mut self) -> (Option<i32>, String, String) {
        let mut stderr = String::new();
        self.output.read_to_string(&mut self.printed).unwrap();
        self.process.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let code = self.process.wait().unwrap().code();
        (code, std::mem::take(&mut self.printed), stderr)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// The JSON that a request over REST is answered with.
    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = Request::with_json(method, path, body).ask(self.address);
        answer.unwrap().json()
    }

    /// Follows the events until the broker ends.
    fn events(&self) -> Vec<(String, Value)> {
        let request = crate::support::Request::get(self.address).with_path("/api/v1/events");
        let mut stream = request.sent().streams();
        std::iter::from_fn(|| stream.next_event())
            .map(|event| {
                let data = serde_json::from_str(&event.data).unwrap_or_default();
                (event.kind.unwrap_or_default(), data)
            })
            .collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_story_is_told_to_its_end_and_seen_through_rest() {
    let demo = Demo::start(&["--duration", "1s"]);
    let address = demo.address;
    let events = demo.events();
    let (code, printed, stderr) = demo.ends();
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{printed}");
    assert!(
        printed.ends_with("Start your own broker: mcp-broker serve\n"),
        "{printed}"
    );
    assert!(printed.contains("tester                is back"), "{printed}");
    assert!(printed.contains("calls run_check through the gateway"), "{printed}");
    assert!(
        printed.contains("The sixth answer is 429, Retry-After 42."),
        "{printed}"
    );
    assert!(
        printed.contains(&format!("Answer at http://{address}/desk")),
        "{printed}"
    );
    assert!(
        printed.contains("withdraws the question: Only slow it down"),
        "{printed}"
    );
    assert!(TcpStream::connect(address).is_err(), "the broker has ended");

    let has =
        |topic: &str, fits: &dyn Fn(&Value) -> bool| events.iter().any(|(name, data)| name == topic && fits(data));
    for change in ["stale", "resumed"] {
        assert!(has("session", &|data| data["event"] == change), "{change}: {events:#?}");
    }
    for reason in ["expired", "delivery_limit"] {
        assert!(
            has("dead_letter", &|data| data["reason"] == reason),
            "{reason}: {events:#?}"
        );
    }
    let redriven = events
        .iter()
        .filter(|(name, data)| name == "message" && data["event"] == "redriven");
    assert_eq!(redriven.count(), 2, "{events:#?}");
    assert_eq!(printed.matches("redrives the dead letter").count(), 2, "{printed}");
    let is_of_thread = |data: &Value| data["message"]["headers"]["correlation_id"] == "login-rate-limit";
    let in_thread = events
        .iter()
        .filter(|(name, data)| name == "message" && is_of_thread(data));
    assert!(in_thread.count() >= 10, "{events:#?}");
    assert!(
        has("message", &|data| data["message"]["recipient_id"].is_null()
            && data["event"] == "accepted"),
        "a broadcast"
    );
}

#[test]
fn the_person_who_watches_answers_the_question() {
    let mut demo = Demo::start(&["--duration", "5s"]);
    demo.reads_until("planner -> you");
    let questions = demo.request("GET", "/api/v1/questions", &Value::Null);
    let question = &questions["questions"][0];
    assert_eq!(question["asker"]["name"], "planner", "{questions}");
    let path = format!("/api/v1/questions/{}/answer", question["question_id"].as_str().unwrap());
    let answered = demo.request("POST", &path, &json!({"selected": ["Lock it for an hour"]}));
    assert_eq!(answered["state"], "answered", "{answered}");
    let (code, printed, stderr) = demo.ends();
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{printed}");
    assert!(
        printed.contains("you -> planner        Lock it for an hour"),
        "{printed}"
    );
}

#[test]
fn a_signal_ends_the_demo_cleanly() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut demo = Demo::start(&["--duration", "10m"]);
        demo.reads_until("registers");
        demo.signal(signal);
        let (code, printed, stderr) = demo.ends();
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{printed}");
        assert!(printed.contains("it leaves nothing behind"), "{printed}");
    }
}

#[test]
fn a_reader_that_leaves_ends_the_demo_quietly() {
    let mut demo = Demo::start(&["--duration", "1s"]);
    let output = std::mem::replace(&mut demo.output, BufReader::new(empty_output()));
    drop(output);
    let (code, _, stderr) = demo.ends();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

/// The output of a process that prints nothing.
fn empty_output() -> ChildStdout {
    let mut process = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    let output = process.stdout.take().unwrap();
    process.wait().unwrap();
    output
}

#[test]
fn a_port_that_is_taken_is_one_line() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_mcp-broker"))
        .env_clear()
        .args(["demo", "--port", &port])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.starts_with("error: cannot listen on 127.0.0.1:") && stderr.lines().count() == 1,
        "{stderr}"
    );
}
