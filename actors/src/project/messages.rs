//! The commands and facts that the actor of a project takes, and the requests and answers of registrations.

use std::{sync::Arc, time::Duration};

use actix::Message;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::{
    bridge::Frame,
    model::{BrokerError, Capabilities, Owner, SessionId, SessionName},
    session::{Connection, Member},
};

/// A request to register a session.
#[derive(Clone, Default)]
pub struct Registration {
    pub name: Option<SessionName>,
    /// None: unchanged, or none at all for a new session.
    pub capabilities: Option<Capabilities>,
    /// None: unchanged, or empty for a new session.
    pub metadata: Option<Map<String, Value>>,
    /// The caller. It becomes the owner of a new session.
    pub owner: Owner,
    /// The session that the caller has so far.
    pub current: Option<SessionId>,
    /// The caller's lasting connection, if it has one.
    pub connection: Option<Arc<dyn Connection>>,
}

/// The answer to a registration.
pub struct Registered {
    /// The registered session.
    pub member: Arc<Member>,
    /// The session existed before, with its inbox.
    pub resumed: bool,
    /// The session was active before this registration.
    pub was_active: bool,
    /// The time since the last heartbeat before this registration; None for a new session.
    pub silence: Option<Duration>,
}

#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Register {
    pub registration: Registration,
    pub reply: oneshot::Sender<Result<Registered, BrokerError>>,
}

/// A caller without a connection of the session's own has named the session by id.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct NamedById(pub SessionId);

/// Updates the directory from the store after missed membership changes.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct RefreshDirectory {
    /// Gets a message when the directory is current; dropped when the store fails.
    pub done: oneshot::Sender<()>,
}

/// Applies a frame of the bridge.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ApplyFrame {
    pub frame: Frame,
    /// This replica published the frame.
    pub own: bool,
}

/// Requests a resync.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct RequestResync {
    /// As in [`RefreshDirectory`].
    pub done: Option<oneshot::Sender<()>>,
}

/// Closes the project: its sessions end, then the actor, then `done` gets a message.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct CloseProject {
    pub done: oneshot::Sender<()>,
}

/// A child panicked too often and was given up.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ChildDown {
    pub child: Child,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Child {
    Registry,
    Router,
    Session(SessionId),
}

/// Makes the actor panic. Compiled in for tests only.
#[cfg(feature = "faults")]
#[derive(Message)]
#[rtype(result = "()")]
pub struct Panic;
