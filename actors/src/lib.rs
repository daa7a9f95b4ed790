//! Everything of the broker that is true without a socket.
pub mod clock;
pub mod model;
pub mod negotiate;
pub mod registry;
pub mod storage;
