//! Protocols: registered by the actor, found in the catalog, their payloads checked by the schema.
//!
//! The registry knows the store and the schema language; it knows no session, no message route and no transport.

mod actor;
pub mod builtin;
mod catalog;
mod compiler;
mod lens_keeper;
mod lenses;
mod messages;
mod schema;
mod transform;

pub use actor::Registry;
pub use catalog::{Catalog, DiscoverPage, DiscoverQuery, Protocol};
pub(crate) use compiler::Compiler;
pub use lenses::{Lenses, RegisteredLens};
#[cfg(feature = "faults")]
pub use messages::PanicRegistry;
pub use messages::RegisteredProtocol;
pub(crate) use messages::{Refresh, RefreshCatalog, RegisterProtocol};
pub use schema::{Schema, WorkBudget};
