//! The broker as a program: how it is configured, started and reached. What is true without a socket lives in the
//! crate `actors`.

pub mod admission;
pub mod cli;
pub mod config;
pub mod exit;
pub mod http;
pub mod mcp;
pub mod startup;
pub mod telemetry;
pub mod transport;
