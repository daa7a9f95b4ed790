//! Sessions in the store: their records, the roster, and the claims of their owners.

use std::{future::ready, time::Duration};

use serde::{Deserialize, Serialize};

use super::{claim::Claim, error::Op, inboxes::Released, replicated::Heartbeat};
use crate::{
    clock::{Now, millis},
    model::{DeadLetterReason, SessionId, SessionName, SessionRecord},
};

/// The sessions of a project.
pub trait SessionStore {
    /// Adds a session or replaces its record, subject to `condition`. Counts as a heartbeat of the session.
    fn put_session(&self, record: SessionRecord, condition: PutSession) -> Op<PutOutcome>;

    /// All sessions with the version of the roster.
    fn sessions(&self) -> Op<Roster>;

    /// Keeps the last signs of life of sessions, in this order, until their records fill [`KEPT_AT_ONCE_BYTES`]. Returns how
    /// many it has kept. A shared store has [`ReplicatedStore::exchange_heartbeats`](super::ReplicatedStore) instead.
    fn keep_heartbeats(&self, _heartbeats: Vec<Heartbeat>, _now: Now) -> Op<usize> {
        Box::pin(ready(Ok(0)))
    }

    /// The last signs of life that are kept. A session of an earlier version has none.
    fn kept_heartbeats(&self, _now: Now) -> Op<Vec<Heartbeat>> {
        Box::pin(ready(Ok(Vec::new())))
    }

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
    fn claim_session(&self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Op<Claimed>;
}

/// Bytes of the records that [`SessionStore::keep_heartbeats`] writes at once: some milliseconds of a worker.
pub const KEPT_AT_ONCE_BYTES: usize = 1024 * 1024;

/// The last sign of life of a session, as a store of one process keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSign {
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// It was an explicit leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_left: bool,
    /// The session had a live connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_connected: bool,
}

impl LastSign {
    pub(crate) fn of(heartbeat: &Heartbeat, now: Now) -> Self {
        Self {
            at_ms: now.unix_ms.saturating_sub(millis(heartbeat.ago)),
            has_left: heartbeat.has_left,
            is_connected: heartbeat.is_connected,
        }
    }

    pub(crate) fn heartbeat(self, session: SessionId, now: Now) -> Heartbeat {
        Heartbeat {
            session,
            ago: Duration::from_millis(now.unix_ms.saturating_sub(self.at_ms)),
            has_left: self.has_left,
            is_connected: self.is_connected,
        }
    }
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
    /// The sign of life that the put is, for a store of one process. None: the one before stays.
    pub sign: Option<LastSign>,
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
