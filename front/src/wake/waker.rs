//! Carries out one wake at a time.

use std::{
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use actors::locked::Locked;

use serde_json::json;

use super::{
    missed::Missed,
    options::{Rung, WakeOptions},
    program,
};
use crate::{
    identity::Identity,
    shared::{Link, Shared},
    threads::spawn,
};
use api::mcp::waking::{WOKEN, Wake, WakeResult, Woken};
use common::json::frame::{self, JsonText};

/// Longest time of a wake, over all rungs.
const WAKE_MAX: Duration = Duration::from_secs(5);
/// Most replaced wakes that wait for their answers. What is above it counts for the broker as not answered.
const REPLACED_MAX: usize = 16;
/// What the answer to a wake without any rung names.
const NO_RUNG: &str = "none";

/// Wakes the agent.
pub struct Waker {
    shared: Arc<Shared>,
    turn: Locked<Turn>,
}

/// The work for the thread.
#[derive(Default)]
struct Turn {
    is_running: bool,
    next: Option<(Link, Wake)>,
    /// Wakes that a newer one has replaced.
    replaced: Vec<(Link, Wake)>,
}

impl Waker {
    pub fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            turn: Locked::default(),
        })
    }

    /// Begins a wake, and returns at once. While one is under way, the newest waits.
    pub fn wake(self: &Arc<Self>, link: Link, wake: Wake) {
        let mut turn = self.turn.lock();
        if let Some(replaced) = turn.next.replace((link, wake))
            && turn.replaced.len() < REPLACED_MAX
        {
            turn.replaced.push(replaced);
        }
        if std::mem::replace(&mut turn.is_running, true) {
            return;
        }
        drop(turn);
        let waker = Arc::clone(self);
        if let Err(error) = spawn("wake", move || waker.run()) {
            *self.turn.lock() = Turn::default();
            self.shared.log.event(&format!("no thread wakes the agent: {error}"));
        }
    }

    fn run(&self) {
        loop {
            let mut turn = self.turn.lock();
            let replaced = std::mem::take(&mut turn.replaced);
            let next = turn.next.take();
            turn.is_running = next.is_some();
            drop(turn);
            for (link, wake) in replaced {
                let missed = Missed::failed("a newer wake has replaced it");
                self.answer(&link, wake, NO_RUNG, Err(missed));
            }
            let Some((link, wake)) = next else { return };
            let (rung, result) = self.try_rungs(&wake.mail.text());
            self.answer(&link, wake, rung, result);
        }
    }

    /// Tries the rungs from the top; returns the one that took the wake, or the last failure.
    fn try_rungs(&self, text: &str) -> (&'static str, Result<(), Missed>) {
        let deadline = Instant::now() + WAKE_MAX;
        let state = self.shared.state();
        let (options, identity) = (state.wake.clone(), state.identity.clone());
        drop(state);
        let mut last = (NO_RUNG, Err(Missed::absent("the client offers no way to wake it")));
        for rung in options.rungs(&identity) {
            let result = self.try_rung(rung, &options, &identity, text, deadline);
            match &result {
                Ok(()) => self.shared.log.event(&format!("woke the agent by {}", rung.as_str())),
                Err(Missed { detail, .. }) => self
                    .shared
                    .log
                    .event(&format!("the agent was not woken by {}: {detail}", rung.as_str())),
            }
            last = (rung.as_str(), result);
            if last.1.is_ok() {
                break;
            }
        }
        last
    }

    fn try_rung(
        &self,
        rung: Rung,
        options: &WakeOptions,
        identity: &Identity,
        text: &str,
        deadline: Instant,
    ) -> Result<(), Missed> {
        match rung {
            Rung::Inbox => match &options.inbox {
                Some(inbox) => inbox.write(text, deadline),
                None => Err(Missed::absent("the client has given no inbox socket")),
            },
            Rung::Channel => self.notify(text),
            Rung::Queue => {
                let Some(thread) = identity.thread() else {
                    return Err(Missed::absent("no call has named the thread of the agent"));
                };
                let mut command = Command::new(&options.codex);
                command.args(["queue", "--thread", thread, "--message", text]);
                program::run(command, "", deadline)
            }
            Rung::Tmux => match &options.pane {
                Some(pane) => pane.write(text, identity, deadline),
                None => Err(Missed::absent("no pane is named")),
            },
        }
    }

    /// The notification of a channel, which a client of the modern era drops.
    fn notify(&self, text: &str) -> Result<(), Missed> {
        if !self.shared.state().replay.is_initialized() {
            return Err(Missed::absent(
                "the client has not finished the handshake of the legacy era",
            ));
        }
        let params = json!({"content": text, "meta": {"sender": "mcp-broker"}});
        let line = frame::notification("notifications/claude/channel", params).into_line();
        self.shared.to_client(&line);
        Ok(())
    }

    /// Tells the broker what became of a wake, on the connection that brought it.
    fn answer(&self, link: &Link, wake: Wake, rung: &str, result: Result<(), Missed>) {
        let (result, detail) = match result {
            Ok(()) => (WakeResult::Written, None),
            Err(missed) => (missed.result, Some(missed.detail)),
        };
        let woken = Woken {
            wake_id: wake.wake_id,
            rung: rung.to_owned(),
            result,
            detail,
        };
        let line = frame::notification(WOKEN, json!(woken)).into_line();
        // A connection that is lost takes the question with it.
        let _ = self.shared.to_broker(&link.stream, &line);
    }
}
