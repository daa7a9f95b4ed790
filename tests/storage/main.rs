//! The storages that are servers: each test has a Redis of its own.

mod conformance;
mod cost;
mod histories;
mod support;
