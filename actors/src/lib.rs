//! The broker apart from its sockets: values, actors, the contract of the store, and the stores in memory and on disk.
//!
//! This crate knows no HTTP, no command line and no database. The root package brings these, opens the store, and calls
//! [`broker::BrokerHandle`] and [`project::ProjectHandle`].
//!
//! ```text
//! Broker                      the root: opens projects; giving it up ends the process
//! ├─ Listener                 only on a shared store: gives each project what other replicas publish
//! └─ Project × n              opened again from the store when it is given up; its subtree stays on one arbiter
//!    ├─ Registry              admits protocols
//!    ├─ Router                appends messages and nudges their recipients
//!    ├─ Desk                  brings questions of agents before people
//!    ├─ Gateway               only with backends: their catalogue
//!    │  └─ Backend × n        one backend MCP server; its failure never reaches the project
//!    └─ Session × n           <- at most one live connection each, which comes and goes
//! ```
//!
//! A parent owns and supervises its children ([`supervise`]). Commands go down; facts come up. A connection is not an
//! actor: its session knows it as a [`session::Connection`].
//!
//! # Invariants
//!
//! 1. A message that the store's `append` has accepted is, for each recipient, exactly one of: waiting, leased,
//!    acknowledged, or a dead letter.
//! 2. A send is answered only when the store has the message. A message counts as delivered only when it is in the
//!    output of a live connection or in a result of `receive_messages`.
//! 3. `ack: auto` acknowledges a message when its last byte was written to the socket. The next `receive_messages`
//!    acknowledges an answer only if its last byte was written before that call was read.
//! 4. One replica owns an inbox: the one that claimed the session last. The store refuses a lease under an older claim.
//! 5. A session outlives its connections. Its presence is derived from its last heartbeat and never stored.
//! 6. A session acts only for its owner. A message belongs to the project of its recipient, and
//!    [`model::ProjectRecord::check_send_to`] alone decides what one project may send to another.
//! 7. Everything is bounded: mailboxes, inboxes, batches, buffers, records. A bound names its unit.
//! 8. A panic loses the command that caused it. The address, the queued commands and the siblings stay, and the state is
//!    read again from the store.
//! 9. A shared store is the only truth. Directories, catalogs and policies of a replica may be behind it: what depends on
//!    the present state is decided by the store.
//! 10. Code that decides takes the time as an argument. Only [`clock`] reads one.
//!
//! `tests/architecture` of the workspace holds which module may import which.

#[macro_use]
mod words;

pub mod backoff;
pub mod bridge;
pub mod broker;
pub mod clock;
pub mod desk;
pub mod directory;
pub mod faults;
pub mod gateway;
pub mod idle;
pub mod json;
pub mod locked;
pub mod metrics;
pub mod model;
pub mod negotiate;
pub mod ops;
pub mod policy;
pub mod project;
pub mod rate;
pub mod registry;
pub mod router;
pub mod session;
pub mod silence;
pub mod speech;
pub mod storage;
pub mod supervise;
pub mod targets;
pub mod trace;
