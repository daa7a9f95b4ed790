//! The storages that are servers: each test has a Redis of its own.

mod bulk;
mod bundles;
mod conformance;
mod cost;
mod faults;
mod frames;
mod handing;
mod histories;
mod posts;
mod reference;
mod replicas;
mod retention;
mod support;
mod timelines;
