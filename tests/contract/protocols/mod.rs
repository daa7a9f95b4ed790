//! Protocols: the registry, lenses and the negotiation between two sessions.

mod lens_bounds;
mod lenses;
mod negotiation;
mod registry;
