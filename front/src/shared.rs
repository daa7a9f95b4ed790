//! What the threads of the front share: the state behind one lock, stdout, the log, and the end of the process.
//!
//! No thread reads, writes or waits for another process while it holds the lock.

use std::{
    io::{self, ErrorKind, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    process,
    sync::{Arc, Condvar, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use actors::{locked::Locked, model::SessionName};
use serde_json::json;

use super::{
    dial::{DialError, Dialed},
    identity::{Identity, Naming},
    log::Log,
    refusal,
    replay::{Replay, modern_meta},
    requests::Requests,
    stdio::{Stdout, lock_until},
    wake::WakeOptions,
};
use api::mcp::tools::DISCONNECT_SESSION;
use common::{
    hang_up::is_hung_up,
    json::frame::{self, JsonText},
};

/// How long the end of the front waits for the broker to close the connection.
const GOODBYE_MAX: Duration = Duration::from_millis(250);

/// Bytes of the longest instructions that a broker may have. Longer ones are not shown.
const INSTRUCTIONS_LEN_MAX: usize = 64 * 1024;

/// The id of the last request of the front.
pub const GOODBYE_ID: &str = "\"front-goodbye\"";

/// The id of the requests that renew subscriptions on a connection that is open.
pub const RENEWED_ID: &str = "\"front-renewed\"";

/// The last request of the front, in the modern era, which needs no handshake.
fn goodbye() -> Vec<u8> {
    let params = json!({"name": DISCONNECT_SESSION, "arguments": {}, "_meta": modern_meta()});
    frame::request(GOODBYE_ID, "tools/call", params).into_line()
}

/// A connection to a broker.
#[derive(Clone)]
pub struct Link {
    /// Carries one frame a line, in both directions.
    pub stream: Arc<UnixStream>,
    /// The number of the connection in the life of the front.
    pub number: u64,
}

/// Whose lists a client gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lists {
    /// Those of this build.
    #[default]
    Own,
    /// Those of the broker, which differ.
    Broker,
    /// Those of the broker are not known yet, and are expected to differ: it may have backends. Lists wait for the first
    /// connection.
    Awaited,
    /// Those of this build, because no broker could be reached in time. The client gets a notification of those of the broker.
    Unconfirmed,
}

/// The state of the front.
#[derive(Default)]
pub struct State {
    pub requests: Requests,
    pub replay: Replay,
    pub identity: Identity,
    /// Grows when the broker must get another identity.
    pub identity_number: u64,
    pub naming: Naming,
    /// How the agent is woken.
    pub wake: WakeOptions,
    pub lists: Lists,
    /// The instructions of the broker with those of its backends, as it sent them last. `None`: those of this build.
    pub instructions: Option<String>,
    /// The name that the front registers on this connection.
    pub name: Option<SessionName>,
    /// What the broker says of itself is not known yet: handshakes wait for it.
    pub awaits_introduction: bool,
    /// The connection, from the moment in which it is opened.
    pub link: Option<Link>,
    /// The opening of the connection was answered: requests may be sent to it.
    pub is_open: bool,
    /// The result of the last attempt to connect.
    pub dialed: Option<Result<Dialed, DialError>>,
    /// The ids of the requests of the broker that the client has not answered, as JSON.
    pub asked: Vec<String>,
    /// Why the last attempt to connect failed.
    pub trouble: Option<String>,
    /// The stage that the front has reached.
    pub stage: Stage,
}

/// The stages in the life of a front, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The client has sent no frame.
    #[default]
    Silent,
    Serving,
    /// The client sends no further frames: a thread waits for the last answers.
    Draining,
    /// The front says goodbye to the broker.
    Ending,
    /// The broker has closed the connection after the goodbye.
    Closed,
}

impl State {
    /// Whether it is known what the broker says of itself, or that no broker can be asked now.
    pub fn can_introduce(&self) -> bool {
        !self.awaits_introduction || self.trouble.is_some() || self.stage >= Stage::Draining
    }

    /// Notes the instructions with which the broker introduces itself; `None` if it does not.
    pub fn note_introduction(&mut self, instructions: Option<String>) {
        self.awaits_introduction = false;
        self.instructions = instructions.filter(|text| text.len() <= INSTRUCTIONS_LEN_MAX);
    }

    /// Notes whose lists the client gets; returns whether the client must be notified.
    pub fn note_lists(&mut self, differ: bool) -> bool {
        let lists = if differ { Lists::Broker } else { Lists::Own };
        let before = std::mem::replace(&mut self.lists, lists);
        let is_told = match before {
            Lists::Awaited => false,
            Lists::Unconfirmed => differ,
            Lists::Own | Lists::Broker => before != lists,
        };
        is_told && self.replay.is_initialized()
    }

    /// Moves to a stage, unless the front has reached a later one.
    pub fn advance(&mut self, stage: Stage) {
        self.stage = self.stage.max(stage);
    }

    /// The connection to which requests may be sent.
    pub fn open_link(&self) -> Option<&Link> {
        self.link.as_ref().filter(|_| self.is_open)
    }
}

/// What the threads share.
pub struct Shared {
    state: Locked<State>,
    changed: Condvar,
    /// Held while frames are written to the broker.
    writing: Locked<()>,
    pub stdout: Stdout,
    pub log: Log,
}

impl Shared {
    /// The state at the start.
    pub fn new(state: State, stdout: Stdout, log: Log) -> Self {
        Self {
            state: Locked::new(state),
            changed: Condvar::new(),
            writing: Locked::new(()),
            stdout,
            log,
        }
    }

    /// The state, locked.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Wakes the threads that wait for a change.
    pub fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change of the state, or until a time.
    pub fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Option<Instant>) -> MutexGuard<'a, State> {
        let Some(until) = until else {
            return self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout(state, left);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until a condition holds, or until a time.
    pub fn wait_until(&self, until: Instant, holds: impl Fn(&State) -> bool) {
        let mut state = self.state();
        while !holds(&state) && Instant::now() < until {
            state = self.wait(state, Some(until));
        }
    }

    /// Writes frames to the client. The front ends if the client no longer reads.
    pub fn to_client(&self, frames: &[u8]) {
        if !frames.is_empty() && self.stdout.write(frames).is_err() {
            self.end("the client no longer reads");
        }
    }

    /// Writes frames to the broker.
    ///
    /// # Errors
    /// The connection has failed, which its reader notices as well.
    pub fn to_broker(&self, stream: &UnixStream, mut frames: &[u8]) -> io::Result<()> {
        let _turn = self.writing.lock();
        while !frames.is_empty() {
            match (&mut &*stream).write(frames) {
                Ok(len) => frames = frames.get(len..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                    // A broker that hangs must not keep the front of a client that has gone.
                    if is_hung_up(io::stdin()) {
                        self.end("the client has ended, and the broker takes nothing");
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says goodbye to the broker and ends the process.
    pub fn end(&self, why: &str) -> ! {
        self.log.event(why);
        let until = Instant::now() + GOODBYE_MAX;
        let mut state = self.state();
        state.advance(Stage::Ending);
        let (is_open, link) = (state.is_open, state.link.clone());
        drop(state);
        if let Some(link) = link {
            if is_open && lock_until(&self.writing, until).is_some() {
                // The session becomes disconnected and keeps its inbox.
                let _ = link.stream.set_write_timeout(Some(GOODBYE_MAX));
                let _ = (&mut &*link.stream).write_all(&goodbye());
            }
            let _ = link.stream.shutdown(Shutdown::Write);
            self.wait_until(until, |state| state.stage == Stage::Closed);
        }
        self.stdout.write_last(until, || {
            let mut out = Vec::new();
            for request in self.state().requests.take_unanswered() {
                refusal::write(&mut out, &request, &refusal::unanswered());
            }
            out
        });
        process::exit(0)
    }
}
