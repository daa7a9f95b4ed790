//! A scripted MCP server on stdio: it speaks either era, and misbehaves as its flags and its tools say.
//!
//! Lines are read on the first thread. Each call of a tool runs on a thread of its own, so that slow calls hold up no
//! others. Each message is written in one write.

mod handshake;
mod lists;
mod script;
mod tasks;
mod tools;

use std::{
    collections::{HashMap, HashSet},
    io::{self, BufRead, Write},
    process::exit,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use script::Script;
use serde_json::{Value, json};

/// What all threads share.
pub struct Server {
    pub script: Script,
    /// The era that the first handshake has chosen.
    pub era: Mutex<Option<handshake::Era>>,
    pub state: Mutex<State>,
    /// Wakes threads that wait for an answer of the client or a cancellation.
    pub changed: Condvar,
    pub calls: AtomicU64,
    /// Calls that run, and the most of them at the same time.
    pub running: AtomicU64,
    pub most_running: AtomicU64,
    pub stops_reading: AtomicBool,
    output: Mutex<io::Stdout>,
}

/// What was received and changed so far.
#[derive(Default)]
pub struct State {
    /// All lines.
    pub received: Vec<String>,
    /// The ids of cancelled requests, as JSON.
    pub cancelled: HashSet<String>,
    /// What the client of `initialize` has declared.
    pub capabilities: serde_json::Map<String, Value>,
    /// The answers of the client to requests of this server, by id.
    pub answers: HashMap<String, Value>,
    /// Tools that were added.
    pub added: Vec<String>,
    pub subscribed: HashSet<String>,
    /// The page that `needs_page` wants was opened.
    pub is_opened: bool,
    /// The resources of open subscriptions of modern clients, by the id of their request as JSON.
    pub listens: HashMap<String, Vec<String>>,
    /// The tasks, by their ids.
    pub tasks: HashMap<String, tasks::Task>,
    /// The tasks of open subscriptions, by the id of their request as JSON.
    pub task_listens: HashMap<String, Vec<String>>,
    /// How many subscriptions modern clients have asked for.
    pub listen_requests: u64,
    /// How often the tools were listed.
    pub tools_lists: u64,
}

impl Server {
    /// The state, for as long as the guard is held.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes bytes in one write.
    pub fn write(&self, bytes: &[u8]) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if output.write_all(bytes).and_then(|()| output.flush()).is_err() {
            exit(0);
        }
    }

    /// Writes a message.
    pub fn send(&self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// Answers a request.
    pub fn answer(&self, id: &Value, outcome: Result<Value, Value>) {
        self.send(&match outcome {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        });
    }

    /// Sends a notification.
    pub fn notify(&self, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Waits until the request of this id is cancelled, at most this long; returns whether it was.
    pub fn wait_for_cancellation(&self, id: &Value, at_most: Duration) -> bool {
        let id = id.to_string();
        let state = self.state();
        let waited = self
            .changed
            .wait_timeout_while(state, at_most, |state| !state.cancelled.contains(&id));
        waited.is_ok_and(|(state, _)| state.cancelled.contains(&id))
    }

    /// Whether the first handshake was modern.
    pub fn is_modern(&self) -> bool {
        let era = *self.era.lock().unwrap_or_else(PoisonError::into_inner);
        era == Some(handshake::Era::Modern)
    }
}

fn main() {
    let script = Script::parse(std::env::args().skip(1)).unwrap_or_else(|wrong| {
        eprintln!("{wrong}");
        exit(2)
    });
    script.begin();
    let server = Arc::new(Server {
        script,
        era: Mutex::default(),
        state: Mutex::default(),
        changed: Condvar::new(),
        calls: AtomicU64::new(0),
        running: AtomicU64::new(0),
        most_running: AtomicU64::new(0),
        stops_reading: AtomicBool::new(false),
        output: Mutex::new(io::stdout()),
    });
    server.script.garbage(|line| server.write(line.as_bytes()));
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        server.state().received.push(line.clone());
        if let Ok(message) = serde_json::from_str::<Value>(&line) {
            receive(&server, message);
        }
        if server.stops_reading.load(Ordering::SeqCst) {
            park_for_ever();
        }
    }
    if server.script.ignores_eof {
        park_for_ever();
    }
}

fn park_for_ever() -> ! {
    loop {
        thread::park();
    }
}

fn receive(server: &Arc<Server>, message: Value) {
    if server.script.is_silent {
        return;
    }
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    match (method.as_str(), message.get("id").cloned()) {
        ("", Some(id)) => {
            let answer = message.get("result").or(message.get("error")).cloned();
            let mut state = server.state();
            state
                .answers
                .insert(id.as_str().unwrap_or_default().to_owned(), answer.unwrap_or_default());
            drop(state);
            server.changed.notify_all();
        }
        ("notifications/cancelled", None) => {
            let id = message["params"]["requestId"].to_string();
            eprintln!("{id} was cancelled");
            let mut state = server.state();
            state.listens.remove(&id);
            state.task_listens.remove(&id);
            state.cancelled.insert(id);
            drop(state);
            server.changed.notify_all();
        }
        (_, None) => {}
        ("tools/call", Some(id)) => {
            if let Err(error) = handshake::check_request(server, &message["params"]) {
                return server.answer(&id, Err(error));
            }
            let (server, params) = (Arc::clone(server), message["params"].clone());
            thread::spawn(move || tools::call(&server, &id, &params));
        }
        ("subscriptions/listen", Some(id)) if server.is_modern() => lists::listen(server, &id, &message["params"]),
        (method, Some(id)) => {
            let outcome = handshake::serve(server, method, &message["params"])
                .or_else(|| Some(lists::serve(server, method, &message["params"])));
            if let Some(outcome) = outcome {
                server.answer(&id, outcome);
            }
        }
    }
}
