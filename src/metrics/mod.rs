//! What the broker says of itself in numbers: the statistics of REST, the series of the last hour, and `/metrics`.
//!
//! The counters are in `actors::metrics`; nothing here is on the path of a message. `service` gathers the figures,
//! `catalog` names them, `exposition` encodes them; `stats` and `series` have them as REST serves them, and `history` keeps
//! those of the last hour.

mod backends;
mod catalog;
mod exposition;
mod family;
mod history;
mod process;
mod requests;
mod series;
mod service;
mod stats;
mod warnings;

pub use catalog::{CATALOG, Kind, Metric, metrics_markdown};
pub use exposition::Format;
pub use requests::count_request;
pub use series::{STEP_SECONDS, Series, WINDOW_SECONDS};
pub use service::{Metrics, TransportFigures};
pub use stats::{
    BackendStats, BrokerStats, ConnectionStats, DeadLetterStats, DeskStats, InboxStats, LATENCY_BOUNDS, Latency,
    MessageStats, ProcessStats, ReplicaStats, SessionStats, Stats, StorageStats,
};
pub use warnings::{Problems, Warning, warnings};
