//! MCP, independent of any transport: frames in, frames out.
//!
//! A transport makes a [`Peer`] for each connection, HTTP session or stateless request, gives it the frames of a read,
//! and writes what its [`Outbox`] holds. Both eras are served on the same connection: a request with modern `_meta` is
//! answered statelessly, an `initialize` opens a legacy session. It must not know sockets or HTTP.

pub mod backend_instructions;
pub mod call_trace;
mod calls;
mod client;
mod client_input;
mod client_requests;
mod completions;
mod context;
mod dispatch;
pub mod event_stream;
#[cfg(feature = "conformance-fixtures")]
mod fixtures;
mod forwarding;
pub mod handshake;
pub mod interactive;
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
mod send_reply;
mod service;
pub mod skipped_frame;
mod subscriptions;
pub mod tasks;
pub mod tools;
pub mod version;
pub mod waking;

pub use client::Exposure;
pub use client_input::ClarifyBy;
pub use outbox::{Framing, Outbox, ResponseForm, RetentionCounter};
pub use peer::{FrameOutcome, Peer};
pub use pending_receive::{AnswerInProgress, HandedOver, WriteMarks};
pub use reply::ReplyRoute;
pub use service::Service;
