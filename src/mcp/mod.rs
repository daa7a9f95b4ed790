//! MCP, free of any transport: frames in, frames out.
//!
//! A transport makes a [`Peer`] for each lasting connection, gives it the frames of a turn, and writes what its
//! [`Outbox`] holds. Both eras are served on the same connection: a request with modern `_meta` is answered
//! statelessly, an `initialize` opens a legacy session.

mod dispatch;
pub mod outbox;
mod peer;
mod reply;
mod resources;
pub mod rpc;
pub mod scan;
mod shared;
mod subscriptions;
mod tools;
mod turn;
pub mod version;

pub use outbox::{Framing, Outbox};
pub use peer::{Peer, Taken};

/// What a server tells a model that has just connected.
pub const INSTRUCTIONS: &str = include_str!("instructions.txt");

/// Largest message, and what else bounds a connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one payload.
    pub payload_len_max: usize,
}
