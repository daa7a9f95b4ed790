//! The client of one peer, as the broker sees it: how long it lasts, what it is shown, and the session that it acts as.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use actors::{
    gateway::Offered,
    model::{BackendName, BrokerError},
    project::ProjectHandle,
    session::{CloseReason, Connection, Detach, Member, Subscribe},
};

use super::outbox::Outbox;

/// How long the state of a peer lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// A lasting connection: it has a session and receives what is pushed to it.
    Connection,
    /// An HTTP session (2025-11-25 and before): like a connection, and it survives that the broker closes its session.
    HttpSession,
    /// One request over HTTP (2026-07-28): it names the session that it acts as.
    Stateless,
}

/// What binds a peer to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionBinding {
    Unbound,
    /// The outbox is the live connection of the session.
    LiveConnection,
    /// The outbox is notified of changes of the inbox, in addition to the live connection.
    Watcher,
}

/// The session of one peer.
pub struct Binding {
    kind: PeerKind,
    session: RefCell<Option<Arc<Member>>>,
    state: Cell<SessionBinding>,
    /// The session left by `disconnect_session` on this connection, or could not be registered: no other is registered
    /// implicitly.
    is_final: Cell<bool>,
    /// Why no session could be registered implicitly.
    error: RefCell<Option<BrokerError>>,
    /// The client reads pushed messages. While it does not, nothing is pushed, because a pushed message has one reader.
    has_push_stream: Cell<bool>,
}

impl Binding {
    /// No session yet. An HTTP session has no push stream before its client opens one.
    pub fn new(kind: PeerKind) -> Self {
        Self {
            kind,
            session: RefCell::default(),
            state: Cell::new(SessionBinding::Unbound),
            is_final: Cell::default(),
            error: RefCell::default(),
            has_push_stream: Cell::new(kind != PeerKind::HttpSession),
        }
    }

    /// The session that the peer acts as.
    pub fn member(&self) -> Option<Arc<Member>> {
        self.session.borrow().clone()
    }

    /// Calls `f` with the session, if there is one. `f` must not change the binding.
    pub fn with_member<T>(&self, f: impl FnOnce(&Arc<Member>) -> T) -> Option<T> {
        self.session.borrow().as_ref().map(f)
    }

    /// Whether the peer acts as this session.
    pub fn is_member(&self, member: &Member) -> bool {
        self.with_member(|own| own.record.id == member.record.id) == Some(true)
    }

    /// Whether a session has to be registered implicitly for a call that needs one.
    pub fn needs_session(&self) -> bool {
        self.kind != PeerKind::Stateless && self.session.borrow().is_none() && !self.is_final.get()
    }

    /// Notes that no session could be registered implicitly.
    pub fn set_error(&self, error: BrokerError) {
        self.error.replace(Some(error));
        self.is_final.set(true);
    }

    /// Why no session could be registered implicitly.
    pub fn error(&self) -> Option<BrokerError> {
        self.error.borrow().clone()
    }

    /// Sets the session without binding the outbox to it.
    pub fn set_member(&self, member: Arc<Member>) {
        self.session.replace(Some(member));
    }

    /// Acts as this session from now on. The registration has made the outbox its live connection.
    pub fn bind_registered(&self, member: Arc<Member>) {
        self.set_member(member);
        if self.kind != PeerKind::Stateless {
            self.state.set(SessionBinding::LiveConnection);
        }
        self.is_final.set(false);
    }

    /// Binds the outbox of a stateless request to its session when a subscription begins: as the live connection if
    /// messages are pushed, of which a session has one, or else as one of many watchers of its inbox. Returns whether
    /// it is bound and was not before.
    pub fn bind_stateless(&self, project: &ProjectHandle, outbox: &Arc<Outbox>, pushes: bool) -> bool {
        if self.kind != PeerKind::Stateless || self.state.get() != SessionBinding::Unbound {
            return false;
        }
        let bind = |member: &Arc<Member>| {
            let connection = Arc::clone(outbox) as Arc<dyn Connection>;
            if pushes {
                self.state.set(SessionBinding::LiveConnection);
                project.attach(member, connection);
            } else {
                self.state.set(SessionBinding::Watcher);
                project.watch(member, connection);
            }
        };
        self.with_member(bind).is_some()
    }

    /// Restores the binding of a client that has returned after the broker closed its outbox. Returns whether its
    /// subscriptions have to be applied again.
    pub fn resume(&self, project: &ProjectHandle, outbox: &Arc<Outbox>) -> bool {
        match outbox.reopen() {
            None | Some(CloseReason::TakenOver | CloseReason::ShuttingDown | CloseReason::Unauthorized) => false,
            Some(CloseReason::Silent | CloseReason::Disconnected) => {
                self.with_member(|member| project.reattach(member, Arc::clone(outbox) as _));
                true
            }
            Some(CloseReason::SessionEnded | CloseReason::Failed | CloseReason::StoreRolledBack) => {
                self.unbind(project, outbox);
                false
            }
        }
    }

    /// Notes that this session has left. No other is registered implicitly.
    pub fn leave(&self, member: &Member) {
        if self.is_member(member) {
            self.session.replace(None);
            self.is_final.set(true);
        }
    }

    /// Detaches from the session: pushed messages that were not acknowledged return to its inbox.
    pub fn unbind(&self, project: &ProjectHandle, outbox: &Outbox) {
        let member = self.session.take();
        let Some(member) = member else { return };
        let connection = outbox.id();
        match self.state.replace(SessionBinding::Unbound) {
            SessionBinding::Unbound => {}
            SessionBinding::LiveConnection => project.detach(&member, Detach { connection }),
            SessionBinding::Watcher => project.unwatch(&member, connection),
        }
    }

    /// Tells the session about changed subscriptions, if the outbox is its live connection.
    pub fn subscribe(&self, project: &ProjectHandle, message: Subscribe) {
        if self.state.get() == SessionBinding::LiveConnection {
            self.with_member(|member| project.subscribe(member, message));
        }
    }

    /// Whether the client reads pushed messages.
    pub fn has_push_stream(&self) -> bool {
        self.has_push_stream.get()
    }

    /// Sets whether the client reads pushed messages; returns whether that is a change.
    pub fn set_push_stream(&self, has_push_stream: bool) -> bool {
        self.has_push_stream.replace(has_push_stream) != has_push_stream
    }
}

/// The path segment of the broker's own tools.
const BROKER: &str = "broker";

/// What a client is shown. It is chosen by the way in which the client connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// The broker's own tools, and those of all backends with the name of the backend before theirs: `/mcp`.
    #[default]
    All,
    /// The broker's own tools: `/mcp/broker`.
    Broker,
    /// One backend under its own names: `/mcp/NAME`.
    Backend(BackendName),
    /// All backends without the broker's own tools: `mcp-broker gateway run`.
    Backends,
}

impl Exposure {
    /// What the last segment of a path names. `None` if the project has no such backend.
    pub fn of_segment(segment: &str, project: &ProjectHandle) -> Option<Self> {
        if segment == BROKER {
            return Some(Self::Broker);
        }
        let offered = project.gateway()?.shared().offered();
        let backend = offered.backend(segment)?;
        Some(Self::Backend(backend.name.clone()))
    }

    /// Whether the broker's own tools, prompts and resources are shown.
    pub fn has_own(&self) -> bool {
        matches!(self, Self::All | Self::Broker)
    }

    /// Whether backends are shown.
    pub fn has_backends(&self) -> bool {
        !matches!(self, Self::Broker)
    }

    /// The backend that this is the door of.
    pub fn backend(&self) -> Option<&BackendName> {
        match self {
            Self::Backend(name) => Some(name),
            Self::All | Self::Broker | Self::Backends => None,
        }
    }

    /// The position of the only backend that is shown, beyond all positions if that is no longer there. `None` where the
    /// names of tools say which backend has them.
    pub fn only_backend(&self, offered: &Offered) -> Option<usize> {
        match self {
            Self::Backend(name) => {
                let at = offered.backends.iter().position(|backend| backend.name == *name);
                Some(at.unwrap_or(usize::MAX))
            }
            Self::Backends => offered.routes.single(),
            Self::All | Self::Broker => None,
        }
    }
}
