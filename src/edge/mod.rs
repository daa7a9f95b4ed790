//! The edge: what every request passes before it is served, whichever transport it arrives on.
//!
//! `admission` checks `Host` and `Origin`, and refuses requests of the broker to itself, `cors` tells browsers which pages may call, `authentication` finds the
//! caller and takes the request from its rate limit, `address_limiter` bounds the sockets of one address, `peer_user` asks the
//! kernel which user of this machine a peer is. The HTTP
//! middleware and the WebSocket handshake share these functions. The edge knows no routes and no MCP.

mod address_limiter;
mod admission;
mod authentication;
mod cors;
mod peer_user;

pub use address_limiter::{AddressLimiter, AddressPermit};
pub use admission::Admission;
pub use authentication::authenticate;
pub use cors::cors;
pub use peer_user::PeerUser;
