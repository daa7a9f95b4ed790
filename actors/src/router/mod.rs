//! Audience, append, nudge: the one way a message takes. A direct message is a broadcast to one.

mod actor;
mod handover;
mod messages;

pub use actor::{BYTES_MAX, Router};
#[cfg(feature = "faults")]
pub use messages::Panic;
pub use messages::{Answer, Audience, Route, Routed, Submission, Target};
