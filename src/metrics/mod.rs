//! What the broker says of itself in numbers: the statistics of REST, the series of the last hour, and `/metrics`.
//!
//! The counters are in `actors::metrics`; nothing here is on the path of a message. `service` gathers the figures,
//! `catalog` names them, `exposition` encodes them, and `history` keeps those of the last hour.

mod backends;
mod catalog;
mod exposition;
mod family;
mod history;
mod process;
mod requests;
mod service;
mod warnings;

pub use catalog::{CATALOG, Kind, Metric, metrics_markdown};
pub use exposition::Format;
pub use requests::count_request;
pub use service::{Metrics, TransportFigures};
pub use warnings::{Problems, warnings};
