//! The processes behind the gateway: backend MCP servers that are started, spoken to and ended.
//!
//! `launcher` is what the actors of the gateway call. For each instance a task of its own (`instance`) starts a process
//! (`process`), agrees with it on an era (`probe`), moves frames between it and the link of its callers, and reads its
//! lists (`lists`). Between the broker and the program stands a keeper (`keeper`): the same executable, which ends the
//! program and all its descendants when the broker has gone, however it went.
//!
//! It knows neither callers nor tools: requests are written by `mcp::forwarding`.

mod environment;
pub mod import;
mod instance;
pub mod keeper;
mod launcher;
mod lists;
mod probe;
mod process;

pub use environment::{expand, find_program};
pub use launcher::ProcessLauncher;
