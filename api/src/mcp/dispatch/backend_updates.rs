//! Tells subscribers of the resources of backends that states have changed.

use std::sync::Arc;

use actors::{
    gateway::{BackendState, GatewayShared},
    model::BackendName,
};

use crate::mcp::{
    context::PeerContext,
    resources::{BACKENDS, BackendPart, backend_of},
};

/// Sends a notification at every later change of a state that a resource shows, until it is dropped. `None` if the resource
/// shows no states.
pub(super) fn notify<S: Fn()>(context: &PeerContext, uri: &str, send: S) -> Option<impl Future<Output = ()> + use<S>> {
    let gateway = context.project.gateway().filter(|_| context.exposure.has_own())?;
    let gateway = Arc::clone(gateway.shared());
    let offered = gateway.offered();
    let backend = match backend_of(uri) {
        Some((name, BackendPart::Itself)) => Some(offered.backend(name)?.name.to_string()),
        Some((_, BackendPart::Log)) => return None,
        None if uri == BACKENDS && !offered.backends.is_empty() => None,
        None => return None,
    };
    let mut changes = gateway.changes();
    changes.borrow_and_update();
    let mut watch = Watch {
        backend,
        seen: Vec::new(),
    };
    watch.has_changed(&gateway);
    Some(async move {
        while changes.changed().await.is_ok() {
            if watch.has_changed(&gateway) {
                send();
            }
        }
    })
}

/// A resource whose subscriber is notified of changes.
struct Watch {
    /// The backend that it shows; `None` for all.
    backend: Option<String>,
    /// The states that were sent last, and since when they hold.
    seen: Vec<(BackendName, BackendState, u64)>,
}

impl Watch {
    /// Whether a state is another one than at the last call.
    fn has_changed(&mut self, gateway: &GatewayShared) -> bool {
        let offered = gateway.offered();
        let shown = match &self.backend {
            Some(name) => offered.backend(name).map(std::slice::from_ref).unwrap_or_default(),
            None => offered.backends.as_slice(),
        };
        let states = shown.iter().map(|backend| {
            let view = backend.view();
            (backend.name.clone(), view.state, view.since_ms)
        });
        let states: Vec<_> = states.collect();
        let has_changed = states != self.seen;
        self.seen = states;
        has_changed
    }
}
