//! The port of the rubberduck programs: one JSON object in a line, over TCP on the loopback interface.
//!
//! Their MCP servers ask and yap, their consoles show and answer, on the same desk as all other agents and people. The
//! protocol has no key: a program is admitted by the user that it runs as.
//!
//! `wire` reads and writes lines, `board` decides which questions a console gets, `answering` turns questions and answers
//! into texts, `visible` makes texts harmless for a terminal, `output` decides which connection writes a line; all five do no
//! I/O. `service` accepts connections, `peer` tells the user of one, `link` serves it. `programs` knows the programs, `client`
//! is one of them, `asker` and `console` do what it asks.

mod answering;
mod asker;
mod board;
mod client;
mod console;
mod link;
mod output;
mod programs;
mod service;
mod visible;
mod wire;

pub use service::{RubberduckFacts, serve as serve_rubberduck};
