//! The root of the tree: opens projects, each on an arbiter of its own choosing, and owns their keys.

mod actor;
mod handle;
mod keyring;

#[cfg(feature = "faults")]
pub use actor::Panic;
pub use actor::{Broker, BrokerSettings};
pub use handle::BrokerHandle;
pub use keyring::{Keyring, Principal};
