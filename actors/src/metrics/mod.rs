//! The counters and histograms of the broker, counted where something happens and read from outside.
//!
//! They belong to the process, as its memory does: one static set, [`METRICS`], and one set for each open project
//! ([`project`]). Counting takes no lock and allocates nothing: each thread adds to a shard of its own. Where a batch
//! exists it is counted as a whole. Label values are those of the enums here, so that no caller can add one.

mod broker;
mod counter;
mod histogram;
mod label;
mod projects;

pub use broker::{
    ActorKind, AuthFailure, BrokerMetrics, METRICS, QuestionEnd, RateLimitKind, ReportResult, StoreOperation,
    TransformResult, TransportKind, WakeHold, WakeWay,
};
pub use counter::{Counter, CounterVec, Gauge};
pub use histogram::{CLASSIC_BOUNDS, Histogram, HistogramSnapshot, NATIVE_SCHEMA, NATIVE_ZERO_THRESHOLD};
pub use label::Labelled;
pub(crate) use label::label;
pub use projects::{
    DeadLetterCounts, MessageCounts, ProjectCounters, ProjectCountsView, all_projects, close_project, open_project,
    project, set_labelled_max,
};
