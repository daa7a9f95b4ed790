//! Sessions in the store: their records, the roster, and the claims of their owners.

use std::time::Duration;

use super::{claim::Claim, error::Op, inboxes::Released};
use crate::{
    clock::Now,
    model::{DeadLetterReason, SessionId, SessionName, SessionRecord},
};

/// The sessions of a project.
pub trait SessionStore {
    /// Adds a session or replaces its record, subject to `condition`. Counts as a heartbeat of the session.
    fn put_session(&self, record: SessionRecord, condition: PutSession) -> Op<PutOutcome>;

    /// All sessions with the version of the roster.
    fn sessions(&self) -> Op<Roster>;

    /// The record of a session; None if the store has none.
    fn find_session(&self, key: SessionKey) -> Op<Option<SessionRecord>>;

    /// Removes a session. The messages in its inbox become dead letters with this reason; returns their number, 0 for
    /// an unknown session. With `silent_for`, returns None and removes nothing if the session's last heartbeat at any
    /// replica is younger than that.
    fn remove_session(
        &self,
        session: SessionId,
        reason: DeadLetterReason,
        silent_for: Option<Duration>,
        now: Now,
    ) -> Op<Option<usize>>;

    /// Makes the holder of `claim` the owner of the session until the next claim. Releases everything that is leased, as
    /// [`release`](super::InboxStore::release) does; operations under an older claim are refused from then on.
    fn claim(&self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Op<Claimed>;
}

/// The result of [`SessionStore::claim`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Higher than the epoch of every earlier claim of this session. 0 for an unknown session.
    pub epoch: u64,
    /// The messages that the former owner had leased.
    pub released: Released,
}

/// The conditions under which [`SessionStore::put_session`] stores a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutSession {
    /// The session must be in the store already: it is resumed, not created.
    pub must_exist: bool,
    /// The largest number of sessions of the project, counting a new one. None: no limit.
    pub sessions_len_max: Option<usize>,
}

/// The result of [`SessionStore::put_session`]. Every variant but `Stored` means that nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The record is stored.
    Stored,
    /// Another session has the name or one of the aliases.
    NameTaken,
    /// The session had to exist and does not.
    Gone,
    /// The project has as many sessions as [`PutSession::sessions_len_max`] allows.
    TooManySessions,
    /// The records of the project's sessions would take more bytes than `limit`.
    TooManyBytes {
        /// [`Retention::sessions_bytes_max`](super::Retention::sessions_bytes_max).
        limit: usize,
    },
}

/// All sessions of a project at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roster {
    /// Grows with every session that is put or removed.
    pub version: u64,
    /// The records, in no particular order.
    pub sessions: Vec<SessionRecord>,
}

/// By what a session is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionKey {
    /// By its id.
    Id(SessionId),
    /// By its name or one of its aliases: each is unique in the project.
    Name(SessionName),
}
