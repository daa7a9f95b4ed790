//! Everything of the broker that is true without a socket.
//!
//! ```text
//! Broker                      giving up here ends the process
//! └─ Project × n              a subtree stays on one arbiter
//!    ├─ Registry
//!    ├─ Router
//!    └─ Session × n           <- at most one live connection each, which comes and goes
//! ```
//!
//! Invariants:
//!
//! - A message that was appended is, for each recipient, waiting, leased, acknowledged or a dead letter: never in two
//!   of these places, never in none.
//! - Every message takes one way: [`router`] appends, then nudges; [`session`] leases what fits.
//! - A session outlives its connections; presence is derived from its last sign of life.
//! - A session belongs to whoever made it, a message to the project of its recipient, and what a project may see of
//!   another is decided in one place ([`model::ProjectRecord::may_send_to`]).
//! - Everything is bounded. An actor that panics keeps its address and its queued commands ([`supervise`]).
//! - Time is an argument; only [`clock`] reads one.

pub mod bridge;
pub mod broker;
pub mod clock;
pub mod faults;
pub mod model;
pub mod negotiate;
pub mod ops;
pub mod project;
pub mod rate;
pub mod registry;
pub mod router;
pub mod session;
pub mod silence;
pub mod storage;
pub mod supervise;
