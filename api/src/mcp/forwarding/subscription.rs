//! Subscriptions of callers to what changes in backends, and the instance that tells a caller of the changes: the main one of a
//! backend, or one of the caller's own.

use std::{sync::Arc, time::Duration};

use actors::{
    gateway::{BackendCommand, BackendShared, BackendView, Profile, Subscribed},
    model::SessionId,
};
use futures_util::future::pending;
use serde_json::Value;
use tokio::{sync::watch, time::sleep};

use super::{
    caller::{Caller, may_ask},
    route::resource_of,
};
use crate::mcp::{context::PeerContext, rpc::RpcError};

/// The shortest time between two notifications of one subscription.
const INTERVAL: Duration = Duration::from_millis(100);

/// Subscribes to a resource by the URI that the caller uses, and calls `send` at each of its changes, until the future is
/// dropped. Changes in quick succession are sent once. `profile` is what the caller can be asked for. `None` if the resource
/// belongs to no backend.
///
/// # Errors
/// Its backend has no subscriptions, or too many resources are subscribed to.
pub fn watch_resource<S: Fn()>(
    context: &PeerContext,
    uri: &str,
    profile: Profile,
    send: S,
) -> Option<Result<impl Future<Output = ()> + use<S>, RpcError>> {
    let (backend, original) = resource_of(context, uri)?;
    let server = backend.view().server.clone();
    let capabilities = server.and_then(|server| serde_json::from_str::<Value>(&server.capabilities).ok());
    // One that was not started yet is asked when it starts.
    if capabilities.is_some_and(|capabilities| capabilities["resources"]["subscribe"] != true) {
        let reason = format!("the backend {} has no subscriptions to resources", backend.name);
        return Some(Err(RpcError::invalid_params(reason)));
    }
    let mut instance = OwnInstance::new(context, &backend, profile);
    let Some(mut subscription) = instance.subscribed().resources.subscribe(&original) else {
        let reason = format!("too many resources of the backend {} are subscribed to", backend.name);
        return Some(Err(RpcError::invalid_params(reason)));
    };
    instance.want();
    Some(Ok(async move {
        loop {
            tokio::select! {
                () = subscription.changed() => {}
                () = instance.wait_for_another() => {
                    // Its place is free for the next one.
                    drop(subscription);
                    let Some(other) = instance.subscribed().resources.subscribe(&original) else {
                        tracing::debug!(backend = %backend.name, "a subscription ends: too many resources are subscribed to");
                        return;
                    };
                    subscription = other;
                }
            }
            send();
            sleep(INTERVAL).await;
        }
    }))
}

/// The instance of a backend that tells one caller of changes.
pub struct OwnInstance {
    backend: Arc<BackendShared>,
    views: watch::Receiver<Arc<BackendView>>,
    caller: Caller,
    sessions: watch::Receiver<Option<SessionId>>,
    /// What the caller can be asked for.
    profile: Profile,
    /// The owner of the instance; `None` for the main one.
    owner: Option<Arc<str>>,
    /// The number of the main instance next to which one of its own was started.
    started_beside: Option<u64>,
}

impl OwnInstance {
    /// The instance of the caller of a peer. `profile` is what the caller can be asked for.
    pub fn new(context: &PeerContext, backend: &Arc<BackendShared>, profile: Profile) -> Self {
        let session = context.session_id();
        let mut instance = Self {
            backend: Arc::clone(backend),
            views: backend.views(),
            caller: Caller::of(context),
            sessions: context.subscriptions.borrow_mut().sessions(session),
            profile,
            owner: None,
            started_beside: None,
        };
        instance.owner = instance.owner_now();
        instance
    }

    /// What its callers have subscribed to.
    pub fn subscribed(&self) -> Subscribed {
        self.backend.subscribed.of(self.owner.as_ref())
    }

    /// Has the backend started: one that does not run sends no changes.
    pub fn want(&self) {
        self.backend.command(BackendCommand::Want);
    }

    /// Has the instance started, now and after each start of the main one, if there is room for it. Waits until another
    /// instance tells the caller of changes: the caller acts as another session, or the backend is shared in another way.
    /// The wait may be dropped at any time.
    pub async fn wait_for_another(&mut self) {
        loop {
            let owner = self.owner_now();
            if owner != self.owner {
                (self.owner, self.started_beside) = (owner, None);
                return;
            }
            self.start();
            tokio::select! {
                Ok(()) = self.views.changed() => {}
                Ok(()) = self.sessions.changed() => {}
                else => pending().await,
            }
        }
    }

    fn owner_now(&mut self) -> Option<Arc<str>> {
        let session = *self.sessions.borrow_and_update();
        let view = self.views.borrow_and_update();
        view.owner(|sharing| self.caller.owner(sharing, session))
    }

    /// Has an instance of its own started, once for each main one.
    fn start(&mut self) {
        let (view, session) = (Arc::clone(&self.views.borrow()), *self.sessions.borrow());
        let profile = if may_ask(&view) { self.profile } else { Profile::NONE };
        let owner = |sharing| self.caller.owner(sharing, session);
        let affinity = view.affinity("resources/read", profile, owner);
        let Some(main) = view.link.as_ref().filter(|_| affinity.owner.is_some()) else {
            return;
        };
        if self.started_beside.replace(main.number()) != Some(main.number()) {
            // If there is no room, the next call of the owner starts it.
            self.backend.checkouts.start_first(affinity);
        }
    }
}
