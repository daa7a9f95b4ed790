//! The contract from the outside: each test starts the real binary and talks to it over the network.
//!
//! `TEST_STORAGE` (memory, disk or redis) chooses the storage of every broker; the promises are the same on each.
//! A group is a folder; a file in it tests one behaviour. `tests/README.md` says which test holds which promise.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "these tests need a part of it")]
mod support;

mod api;
mod auth;
mod desk;
mod http;
mod limits;
mod mcp;
mod messages;
mod operations;
mod projects;
mod protocols;
mod questions;
mod sessions;
mod websocket;
