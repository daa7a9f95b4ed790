//! What a legacy client (2025-11-25 and before) agrees with the broker for the length of a connection.

use std::cell::{Cell, RefCell};

use serde_json::{Map, Value};

use super::{logging::Level, version::PushSettings};

/// The state of the legacy era on one connection; empty before `initialize`.
#[derive(Debug, Default)]
pub struct LegacyState {
    /// `initialize` may be left out: requests before it are those of the newest revision.
    is_handshake_optional: Cell<bool>,
    initialized: RefCell<Option<Initialized>>,
    log_level: Cell<Option<Level>>,
}

/// What `initialize` agreed.
#[derive(Debug)]
pub struct Initialized {
    /// The revision of MCP.
    pub version: &'static str,
    /// How messages are pushed, if the client takes them.
    pub push: Option<PushSettings>,
    /// The capabilities that the client declared, as JSON text: they are rarely needed, and as a tree take two KiB.
    pub capabilities: Box<str>,
}

impl LegacyState {
    /// Whether `initialize` was served.
    pub fn is_initialized(&self) -> bool {
        self.initialized.borrow().is_some()
    }

    /// Serves requests before `initialize` as those of the newest revision.
    pub fn make_handshake_optional(&self) {
        self.is_handshake_optional.set(true);
    }

    /// Whether a request without modern `_meta` is served.
    pub fn serves_requests(&self) -> bool {
        self.is_handshake_optional.get() || self.is_initialized()
    }

    /// Stores what `initialize` agreed.
    pub fn initialize(&self, initialized: Initialized) {
        self.initialized.replace(Some(initialized));
    }

    /// The revision that `initialize` agreed.
    pub fn version(&self) -> Option<&'static str> {
        self.initialized.borrow().as_ref().map(|agreed| agreed.version)
    }

    /// How messages are pushed, if the client takes them.
    pub fn push(&self) -> Option<PushSettings> {
        self.initialized.borrow().as_ref().and_then(|agreed| agreed.push)
    }

    /// The capabilities that the client declared.
    pub fn capabilities(&self) -> Map<String, Value> {
        let initialized = self.initialized.borrow();
        let capabilities = initialized.as_ref().map(|agreed| &agreed.capabilities);
        capabilities
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// The lowest severity of log messages that the client asked for.
    pub fn log_level(&self) -> Option<Level> {
        self.log_level.get()
    }

    /// Sets the lowest severity of log messages (`logging/setLevel`).
    pub fn set_log_level(&self, level: Level) {
        self.log_level.set(Some(level));
    }
}
