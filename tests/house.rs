//! Tests of the repository: its sources, documents, licences and alerts. They start no broker.

mod architecture;
mod docs;
mod licences;
mod monitoring;
#[path = "support/promtool.rs"]
mod promtool;
mod style;
mod suites;
