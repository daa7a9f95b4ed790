//! What the decoder of frames names of the product beside itself.

#[allow(dead_code)]
#[path = "../../src/transport/inbound.rs"]
pub mod inbound;
