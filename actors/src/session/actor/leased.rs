//! Leased messages that are on their way to their reader, and the time of their lease.

use std::collections::VecDeque;

use actix::SpawnHandle;

use super::caller::ForCall;
use crate::{
    session::{ReadReservation, UNRESERVED_BYTES_MAX},
    storage::{Claim, Delivery, Depth},
};

/// When a lease was begun. A lease of another time has ended, or is for another caller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseTime {
    pub claim: Option<Claim>,
    pub releases: u64,
    pub attachment: Option<u64>,
    pub incarnation: u32,
}

impl LeaseTime {
    /// Whether what was leased then is still leased now, for the same caller or for another one.
    pub fn is_leased(self, now: Self) -> bool {
        (self.claim, self.releases) == (now.claim, now.releases)
    }

    /// Whether what was leased then is for the connection that is live now.
    pub fn is_attached(self, now: Self) -> bool {
        self.attachment == now.attachment
    }
}

/// Who gets leased messages.
pub(super) enum Reader {
    Connection(ForConnection),
    Call(ForCall),
}

/// Messages for the live connection.
pub(super) struct ForConnection {
    /// Bytes that the connection has reserved for them.
    pub reserved: usize,
    pub reservation: ReadReservation,
    /// How many of the messages were pushed already.
    pub pushed: usize,
    pub after: After,
}

/// What the state of the session learns when the messages are pushed.
#[derive(Clone, Copy)]
pub(super) enum After {
    Nothing,
    Drained {
        depth: Depth,
        delivered: usize,
    },
    /// The store has leased and sent them by itself.
    PushedByStore {
        is_group_lease: bool,
    },
}

impl ForConnection {
    /// What was not leased by a drain: the connection gets [`UNRESERVED_BYTES_MAX`] of it without a reservation.
    pub fn unreserved(after: After) -> Self {
        Self {
            reserved: UNRESERVED_BYTES_MAX,
            reservation: ReadReservation::default(),
            pushed: 0,
            after,
        }
    }
}

/// The messages that wait, in order. The first are being translated.
#[derive(Default)]
pub(super) struct Translations {
    pub queue: VecDeque<Translation>,
    /// The first could not be translated, and is tried again later.
    pub is_held: bool,
    /// The timer of the next try, where the connection does not report it.
    pub retry: Option<SpawnHandle>,
}

/// Messages of one lease.
pub(super) struct Translation {
    pub begun: LeaseTime,
    pub leased: Vec<Delivery>,
    /// None while they are given to it.
    pub to: Option<Reader>,
}

impl Reader {
    /// What the lease said of the inbox, if the state has not learned it.
    pub fn depth_mut(&mut self) -> Option<&mut Depth> {
        match self {
            Self::Call(call) => Some(call.depth_mut()),
            Self::Connection(ForConnection {
                after: After::Drained { depth, .. },
                ..
            }) => Some(depth),
            Self::Connection(_) => None,
        }
    }
}
