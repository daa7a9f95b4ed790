//! What tests, the load generator, the oracle and the benches share: clients byte by byte, brokers in processes of their own,
//! waits and golden files. Nothing here is part of the product, and no crate of the product depends on it.

#![allow(clippy::missing_panics_doc, reason = "in a test, a panic is the failure")]
#![allow(
    clippy::missing_errors_doc,
    reason = "an error is that of the connection or the process"
)]

pub mod folder;
pub mod golden;
pub mod http;
pub mod mcp;
pub mod process;
pub mod wait;
pub mod websocket;
