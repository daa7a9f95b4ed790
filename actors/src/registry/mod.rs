//! Protocols: admit, find.

mod actor;
mod catalog;
mod compiling;
mod messages;
mod schema;

pub use actor::Registry;
pub use catalog::{Catalog, DiscoverQuery, Page as DiscoverPage, Protocol};
pub(crate) use compiling::Compiler;
pub use messages::Admitted;
#[cfg(feature = "faults")]
pub use messages::Panic;
pub(crate) use messages::{Admit, Learn};
pub use schema::{Schema, WorkBudget};
