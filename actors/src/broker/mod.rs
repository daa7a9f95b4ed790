//! The root of the actor tree: opens projects, spreads them over arbiters, and owns their keys.

mod actor;
mod handle;
mod keyring;
mod messages;
mod start;

pub use actor::{Broker, BrokerSettings};
pub use handle::BrokerHandle;
pub use keyring::{Keyring, Principal};
