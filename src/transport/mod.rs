//! The ways in. Each brings frames to a [`Peer`](crate::mcp::Peer) and writes what its outbox holds.

mod connections;
pub mod websocket;

pub use connections::{Connections, Seat};
