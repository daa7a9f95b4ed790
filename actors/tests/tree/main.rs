//! Tests of the whole actor tree in one process, over memory: the effects of a panic, of a full mailbox, of a closed
//! connection, and what survives a restart.
//!
//! `cargo test -p mcp-broker-actors --features faults`

mod contended_storage;
mod counting_storage;
mod cross_project;
mod desk;
mod events;
mod gateway;
mod intercept;
mod ledger;
mod lenses;
mod load;
mod lookups;
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
mod steps;
mod sweeps;
mod world;
