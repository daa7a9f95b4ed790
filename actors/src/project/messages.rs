//! The commands and facts that the actor of a project takes.

use tokio::sync::oneshot;

use super::registration::{Registered, Registration};
use crate::{
    bridge::Frame,
    model::{BrokerError, SessionId},
    registry::ExpectedLenses,
};

/// Registers a session.
pub(super) struct Register {
    pub registration: Registration,
    pub reply: oneshot::Sender<Result<Registered, BrokerError>>,
}

/// Ends a session for good. The answer is the number of its messages that became dead letters.
pub(super) struct ForgetSession {
    pub session: SessionId,
    pub reply: oneshot::Sender<Result<usize, BrokerError>>,
}

/// Updates the directory from the store after missed membership changes.
pub(super) struct RefreshDirectory {
    /// Gets a message when the directory is current; dropped when the store fails.
    pub done: oneshot::Sender<()>,
}

/// Applies a frame of the bridge.
pub(super) struct ApplyFrame {
    pub frame: Frame,
    /// This replica published the frame.
    pub own: bool,
    /// Deliveries wait until the lenses that it announces are read.
    pub lenses: Option<ExpectedLenses>,
}

/// Requests a resync.
pub(super) struct RequestResync {
    /// As in [`RefreshDirectory`].
    pub done: Option<oneshot::Sender<()>>,
}

/// Keeps the last signs of life of the sessions, because the broker ends: from then on no other is kept.
pub(super) struct KeepHeartbeats {
    pub reply: oneshot::Sender<Result<(), BrokerError>>,
}

/// Closes the project: its sessions end, then the actor, then `done` gets a message.
pub(super) struct CloseProject {
    pub done: oneshot::Sender<()>,
}

/// A child panicked too often and was given up.
pub(super) struct ChildDown {
    pub child: Child,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Child {
    Registry,
    Router,
    Desk,
    Gateway,
    Session(SessionId),
}
