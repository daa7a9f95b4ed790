//! The broker as a program: configuration, transports, HTTP, MCP, command line, and the storages that do I/O.
//!
//! `startup` assembles the parts. Everything that needs no socket is in the crate `actors`.

pub mod admin;
pub mod auth;
pub mod bridge;
pub mod budget;
pub mod cli;
pub mod config;
pub mod edge;
pub mod exit;
pub mod front;
pub mod gateway;
pub mod hang_up;
pub mod hops;
pub mod http;
pub mod json;
pub mod local;
pub mod mcp;
pub mod metrics;
pub mod problem;
pub mod refusal;
pub mod seal;
pub mod startup;
pub mod storage;
pub mod targets;
pub mod telemetry;
pub mod tls;
pub mod transport;
pub mod verbs;
