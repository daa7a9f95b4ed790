//! What callers ask of the broker, over any transport.
//!
//! `auth` says who a caller is, `verbs` is what it may ask for, `mcp` is how an MCP client asks. REST asks the
//! same verbs. It knows no sockets.

pub mod auth;
pub mod budget;
pub mod mcp;
pub mod problem;
pub mod verbs;
