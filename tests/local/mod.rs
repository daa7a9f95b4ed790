//! Programs of one user on one machine: the sockets of a broker, and who finds, starts and ends it.

mod backends;
mod commands;
mod connect;
mod console;
mod contexts;
mod dev;
mod environments;
mod fake_broker;
mod fifo;
mod frames;
mod front;
mod harness;
mod hello;
mod home;
mod hooks;
mod idle;
mod keys;
mod mail;
mod named;
mod owners;
mod pauses;
mod places;
mod reconnecting;
mod rest;
mod restarts;
mod rungs;
mod runtime;
mod setup;
mod socket;
mod starts;
mod tool_calls;
mod wakes;
mod waking;
mod warnings;
mod ways;

use crate::support::{self, screen};
