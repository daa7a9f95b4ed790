//! MCP over WebSocket (RFC 6455), subprotocol `mcp`: one JSON-RPC message per text frame.
//!
//! The socket is taken from actix-http at the upgrade, so that the task counts every byte the kernel takes:
//! "acknowledge when written" (`ack: auto`) depends on it.

pub mod frame;
mod upgrade;
mod wire;

pub use upgrade::upgrade;
