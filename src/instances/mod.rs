//! The instances behind the gateway: backend MCP servers that are started or connected to, spoken to and ended.
//!
//! `launcher` is what the actors of the gateway call. For each instance it makes a task, which starts a process
//! (`process`) or connects to a URL (`remote`). What is said is the same everywhere (`client_session`): it agrees on an era
//! (`probe`, `openings`), reads what a backend makes of JSON-RPC (`message`), brings answers to the link of the callers, as far
//! as the budget has room for them (`answer_room`), and reads the lists (`lists`). `pipes` and `remote` move the messages.
//! Between the broker and a program is a keeper (`keeper`): the same executable, which ends the program and all its
//! descendants when the broker has gone, however it went. `watch` tells when the files of a program change. `tables` reads the
//! tables of added backends.
//!
//! It knows neither callers nor tools: requests are written by `mcp::forwarding`.

mod answer_room;
mod client_session;
pub mod keeper;
mod launcher;
mod listener;
mod lists;
mod message;
mod openings;
mod pipes;
mod probe;
mod process;
mod remote;
mod tables;
mod watch;

pub use launcher::InstanceLauncher;
pub use tables::AddedTables;
pub use watch::{FilePatterns, Watch};
