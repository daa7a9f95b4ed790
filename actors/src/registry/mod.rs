//! Protocols: registered by the actor, found in the catalog, their payloads checked by the schema.
//!
//! The registry knows the store and the schema language; it knows no session, no message route and no transport.

mod actor;
pub mod builtin;
mod catalog;
mod compiler;
mod expected_lenses;
#[cfg(test)]
pub(crate) mod fixtures;
mod large_work;
mod lens_check;
mod lens_keeper;
mod lens_path;
mod lenses;
mod messages;
mod schema;
mod transform;

pub use actor::Registry;
pub(crate) use actor::{check_schema_bytes, protocols_full};
pub(crate) use catalog::ExpectedLenses;
pub use catalog::{Catalog, DiscoverPage, DiscoverQuery, Protocol};
pub(crate) use compiler::Compiler;
pub(crate) use large_work::{LargeWork, ON_WORKER_BYTES_MAX};
pub(crate) use lens_check::{KeptPayload, LENSES_INTO_VERSION_MAX, LensCheck};
pub use lens_path::LensPath;
pub use lenses::{Lenses, RegisteredLens};
pub(crate) use messages::{ChangeLens, LensChange, LensChanged, Refresh, RefreshCatalog, RegisterProtocol};
pub use messages::{LensOutcome, RegisteredProtocol};
pub use schema::{Schema, WorkBudget};
