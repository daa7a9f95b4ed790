//! Which replica owns the inbox of a session: the claim of this one, its epoch, and the retry that a failed operation
//! needs. Pure: the actor generates claims, calls the store and sets the timer.

use std::time::Duration;

use crate::storage::{Claim, Release};

/// Whether this replica owns the inbox.
///
/// The owner is the replica that claimed last. The store gives each claim an epoch, higher than that of every claim
/// before it, and refuses operations under an older claim.
#[derive(Debug)]
pub(super) struct Ownership {
    /// None while another replica owns the inbox, or none does.
    claim: Option<Claim>,
    /// The epoch of `claim`, from when the store has confirmed it.
    epoch: Option<u64>,
    /// The highest epoch that another replica has reported.
    remote_epoch: u64,
    /// It, when `claim` was begun.
    remote_epoch_before: u64,
    /// An actor before this one, or this one before a panic, may have left messages leased.
    had_predecessor: bool,
    /// What the timer that is set will start.
    retry: Option<Retry>,
}

/// What the failure of an operation leaves to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Retry {
    /// Start push again and lease the waiting messages.
    Lease,
    /// Release what is leased as well.
    Release,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The actor starts, for the first time or after a panic.
    Started { is_store_shared: bool },
    /// The store is being asked to confirm this claim.
    ClaimBegun { claim: Claim },
    /// The store has confirmed this claim.
    Claimed { claim: Claim, epoch: u64 },
    /// Another replica reports that it has claimed the session at this epoch.
    ClaimedRemotely { epoch: u64 },
    /// The store has refused an operation because it knows another claim than this one.
    Refused,
    /// An operation of the store has failed.
    Failed { retry: Retry },
    /// The session has had a newer caller at another replica since the claim that failed.
    TakenElsewhere,
    /// The timer of the retry went off.
    RetryDue,
    /// The actor panicked: its timers are gone.
    Panicked,
}

/// What the actor has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Claim the inbox; the store releases what is leased.
    Claim,
    /// Claim the inbox, unless another replica has taken the session since the claim that failed: then report
    /// [`Event::TakenElsewhere`].
    ClaimAgain,
    /// Release what is leased.
    Release,
    /// Start push again and lease the waiting messages.
    Lease,
    /// Close the connection: another replica owns the inbox.
    StepDown,
    /// Report [`Event::RetryDue`] after the retry delay.
    ScheduleRetry,
}

impl Ownership {
    /// `claim` is that of the actor before this one, if there was one in this process.
    pub fn new(claim: Option<Claim>, had_predecessor: bool) -> Self {
        Self {
            claim,
            epoch: None,
            remote_epoch: 0,
            remote_epoch_before: 0,
            had_predecessor,
            retry: None,
        }
    }

    /// The claim under which this replica leases, if it has one.
    pub fn claim(&self) -> Option<Claim> {
        self.claim
    }

    /// Whether another replica has reported a claim since this one was begun.
    pub fn was_claimed_elsewhere(&self) -> bool {
        self.remote_epoch > self.remote_epoch_before
    }

    /// What [`Effect::Release`] releases. Without a claim, the leases of another owner stay as long as the session gave
    /// a sign of life within `silence`.
    pub fn release_scope(&self, silence: Duration) -> Release {
        match self.claim {
            Some(claim) => Release::Claimed(claim),
            None => Release::Silent(silence),
        }
    }

    /// Takes note of an event and returns what follows from it.
    pub fn on(&mut self, event: Event) -> Option<Effect> {
        match event {
            Event::Started { is_store_shared } => self.started(is_store_shared),
            Event::ClaimBegun { claim } => {
                self.claim = Some(claim);
                self.epoch = None;
                self.remote_epoch_before = self.remote_epoch;
                None
            }
            Event::Claimed { claim, epoch } if self.claim == Some(claim) => {
                self.epoch = Some(epoch);
                self.step_down_if_superseded()
            }
            Event::Claimed { .. } => None,
            Event::ClaimedRemotely { epoch } => {
                self.remote_epoch = self.remote_epoch.max(epoch);
                self.step_down_if_superseded()
            }
            Event::Refused if self.epoch.is_some() => Some(self.step_down()),
            // The store may not have this claim yet.
            Event::Refused => self.failed(Retry::Release),
            Event::Failed { retry } => self.failed(retry),
            Event::TakenElsewhere => self.has_failed_claim().then(|| self.step_down()),
            Event::RetryDue => self.retry.take().map(|retry| match retry {
                Retry::Lease => Effect::Lease,
                Retry::Release if self.has_failed_claim() => Effect::ClaimAgain,
                Retry::Release => Effect::Release,
            }),
            Event::Panicked => {
                self.retry = None;
                self.had_predecessor = true;
                None
            }
        }
    }

    /// Messages leased before may never have been written to a socket: they are delivered again.
    fn started(&mut self, is_store_shared: bool) -> Option<Effect> {
        if !std::mem::take(&mut self.had_predecessor) {
            return None;
        }
        match self.claim {
            Some(_) if self.epoch.is_some() => Some(Effect::Release),
            // Another replica may own the inbox.
            None if is_store_shared => None,
            _ => Some(Effect::Claim),
        }
    }

    /// Whether there is a claim that the store may not have, because the operation failed.
    fn has_failed_claim(&self) -> bool {
        self.claim.is_some() && self.epoch.is_none()
    }

    fn step_down_if_superseded(&mut self) -> Option<Effect> {
        let is_superseded = self.epoch.is_some_and(|epoch| epoch < self.remote_epoch);
        is_superseded.then(|| self.step_down())
    }

    fn step_down(&mut self) -> Effect {
        self.claim = None;
        self.epoch = None;
        Effect::StepDown
    }

    fn failed(&mut self, retry: Retry) -> Option<Effect> {
        let is_scheduled = self.retry.is_some();
        self.retry = self.retry.max(Some(retry));
        (!is_scheduled).then_some(Effect::ScheduleRetry)
    }
}

#[cfg(test)]
mod tests;
