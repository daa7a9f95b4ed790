//! What the broker says of itself in numbers: the statistics of REST, the series of the last hour, and `/metrics`.
//!
//! The counters are in `actors::metrics`; nothing here is on the path of a message. `stats` has the numbers as REST
//! serves them, `series` those of the last hour.

mod series;
mod stats;

pub use series::{STEP_SECONDS, Series, WINDOW_SECONDS};
pub use stats::{
    BrokerStats, ConnectionStats, DeadLetterStats, InboxStats, LATENCY_BOUNDS, Latency, MessageStats, ProcessStats,
    SessionStats, Stats, StorageStats,
};
