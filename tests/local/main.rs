//! Programs of one user on one machine: the sockets of a broker, and who finds, starts and ends it.

#[allow(dead_code, unused_imports, reason = "shared with other tests")]
#[path = "../support/mod.rs"]
mod support;

mod dev;
mod dev_tools;
mod fifo;
mod hello;
mod home;
mod places;
mod runtime;
#[path = "../support/screen.rs"]
mod screen;
mod setup;
mod socket;
