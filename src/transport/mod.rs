//! The transports. Each passes frames to a [`Peer`](api::mcp::Peer) and writes what its outbox holds. They know no
//! tools.

pub mod body;
mod closing;
mod connections;
mod context;
mod descriptor_stream;
pub mod inbound;
mod lasting_connection;
mod open_response;
pub mod replica_client;
pub mod rubberduck;
mod socket;
pub mod stdio;
pub mod streamable_http;
pub mod unix;
pub mod websocket;
mod wire;

pub use connections::{ConnectionPermit, Connections};
pub use context::{Timeouts, TransportContext};
pub use lasting_connection::LastingConnection;
pub use open_response::OpenResponse;
pub use socket::{DISCARD_TIMEOUT, LONG_ANSWER_LEN_MIN, Socket, SocketState};
