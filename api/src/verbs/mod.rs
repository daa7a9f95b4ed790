//! What the surfaces share about the verbs of a project: they read arguments, call the project's handle, and write
//! results as JSON. The MCP tools and the REST API translate them; this room knows neither.

pub mod added_backends;
pub mod administration;
pub mod arguments;
pub mod backends;
pub mod compatibility;
pub mod dead_letters;
pub mod desk;
pub mod history;
pub mod messages;
pub mod open_calls;
pub mod protocols;
pub mod questions;
pub mod readiness;
pub mod sending;
pub mod sessions;

use std::time::Duration;

/// Longest wait of a call: clients and proxies keep one alive for two minutes.
pub const WAIT_MAX: Duration = Duration::from_secs(110);
