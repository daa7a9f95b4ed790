//! The actor tree from outside, in one process and over memory: what a panic costs, what a full mailbox says, who is
//! closed, what is kept.
//!
//! `cargo test -p mcp-broker-actors --features faults`

mod agents;
mod giving_up;
mod laggard;
mod ledger;
mod mailboxes;
mod owners;
mod panics;
mod projects;
mod replicas;
mod room;
mod schedules;
mod sessions;
mod shared;
mod stores;
mod twins;
mod walls;
mod world;
