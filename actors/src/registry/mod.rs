//! Protocols: admit, find.
