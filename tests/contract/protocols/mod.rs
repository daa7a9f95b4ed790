//! Protocols: the registry, lenses and the negotiation between two sessions.

mod lenses;
mod negotiation;
mod registry;
