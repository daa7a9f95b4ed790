//! A response that stays open: counted among the connections, and notified when the broker stops or when the credential of
//! its caller ends.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use actors::{metrics::TransportKind, session::CloseReason};

use super::{ConnectionPermit, TransportContext};
use api::{
    auth::Identity,
    mcp::{Framing, Outbox, ResponseForm},
};

/// The entry of an open response among the connections. It is removed on drop.
pub struct OpenResponse {
    _permit: ConnectionPermit,
    /// Nothing is written to it: the connections close it, and that is what the response waits for.
    outbox: Arc<Outbox>,
}

impl OpenResponse {
    /// Within the limits of connections; `None` when one is reached, or when the broker stops.
    pub fn try_open(context: &TransportContext, identity: &Arc<Identity>, kind: TransportKind) -> Option<Self> {
        let outbox = Self::outbox();
        let permit = context.connections.try_acquire(&outbox, identity, kind)?;
        Some(Self {
            _permit: permit,
            outbox,
        })
    }

    /// For a wait in progress, regardless of the limits; `None` when the broker stops.
    pub fn open_over_limit(context: &TransportContext, identity: &Arc<Identity>, kind: TransportKind) -> Option<Self> {
        let outbox = Self::outbox();
        let permit = context.connections.acquire_over_limit(&outbox, identity, kind)?;
        Some(Self {
            _permit: permit,
            outbox,
        })
    }

    fn outbox() -> Arc<Outbox> {
        let form = ResponseForm::Events;
        Arc::new(Outbox::new(Framing::Exchange { stream: None, form }))
    }

    /// Ready once the response has to end, with the reason.
    pub fn poll_closed(&self, cx: &Context<'_>) -> Poll<CloseReason> {
        loop {
            if let Some(why) = self.outbox.closing() {
                return Poll::Ready(why);
            }
            if self.outbox.register_waker(cx.waker()) {
                return Poll::Pending;
            }
        }
    }

    /// Waits until the response has to end. Returns the reason.
    pub async fn closed(&self) -> CloseReason {
        poll_fn(|cx| self.poll_closed(cx)).await
    }
}
