//! The storages that are servers. Each test has a Redis of its own.

mod bulk;
mod conformance;
mod cost;
mod databases;
mod events;
mod faults;
mod frames;
mod group_leases;
mod histories;
mod lenses;
mod push;
mod questions;
mod records;
mod reference;
mod replicas;
mod retention;
mod segments;
mod support;
mod timelines;
mod tracking;
