//! Programs of one user on one machine: the sockets of a broker, and who finds, starts and ends it.

#[allow(dead_code, unused_imports, reason = "shared with other tests")]
#[path = "../support/mod.rs"]
mod support;

mod dev;
mod fifo;
mod hello;
mod home;
mod places;
mod runtime;
mod setup;
mod socket;
