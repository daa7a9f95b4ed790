//! Includes the parts of the product that the frame decoder names.

#[allow(dead_code)]
#[path = "../../src/transport/inbound.rs"]
pub mod inbound;
