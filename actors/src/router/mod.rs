//! The router of a project: selects the recipients of a message, appends it to the store, and nudges the sessions that
//! want a wakeup. A direct message is a broadcast to one.
//!
//! A shared store may push an appended message to its recipients by itself; then the nudge finds nothing to do.

mod actor;
mod messages;
mod reply_barrier;
mod spans;

pub use actor::{ROUTER_BYTES_MAX, Router};
pub use messages::{Recipients, Route, RouteAnswer, Routed, Submission};
pub use spans::AcceptSpans;
