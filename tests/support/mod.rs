//! A library for black-box tests: broker processes, clients that talk to them, and assertions that read as sentences.
//!
//! ```ignore
//! let broker = Broker::without_timeouts();       // no timer fires: every wake-up comes from an event
//! let alice = broker.agent("alice");             // a WebSocket client with a session
//! let bob = broker.push_agent("bob", &json!({"ack": "manual"}));
//! let sent = alice.sends("hi").with("priority", "high").to(&bob);
//! let pushed = bob.is_pushed(["hi"]);            // waits for it, and panics after WAIT_TIMEOUT
//! bob.acknowledges(&pushed);
//! alice.awaits_status(&sent.id, "acknowledged");
//! alice.sends("?").fails_as("recipient_not_found", "carol");
//! broker.http_modern("dave").calls("heartbeat", json!({}));   // a client over HTTP
//! let team = broker.project("team", &json!({"max_sessions": 3}));   // needs a broker with an admin key
//! ```
//!
//! Every broker is a process of its own on a free port. Dropping it asserts that it still answers and has not
//! panicked. `TEST_STORAGE` (memory, disk, redis) chooses the storage of brokers whose flags name none. With
//! `TEST_TRANSPORT=local` the WebSocket clients of brokers without keys are clients of a local socket instead.

mod agent;
pub mod cluster_script;
mod http;
mod issuer;
pub mod promtool;
mod proxy;
pub mod redis;
pub mod screen;
mod target;
mod tenant;
mod wire;

use std::{
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Command, ExitStatus},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use test_client::{
    folder::Folder,
    process::{RunningServer, memory_kib},
};
pub use test_client::{
    process::broker_program,
    wait::{TIMEOUTS_OFF, WAIT_TIMEOUT, eventually},
    websocket::masked_frame,
};

pub use agent::{Agent, SendAnswer, listed_id, texts};
use http::upgrade;
pub use http::{Event, HttpAgent, Request, Response, ResponseReader, connect, exchange, initialize_request};
pub use issuer::{Issuer, unsigned};
pub use proxy::Proxy;
pub use redis::{Redis, RedisCluster};
pub use target::{Got, SECRET, Target, secret_file};
pub use tenant::{ADMIN_KEY, Tenant, id_of_key};
pub use wire::{Wire, read_frame};

/// Presence changes within a second or two, and the session of a closed connection is removed soon. Not shorter: a
/// client on a busy machine must still count as present.
pub const FAST_TIMEOUTS: [&str; 4] = [
    "--heartbeat-interval=100ms",
    "--stale-threshold=800ms",
    "--disconnect-threshold=1600ms",
    "--session-retention=800ms",
];

/// The keys of an object, sorted.
pub fn keys(object: &Value) -> Vec<&str> {
    let object = object.as_object().unwrap_or_else(|| panic!("not an object: {object}"));
    let mut keys: Vec<_> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// A running broker process. Dropping it asserts that it still answers and has not panicked.
pub struct Broker {
    server: RunningServer,
    pub address: SocketAddr,
    may_be_gone: bool,
    /// The admin key, if clients have to send one.
    admin_key: Option<&'static str>,
    /// The folder of the local socket of this broker, if its clients use one.
    local: Option<Folder>,
    /// The storage that belongs to this broker alone. Dropped after the process.
    place: BrokerStorage,
}

/// A folder for the local socket of a broker, if `TEST_TRANSPORT` is `local`.
fn folder_of_socket(flags: &[&str], admin_key: Option<&str>) -> Option<Folder> {
    match std::env::var("TEST_TRANSPORT").unwrap_or_default().as_str() {
        "" | "websocket" => return None,
        "local" => {}
        other => panic!("TEST_TRANSPORT={other}; websocket and local are known"),
    }
    let has_own = flags.iter().any(|flag| flag.starts_with("--local-socket"));
    (admin_key.is_none() && !has_own).then(|| Folder::of_broker().unwrap())
}

/// The storage of a broker.
enum BrokerStorage {
    /// The one that its flags name, or memory.
    Elsewhere,
    Disk(Folder),
    Redis(Redis),
}

impl BrokerStorage {
    /// The storage that `TEST_STORAGE` names (memory, disk, redis), unless the flags name one. The tests are the same
    /// for all.
    fn from_environment(flags: &[&str]) -> Self {
        let kind = std::env::var("TEST_STORAGE").unwrap_or_default();
        match kind.as_str() {
            _ if flags.iter().any(|flag| flag.starts_with("--storage")) => Self::Elsewhere,
            "" | "memory" => Self::Elsewhere,
            "disk" => Self::Disk(Folder::new()),
            "redis" => Self::Redis(Redis::start()),
            other => panic!("TEST_STORAGE={other}; memory, disk and redis are known"),
        }
    }

    fn flags(&self) -> Vec<String> {
        match self {
            Self::Elsewhere => Vec::new(),
            Self::Disk(folder) => vec!["--storage=disk".to_owned(), folder.data_dir()],
            Self::Redis(redis) => vec!["--storage=redis".to_owned(), format!("--redis-url={}", redis.url())],
        }
    }
}

impl Broker {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A broker with [`FAST_TIMEOUTS`].
    pub fn with_fast_timeouts() -> Self {
        Self::start_with(&FAST_TIMEOUTS)
    }

    /// A broker with [`TIMEOUTS_OFF`] and two threads.
    pub fn without_timeouts() -> Self {
        Self::start_with(&[&TIMEOUTS_OFF[..], &["--workers=2"]].concat())
    }

    /// A broker in which a silent session is disconnected after two seconds and kept for an hour.
    pub fn with_fast_disconnect() -> Self {
        Self::start_with(&[
            "--heartbeat-interval=100ms",
            "--stale-threshold=1s",
            "--disconnect-threshold=2s",
            "--session-retention=1h",
        ])
    }

    pub fn start_with(flags: &[&str]) -> Self {
        Self::launch(flags, None)
    }

    /// A broker with authentication.
    pub fn secured() -> Self {
        Self::secured_with(&[])
    }

    pub fn secured_with(flags: &[&str]) -> Self {
        Self::launch(&[flags, &["--enable-auth"]].concat(), Some(ADMIN_KEY))
    }

    /// A broker with authentication, started by a program that runs the broker with the arguments it is given.
    pub fn secured_with_program(program: Command, flags: &[&str]) -> Self {
        let flags = [flags, &["--enable-auth"]].concat();
        let broker = Self::launch_in(
            BrokerStorage::from_environment(&flags),
            program,
            &flags,
            Some(ADMIN_KEY),
        );
        Self::register_note_protocol(&broker.client());
        broker
    }

    /// A broker with authentication that stalls at this point of its work (`actors::faults::point`).
    pub fn secured_stalling_at(point: &str, flags: &[&str]) -> Self {
        let mut program = broker_program();
        program.env("FAULT_STALL_AT", point);
        Self::secured_with_program(program, flags)
    }

    /// Waits until the broker stalls.
    pub fn stalls(&self) {
        eventually("the broker stalls (it is built with `--features faults`)", || {
            self.log().contains("a fault stalls").then_some(())
        });
    }

    /// A broker without authentication that has an admin key.
    pub fn with_admin_key() -> Self {
        Self::launch(&[], Some(ADMIN_KEY))
    }

    fn launch(flags: &[&str], admin_key: Option<&'static str>) -> Self {
        let place = BrokerStorage::from_environment(flags);
        let program = broker_program();
        let broker = Self::launch_in(place, program, flags, admin_key);
        Self::register_note_protocol(&broker.client());
        broker
    }

    /// A broker on the existing storage that its flags name, in which `note` is registered already.
    pub fn on_existing_storage(flags: &[&str]) -> Self {
        Self::launch_in(BrokerStorage::Elsewhere, broker_program(), flags, None)
    }

    /// A broker on the storage that its flags name, started by a program that runs the broker with the arguments it is
    /// given.
    pub fn with_program(program: Command, flags: &[&str]) -> Self {
        let broker = Self::launch_in(BrokerStorage::Elsewhere, program, flags, None);
        Self::register_note_protocol(&broker.client());
        broker
    }

    /// One of the replicas that share a Redis, in which `note` is registered already.
    pub fn replica(redis_url: &str, flags: &[&str]) -> Self {
        let program = broker_program();
        Self::replica_with_program(program, redis_url, flags)
    }

    /// A replica started by a program that runs the broker with the arguments it is given.
    pub fn replica_with_program(mut program: Command, redis_url: &str, flags: &[&str]) -> Self {
        program.env("MCP_BROKER_REDIS_URL", redis_url);
        let flags = [&["--storage=redis"], flags].concat();
        Self::launch_in(BrokerStorage::Elsewhere, program, &flags, None)
    }

    fn launch_in(place: BrokerStorage, mut program: Command, flags: &[&str], admin_key: Option<&'static str>) -> Self {
        let local = folder_of_socket(flags, admin_key);
        let mut own = place.flags();
        own.extend(
            local
                .as_ref()
                .map(|local| format!("--local-socket={}", local.socket().display())),
        );
        // Results are checked against the schemas that this list has.
        own.extend((!flags.iter().any(|flag| flag.starts_with("--tools="))).then(|| "--tools=full".to_owned()));
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        program.envs(admin_key.map(|key| ("MCP_BROKER_ADMIN_KEY", key)));
        let server = RunningServer::serve(program, &[&own, flags].concat()).unwrap();
        Self {
            address: server.address,
            server,
            may_be_gone: false,
            admin_key,
            local,
            place,
        }
    }

    /// Whether the answer to a send has the status after the delivery. With a storage outside the process it is sent
    /// before the delivery.
    pub fn answers_after_delivery(&self) -> bool {
        matches!(self.place, BrokerStorage::Elsewhere)
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&mut self) {
        self.may_be_gone = true;
        self.server.kill();
    }

    /// Registers the protocol `note` of all messages, unless another replica has registered it.
    pub fn register_note_protocol(agent: &Agent) {
        let schema = json!({
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        });
        let note = json!({"name": "note", "version": "1.0.0", "schema": schema});
        let params = json!({"name": "register_protocol", "arguments": note});
        let result = agent.request("tools/call", params).unwrap();
        let is_known = result["structuredContent"]["code"] == "protocol_exists";
        assert!(result["isError"] == false || is_known, "{result}");
    }

    /// Creates a project with this configuration, and registers `note` in it.
    pub fn project(&self, id: &str, config: &Value) -> Tenant<'_> {
        let tenant = Tenant::create(self, id, config);
        Self::register_note_protocol(&tenant.client());
        tenant
    }

    /// A WebSocket connection without a session, or a local one with `TEST_TRANSPORT=local`.
    pub fn wire(&self) -> Wire {
        match (self.admin_key, &self.local) {
            (Some(key), _) => self.wire_with(&[("X-API-Key", key)]),
            (None, Some(local)) => Wire::open_local(&local.socket()),
            (None, None) => Wire::open(self.address),
        }
    }

    /// A WebSocket connection with these headers in the handshake.
    pub fn wire_with(&self, headers: &[(&str, &str)]) -> Wire {
        Wire::open_with(self.address, headers)
    }

    /// A legacy client that is initialized and has no session.
    pub fn client(&self) -> Agent {
        Agent::legacy(self.wire(), "2025-11-25", &json!({}))
    }

    /// A legacy client with a session of this name.
    pub fn agent(&self, name: &str) -> Agent {
        self.client().registered(name)
    }

    /// A client of 2026-07-28 with a session of this name.
    pub fn modern(&self, name: &str) -> Agent {
        Agent::modern(self.wire(), json!({})).registered(name)
    }

    /// A legacy client with push, with a session of this name.
    pub fn push_agent(&self, name: &str, settings: &Value) -> Agent {
        let capabilities = json!({"experimental": {"dev.mcp-broker/push": settings}});
        let agent = Agent::legacy(self.wire(), "2025-11-25", &capabilities).registered(name);
        agent.syncs();
        agent
    }

    /// A client of 2026-07-28 over HTTP with a session of this name.
    pub fn http_modern(&self, name: &str) -> HttpAgent {
        HttpAgent::modern(self.address, json!({})).registered(name)
    }

    /// A client of 2025-11-25 over HTTP with a session of this name.
    pub fn http_legacy(&self, name: &str) -> HttpAgent {
        HttpAgent::legacy(self.address, "2025-11-25", json!({})).registered(name)
    }

    /// Several legacy clients, named `prefix0`, `prefix1`, and so on.
    pub fn agents(&self, prefix: &str, len: usize) -> Vec<Agent> {
        (0..len).map(|at| self.agent(&format!("{prefix}{at}"))).collect()
    }

    /// A TCP connection on which nothing has been sent.
    pub fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        socket
    }

    /// A TCP connection after the WebSocket handshake. No byte after the handshake has been read.
    pub fn upgraded(&self) -> TcpStream {
        let (response, socket) = self.upgrade_on(self.socket(), &[]);
        assert_eq!(response.status, 101, "{response:?}");
        socket
    }

    pub fn get(&self, path: &str) -> Response {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.address
        );
        exchange(&self.socket(), head.as_bytes())
    }

    /// Sends an upgrade request in which `lines` replace the usual headers of the same names.
    pub fn upgrade(&self, lines: &[(&str, &str)]) -> Response {
        self.upgrade_on(self.socket(), lines).0
    }

    /// Sends an upgrade request on this connection. After a 101 no byte beyond the answer has been read.
    pub fn upgrade_on(&self, socket: TcpStream, lines: &[(&str, &str)]) -> (Response, TcpStream) {
        let host = self.address.to_string();
        let usual = [
            ("Host", host.as_str()),
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let kept = usual
            .iter()
            .filter(|(name, _)| lines.iter().all(|(other, _)| name != other));
        let mut head = "GET /ws HTTP/1.1\r\n".to_owned();
        for (name, value) in kept.chain(lines) {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("\r\n");
        upgrade(socket, head.as_bytes())
    }

    /// The output on stderr so far.
    pub fn log(&self) -> String {
        self.server.log()
    }

    /// Processor time of all threads so far, in ns.
    pub fn processor_time(&self) -> u64 {
        self.processor_times().iter().map(|(_, time)| time).sum()
    }

    /// Processor time of each thread so far, with its name, in ns.
    pub fn processor_times(&self) -> Vec<(String, u64)> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.server.id())).unwrap();
        let time = |task: PathBuf| {
            let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
            let name = std::fs::read_to_string(task.join("comm")).ok()?;
            Some((name, times.split(' ').next()?.parse().ok()?))
        };
        tasks.filter_map(|task| time(task.ok()?.path())).collect()
    }

    /// Resident memory in KiB.
    pub fn rss_kib(&self) -> u64 {
        memory_kib(self.server.id(), "VmRSS").unwrap()
    }

    /// The maximum of the resident memory so far, in KiB.
    pub fn peak_kib(&self) -> u64 {
        memory_kib(self.server.id(), "VmHWM").unwrap()
    }

    /// Resident memory that is not backed by a file, in KiB: the part that always counts towards a container's limit.
    pub fn anonymous_kib(&self) -> u64 {
        memory_kib(self.server.id(), "RssAnon").unwrap()
    }

    /// Sends SIGTERM.
    pub fn terminate(&mut self) {
        self.may_be_gone = true;
        let pid = rustix::process::Pid::from_child(&self.server.process.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Stops the process for a time (SIGSTOP, SIGCONT).
    pub fn freeze_for(&self, time: Duration) {
        self.freeze();
        thread::sleep(time);
        self.thaw();
    }

    pub fn freeze(&self) {
        self.send_signal(rustix::process::Signal::STOP);
    }

    pub fn thaw(&self) {
        self.send_signal(rustix::process::Signal::CONT);
    }

    fn send_signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.server.process.0), signal).unwrap();
    }

    /// Waits until the process has ended and its log is whole.
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        self.may_be_gone = true;
        self.server.wait_for_exit()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let healthy = self.may_be_gone || thread::panicking() || self.get("/livez").status == 200;
        self.server.kill();
        let log = self.log();
        if thread::panicking() {
            eprintln!("--- the log of the broker:\n{log}---");
            return;
        }
        assert!(healthy, "the broker does not answer:\n{log}");
        assert!(!log.contains("panicked"), "the broker panicked:\n{log}");
    }
}
