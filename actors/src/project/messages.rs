use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actix::Message;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::{
    bridge::Frame,
    model::{BrokerError, Capabilities, Owner, Pattern, ProtocolMetadata, ProtocolName, SessionId, SessionName},
    session::{Connection, Member},
};

/// Somebody registers a session.
#[derive(Clone, Default)]
pub struct Registration {
    pub name: Option<SessionName>,
    /// None: as before, or none at all.
    pub capabilities: Option<Capabilities>,
    /// None: as before, or empty.
    pub metadata: Option<Map<String, Value>>,
    /// Who registers: what it registers belongs to it.
    pub owner: Owner,
    /// The session the caller has so far.
    pub current: Option<SessionId>,
    /// The caller's lasting connection, if it has one.
    pub connection: Option<Arc<dyn Connection>>,
}

pub struct Registered {
    pub member: Arc<Member>,
    /// The session was there before, with its inbox.
    pub resumed: bool,
    /// It was active until now.
    pub was_active: bool,
    /// For how long it had given no sign of life; None for a new one.
    pub silence: Option<Duration>,
}

#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Register {
    pub registration: Registration,
    pub reply: oneshot::Sender<Result<Registered, BrokerError>>,
}

/// A caller that has no connection of the session's own has named it by its id.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct NamedById(pub SessionId);

/// The store has had sessions come or go of which the directory knows nothing: it learns of them.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct RefreshDirectory {
    /// Told when it has; let go of when the store could not say.
    pub done: oneshot::Sender<()>,
}

/// A replica has told of something it did in this project.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ApplyFrame {
    pub frame: Frame,
    /// It was this one.
    pub own: bool,
}

/// Something may have been told that was not heard: looks at the store.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct RequestResync {
    /// As of [`Refresh`].
    pub done: Option<oneshot::Sender<()>>,
}

/// The project is over: its sessions end, and then it does, and says so.
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

/// A protocol that somebody wants to register.
pub struct ProtocolDefinition {
    pub name: ProtocolName,
    pub version: semver::Version,
    pub schema: Value,
    pub capabilities: BTreeSet<Pattern>,
    pub metadata: ProtocolMetadata,
    pub registered_by: Option<SessionId>,
}

/// Makes the actor panic. Compiled in for tests only.
#[cfg(feature = "faults")]
#[derive(Message)]
#[rtype(result = "()")]
pub struct Panic;
