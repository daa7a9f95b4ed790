//! The ways in. Each brings frames to a [`Peer`](crate::mcp::Peer) and writes what its outbox holds.

mod addresses;
pub mod body;
mod connections;
mod gate;
pub mod inbound;
mod socket;
pub mod streamable_http;
pub mod websocket;

pub use addresses::{Addresses, Place};
pub use connections::{Connections, Seat};
pub use gate::{Gate, Tempo};
pub use socket::{LONG_ANSWER_LEN, Line, REFUSED_TIME_MAX, Socket};
