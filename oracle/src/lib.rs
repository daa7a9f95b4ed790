//! Servers that the broker is compared with. Nothing here is part of the product, and no crate of the product depends
//! on it.
//!
//! - [`sdk`]: the official SDK's server over Streamable HTTP. The binary `mcp-broker-oracle` serves it;
//!   `tests/differential` sends it and the broker the same requests.
//! - `bare-actix`: actix-web that echoes the body: the lower bound of any answer over HTTP.
//! - `http-bench`: measures the broker beside these two.

pub mod args;
pub mod sdk;
