//! The actor tree from outside, in one process and over memory: what a panic costs, what a full mailbox says, who is
//! closed, what is kept.
//!
//! `cargo test -p mcp-broker-actors --features faults`

mod contended_storage;
mod cross_project;
mod ledger;
mod load;
mod mailboxes;
mod owners;
mod panics;
mod projects;
mod read_room;
mod replicas;
mod replicated_memory;
mod restart_limits;
mod schedules;
mod sessions;
mod slow_storage;
mod slow_stores;
mod world;
