//! Claims: the right of one holder to one thing, for a time. A holder is a replica or a session, by its id.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use super::error::Op;
use crate::clock::Now;

/// The claims of a project.
pub trait ClaimStore {
    /// Gives `thing` to `holder` for `ttl` from now on. A holder that has it already keeps the epoch. None while another
    /// holder has it. `note` is shown to others.
    fn claim(&self, thing: Arc<str>, holder: Uuid, ttl: Duration, note: Arc<str>, now: Now) -> Op<Option<ClaimEpoch>>;

    /// Ends the claim with this epoch. False, and nothing changes, if it was settled before, was ended, or another one
    /// followed.
    fn settle(&self, epoch: ClaimEpoch) -> Op<bool>;

    /// Removes claims whose time is over, at most [`ENDED_AT_ONCE_MAX`], and returns them. Such a thing is free already:
    /// its holder has shown no sign of life.
    fn end_silent(&self, now: Now) -> Op<Vec<HeldClaim>>;

    /// The claims of things that begin with `prefix` whose time is not over, sorted by thing.
    fn claims(&self, prefix: Arc<str>, now: Now) -> Op<Vec<HeldClaim>>;
}

/// Claims that one call of [`ClaimStore::end_silent`] ends.
pub const ENDED_AT_ONCE_MAX: usize = 1_000;

/// The number of a claim. It grows with each claim of a project, and never comes twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimEpoch(pub u64);

/// A claim whose time is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldClaim {
    pub epoch: ClaimEpoch,
    pub thing: Arc<str>,
    pub holder: Uuid,
    pub note: Arc<str>,
}
