//! The rubberduck port of the real binary: the bytes that the MCP servers and consoles of rubberduck-mcp 1.1.2 send, played
//! by a test client.

mod bounds;
mod program;
mod questions;
mod yaps;
