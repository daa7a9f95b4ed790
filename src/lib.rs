//! The broker as a program: how it is configured, started and reached. What is true without a socket lives in the
//! crate `actors`.

pub mod admin;
pub mod admission;
pub mod auth;
pub mod bridge;
pub mod budget;
pub mod cli;
pub mod config;
pub mod exit;
pub mod http;
pub mod mcp;
pub mod problem;
pub mod refusal;
pub mod startup;
pub mod storage;
pub mod telemetry;
pub mod transport;
