//! Ends a broker that no client uses: after `idle_shutdown`, or soon when a newer version is installed.

use std::time::Duration;

use actors::idle;

use super::user_broker::LocalTransports;
use crate::transport::Connections;
use common::user_broker;

/// How long a broker without clients waits before it makes room for a newer version: a client that reconnects at once
/// finds it.
const UPGRADE_PAUSE: Duration = Duration::from_secs(1);
/// The shortest pause between two checks.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Returns once the broker was not used for `idle_shutdown`, and the name of the socket is gone, so that the next client
/// starts a broker. A connection, a request, a call or task that is under way and a program that has the FIFO open use it.
/// Never returns when `idle_shutdown` is zero: another program ends such a broker.
pub async fn wait(connections: &Connections, transports: &LocalTransports, idle_shutdown: Duration) {
    if idle_shutdown.is_zero() {
        return std::future::pending().await;
    }
    loop {
        let released = connections.released();
        if connections.has_clients() {
            connections.wait_until_no_clients().await;
            // The last client may have been silent for long.
            idle::mark_activity();
        }
        if transports.has_fifo_client().await {
            idle::mark_activity();
        }
        let has_upgrade = transports.has_upgrade() || user_broker::is_replaced();
        let wanted = if has_upgrade {
            UPGRADE_PAUSE.min(idle_shutdown)
        } else {
            idle_shutdown
        };
        let quiet = idle::quiet_for();
        if quiet < wanted {
            // A client that leaves may have brought a newer version.
            let pause = tokio::time::sleep(wanted.saturating_sub(quiet).max(PAUSE_MIN));
            tokio::select! {
                () = pause => {}
                () = released => {}
            }
            continue;
        }
        if transports.withdraw_unless_used(connections).await {
            tracing::info!(?idle_shutdown, has_upgrade, "no client uses the broker: it stops");
            return;
        }
        idle::mark_activity();
    }
}
