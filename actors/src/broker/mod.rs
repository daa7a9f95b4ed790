//! The root of the tree: opens projects, each on an arbiter of its own choosing.

mod actor;

pub use actor::{Broker, BrokerHandle};
