//! Subscriptions of callers to resources of backends.

use std::time::Duration;

use actors::gateway::{BackendCommand, ResourceSubscription};
use serde_json::Value;
use tokio::time::sleep;

use super::route::resource_of;
use crate::mcp::{context::PeerContext, rpc::RpcError};

/// The shortest time between two notifications of one subscription.
const INTERVAL: Duration = Duration::from_millis(100);

/// Subscribes to a resource by the URI that the caller uses. `None` if it belongs to no backend.
///
/// # Errors
/// Its backend does not tell of changes, or tells of too many resources.
pub fn subscribe(context: &PeerContext, uri: &str) -> Option<Result<ResourceSubscription, RpcError>> {
    let (backend, original) = resource_of(context, uri)?;
    let server = backend.view().server.clone();
    let capabilities = server.and_then(|server| serde_json::from_str::<Value>(&server.capabilities).ok());
    // One that was not started yet is asked when it starts.
    if capabilities.is_some_and(|capabilities| capabilities["resources"]["subscribe"] != true) {
        let reason = format!("the backend {} does not tell of changes of its resources", backend.name);
        return Some(Err(RpcError::invalid_params(reason)));
    }
    let subscription = backend.resources.subscribe(&original);
    if subscription.is_some() {
        // One that does not run tells of no changes.
        backend.command(BackendCommand::Want);
    }
    Some(subscription.ok_or_else(|| {
        let reason = format!("too many resources of the backend {} are subscribed to", backend.name);
        RpcError::invalid_params(reason)
    }))
}

/// Sends a notification at each change of a resource. Changes in quick succession are told once.
pub async fn notify_of_resource(mut subscription: ResourceSubscription, send: impl Fn()) {
    loop {
        subscription.changed().await;
        send();
        sleep(INTERVAL).await;
    }
}
