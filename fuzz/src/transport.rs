//! Includes the parts of the product that the decoders name.

#[allow(dead_code)]
#[path = "../../src/transport/inbound.rs"]
pub mod inbound;
