//! Protocols: admit, find.

mod actor;
mod catalog;
mod compiler;
mod messages;
mod schema;

pub use actor::Registry;
pub use catalog::{Catalog, DiscoverPage, DiscoverQuery, Protocol};
pub(crate) use compiler::Compiler;
#[cfg(feature = "faults")]
pub use messages::PanicRegistry;
pub use messages::RegisteredProtocol;
pub(crate) use messages::{RefreshCatalog, RegisterProtocol};
pub use schema::{Schema, WorkBudget};
