//! MCP, independent of any transport: frames in, frames out.
//!
//! A transport makes a [`Peer`] for each connection, HTTP session or stateless request, gives it the frames of a read,
//! and writes what its [`Outbox`] holds. Both eras are served on the same connection: a request with modern `_meta` is
//! answered statelessly, an `initialize` opens a legacy session. It must not know sockets or HTTP.

mod answer_reservation;
pub mod backend_instructions;
mod binding;
pub mod call_trace;
mod calls;
mod charge;
mod client_input;
mod client_requests;
mod completions;
mod context;
mod dispatch;
pub mod event_stream;
mod exposure;
#[cfg(feature = "conformance-fixtures")]
mod fixtures;
mod forwarding;
mod framing;
pub mod handshake;
pub mod interactive;
mod legacy;
mod limits;
pub mod lines;
pub mod list_changes;
pub mod lists;
pub mod located_id;
pub mod logging;
pub mod mirrored;
pub mod outbox;
pub mod owned_frame;
mod peer;
mod peer_queue;
mod pending_receive;
pub mod prompts;
mod question_tasks;
pub mod reply;
pub mod request_state;
mod resources;
pub mod rpc;
mod send_outcome;
mod send_reply;
mod service;
pub mod skipped_frame;
mod subscriptions;
pub mod tasks;
pub mod tools;
pub mod version;
pub mod waking;

pub use client_input::ClarifyBy;
pub use exposure::Exposure;
pub use framing::{Framing, ResponseForm};
pub use outbox::{Outbox, RetentionCounter};
pub use peer::{FrameOutcome, Peer};
pub use pending_receive::{AnswerInProgress, HandedOver, WriteMarks};
pub use reply::ReplyRoute;
pub use service::Service;
