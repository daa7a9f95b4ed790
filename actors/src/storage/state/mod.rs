//! The state of a project in memory and the decisions on it: what both the memory and the disk backend do.
//!
//! `project.rs` holds everything together, `delivery.rs`, `tracking.rs` and `desk.rs` are its operations; the other files are its
//! parts. A [`Journal`](journal::Journal) receives every change, `restore.rs` rebuilds the state from what a journal
//! has persisted. Pure: the time is an argument, nothing waits.

pub mod account;
mod chunked_queue;
pub mod claims;
mod cross_project;
mod dead_letters;
mod delivery;
mod desk;
pub mod event_log;
mod idempotency;
mod inbox;
pub mod journal;
pub mod project;
pub mod questions;
mod receipts;
pub mod records;
pub mod restore;
pub mod system;
mod tracking;
pub mod yaps;
