//! The life of a backend: when it is started, and what follows when it ends. Pure.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

use crate::clock::millis;

/// An uptime after which a crash counts as the first one again.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// The pause before the second restart, doubled with each further one. The first is immediate.
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Crashes within [`CRASH_WINDOW`] after which a backend is only tried now and then.
const CRASHES_MAX: usize = 10;
const CRASH_WINDOW: Duration = Duration::from_secs(600);
/// How long a failed backend rests before it is tried again.
const FAILED_RETRY: Duration = Duration::from_secs(300);
/// The longest part by which a pause is shortened, so that many backends do not start at the same moment.
const JITTER: f64 = 0.2;

/// What a backend is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendState {
    /// It does not run, and is started by the first call.
    Idle,
    /// It was started and has not answered yet.
    Starting,
    /// It takes calls.
    Ready,
    /// It takes calls, and another instance is being started that will take its place.
    Handover,
    /// It has ended, and is started again after a pause.
    Backoff,
    /// It cannot be started, or ends again and again.
    Failed,
    /// The configuration or an operator has switched it off.
    Disabled,
    /// It is being ended.
    Stopping,
}

impl BackendState {
    /// The name of the state.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Handover => "handover",
            Self::Backoff => "backoff",
            Self::Failed => "failed",
            Self::Disabled => "disabled",
            Self::Stopping => "stopping",
        }
    }
}

/// What happens to a backend.
#[derive(Clone, Debug, PartialEq)]
pub enum LifeEvent {
    /// A call needs it, or it is started with the broker, or its tools are not known.
    Wanted,
    /// An operator has it started now. Earlier crashes are forgotten.
    Restart,
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
    /// It has had no call for as long as the configuration allows.
    IdleTooLong,
    /// What it is started from has changed.
    Changed,
    /// The instance that was started beside it has answered the handshake.
    SuccessorReady,
    /// The instance that was started beside it has ended before.
    SuccessorEnded { reason: String },
}

/// What has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeEffect {
    /// Start an instance.
    Launch,
    /// End the running instance, and one that is being started beside it. The end is told by [`LifeEvent::Ended`].
    End,
    /// Start an instance beside the running one, instead of one that was started so before.
    LaunchSuccessor,
    /// The instance that was started beside the running one takes its place.
    Replace,
    /// The instance that was started beside the running one is given up.
    EndSuccessor,
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
    /// When it became ready.
    ready_ms: Option<u64>,
    /// Ends without a stable time in between.
    crashes_in_a_row: u32,
    crashed_at_ms: VecDeque<u64>,
    deadline_ms: Option<u64>,
    /// What follows when the instance that is being ended has ended.
    after_stop: AfterStop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterStop {
    Idle,
    Disabled,
    Launch,
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
            ready_ms: None,
            crashes_in_a_row: 0,
            crashed_at_ms: VecDeque::new(),
            deadline_ms: None,
            after_stop: AfterStop::Idle,
        }
    }

    /// The state.
    pub fn state(&self) -> BackendState {
        self.state
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
        use BackendState::{Backoff, Disabled, Failed, Handover, Idle, Ready, Starting, Stopping};
        match (event, self.state) {
            (LifeEvent::Wanted, Idle) => Some(self.launch(now_ms)),
            (LifeEvent::Restart, Idle | Backoff | Failed | Disabled) => {
                self.crashes_in_a_row = 0;
                self.crashed_at_ms.clear();
                Some(self.launch(now_ms))
            }
            (LifeEvent::Restart, Starting | Ready) => Some(self.stop(AfterStop::Launch, now_ms)),
            (LifeEvent::Restart, Stopping) => {
                self.after_stop = AfterStop::Launch;
                None
            }
            (LifeEvent::Ready, Starting) => {
                self.ready_ms = Some(now_ms);
                self.enter(Ready, None, None, now_ms);
                None
            }
            (LifeEvent::Ended { reason, jitter }, Starting | Ready) => {
                self.crashed(reason, jitter, now_ms);
                (self.deadline_ms == Some(now_ms)).then(|| self.launch(now_ms))
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
            (LifeEvent::Deadline, Backoff | Failed) if self.is_due(now_ms) => Some(self.launch(now_ms)),
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
            (LifeEvent::IdleTooLong, Ready) => Some(self.stop(AfterStop::Idle, now_ms)),
            (LifeEvent::Changed, state) => self.changed(state, now_ms),
            (event, Handover) => self.handing_over(event, now_ms),
            _ => None,
        }
    }

    /// Takes new settings.
    pub fn configure(&mut self, start_timeout: Duration, restarts_by_itself: bool) {
        (self.start_timeout, self.restarts_by_itself) = (start_timeout, restarts_by_itself);
    }

    /// What it is started from has changed: the next instance shows whether that mends a failure.
    fn changed(&mut self, state: BackendState, now_ms: u64) -> Option<LifeEffect> {
        use BackendState::{Backoff, Disabled, Failed, Handover, Idle, Ready, Starting, Stopping};
        match state {
            Idle | Backoff | Failed => self.on(LifeEvent::Restart, now_ms),
            // It may have read what was there before.
            Starting => Some(self.stop(AfterStop::Launch, now_ms)),
            Ready | Handover => {
                let due = now_ms + millis(self.start_timeout);
                self.enter(Handover, None, Some(due), now_ms);
                Some(LifeEffect::LaunchSuccessor)
            }
            Stopping if self.after_stop != AfterStop::Disabled => {
                self.after_stop = AfterStop::Launch;
                None
            }
            Stopping | Disabled => None,
        }
    }

    fn handing_over(&mut self, event: LifeEvent, now_ms: u64) -> Option<LifeEffect> {
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
            LifeEvent::Restart => Some(self.stop(AfterStop::Launch, now_ms)),
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
    }

    fn launch(&mut self, now_ms: u64) -> LifeEffect {
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
            AfterStop::Launch => return Some(self.launch(now_ms)),
            AfterStop::TimedOut => {
                let reason = self.unanswered();
                self.crashed(reason, jitter, now_ms);
                return (self.deadline_ms == Some(now_ms)).then(|| self.launch(now_ms));
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
        let due_ms = now_ms + millis(pause_before(self.crashes_in_a_row, jitter));
        self.enter(BackendState::Backoff, Some(reason), Some(due_ms), now_ms);
    }
}

/// Why an instance goes on although what it is started from has changed.
fn not_replaced(reason: &str) -> String {
    format!("the changed one does not start, so the one before it goes on: {reason}")
}

/// The pause after this many crashes in a row.
fn pause_before(crashes: u32, jitter: f64) -> Duration {
    match crashes.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => {
            let pause = BACKOFF.saturating_mul(2_u32.saturating_pow(doublings)).min(BACKOFF_MAX);
            pause.mul_f64(1.0 - JITTER * jitter.clamp(0.0, 1.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000;

    fn life() -> Life {
        Life::new(Duration::from_secs(60), true, false, 0)
    }

    fn crash() -> LifeEvent {
        LifeEvent::Ended {
            reason: "exited with code 1".to_owned(),
            jitter: 0.0,
        }
    }

    #[test]
    fn the_first_restart_is_immediate_and_later_ones_wait_longer() {
        let (mut life, mut now) = (life(), 0);
        assert_eq!(life.on(LifeEvent::Wanted, now), Some(LifeEffect::Launch));
        assert_eq!(life.on(LifeEvent::Ready, now), None);
        assert_eq!(life.state(), BackendState::Ready);
        assert_eq!(life.on(crash(), now), Some(LifeEffect::Launch), "at once");
        let mut pauses = Vec::new();
        loop {
            assert_eq!(life.on(crash(), now), None);
            if life.state() == BackendState::Failed {
                break;
            }
            let due = life.deadline_ms().unwrap();
            assert_eq!(life.on(LifeEvent::Deadline, due - 1), None, "too early");
            pauses.push((due - now) / S);
            now = due;
            assert_eq!(life.on(LifeEvent::Deadline, now), Some(LifeEffect::Launch));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(life.reason(), Some("exited with code 1"));
        assert_eq!(life.deadline_ms(), Some(now + 300 * S));
        assert_eq!(life.on(LifeEvent::Wanted, now), None, "calls fail fast");
        assert_eq!(life.on(LifeEvent::Restart, now), Some(LifeEffect::Launch));
    }

    #[test]
    fn a_stable_time_forgives_earlier_crashes() {
        let mut life = life();
        life.on(LifeEvent::Wanted, 0);
        for round in 1..30 {
            let now = round * 61 * S;
            life.on(LifeEvent::Ready, now - 60 * S);
            // Ten crashes in ten minutes would be too many.
            assert_eq!(life.on(crash(), now), Some(LifeEffect::Launch), "round {round}");
            if round % 9 == 0 {
                life.crashed_at_ms.clear();
            }
        }
    }

    #[test]
    fn a_start_that_takes_too_long_is_ended_and_counts_as_a_crash() {
        let mut life = life();
        life.on(LifeEvent::Wanted, 0);
        assert_eq!(life.on(LifeEvent::Deadline, 60 * S - 1), None);
        assert_eq!(life.on(LifeEvent::Deadline, 60 * S), Some(LifeEffect::End));
        assert_eq!(life.on(crash(), 61 * S), Some(LifeEffect::Launch), "the first restart");
        assert_eq!(life.on(LifeEvent::Deadline, 121 * S), Some(LifeEffect::End));
        assert_eq!(life.on(crash(), 122 * S), None);
        assert_eq!(life.reason(), Some("it did not answer within 60 s"));
        assert_eq!(life.deadline_ms(), Some(123 * S));
    }

    #[test]
    fn what_cannot_be_started_rests_for_five_minutes() {
        let mut life = life();
        life.on(LifeEvent::Wanted, 0);
        let reason = "no such program".to_owned();
        assert_eq!(life.on(LifeEvent::NotStarted { reason }, S), None);
        assert_eq!(
            (life.state(), life.deadline_ms()),
            (BackendState::Failed, Some(301 * S))
        );
        assert_eq!(life.on(LifeEvent::Deadline, 301 * S), Some(LifeEffect::Launch));
    }

    #[test]
    fn an_operator_restarts_and_disables() {
        let mut life = life();
        life.on(LifeEvent::Wanted, 0);
        life.on(LifeEvent::Ready, 1);
        assert_eq!(life.on(LifeEvent::Restart, 2), Some(LifeEffect::End));
        assert_eq!(life.state(), BackendState::Stopping);
        assert_eq!(life.on(LifeEvent::Wanted, 3), None);
        assert_eq!(life.on(crash(), 4), Some(LifeEffect::Launch));
        assert_eq!(life.on(LifeEvent::Disable, 5), Some(LifeEffect::End));
        assert_eq!(life.on(crash(), 6), None);
        assert_eq!(life.state(), BackendState::Disabled);
        assert_eq!(life.on(LifeEvent::Wanted, 7), None);
        assert_eq!(life.on(LifeEvent::Restart, 8), Some(LifeEffect::Launch));
        life.on(LifeEvent::Ready, 9);
        assert_eq!(life.on(LifeEvent::IdleTooLong, 10), Some(LifeEffect::End));
        assert_eq!(life.on(crash(), 11), None);
        assert_eq!(life.on(LifeEvent::Wanted, 12), Some(LifeEffect::Launch));
    }

    fn ready() -> Life {
        let mut life = life();
        life.on(LifeEvent::Wanted, 0);
        life.on(LifeEvent::Ready, 1);
        life
    }

    #[test]
    fn a_changed_one_takes_the_place_of_the_running_one_when_it_is_ready() {
        let mut life = ready();
        assert_eq!(life.on(LifeEvent::Changed, 2), Some(LifeEffect::LaunchSuccessor));
        assert_eq!(life.state(), BackendState::Handover);
        assert_eq!(life.on(LifeEvent::IdleTooLong, 3), None);
        assert_eq!(
            life.on(LifeEvent::Changed, 4),
            Some(LifeEffect::LaunchSuccessor),
            "changed once more"
        );
        assert_eq!(life.on(LifeEvent::SuccessorReady, 5), Some(LifeEffect::Replace));
        assert_eq!((life.state(), life.reason()), (BackendState::Ready, None));
    }

    #[test]
    fn the_running_one_goes_on_when_the_changed_one_does_not_start() {
        let mut life = ready();
        life.on(LifeEvent::Changed, 2);
        let reason = "exited with code 1".to_owned();
        assert_eq!(life.on(LifeEvent::SuccessorEnded { reason }, 3), None);
        assert_eq!(life.state(), BackendState::Ready);
        assert!(life.reason().unwrap().ends_with("goes on: exited with code 1"));

        assert_eq!(life.on(LifeEvent::Changed, 4), Some(LifeEffect::LaunchSuccessor));
        assert_eq!(life.reason(), None);
        assert_eq!(life.on(LifeEvent::Deadline, 4 + 60 * S), Some(LifeEffect::EndSuccessor));
        assert!(life.reason().unwrap().ends_with("did not answer within 60 s"));
        assert_eq!(life.deadline_ms(), None);
    }

    #[test]
    fn the_changed_one_is_awaited_when_the_running_one_ends_first() {
        let mut life = ready();
        life.on(LifeEvent::Changed, 2);
        assert_eq!(life.on(crash(), 3), Some(LifeEffect::Replace));
        assert_eq!(
            (life.state(), life.deadline_ms()),
            (BackendState::Starting, Some(2 + 60 * S))
        );
        life.on(LifeEvent::Ready, 4);
        assert_eq!(life.state(), BackendState::Ready);
    }

    #[test]
    fn a_change_starts_what_does_not_run_unless_it_is_disabled() {
        let mut life = life();
        life.on(LifeEvent::Wanted, 0);
        let reason = "no such program".to_owned();
        life.on(LifeEvent::NotStarted { reason }, 1);
        assert_eq!(life.on(LifeEvent::Changed, 2), Some(LifeEffect::Launch));
        assert_eq!(
            life.on(LifeEvent::Changed, 3),
            Some(LifeEffect::End),
            "it may have read the old files"
        );
        assert_eq!(life.on(crash(), 4), Some(LifeEffect::Launch));
        life.on(LifeEvent::Disable, 5);
        assert_eq!(life.on(LifeEvent::Changed, 6), None);
        life.on(crash(), 7);
        assert_eq!(
            (life.state(), life.on(LifeEvent::Changed, 8)),
            (BackendState::Disabled, None)
        );
    }

    #[test]
    fn one_that_is_not_restarted_by_itself_waits_for_an_operator() {
        let mut life = Life::new(Duration::from_secs(60), false, false, 0);
        life.on(LifeEvent::Wanted, 0);
        assert_eq!(life.on(crash(), 1), None);
        assert_eq!((life.state(), life.deadline_ms()), (BackendState::Failed, None));
    }
}
