//! Room for messages that are read from the store: reserved before they are read, so that what is read for all callers
//! together is bounded, wherever the messages are.

use std::{any::Any, future::Future, pin::Pin};

/// Bytes of messages that may be read, or handed over, for one connection without a reservation. Small messages cost no
/// look at the room of others.
pub const UNRESERVED_BYTES_MAX: usize = 64 * 1024;

/// Room that a connection has reserved for messages that are being read for it. Given back when it is dropped, after they
/// are pushed: from then on they count as what waits for the socket.
#[must_use]
#[derive(Default)]
pub struct Reservation {
    _guard: Option<Box<dyn Any + Send>>,
}

impl Reservation {
    /// The room is given back when `guard` is dropped.
    pub fn held_by(guard: impl Any + Send) -> Self {
        Self {
            _guard: Some(Box::new(guard)),
        }
    }
}

/// Room for the messages that a call reads, until its answer is written.
pub trait ReadRoom: Send + Sync {
    /// Reserves room for so many bytes of messages in all. False, and nothing changes, when there is none now.
    fn try_reserve(&self, bytes: usize) -> bool;

    /// Returns when room for so many bytes of messages in all is reserved. What was reserved before is given back first:
    /// calls that hold on to a part while they wait for the rest would wait for one another.
    fn reserve(&self, bytes: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// The call waits for messages, and holds no room meanwhile.
    fn give_back(&self);
}

/// The room of a caller that bounds by itself what it holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unbounded;

impl ReadRoom for Unbounded {
    fn try_reserve(&self, _: usize) -> bool {
        true
    }

    fn reserve(&self, _: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    fn give_back(&self) {}
}
