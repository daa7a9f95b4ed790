//! Logged-in clients: each connection opens the WebSocket, initialises MCP in the legacy era and registers a broker
//! session, many at once. A workload sees only connections that are ready, and what comes on them.

use std::{collections::VecDeque, time::Duration};

use serde_json::{Value, json};

use crate::{
    engine::{Engine, Nanos, Outbox, Sink, nanos},
    error::{LoadError, Result},
    messages::{self, Acknowledgement},
    report::Latencies,
    wire::Target,
};

/// Without progress for this long a run ends.
pub const STALL: Duration = Duration::from_secs(20);
/// No phase without a length of its own takes longer than this, even with progress.
const PHASE: Duration = Duration::from_mins(10);
/// A turn ends after this even when nothing happens, so that stalls and pings are seen to.
const TURN: Duration = Duration::from_millis(100);
/// Logins under way at once; more would measure the server's accept queue.
pub const LOGINS: usize = 64;

const INITIALIZE: u64 = 1;
const REGISTER: u64 = 2;

/// How a recipient is told of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    pub window: usize,
    pub manual: bool,
}

/// Who a connection logs in as.
#[derive(Clone, Debug)]
pub struct Role {
    /// The name of the broker session; without one the connection stops after `initialize`.
    pub name: Option<String>,
    pub push: Option<Push>,
    pub protocol: &'static str,
    pub feature: Option<String>,
}

impl Role {
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
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"experimental": experimental},
            "clientInfo": {"name": "mcp-broker-load", "version": env!("CARGO_PKG_VERSION")},
        });
        json!({"jsonrpc": "2.0", "id": INITIALIZE, "method": "initialize", "params": params}).to_string()
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

/// What is done with connections that are ready.
pub trait Workload {
    /// A connection has logged in; `registered` is the result of its registration.
    fn ready(&mut self, _link: usize, _registered: &Value, _now: Nanos, _out: &mut Outbox) -> Result<()> {
        Ok(())
    }
    fn frame(&mut self, link: usize, frame: &[u8], now: Nanos, out: &mut Outbox) -> Result<()>;
    /// Everything that lay ready on the connection has been seen.
    fn drained(&mut self, _link: usize, _out: &mut Outbox) {}
    /// Sends what is due by `now`. Returns when the next thing will be.
    fn due(&mut self, _now: Nanos, _out: &mut Outbox) -> Result<Option<Nanos>> {
        Ok(None)
    }
    /// The server has closed a connection. False where that ends the run.
    fn lost(&mut self, _link: usize) -> bool {
        false
    }
    /// A number that grows while the server does its part.
    fn progress(&self) -> u64;
}

/// For connections that only have to stand. Messages that an interrupted run left behind are acknowledged: they
/// would fill the push window of the session otherwise.
pub struct Idle;

impl Workload for Idle {
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
    Opening(Role, Nanos),
    Initializing(Role, Nanos),
    Registering(Nanos),
    Ready,
    Leaving,
    Gone,
}

pub struct Fleet {
    engine: Engine,
    logins: Logins,
    stall: Duration,
}

/// The part of a fleet that is told by the engine.
#[derive(Default)]
struct Logins {
    address: String,
    states: Vec<State>,
    under_way: usize,
    done: u64,
    gone: u64,
    /// From the first packet to the registered session.
    latencies: Latencies,
}

impl Fleet {
    pub fn new(target: Target, stall: Duration) -> Result<Self> {
        let logins = Logins {
            address: target.address.to_string(),
            ..Logins::default()
        };
        Ok(Self {
            engine: Engine::new(target)?,
            logins,
            stall,
        })
    }

    pub fn now(&self) -> Nanos {
        self.engine.now()
    }

    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.engine.outbox
    }

    /// The number that the next connection will have.
    pub fn next_link(&self) -> usize {
        self.logins.states.len()
    }

    /// How long logins took since this was asked last.
    pub fn take_login_latencies(&mut self) -> Latencies {
        std::mem::take(&mut self.logins.latencies)
    }

    /// Logs in one connection per role, at most `at_once` at a time. Returns their numbers in the order of the roles.
    pub fn open(&mut self, roles: Vec<Role>, at_once: usize, workload: &mut impl Workload) -> Result<Vec<usize>> {
        let mut waiting: VecDeque<Role> = roles.into();
        let first = self.logins.states.len();
        let links = (first..first + waiting.len()).collect();
        let mut watch = Watch::new(self, "logging in");
        while !waiting.is_empty() || self.logins.under_way > 0 {
            while self.logins.under_way < at_once
                && let Some(role) = waiting.pop_front()
            {
                let now = self.now();
                self.engine.connect()?;
                self.logins.states.push(State::Opening(role, now));
                self.logins.under_way += 1;
            }
            self.turn(Nanos::MAX, workload)?;
            watch.check(self, self.logins.done)?;
        }
        Ok(links)
    }

    /// Closes connections in order and waits until the server has closed them too.
    pub fn close(&mut self, links: &[usize], workload: &mut impl Workload) -> Result<()> {
        for &link in links {
            self.logins.states[link] = State::Leaving;
            self.engine.close(link);
        }
        let mut watch = Watch::new(self, "closing connections");
        let goal = self.logins.gone + links.len() as u64;
        while self.logins.gone < goal {
            self.turn(Nanos::MAX, workload)?;
            watch.check(self, self.logins.gone)?;
        }
        Ok(())
    }

    /// Drops connections without a goodbye.
    pub fn cut(&mut self, links: &[usize]) {
        for &link in links {
            self.engine.cut(link);
            self.logins.states[link] = State::Gone;
        }
    }

    /// Runs for a time. A server that stalls in it is an error only when the time outlasts the patience.
    pub fn run_for(&mut self, time: Duration, phase: &'static str, workload: &mut impl Workload) -> Result<()> {
        let end = self.now() + nanos(time);
        let mut watch = Watch::new(self, phase).without_limit();
        while self.now() < end {
            self.turn(end, workload)?;
            watch.check(self, workload.progress())?;
        }
        Ok(())
    }

    /// Lets time pass with nothing to expect.
    pub fn rest(&mut self, time: Duration) -> Result<()> {
        let end = self.now() + nanos(time);
        while self.now() < end {
            self.turn(end, &mut Idle)?;
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
        let mut watch = Watch::new(self, phase);
        while !done(workload) {
            self.turn(Nanos::MAX, workload)?;
            watch.check(self, workload.progress())?;
        }
        Ok(())
    }

    fn turn(&mut self, end: Nanos, workload: &mut impl Workload) -> Result<()> {
        let now = self.engine.now();
        let due = workload.due(now, &mut self.engine.outbox)?.unwrap_or(Nanos::MAX);
        let until = end.min(due).min(now + nanos(TURN));
        self.engine.turn(
            until,
            &mut Gate {
                logins: &mut self.logins,
                workload,
            },
        )
    }
}

/// Notices that nothing moves any more.
struct Watch {
    phase: &'static str,
    began: Nanos,
    seen: u64,
    moved: Nanos,
    limit: Duration,
}

impl Watch {
    fn new(fleet: &Fleet, phase: &'static str) -> Self {
        Self {
            phase,
            began: fleet.now(),
            seen: u64::MAX,
            moved: fleet.now(),
            limit: PHASE,
        }
    }

    fn without_limit(mut self) -> Self {
        self.limit = Duration::MAX;
        self
    }

    fn check(&mut self, fleet: &Fleet, progress: u64) -> Result<()> {
        let now = fleet.now();
        if progress != self.seen {
            (self.seen, self.moved) = (progress, now);
        }
        if now - self.moved > nanos(fleet.stall) {
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

/// Keeps the login of a connection apart from the work on it.
struct Gate<'a, W> {
    logins: &'a mut Logins,
    workload: &'a mut W,
}

impl<W: Workload> Gate<'_, W> {
    fn ready(&mut self, link: usize, began: Nanos, frame: &[u8], now: Nanos, out: &mut Outbox) -> Result<()> {
        self.logins.states[link] = State::Ready;
        self.logins.under_way -= 1;
        self.logins.done += 1;
        self.logins.latencies.record(now - began);
        self.workload
            .ready(link, &messages::structured(frame).unwrap_or_default(), now, out)
    }

    /// Takes the frame as an answer of the login. Anything else in a login is a notification that nobody asked for.
    fn answer(id: u64, what: &str, frame: &[u8]) -> Result<bool> {
        match messages::read_reply(frame) {
            Some(reply) if reply.failed => Err(LoadError::refused(what, frame)),
            Some(reply) => Ok(reply.id == id),
            None => Ok(false),
        }
    }
}

impl<W: Workload> Sink for Gate<'_, W> {
    fn opened(&mut self, link: usize, _: Nanos, out: &mut Outbox) -> Result<()> {
        if let State::Opening(role, began) = std::mem::replace(&mut self.logins.states[link], State::Gone) {
            out.text(link, role.initialize().as_bytes());
            self.logins.states[link] = State::Initializing(role, began);
        }
        Ok(())
    }

    fn text(&mut self, link: usize, text: &[u8], now: Nanos, out: &mut Outbox) -> Result<()> {
        match &self.logins.states[link] {
            State::Ready | State::Leaving => self.workload.frame(link, text, now, out),
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
                // The inbox of a resumed session may begin to flow before the answer.
                self.workload.frame(link, text, now, out)
            }
            State::Opening(..) | State::Gone => Ok(()),
        }
    }

    fn drained(&mut self, link: usize, out: &mut Outbox) -> Result<()> {
        self.workload.drained(link, out);
        Ok(())
    }

    fn closed(&mut self, link: usize, reason: &str) -> Result<()> {
        match std::mem::replace(&mut self.logins.states[link], State::Gone) {
            State::Leaving => {
                self.logins.gone += 1;
                Ok(())
            }
            State::Gone => Ok(()),
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
