//! MCP for programs of the same user on the same machine: a Unix socket and a pair of FIFOs, one JSON-RPC message in a
//! line.
//!
//! `wire` serves the lines and the methods of local clients, `service` knows all clients, `names` the
//! names that it gives. `listener` accepts on the socket, `fifo` opens the pair, `write_end` tells whether a program
//! writes to it; `admission` identifies a client.

mod admission;
mod fifo;
mod listener;
mod mail;
mod names;
mod service;
mod wire;
mod write_end;

pub use fifo::{Fifo, open as open_fifo};
pub use listener::LocalListener;
pub use service::{LocalFacts, LocalService, WarningTexts};
