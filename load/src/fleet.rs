//! Logged-in clients: each connection opens the WebSocket, initializes MCP in the legacy era and registers a broker
//! session, many at once. A workload sees only connections that are ready, and what arrives on them.

use std::{collections::VecDeque, time::Duration};

use serde_json::{Value, json};
use test_client::mcp;

use crate::{
    error::{LoadError, Result},
    event_loop::{ConnectionEvents, EventLoop, Nanos, Outbox, nanos},
    messages::{self, Acknowledgement},
    report::Latencies,
    target::Target,
};

/// A run ends with an error after this long without progress.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(20);
/// The time limit of a phase without a configured length, even with progress.
const PHASE_TIMEOUT: Duration = Duration::from_mins(10);
/// A poll ends after this long even without an event, so that stalls are noticed and pings are sent.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// Logins in flight at once. More would measure the server's accept queue.
pub const LOGINS_IN_FLIGHT_MAX: usize = 64;

const INITIALIZE: u64 = 1;
const REGISTER: u64 = 2;

/// How a recipient receives messages by push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    pub window: usize,
    pub manual: bool,
}

/// What a connection logs in as.
#[derive(Clone, Debug)]
pub struct ClientSpec {
    /// The name of the broker session; without one the login ends after `initialize`.
    pub name: Option<String>,
    pub push: Option<Push>,
    pub protocol: &'static str,
    pub feature: Option<String>,
}

impl ClientSpec {
    pub fn named(name: String) -> Self {
        Self {
            name: Some(name),
            push: None,
            protocol: messages::PROTOCOL,
            feature: None,
        }
    }

    pub fn anonymous() -> Self {
        Self {
            name: None,
            push: None,
            protocol: messages::PROTOCOL,
            feature: None,
        }
    }

    pub fn pushed(mut self, push: Push) -> Self {
        self.push = Some(push);
        self
    }

    pub fn with_feature(mut self, feature: &str) -> Self {
        self.feature = Some(feature.to_owned());
        self
    }

    fn initialize(&self) -> String {
        let experimental = self.push.map_or_else(
            || json!({}),
            |push| {
                let ack = if push.manual { "manual" } else { "auto" };
                json!({"dev.mcp-broker/push": {"window": push.window, "ack": ack}})
            },
        );
        let params = mcp::hello("mcp-broker-load", mcp::LEGACY, &json!({"experimental": experimental}));
        mcp::request(&json!(INITIALIZE), "initialize", &params).to_string()
    }

    fn register(&self, name: &str) -> String {
        let features: Vec<&String> = self.feature.iter().collect();
        let capabilities = json!({"supported_protocols": {self.protocol: ["1.0.0"]}, "supported_features": features});
        messages::call(
            REGISTER,
            "register_session",
            &json!({"name": name, "capabilities": capabilities}),
        )
    }
}

/// The work on connections that are ready. `link` is the number of a connection.
pub trait Workload {
    /// A connection has logged in; `registered` is the result of its registration.
    fn ready(&mut self, _link: usize, _registered: &Value, _now: Nanos, _out: &mut Outbox) -> Result<()> {
        Ok(())
    }
    fn frame(&mut self, link: usize, frame: &[u8], now: Nanos, out: &mut Outbox) -> Result<()>;
    /// Everything that was ready on the connection has been reported.
    fn drained(&mut self, _link: usize, _out: &mut Outbox) {}
    /// Sends what is due by `now`. Returns when the next message will be due.
    fn due(&mut self, _now: Nanos, _out: &mut Outbox) -> Result<Option<Nanos>> {
        Ok(None)
    }
    /// The server has closed a connection. False ends the run.
    fn lost(&mut self, _link: usize) -> bool {
        false
    }
    /// A number that grows while the server does its part.
    fn progress(&self) -> u64;
}

/// For connections that only stay open. Acknowledges messages that an interrupted run left behind: they would fill the
/// push window of the session.
pub struct NoWorkload;

impl Workload for NoWorkload {
    fn frame(&mut self, link: usize, frame: &[u8], _: Nanos, out: &mut Outbox) -> Result<()> {
        let mut leftover = Acknowledgement::default();
        leftover.add(frame);
        leftover.send(link, out);
        Ok(())
    }

    fn progress(&self) -> u64 {
        0
    }
}

enum State {
    Opening(ClientSpec, Nanos),
    Initializing(ClientSpec, Nanos),
    Registering(Nanos),
    Ready,
    Closing,
    Closed,
}

pub struct Fleet {
    event_loop: EventLoop,
    logins: Logins,
    stall: Duration,
}

/// The logins of a fleet.
#[derive(Default)]
struct Logins {
    address: String,
    states: Vec<State>,
    in_flight: usize,
    done: u64,
    closed: u64,
    /// From the first packet to the registered session.
    latencies: Latencies,
}

impl Fleet {
    /// Connections to these replicas of one broker, of which there is at least one.
    pub fn new(targets: Vec<Target>, stall: Duration) -> Result<Self> {
        let addresses: Vec<_> = targets.iter().map(|target| target.address.to_string()).collect();
        let logins = Logins {
            address: addresses.join(", "),
            ..Logins::default()
        };
        Ok(Self {
            event_loop: EventLoop::new(targets)?,
            logins,
            stall,
        })
    }

    pub fn now(&self) -> Nanos {
        self.event_loop.now()
    }

    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.event_loop.outbox
    }

    /// The number of the next connection.
    pub fn next_connection(&self) -> usize {
        self.logins.states.len()
    }

    /// The latencies of the logins since the last call.
    pub fn take_login_latencies(&mut self) -> Latencies {
        std::mem::take(&mut self.logins.latencies)
    }

    /// Logs in one connection per spec, at most `at_once` at a time. Returns their numbers in the order of the specs.
    pub fn open(&mut self, roles: Vec<ClientSpec>, at_once: usize, workload: &mut impl Workload) -> Result<Vec<usize>> {
        let mut waiting: VecDeque<ClientSpec> = roles.into();
        let first = self.logins.states.len();
        let links = (first..first + waiting.len()).collect();
        let mut watch = ProgressWatch::new(self, "logging in");
        while !waiting.is_empty() || self.logins.in_flight > 0 {
            while self.logins.in_flight < at_once
                && let Some(role) = waiting.pop_front()
            {
                let now = self.now();
                self.event_loop.connect()?;
                self.logins.states.push(State::Opening(role, now));
                self.logins.in_flight += 1;
            }
            self.poll_once(Nanos::MAX, workload)?;
            watch.check(self, self.logins.done)?;
        }
        Ok(links)
    }

    /// Closes connections in order and waits until the server has closed them too.
    pub fn close(&mut self, links: &[usize], workload: &mut impl Workload) -> Result<()> {
        for &link in links {
            self.logins.states[link] = State::Closing;
            self.event_loop.close(link);
        }
        let mut watch = ProgressWatch::new(self, "closing connections");
        let goal = self.logins.closed + links.len() as u64;
        while self.logins.closed < goal {
            self.poll_once(Nanos::MAX, workload)?;
            watch.check(self, self.logins.closed)?;
        }
        Ok(())
    }

    /// Drops connections without a close frame.
    pub fn abort(&mut self, links: &[usize]) {
        for &link in links {
            self.event_loop.abort(link);
            self.logins.states[link] = State::Closed;
        }
    }

    /// Runs for a time. A stall is an error only when it exceeds the stall timeout.
    pub fn run_for(&mut self, time: Duration, phase: &'static str, workload: &mut impl Workload) -> Result<()> {
        let end = self.now() + nanos(time);
        let mut watch = ProgressWatch::new(self, phase).without_limit();
        while self.now() < end {
            self.poll_once(end, workload)?;
            watch.check(self, workload.progress())?;
        }
        Ok(())
    }

    /// Lets time pass without a workload.
    pub fn idle_for(&mut self, time: Duration) -> Result<()> {
        let end = self.now() + nanos(time);
        while self.now() < end {
            self.poll_once(end, &mut NoWorkload)?;
        }
        Ok(())
    }

    /// Runs until `done`; a stall is an error.
    pub fn run_until<W: Workload>(
        &mut self,
        phase: &'static str,
        workload: &mut W,
        done: impl Fn(&W) -> bool,
    ) -> Result<()> {
        let mut watch = ProgressWatch::new(self, phase);
        while !done(workload) {
            self.poll_once(Nanos::MAX, workload)?;
            watch.check(self, workload.progress())?;
        }
        Ok(())
    }

    fn poll_once(&mut self, end: Nanos, workload: &mut impl Workload) -> Result<()> {
        let now = self.event_loop.now();
        let due = workload.due(now, &mut self.event_loop.outbox)?.unwrap_or(Nanos::MAX);
        let until = end.min(due).min(now + nanos(POLL_TIMEOUT));
        self.event_loop.poll_once(
            until,
            &mut LoginEvents {
                logins: &mut self.logins,
                workload,
            },
        )
    }
}

/// Ends a phase that makes no progress or takes too long.
struct ProgressWatch {
    phase: &'static str,
    began: Nanos,
    seen: u64,
    last_progress: Nanos,
    limit: Duration,
}

impl ProgressWatch {
    fn new(fleet: &Fleet, phase: &'static str) -> Self {
        Self {
            phase,
            began: fleet.now(),
            seen: u64::MAX,
            last_progress: fleet.now(),
            limit: PHASE_TIMEOUT,
        }
    }

    fn without_limit(mut self) -> Self {
        self.limit = Duration::MAX;
        self
    }

    fn check(&mut self, fleet: &Fleet, progress: u64) -> Result<()> {
        let now = fleet.now();
        if progress != self.seen {
            (self.seen, self.last_progress) = (progress, now);
        }
        if now - self.last_progress > nanos(fleet.stall) {
            return Err(LoadError::Stalled {
                phase: self.phase,
                quiet: fleet.stall,
            });
        }
        if now - self.began > nanos(self.limit) {
            return Err(LoadError::TooLong {
                phase: self.phase,
                limit: self.limit,
            });
        }
        Ok(())
    }
}

/// Separates the login of a connection from the workload on it.
struct LoginEvents<'a, W> {
    logins: &'a mut Logins,
    workload: &'a mut W,
}

impl<W: Workload> LoginEvents<'_, W> {
    fn ready(&mut self, link: usize, began: Nanos, frame: &[u8], now: Nanos, out: &mut Outbox) -> Result<()> {
        self.logins.states[link] = State::Ready;
        self.logins.in_flight -= 1;
        self.logins.done += 1;
        self.logins.latencies.record(now - began);
        self.workload
            .ready(link, &messages::structured(frame).unwrap_or_default(), now, out)
    }

    /// Takes the frame as the answer to a request of the login. Other frames are notifications and are ignored.
    fn answer(id: u64, what: &str, frame: &[u8]) -> Result<bool> {
        match messages::read_reply(frame) {
            Some(reply) if reply.failed => Err(LoadError::refused(what, frame)),
            Some(reply) => Ok(reply.id == id),
            None => Ok(false),
        }
    }
}

impl<W: Workload> ConnectionEvents for LoginEvents<'_, W> {
    fn opened(&mut self, link: usize, _: Nanos, out: &mut Outbox) -> Result<()> {
        if let State::Opening(role, began) = std::mem::replace(&mut self.logins.states[link], State::Closed) {
            out.text(link, role.initialize().as_bytes());
            self.logins.states[link] = State::Initializing(role, began);
        }
        Ok(())
    }

    fn text(&mut self, link: usize, text: &[u8], now: Nanos, out: &mut Outbox) -> Result<()> {
        match &self.logins.states[link] {
            State::Ready | State::Closing => self.workload.frame(link, text, now, out),
            State::Initializing(role, began) => {
                let began = *began;
                if !Self::answer(INITIALIZE, "initialize", text)? {
                    return Ok(());
                }
                out.text(link, br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
                let Some(name) = &role.name else {
                    return self.ready(link, began, text, now, out);
                };
                out.text(link, role.register(name).as_bytes());
                self.logins.states[link] = State::Registering(began);
                Ok(())
            }
            State::Registering(began) => {
                let began = *began;
                if Self::answer(REGISTER, "register_session", text)? {
                    return self.ready(link, began, text, now, out);
                }
                // The server may deliver the inbox of a resumed session before the answer.
                self.workload.frame(link, text, now, out)
            }
            State::Opening(..) | State::Closed => Ok(()),
        }
    }

    fn drained(&mut self, link: usize, out: &mut Outbox) -> Result<()> {
        self.workload.drained(link, out);
        Ok(())
    }

    fn closed(&mut self, link: usize, reason: &str) -> Result<()> {
        match std::mem::replace(&mut self.logins.states[link], State::Closed) {
            State::Closing => {
                self.logins.closed += 1;
                Ok(())
            }
            State::Closed => Ok(()),
            State::Opening(..) => Err(LoadError::Connect {
                address: self.logins.address.clone(),
                reason: reason.into(),
            }),
            State::Ready if self.workload.lost(link) => Ok(()),
            _ => Err(LoadError::Lost {
                link,
                reason: reason.into(),
            }),
        }
    }
}
