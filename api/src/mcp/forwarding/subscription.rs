//! Subscriptions of callers to resources of backends.

use std::time::Duration;

use actors::gateway::Profile;
use serde_json::Value;
use tokio::time::sleep;

use super::{own_instance::OwnInstance, route::resource_of};
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
                () = instance.is_another() => {
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
