//! The broker: transports, HTTP, the gateway's processes, metrics.
//!
//! `startup` assembles the parts. The other crates are below: `actors` is everything that needs no socket, `storage` does the
//! I/O of what is kept, `api` answers callers, `common` has settings and telemetry. `cli` and `front` are programs next to it.

pub mod edge;
pub mod hops;
pub mod http;
pub mod instances;
pub mod metrics;
pub mod startup;
pub mod targets;
pub mod transport;
