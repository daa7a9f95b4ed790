//! Protocols: the registry and the negotiation between two sessions.

mod negotiation;
mod registry;
