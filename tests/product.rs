//! What people and programs use, with the real binary: the command line, the local broker, the gateway, clients, the chart.
//!
//! One binary links the product once. A module tests one part; `tests/README.md` says which test holds which promise.

#[allow(dead_code, unused_imports, reason = "these tests need a part of it")]
mod support;

mod cli;
mod cli_live;
mod config_entry;
mod conformance;
mod demo;
mod doctor;
mod gateway;
mod helm;
mod local;
mod openapi;
mod project_cli;
mod project_cli_live;
mod rubberduck;
mod sdk_clients;
mod traces;
