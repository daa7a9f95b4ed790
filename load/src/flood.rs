//! Clients that misbehave: they send as fast as they can, ignore refusals and retry at once. They run on threads of
//! their own, so that their cost is not part of the measurement.

mod http;
mod socket;
mod unfinished;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    error::{LoadError, Result},
    workloads::RunContext,
};

/// How soon a flood starts and stops after [`Flood::set_on`].
const SWITCH_DELAY_MAX: Duration = Duration::from_millis(10);
/// The scheduling priority of the misbehaving clients is lower than that of the measured ones. Otherwise, on a machine
/// that they share, the measurement would be of the clients and not of the broker.
const NICENESS: i32 = 10;

/// What the clients of a flood send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FloodKind {
    /// Nothing: what two quiet measurements differ by
    Nothing,
    /// Messages, over WebSocket
    Messages,
    /// Messages of --large bytes, over WebSocket
    Large,
    /// Frames that are not JSON, over WebSocket: at most as many in a row as the broker tolerates
    Garbage,
    /// Notifications, over WebSocket: 16 for each request
    Notifications,
    /// Calls of a tool over HTTP, on persistent connections
    Http,
    /// Messages whose schema is expensive to check, over WebSocket
    Schemas,
    /// Calls that answer with the longest page of a list, over WebSocket
    Answers,
    /// Messages of --largest bytes on at most 8 connections, over WebSocket
    Largest,
    /// Messages of --largest bytes that never end, over WebSocket
    Unfinished,
}

impl FloodKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Messages => "messages",
            Self::Large => "large",
            Self::Garbage => "garbage",
            Self::Notifications => "notifications",
            Self::Http => "http",
            Self::Schemas => "schemas",
            Self::Answers => "answers",
            Self::Largest => "largest",
            Self::Unfinished => "unfinished",
        }
    }
}

/// How much a flood sends at once.
#[derive(Clone, Copy)]
pub struct FloodSize {
    pub connections: usize,
    /// Requests in flight on a connection. Over HTTP it is one: more would only wait in the broker's socket.
    pub window: usize,
    /// Bytes of a large message.
    pub large: usize,
    /// Bytes of a message of the largest kind.
    pub largest: usize,
}

/// The outcomes of the requests of a flood.
#[derive(Clone, Copy, Debug, Default)]
pub struct FloodCounts {
    pub accepted: u64,
    /// Answered with `rate_limited`.
    pub refused: u64,
    /// Answered with another error.
    pub failed: u64,
    /// Connections that the broker closed.
    pub lost: u64,
}

#[derive(Default)]
struct FloodState {
    is_on: AtomicBool,
    is_over: AtomicBool,
    accepted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
}

impl FloodState {
    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A flood that can be switched on and off. Its connections stay open in between.
pub struct Flood {
    kind: FloodKind,
    shared: Arc<FloodState>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Flood {
    /// Connects the clients, which send nothing yet. `bench` has the key of their project.
    pub fn open(kind: FloodKind, size: FloodSize, bench: &RunContext) -> Result<Self> {
        let mut flood = Self {
            kind,
            shared: Arc::default(),
            threads: vec![],
        };
        match kind {
            FloodKind::Nothing => {}
            FloodKind::Http => {
                let request = http::request(bench);
                let address = bench.target().address;
                for _ in 0..size.connections {
                    let request = request.clone();
                    flood.spawn(move |shared| {
                        http::client(address, &request, shared);
                        Ok(())
                    });
                }
            }
            FloodKind::Unfinished => {
                for _ in 0..size.connections {
                    let target = bench.target().clone();
                    flood.spawn(move |shared| {
                        unfinished::client(&target, size.largest, shared);
                        Ok(())
                    });
                }
            }
            _ => {
                let (bench, (ready, is_ready)) = (bench.clone(), mpsc::channel());
                flood.spawn(move |shared| socket::clients(kind, size, &bench, shared, &ready));
                if is_ready.recv().is_err() {
                    flood.check()?;
                }
            }
        }
        Ok(flood)
    }

    fn spawn(&mut self, clients: impl FnOnce(&FloodState) -> Result<()> + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::spawn(move || {
            // If the system refuses the lower priority, the client runs with the usual one.
            _ = rustix::process::nice(NICENESS);
            clients(&shared)
        }));
    }

    /// Whether the flood has clients.
    pub fn has_clients(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Whether the flood sends complete requests, some of which the broker refuses.
    pub fn makes_requests(&self) -> bool {
        self.has_clients() && self.kind != FloodKind::Unfinished
    }

    pub fn set_on(&self, is_on: bool) {
        self.shared.is_on.store(is_on, Ordering::Relaxed);
    }

    pub fn counts(&self) -> FloodCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FloodCounts {
            accepted: of(&self.shared.accepted),
            refused: of(&self.shared.refused),
            failed: of(&self.shared.failed),
            lost: of(&self.shared.lost),
        }
    }

    /// Fails if a client has failed.
    pub fn check(&mut self) -> Result<()> {
        while let Some(at) = self.threads.iter().position(JoinHandle::is_finished) {
            let ended = self.threads.swap_remove(at).join();
            ended.unwrap_or_else(|_| Err(LoadError::Arguments("a client of the flood panicked".into())))?;
        }
        Ok(())
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.set_on(false);
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}
