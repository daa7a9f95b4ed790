//! Several replicas of one broker, the Redis that they share, and what can happen to each of them.

#[allow(dead_code, unused_imports, reason = "it is there for tests of one broker too")]
#[path = "../support/mod.rs"]
mod support;

mod clocks;
mod cluster;
mod crossing;
mod deaths;
mod handing;
mod ledger;
mod nomad;
mod redis_faults;
mod script;
mod sessions;
mod starts;
mod storms;
mod under_way;
