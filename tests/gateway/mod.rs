//! The gateway from the outside: the real binary with scripted backends (`fake-backend`), used by clients of both eras.
//!
//! A backend misbehaves as its flags and its tools say. After each test no process of its backends is alive.

mod added;
mod added_refusals;
mod addresses;
mod asking;
mod asking_for_pages;
mod commands;
mod configuration;
mod crashes;
mod entries;
mod eras;
mod handover;
mod harness;
mod hostile;
mod instructions;
mod kept_lists;
mod lists;
mod odd_lists;
mod open_calls;
mod operators;
mod own_tools;
mod places;
mod pooled;
mod prefixes;
mod processes;
mod real_servers;
mod remote;
mod remote_faults;
mod run;
mod run_files;
mod running;
mod scripted_server;
mod sharing;
mod single_tools;
mod starts;
mod subscriptions;
mod tasks;
mod traffic;
mod unread;
mod watched;

use crate::support;
