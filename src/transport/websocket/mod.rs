//! MCP over WebSocket (RFC 6455), subprotocol `mcp`: one JSON-RPC message per text frame.
//!
//! The socket is taken over from actix-http at the upgrade, so that what was written to it is known to the byte:
//! that is what "acknowledge what was written" has to mean.

mod connection;
pub mod frame;
mod upgrade;

pub use upgrade::upgrade;
