//! The life of a backend: when it is started, and what follows when it ends. Pure.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

use crate::{backoff::Backoff, clock::millis, metrics::label};

/// An uptime after which a crash counts as the first one again.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// The pause before the second restart, doubled with each further one. The first is immediate.
const BACKOFF: Backoff = Backoff {
    min: Duration::from_secs(1),
    max: Duration::from_secs(60),
};
/// Crashes within [`CRASH_WINDOW`] after which a backend is only tried now and then.
const CRASHES_MAX: usize = 10;
const CRASH_WINDOW: Duration = Duration::from_secs(600);
/// How long a failed backend rests before it is tried again.
const FAILED_RETRY: Duration = Duration::from_secs(300);

label! {
    /// Why an instance of a backend was started.
    StartReason {
        /// A call needs it, it starts with the broker, or it is not known what it offers.
        Wanted = "wanted",
        /// The one before has crashed, or could not be started.
        Crash = "crash",
        /// The files of its program have changed.
        Change = "change",
        /// Its configuration has changed.
        Config = "config",
        /// An operator has it started.
        Operator = "operator",
        /// A caller needs an instance in addition to the main one: it can be asked, or does not share that of others.
        Asking = "asking",
        /// A cancelled call went on, and could have asked the next caller.
        Cancelled = "cancelled",
    }
}

words! {
    /// What a backend is doing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum BackendState {
        /// It does not run, and is started by the first call.
        Idle = "idle",
        /// It was started and has not answered yet.
        Starting = "starting",
        /// It takes calls.
        Ready = "ready",
        /// It takes calls, and another instance is being started that will take its place.
        Replacing = "handover",
        /// It has ended, and is started again after a pause.
        Backoff = "backoff",
        /// It cannot be started, or ends again and again.
        Failed = "failed",
        /// The configuration or an operator has switched it off.
        Disabled = "disabled",
        /// It is being ended.
        Stopping = "stopping",
    }
}

/// What happens to a backend.
#[derive(Clone, Debug, PartialEq)]
pub enum LifeEvent {
    /// A call needs it, or it is started with the broker, or its tools are not known.
    Wanted,
    /// It is started now, by an operator or its configuration. Earlier crashes are forgotten.
    Restart(StartReason),
    /// It has answered the handshake.
    Ready,
    /// It has ended. `jitter` is a random number from 0 to 1.
    Ended { reason: String, jitter: f64 },
    /// It could not be started at all.
    NotStarted { reason: String },
    /// The deadline of [`Life::deadline_ms`] has come.
    Deadline,
    /// An operator switches it off.
    Disable,
    /// The configuration switches it off: open calls may end first.
    DisableOnceIdle,
    /// What it is started from has changed, and only one instance may run: open calls may end first.
    RestartOnceIdle(StartReason),
    /// The open calls of [`LifeEffect::Drain`] have ended, or have taken too long.
    Drained,
    /// It has had no call for as long as the configuration allows.
    IdleTooLong,
    /// What it is started from has changed.
    Changed(StartReason),
    /// The instance that was started next to it has answered the handshake.
    SuccessorReady,
    /// The instance that was started next to it has ended before.
    SuccessorEnded { reason: String },
}

/// What has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeEffect {
    /// Start an instance.
    Launch,
    /// End the running instance, and one that is being started next to it. [`LifeEvent::Ended`] reports the end.
    End,
    /// Start an instance next to the running one, instead of one that was started so before.
    LaunchSuccessor,
    /// The instance that was started next to the running one takes its place.
    Replace,
    /// The instance that was started next to the running one is given up.
    EndSuccessor,
    /// Let the open calls of the running instance end, and give it no others. One that is being started next to it is given
    /// up. [`LifeEvent::Drained`] reports the end of the calls.
    Drain,
}

/// The life of one backend. Times are milliseconds of the monotonic clock.
#[derive(Clone, Debug)]
pub struct Life {
    state: BackendState,
    /// Why it is in this state, if that needs a reason.
    reason: Option<String>,
    since_ms: u64,
    start_timeout: Duration,
    restarts_by_itself: bool,
    /// Why an instance was started last.
    start_reason: StartReason,
    /// When it became ready.
    ready_ms: Option<u64>,
    /// Ends without a stable time in between.
    crashes_in_a_row: u32,
    crashed_at_ms: VecDeque<u64>,
    deadline_ms: Option<u64>,
    /// What follows when the instance that is being ended has ended.
    after_stop: AfterStop,
    /// What follows when a running instance has been drained. Until then nothing takes its place.
    after_drain: Option<AfterStop>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterStop {
    Idle,
    Disabled,
    Launch(StartReason),
    /// It had not answered in time.
    TimedOut,
}

impl Life {
    /// A backend that was not started yet.
    pub fn new(start_timeout: Duration, restarts_by_itself: bool, is_disabled: bool, now_ms: u64) -> Self {
        Self {
            state: if is_disabled {
                BackendState::Disabled
            } else {
                BackendState::Idle
            },
            reason: None,
            since_ms: now_ms,
            start_timeout,
            restarts_by_itself,
            start_reason: StartReason::Wanted,
            ready_ms: None,
            crashes_in_a_row: 0,
            crashed_at_ms: VecDeque::new(),
            deadline_ms: None,
            after_stop: AfterStop::Idle,
            after_drain: None,
        }
    }

    /// The state.
    pub fn state(&self) -> BackendState {
        self.state
    }

    /// Why an instance was started last.
    pub fn start_reason(&self) -> StartReason {
        self.start_reason
    }

    /// Why it is in this state.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Since when it is in this state.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// When [`LifeEvent::Deadline`] is due: the end of a pause, or of the time for a start.
    pub fn deadline_ms(&self) -> Option<u64> {
        self.deadline_ms
    }

    /// Decides what follows from an event.
    pub fn on(&mut self, event: LifeEvent, now_ms: u64) -> Option<LifeEffect> {
        use BackendState::{Backoff, Disabled, Failed, Idle, Ready, Replacing, Starting, Stopping};
        match (event, self.state) {
            (LifeEvent::Wanted, Idle) => Some(self.launch(StartReason::Wanted, now_ms)),
            (LifeEvent::Restart(why), Idle | Backoff | Failed | Disabled) => {
                self.crashes_in_a_row = 0;
                self.crashed_at_ms.clear();
                Some(self.launch(why, now_ms))
            }
            (LifeEvent::Restart(why), Starting | Ready) => Some(self.stop(AfterStop::Launch(why), now_ms)),
            (LifeEvent::Restart(why), Stopping) => {
                self.after_stop = AfterStop::Launch(why);
                None
            }
            (LifeEvent::Ready, Starting) => {
                self.ready_ms = Some(now_ms);
                self.enter(Ready, None, None, now_ms);
                None
            }
            (LifeEvent::DisableOnceIdle, Ready | Replacing) => self.drain(AfterStop::Disabled, now_ms),
            (LifeEvent::RestartOnceIdle(why), Ready | Replacing) => self.drain(AfterStop::Launch(why), now_ms),
            (LifeEvent::DisableOnceIdle, _) => self.on(LifeEvent::Disable, now_ms),
            (LifeEvent::RestartOnceIdle(why) | LifeEvent::Changed(why), state) => self.changed(state, why, now_ms),
            (LifeEvent::Drained, Ready) => self.after_drain.map(|after| self.stop(after, now_ms)),
            // Its end is no crash that counts: it was about to end.
            (LifeEvent::Ended { jitter, .. }, Ready) if let Some(after) = self.after_drain => {
                self.after_stop = after;
                self.stopped(jitter, now_ms)
            }
            (LifeEvent::Ended { reason, jitter }, Starting | Ready) => {
                self.crashed(reason, jitter, now_ms);
                (self.deadline_ms == Some(now_ms)).then(|| self.launch(StartReason::Crash, now_ms))
            }
            (LifeEvent::Ended { jitter, .. }, Stopping) => self.stopped(jitter, now_ms),
            (LifeEvent::NotStarted { .. }, Stopping) if self.after_stop == AfterStop::Disabled => {
                self.enter(Disabled, None, None, now_ms);
                None
            }
            (LifeEvent::NotStarted { reason }, _) => {
                let retry_ms = self.restarts_by_itself.then(|| now_ms + millis(FAILED_RETRY));
                self.enter(Failed, Some(reason), retry_ms, now_ms);
                None
            }
            (LifeEvent::Deadline, Backoff | Failed) if self.is_due(now_ms) => {
                Some(self.launch(StartReason::Crash, now_ms))
            }
            (LifeEvent::Deadline, Starting) if self.is_due(now_ms) => Some(self.stop(AfterStop::TimedOut, now_ms)),
            (LifeEvent::Disable, Starting | Ready) => Some(self.stop(AfterStop::Disabled, now_ms)),
            (LifeEvent::Disable, Stopping) => {
                self.after_stop = AfterStop::Disabled;
                None
            }
            (LifeEvent::Disable, Idle | Backoff | Failed) => {
                self.enter(Disabled, None, None, now_ms);
                None
            }
            (LifeEvent::IdleTooLong, Ready) if self.after_drain.is_none() => Some(self.stop(AfterStop::Idle, now_ms)),
            (event, Replacing) => self.on_replacing(event, now_ms),
            _ => None,
        }
    }

    /// Takes new settings.
    pub fn configure(&mut self, start_timeout: Duration, restarts_by_itself: bool) {
        (self.start_timeout, self.restarts_by_itself) = (start_timeout, restarts_by_itself);
    }

    /// What it is started from has changed: the next instance shows whether that fixes a failure.
    fn changed(&mut self, state: BackendState, why: StartReason, now_ms: u64) -> Option<LifeEffect> {
        use BackendState::{Backoff, Disabled, Failed, Idle, Ready, Replacing, Starting, Stopping};
        match state {
            Idle | Backoff | Failed => self.on(LifeEvent::Restart(why), now_ms),
            // It may have read what was there before.
            Starting => Some(self.stop(AfterStop::Launch(why), now_ms)),
            // It starts from what has changed after the drain, if it starts again.
            Ready if self.after_drain.is_some() => None,
            Ready | Replacing => {
                let due = now_ms + millis(self.start_timeout);
                self.enter(Replacing, None, Some(due), now_ms);
                self.start_reason = why;
                Some(LifeEffect::LaunchSuccessor)
            }
            Stopping if self.after_stop != AfterStop::Disabled => {
                self.after_stop = AfterStop::Launch(why);
                None
            }
            Stopping | Disabled => None,
        }
    }

    /// Lets the open calls of the running instance end.
    fn drain(&mut self, after: AfterStop, now_ms: u64) -> Option<LifeEffect> {
        let is_draining = self.after_drain.is_some();
        if self.state == BackendState::Replacing {
            self.enter(BackendState::Ready, None, None, now_ms);
        }
        self.after_drain = Some(after);
        (!is_draining).then_some(LifeEffect::Drain)
    }

    fn on_replacing(&mut self, event: LifeEvent, now_ms: u64) -> Option<LifeEffect> {
        use BackendState::{Ready, Starting};
        match event {
            LifeEvent::SuccessorReady => {
                self.ready_ms = Some(now_ms);
                self.enter(Ready, None, None, now_ms);
                Some(LifeEffect::Replace)
            }
            LifeEvent::SuccessorEnded { reason } => {
                self.enter(Ready, Some(not_replaced(&reason)), None, now_ms);
                None
            }
            LifeEvent::Deadline if self.is_due(now_ms) => {
                let reason = not_replaced(&self.unanswered());
                self.enter(Ready, Some(reason), None, now_ms);
                Some(LifeEffect::EndSuccessor)
            }
            // Its end is no crash that counts: it was about to end.
            LifeEvent::Ended { .. } => {
                self.ready_ms = None;
                self.enter(Starting, None, self.deadline_ms, now_ms);
                Some(LifeEffect::Replace)
            }
            LifeEvent::Restart(why) => Some(self.stop(AfterStop::Launch(why), now_ms)),
            LifeEvent::Disable => Some(self.stop(AfterStop::Disabled, now_ms)),
            _ => None,
        }
    }

    fn unanswered(&self) -> String {
        format!("it did not answer within {} s", self.start_timeout.as_secs())
    }

    fn is_due(&self, now_ms: u64) -> bool {
        self.deadline_ms.is_some_and(|due| due <= now_ms)
    }

    fn enter(&mut self, state: BackendState, reason: Option<String>, deadline_ms: Option<u64>, now_ms: u64) {
        (self.state, self.reason, self.deadline_ms, self.since_ms) = (state, reason, deadline_ms, now_ms);
        self.after_drain = None;
    }

    fn launch(&mut self, why: StartReason, now_ms: u64) -> LifeEffect {
        self.start_reason = why;
        self.ready_ms = None;
        let due = now_ms + millis(self.start_timeout);
        let reason = self.reason.take();
        self.enter(BackendState::Starting, reason, Some(due), now_ms);
        LifeEffect::Launch
    }

    fn stop(&mut self, after: AfterStop, now_ms: u64) -> LifeEffect {
        self.after_stop = after;
        self.enter(BackendState::Stopping, None, None, now_ms);
        LifeEffect::End
    }

    fn stopped(&mut self, jitter: f64, now_ms: u64) -> Option<LifeEffect> {
        match self.after_stop {
            AfterStop::Idle => self.enter(BackendState::Idle, None, None, now_ms),
            AfterStop::Disabled => self.enter(BackendState::Disabled, None, None, now_ms),
            AfterStop::Launch(why) => return Some(self.launch(why, now_ms)),
            AfterStop::TimedOut => {
                let reason = self.unanswered();
                self.crashed(reason, jitter, now_ms);
                return (self.deadline_ms == Some(now_ms)).then(|| self.launch(StartReason::Crash, now_ms));
            }
        }
        None
    }

    /// Decides when it is started again.
    fn crashed(&mut self, reason: String, jitter: f64, now_ms: u64) {
        let stable = |ready: u64| now_ms.saturating_sub(ready) >= millis(STABLE_AFTER);
        if self.ready_ms.is_some_and(stable) {
            self.crashes_in_a_row = 0;
        }
        self.crashes_in_a_row += 1;
        let window = millis(CRASH_WINDOW);
        self.crashed_at_ms.retain(|at| now_ms.saturating_sub(*at) < window);
        self.crashed_at_ms.push_back(now_ms);
        if !self.restarts_by_itself {
            return self.enter(BackendState::Failed, Some(reason), None, now_ms);
        }
        if self.crashed_at_ms.len() >= CRASHES_MAX {
            let retry_ms = now_ms + millis(FAILED_RETRY);
            return self.enter(BackendState::Failed, Some(reason), Some(retry_ms), now_ms);
        }
        let due_ms = now_ms + millis(BACKOFF.wait(self.crashes_in_a_row.saturating_sub(1), jitter));
        self.enter(BackendState::Backoff, Some(reason), Some(due_ms), now_ms);
    }
}

/// Why an instance keeps running although its files or its table have changed.
fn not_replaced(reason: &str) -> String {
    format!("the changed one does not start, so the previous one keeps running: {reason}")
}

#[cfg(test)]
mod tests;
