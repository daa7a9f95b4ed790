//! The bound on the requests to backends that one connection has open.

use std::rc::Rc;

use crate::mcp::context::PeerContext;

/// Bytes of the open requests of one connection.
const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of the requests that a connection holds. Each is kept until its answer, because it may have to be sent again.
pub struct HeldBytes {
    context: Rc<PeerContext>,
    bytes: usize,
}

impl HeldBytes {
    /// `None` if the connection holds too many. A single request is never too large: transports bound it.
    pub fn take(context: &Rc<PeerContext>, bytes: usize) -> Option<Self> {
        let held = context.forwarded_bytes.get();
        (held == 0 || held + bytes <= HELD_BYTES_MAX).then(|| {
            context.forwarded_bytes.set(held + bytes);
            Self {
                context: Rc::clone(context),
                bytes,
            }
        })
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let held = &self.context.forwarded_bytes;
        held.set(held.get() - self.bytes);
        // Lines may wait for it.
        self.context.calls.wake();
    }
}
