//! Audience, append, nudge: the one way a message takes. A direct message is a broadcast to one.

mod actor;
mod messages;
mod reply_barrier;

pub use actor::{ROUTER_BYTES_MAX, Router};
#[cfg(feature = "faults")]
pub use messages::PanicRouter;
pub use messages::{AudienceQuery, Recipients, Route, RouteAnswer, Routed, Submission};
