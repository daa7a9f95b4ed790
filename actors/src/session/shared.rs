//! What a session's actor and others read and write without asking each other: presence, the number of waiting
//! messages, and whether the actor wants to be woken.

use std::{
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::WakeLog;
use crate::{
    clock::{self, Now, millis},
    locked::Locked,
    model::{PresenceTimeouts, ProjectId, SessionName, SessionStatus},
    silence,
    storage::{Claim, Depth},
    trace::TracedDeliveries,
};

/// The shared state of a session in this process.
#[derive(Debug)]
pub struct SessionShared {
    presence: PresenceState,
    wants_wakeup: AtomicBool,
    /// The session has a live connection at this replica.
    connected: AtomicBool,
    /// The claim by which the session's actor owns the inbox; 0 for none.
    claim: AtomicU64,
    /// Messages that wait, as the last operation on the inbox said.
    waiting: AtomicUsize,
    /// How often `waiting` was set.
    waiting_updates: AtomicU64,
    /// How often another replica may have changed the number of waiting messages, and how often it had when the store
    /// was asked for the last count.
    remote_changes: AtomicU64,
    remote_changes_counted: AtomicU64,
    /// The number of the last batch of which the session was nudged.
    last_batch: AtomicU64,
    agent: Locked<AgentInfo>,
    traced: TracedDeliveries,
    wakes: WakeLog,
}

/// When the last heartbeat was seen, and whether the session has left since.
#[derive(Debug)]
struct PresenceState {
    mono_ms: AtomicU64,
    unix_ms: AtomicU64,
    has_left: AtomicBool,
    /// The live connection ends with its client: while it is open, the client is here.
    is_here: AtomicBool,
    /// Until when the session, which had a connection when the broker ended, counts as active, in milliseconds of the
    /// monotonic clock; 0 for any other.
    awaited_until_ms: AtomicU64,
}

/// What the log says of the agent that acts as a session.
#[derive(Clone, Debug, Default)]
pub struct AgentInfo {
    pub project: Option<ProjectId>,
    pub name: Option<SessionName>,
    /// Empty when the agent did not say, or joined at another replica.
    pub client: Box<str>,
    pub client_version: Box<str>,
}

/// A count of the waiting messages, while the store is being asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recount {
    waiting_updates: u64,
    remote_changes: u64,
}

impl SessionShared {
    /// The state of a session that is active now.
    pub fn new(now: Now) -> Arc<Self> {
        Self::with(PresenceState::at(now.mono_ms, false, now))
    }

    /// The state of a session whose last heartbeat another replica saw at `mono_ms` of the monotonic clock.
    pub(crate) fn last_seen_elsewhere(mono_ms: u64, has_left: bool, now: Now) -> Arc<Self> {
        Self::with(PresenceState::at(mono_ms, has_left, now))
    }

    /// The state of a session that the store has kept, whose client is awaited until this moment of the monotonic clock.
    pub(crate) fn kept(mono_ms: u64, has_left: bool, awaited_until_ms: u64, now: Now) -> Arc<Self> {
        let presence = PresenceState::at(mono_ms, has_left, now);
        presence.awaited_until_ms.store(awaited_until_ms, Ordering::Relaxed);
        Self::with(presence)
    }

    fn with(presence: PresenceState) -> Arc<Self> {
        Arc::new(Self {
            presence,
            wants_wakeup: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            claim: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            waiting_updates: AtomicU64::new(0),
            // The messages were never counted.
            remote_changes: AtomicU64::new(1),
            remote_changes_counted: AtomicU64::new(0),
            last_batch: AtomicU64::new(0),
            agent: Locked::default(),
            traced: TracedDeliveries::default(),
            wakes: WakeLog::default(),
        })
    }

    /// The traced messages that are not acknowledged.
    pub(crate) const fn traced(&self) -> &TracedDeliveries {
        &self.traced
    }

    /// The wakes of the agent, and what is known of its turns.
    pub const fn wakes(&self) -> &WakeLog {
        &self.wakes
    }

    /// What the log says of the agent.
    pub fn agent(&self) -> MutexGuard<'_, AgentInfo> {
        self.agent.lock()
    }

    /// Another replica saw a heartbeat at `mono_ms`, or the session leave. `instead_of` is the moment that this replica
    /// had before as an estimate of the same heartbeat: it is corrected, even to an earlier one.
    pub(crate) fn apply_remote_heartbeat(&self, mono_ms: u64, instead_of: Option<u64>, has_left: bool, now: Now) {
        let last = &self.presence.mono_ms;
        let is_corrected = instead_of.is_some_and(|before| {
            last.compare_exchange(before, mono_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        });
        if !is_corrected && last.fetch_max(mono_ms, Ordering::Relaxed) > mono_ms {
            return;
        }
        self.presence.unix_ms.store(unix_ms_of(mono_ms, now), Ordering::Relaxed);
        self.presence.has_left.store(has_left, Ordering::Relaxed);
    }

    /// Whether the session left of its own will and gave no heartbeat since.
    pub(crate) fn has_left(&self) -> bool {
        self.presence.has_left.load(Ordering::Relaxed)
    }

    /// Notes a heartbeat.
    pub fn touch(&self, now: Now) {
        self.presence.mono_ms.fetch_max(now.mono_ms, Ordering::Relaxed);
        self.presence.unix_ms.store(now.unix_ms, Ordering::Relaxed);
        if self.has_left() {
            self.presence.has_left.store(false, Ordering::Relaxed);
        }
    }

    /// The session leaves of its own will: it is disconnected until its next heartbeat.
    pub fn leave(&self, now: Now) {
        self.touch(now);
        self.presence.has_left.store(true, Ordering::Relaxed);
    }

    /// The presence, derived from the last heartbeat.
    pub fn status(&self, presence: PresenceTimeouts, now: Now) -> SessionStatus {
        if self.has_left() {
            SessionStatus::Disconnected
        } else {
            presence.status(self.silence(presence, now))
        }
    }

    /// How long the client has been silent. A client that is awaited becomes stale at the end of that time, if it is silent
    /// for longer.
    pub(super) fn silence(&self, presence: PresenceTimeouts, now: Now) -> Duration {
        let silence = silence::peer_silence(self.last_seen_mono_ms(), now);
        let awaited_until_ms = self.presence.awaited_until_ms.load(Ordering::Relaxed);
        match awaited_until_ms.checked_sub(now.mono_ms) {
            Some(left_ms) if left_ms > 0 => {
                silence.min(presence.stale_after.saturating_sub(Duration::from_millis(left_ms)))
            }
            _ => silence,
        }
    }

    /// Whether a connection is open, or one that the end of the broker has closed is awaited.
    pub(crate) fn is_connected_or_awaited(&self, now: Now) -> bool {
        self.is_connected() || self.presence.awaited_until_ms.load(Ordering::Relaxed) > now.mono_ms
    }

    /// The last heartbeat, in milliseconds of the monotonic clock.
    pub fn last_seen_mono_ms(&self) -> u64 {
        if self.is_here() {
            return clock::mono_ms();
        }
        self.presence.mono_ms.load(Ordering::Relaxed)
    }

    /// The last heartbeat, in milliseconds since the Unix epoch.
    pub fn last_seen_unix_ms(&self) -> u64 {
        if self.is_here() {
            return clock::now().unix_ms;
        }
        self.presence.unix_ms.load(Ordering::Relaxed)
    }

    /// Whether a connection is open that ends with its client: the session is active without heartbeats.
    pub(super) fn is_here(&self) -> bool {
        self.presence.is_here.load(Ordering::Relaxed)
    }

    /// Such a connection was opened, or closed. Its end is the last heartbeat. Returns whether that is a change.
    pub(super) fn set_here(&self, is_here: bool) -> bool {
        let was_here = self.presence.is_here.swap(is_here, Ordering::Relaxed);
        if was_here && !is_here && !self.has_left() {
            self.touch(clock::now());
        }
        was_here != is_here
    }

    /// Messages that wait, as the last operation on the inbox said.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// An operation on the inbox said that so many messages wait.
    pub fn set_waiting(&self, waiting: usize) {
        self.waiting_updates.fetch_add(1, Ordering::AcqRel);
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// One more message waits.
    pub fn add_waiting(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// As [`Self::set_waiting`].
    pub fn set_depth(&self, depth: Depth) {
        self.set_waiting(depth.waiting);
    }

    /// Another replica may have changed how many messages wait.
    pub(crate) fn mark_waiting_outdated(&self) {
        self.remote_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether [`Self::waiting`] is what a shared store has: the session's connection is at this replica, so that no
    /// other replica leases from its inbox; the store was asked for a count; and no replica has reported a new message
    /// since.
    pub(crate) fn is_waiting_current(&self) -> bool {
        self.is_connected()
            && self.remote_changes.load(Ordering::Acquire) == self.remote_changes_counted.load(Ordering::Acquire)
    }

    /// Call before the store is asked how many messages wait.
    pub(crate) fn begin_recount(&self) -> Recount {
        Recount {
            waiting_updates: self.waiting_updates.load(Ordering::Acquire),
            remote_changes: self.remote_changes.load(Ordering::Acquire),
        }
    }

    /// The store has counted `waiting` messages. The count is dropped if an operation was answered meanwhile, which may
    /// be newer. A change that another replica reported meanwhile may not be in it and stays unaccounted for.
    pub(crate) fn finish_recount(&self, begun: Recount, waiting: usize) {
        let next = begun.waiting_updates + 1;
        let is_latest =
            self.waiting_updates
                .compare_exchange(begun.waiting_updates, next, Ordering::AcqRel, Ordering::Acquire);
        if is_latest.is_ok() {
            self.waiting.store(waiting, Ordering::Relaxed);
        }
        self.remote_changes_counted
            .fetch_max(begun.remote_changes, Ordering::AcqRel);
    }

    /// Whether the session would act on a new message at once, so that it needs a nudge. The session sets it before it
    /// looks into its inbox: each message is either seen there or nudged for.
    pub fn wants_wakeup(&self) -> bool {
        self.wants_wakeup.load(Ordering::SeqCst)
    }

    /// See [`Self::wants_wakeup`].
    pub fn set_wants_wakeup(&self, wants_wakeup: bool) {
        self.wants_wakeup.store(wants_wakeup, Ordering::SeqCst);
    }

    /// Whether the session has a live connection at this replica.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    /// The session has a live connection at this replica, or has none. A change makes the count of messages outdated.
    pub(super) fn set_connected(&self, connected: bool) {
        if self.connected.swap(connected, Ordering::AcqRel) != connected {
            self.mark_waiting_outdated();
        }
    }

    /// Whether the session's actor at this replica owns the inbox, and so knows the waiting messages.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claim().is_some()
    }

    /// The claim by which the actor owns the inbox.
    pub(super) fn claim(&self) -> Option<Claim> {
        let bits = self.claim.load(Ordering::Relaxed);
        (bits != 0).then(|| Claim::from_bits(bits))
    }

    /// See [`Self::claim`].
    pub(super) fn set_claim(&self, claim: Option<Claim>) {
        self.claim.store(claim.map_or(0, Claim::bits), Ordering::Relaxed);
    }

    /// True for the first of consecutive calls with the same batch number: one nudge per session and batch is enough.
    pub fn is_first_in_batch(&self, batch: u64) -> bool {
        self.last_batch.swap(batch, Ordering::Relaxed) != batch
    }
}

impl PresenceState {
    fn at(mono_ms: u64, has_left: bool, now: Now) -> Self {
        Self {
            mono_ms: AtomicU64::new(mono_ms),
            unix_ms: AtomicU64::new(unix_ms_of(mono_ms, now)),
            has_left: AtomicBool::new(has_left),
            is_here: AtomicBool::new(false),
            awaited_until_ms: AtomicU64::new(0),
        }
    }
}

/// The wall clock at a past moment of the monotonic clock.
fn unix_ms_of(mono_ms: u64, now: Now) -> u64 {
    now.unix_ms.saturating_sub(millis(now.since(mono_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENCE: PresenceTimeouts = PresenceTimeouts {
        stale_after: Duration::from_secs(30),
        disconnect_after: Duration::from_secs(60),
    };

    fn at(seconds: u64) -> Now {
        Now {
            unix_ms: 1_790_000_000_000 + seconds * 1000,
            mono_ms: seconds * 1000,
        }
    }

    #[test]
    fn a_session_is_loaded_as_what_it_is() {
        let seen = |seconds: u64| SessionShared::kept(at(seconds).mono_ms, false, 0, at(1000));
        for (seconds, status) in [
            (980, SessionStatus::Active),
            (965, SessionStatus::Stale),
            (10, SessionStatus::Disconnected),
        ] {
            let shared = seen(seconds);
            assert_eq!(shared.status(PRESENCE, at(1000)), status, "{seconds}");
            assert_eq!(shared.last_seen_unix_ms(), at(seconds).unix_ms);
        }
        let left = SessionShared::kept(at(999).mono_ms, true, 0, at(1000));
        assert_eq!(left.status(PRESENCE, at(1000)), SessionStatus::Disconnected);
    }

    #[test]
    fn the_client_of_a_session_that_was_connected_is_awaited_for_a_while() {
        let shared = SessionShared::kept(at(10).mono_ms, false, at(1010).mono_ms, at(1000));
        let status = |seconds| shared.status(PRESENCE, at(seconds));
        assert_eq!([1000, 1009].map(status), [SessionStatus::Active; 2]);
        assert_eq!(status(1010), SessionStatus::Disconnected);
        assert_eq!(shared.last_seen_unix_ms(), at(10).unix_ms, "it was not seen");
        assert!(shared.is_connected_or_awaited(at(1009)) && !shared.is_connected_or_awaited(at(1010)));
        shared.touch(at(1005));
        assert_eq!(status(1010), SessionStatus::Active, "it has come back");
    }
}
