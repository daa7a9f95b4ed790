//! What the broker is compared with. Nothing here is part of the product, and no crate of the product knows of it.
//!
//! - [`sdk`]: the official SDK's server over Streamable HTTP. The binary `mcp-broker-oracle` serves it;
//!   `tests/differential` asks it and the broker the same questions.
//! - `bare-actix`: actix-web that gives back what it gets, the floor below which no answer over HTTP can be.
//! - `http-bench`: the broker beside these two.

pub mod args;
pub mod http;
pub mod mcp;
pub mod process;
pub mod sdk;
