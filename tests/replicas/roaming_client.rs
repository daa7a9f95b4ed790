//! Clients that move between replicas: after a lost connection they continue at another replica.

use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use test_client::mcp::{self, McpSocket};

use super::{
    cluster::{BrokerCluster, ReplicaAddresses},
    ledger::{Balance, Ledger},
    support::WAIT_TIMEOUT,
};

/// The read timeout, after which a client checks whether to stop.
const READ_TIMEOUT: Duration = Duration::from_millis(100);

/// The outcome of a call.
pub enum CallOutcome {
    Done(Value),
    /// The error object of the tool.
    Refused(Value),
    /// The connection ended, or no answer arrived in time.
    Lost,
}

/// The connection has ended.
struct Disconnected;

/// A WebSocket connection that may end at any time.
struct RoamingConnection {
    socket: McpSocket,
    /// Notifications that arrived before an awaited answer.
    notifications: Vec<Value>,
}

impl RoamingConnection {
    fn open(address: SocketAddr, capabilities: &Value) -> Option<Self> {
        let socket = McpSocket::open(address, capabilities).ok()?;
        socket.stream().set_read_timeout(Some(READ_TIMEOUT)).ok()?;
        Some(Self {
            socket,
            notifications: Vec::new(),
        })
    }

    /// The next frame; None after [`READ_TIMEOUT`] without one.
    fn next(&mut self) -> Result<Option<Value>, Disconnected> {
        match self.socket.receive() {
            Ok(frame) => Ok(Some(frame)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(_) => Err(Disconnected),
        }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> CallOutcome {
        self.answer(tool, arguments).unwrap_or(CallOutcome::Lost)
    }

    fn answer(&mut self, tool: &str, arguments: &Value) -> Option<CallOutcome> {
        let id = self.socket.begins_call(tool, arguments).ok()?;
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while Instant::now() < deadline {
            match self.next().ok()? {
                Some(frame) if frame["id"] == id => {
                    assert!(frame.get("result").is_some(), "{tool} {arguments}: {frame}");
                    return Some(call_outcome(&frame["result"]));
                }
                Some(frame) => self.notifications.push(frame),
                None => {}
            }
        }
        None
    }
}

fn call_outcome(result: &Value) -> CallOutcome {
    let object = result["structuredContent"].clone();
    if result["isError"] == true {
        CallOutcome::Refused(object)
    } else {
        CallOutcome::Done(object)
    }
}

/// One call over HTTP on a connection of its own.
pub fn call_over_http(address: SocketAddr, tool: &str, arguments: &Value) -> CallOutcome {
    let params = json!({"name": tool, "arguments": arguments});
    let answer = mcp::modern(&json!(1), "tools/call", params).ask(address);
    let answer = answer.ok().map(|answer| answer.message());
    let result = answer.as_ref().and_then(|answer| answer.get("result"));
    result.map_or(CallOutcome::Lost, call_outcome)
}

/// A version of the protocol `note`, as a client declares and writes it.
#[derive(Debug)]
pub struct NoteVersion {
    pub version: &'static str,
    /// The member that has the text.
    pub text: &'static str,
    /// Other members that every payload has, with what senders write there.
    pub others: &'static [(&'static str, &'static str)],
}

const FIRST_VERSION: NoteVersion = NoteVersion {
    version: "1.0.0",
    text: "text",
    others: &[],
};

impl NoteVersion {
    fn payload(&self, text: &str) -> Value {
        let mut payload = json!({ self.text: text });
        for (name, value) in self.others {
            payload[*name] = json!(value);
        }
        payload
    }
}

/// A named client that may be connected to any replica.
struct RoamingClient<'a> {
    name: String,
    number: usize,
    versions: &'static [NoteVersion],
    /// The version that its last registration has declared.
    spoken: usize,
    addresses: ReplicaAddresses,
    line: Option<RoamingConnection>,
    capabilities: Value,
    moves: usize,
    /// When the last connection was lost.
    lost_at: Option<Instant>,
    ledger: &'a Ledger,
}

impl<'a> RoamingClient<'a> {
    fn new(
        name: String,
        number: usize,
        versions: &'static [NoteVersion],
        addresses: &ReplicaAddresses,
        ledger: &'a Ledger,
    ) -> Self {
        Self {
            name,
            number,
            versions,
            spoken: 0,
            addresses: addresses.clone(),
            line: None,
            capabilities: json!({}),
            moves: number,
            lost_at: None,
            ledger,
        }
    }

    fn version(&self) -> &'static NoteVersion {
        self.versions.get(self.spoken).unwrap_or(&FIRST_VERSION)
    }

    /// A registered connection; after a broken one, to the next replica. A client that is upgraded connects again, with its
    /// new version.
    fn connection(&mut self) -> Option<&mut RoamingConnection> {
        let version = self.ledger.version_of(self.number, self.versions.len());
        if version != self.spoken {
            self.line = None;
        }
        if self.line.is_none() {
            self.moves += 1;
            let address = self.addresses.pick(self.moves);
            let mut line = RoamingConnection::open(address, &self.capabilities);
            self.spoken = version;
            let registered = line.as_mut()?.call("register_session", &self.registration());
            match registered {
                CallOutcome::Done(_) => {
                    self.line = line;
                    if let Some(lost_at) = self.lost_at.take() {
                        self.ledger.record_reconnect(lost_at.elapsed());
                    }
                }
                CallOutcome::Refused(error) => self.wait_after_refusal(&error),
                CallOutcome::Lost => {}
            }
        }
        self.line.as_mut()
    }

    /// The arguments by which it declares its version.
    fn registration(&self) -> Value {
        let mut session = json!({"name": self.name});
        if let Some(version) = self.versions.get(self.spoken) {
            session["capabilities"] = json!({"supported_protocols": {"note": [version.version]}});
        }
        session
    }

    fn lose_connection(&mut self) {
        self.line = None;
        self.lost_at.get_or_insert_with(Instant::now);
    }

    /// Calls until some replica answers.
    fn call_until_answered(&mut self, tool: &str, arguments: &Value) -> Value {
        let deadline = Instant::now() + 3 * WAIT_TIMEOUT;
        while Instant::now() < deadline {
            match self.connection().map(|line| line.call(tool, arguments)) {
                Some(CallOutcome::Done(object)) => return object,
                Some(CallOutcome::Refused(error)) => self.wait_after_refusal(&error),
                Some(CallOutcome::Lost) => self.lose_connection(),
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
        panic!("{} never got an answer to {tool}", self.name);
    }

    /// Waits as long as `unavailable` asks for. Every other refusal fails the test.
    fn wait_after_refusal(&mut self, error: &Value) {
        assert_eq!(error["code"], "unavailable", "{}: {error}", self.name);
        let retry_after = error["retry_after_ms"].as_u64().unwrap_or_else(|| panic!("{error}"));
        self.ledger.record_refusal();
        // The hint is meant for thousands of agents; a test waits less.
        thread::sleep(Duration::from_millis(retry_after.min(200)));
    }

    /// Sends direct messages and broadcasts, with this pause between them, until `stop` is set.
    fn send_until_stopped(&mut self, audience: &[String], pause: Duration, stop: &AtomicBool) {
        let mut number = 0u64;
        while !stop.load(Ordering::SeqCst) {
            thread::sleep(pause);
            number += 1;
            let text = format!("{} {number}", self.name);
            let mut arguments = json!({
                "protocol_name": "note", "protocol_version": self.version().version,
                "payload": self.version().payload(&text),
                // A repeat must not send the message twice.
                "headers": {"idempotency_key": text},
            });
            if number.is_multiple_of(4) {
                let sent = self.call_until_answered("broadcast_message", &arguments);
                let len = |key: &str| sent[key].as_u64().unwrap();
                assert_eq!(len("failed"), 0, "{sent}");
                // All receivers, and the other senders.
                assert!(len("recipients") >= audience.len() as u64, "{sent}");
                assert_eq!(len("delivered") + len("queued"), len("recipients"), "{sent}");
                self.ledger
                    .record_accepted(sent["message_id"].as_str().unwrap(), &text, audience);
            } else {
                let to = &audience[number as usize % audience.len()];
                arguments["recipient_id"] = json!(to);
                let sent = self.call_until_answered("send_message", &arguments);
                self.ledger
                    .record_accepted(sent["message_id"].as_str().unwrap(), &text, std::slice::from_ref(to));
            }
        }
    }

    /// Receives pushed messages and acknowledges them until `stop` is set.
    fn receive_pushes(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            let Some(line) = self.connection() else {
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            let mut told = std::mem::take(&mut line.notifications);
            let next = line.next();
            let is_gone = next.is_err();
            told.extend(next.ok().flatten());
            let mut ids = Vec::new();
            for frame in told {
                if frame["method"] == "notifications/dev.mcp-broker/message" {
                    let message = &frame["params"]["message"];
                    ids.push(message["message_id"].clone());
                    self.record_arrival(message);
                }
            }
            let ack = json!({
                "jsonrpc": "2.0", "method": "notifications/dev.mcp-broker/ack", "params": {"message_ids": ids},
            });
            let is_lost =
                is_gone || !ids.is_empty() && self.line.as_mut().is_none_or(|line| line.socket.send(&ack).is_err());
            if is_lost {
                self.lose_connection();
            }
        }
    }

    /// Polls and acknowledges, each time at a different replica, until `stop` is set.
    fn poll_until_stopped(&mut self, stop: &AtomicBool) {
        let mut session = None;
        let mut read = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            self.moves += 1;
            let address = self.addresses.pick(self.moves);
            let version = self.ledger.version_of(self.number, self.versions.len());
            if version != self.spoken {
                (self.spoken, session) = (version, None);
            }
            let (tool, mut arguments) = match &session {
                None => ("register_session", self.registration()),
                Some(_) if !read.is_empty() => ("acknowledge_messages", json!({"message_ids": read})),
                Some(_) => (
                    "receive_messages",
                    json!({"wait_seconds": 1, "acknowledge": "manual", "limit": 50}),
                ),
            };
            if let Some(session) = &session {
                arguments["session_id"] = json!(session);
            }
            match call_over_http(address, tool, &arguments) {
                CallOutcome::Done(object) => match tool {
                    "register_session" => session = Some(object["session_id"].as_str().unwrap().to_owned()),
                    "acknowledge_messages" => read.clear(),
                    _ => {
                        for message in object["messages"].as_array().unwrap() {
                            self.record_arrival(message);
                            read.push(message["message_id"].clone());
                        }
                    }
                },
                CallOutcome::Refused(error) => self.wait_after_refusal(&error),
                CallOutcome::Lost => {
                    self.ledger.record_lost_http_call();
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    fn record_arrival(&self, message: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{message}")).to_owned();
        let version = self.version();
        assert_eq!(message["protocol_version"], version.version, "{message}");
        for (name, _) in version.others {
            assert!(message["payload"][*name].is_string(), "{message}");
        }
        self.ledger.record_arrival(
            &self.name,
            &text(&message["message_id"]),
            &text(&message["payload"][version.text]),
            message["transformed"].is_object(),
        );
    }
}

/// The number of clients of each kind.
pub struct Load {
    pub senders: usize,
    /// Clients that receive by push, over WebSocket.
    pub listeners: usize,
    /// Clients that poll over HTTP, each time at another replica.
    pub pollers: usize,
    /// The pause of a sender between two messages.
    pub pause: Duration,
    /// The versions of `note` that clients declare, from the oldest to the newest; none is declared if there are none.
    pub versions: &'static [NoteVersion],
}

pub const LOAD: Load = Load {
    senders: 4,
    listeners: 4,
    pollers: 2,
    pause: Duration::ZERO,
    versions: &[],
};

impl Load {
    /// Sends and receives at the replicas of a cluster while `happens` runs, and until every accepted message has arrived.
    pub fn run_while(&self, cluster: &mut BrokerCluster, happens: impl FnOnce(&mut BrokerCluster, &Ledger)) -> Balance {
        self.run(cluster.addresses.clone(), |ledger| happens(cluster, ledger))
    }

    /// Sends and receives at these addresses while `happens` runs, and until every accepted message has arrived.
    pub fn run(&self, addresses: ReplicaAddresses, happens: impl FnOnce(&Ledger)) -> Balance {
        let addresses = &addresses;
        let ledger = Ledger::default();
        let (sent, received) = (AtomicBool::new(false), AtomicBool::new(false));
        let begun = AtomicUsize::new(0);
        let names = |prefix: &str, len: usize| (0..len).map(|at| format!("{prefix}{at}")).collect::<Vec<_>>();
        let (listeners, pollers) = (names("listener", self.listeners), names("poller", self.pollers));
        let audience = [listeners.clone(), pollers.clone()].concat();
        thread::scope(|scope| {
            let ends = StopOnDrop([&sent, &received]);
            for (number, name) in audience.iter().enumerate() {
                let mut nomad = RoamingClient::new(name.clone(), number, self.versions, addresses, &ledger);
                let (received, begun, polls) = (&received, &begun, number >= listeners.len());
                scope.spawn(move || {
                    let push = json!({"experimental": {"dev.mcp-broker/push": {"ack": "manual", "window": 16}}});
                    if !polls {
                        nomad.capabilities = push;
                    }
                    nomad.call_until_answered("heartbeat", &json!({}));
                    begun.fetch_add(1, Ordering::SeqCst);
                    if polls {
                        nomad.line = None;
                        nomad.poll_until_stopped(received);
                    } else {
                        nomad.receive_pushes(received);
                    }
                });
            }
            crate::support::eventually("all recipients are connected", || {
                (begun.load(Ordering::SeqCst) == audience.len()).then_some(())
            });
            let senders: Vec<_> = names("sender", self.senders)
                .into_iter()
                .enumerate()
                .map(|(number, name)| {
                    let mut nomad = RoamingClient::new(name, number, self.versions, addresses, &ledger);
                    let (audience, sent) = (&audience, &sent);
                    scope.spawn(move || nomad.send_until_stopped(audience, self.pause, sent))
                })
                .collect();
            happens(&ledger);
            sent.store(true, Ordering::SeqCst);
            for sender in senders {
                sender.join().unwrap();
            }
            let balance = ledger.await_all_arrived();
            drop(ends);
            balance
        })
    }
}

/// Sets the flags on drop, also on a panic: the scope waits for all of its threads.
struct StopOnDrop<'a>([&'a AtomicBool; 2]);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        for end in self.0 {
            end.store(true, Ordering::SeqCst);
        }
    }
}
