//! Everything of the broker that is true without a socket.
pub mod broker;
pub mod clock;
pub mod model;
pub mod negotiate;
pub mod project;
pub mod registry;
pub mod router;
pub mod session;
pub mod storage;
pub mod supervise;
