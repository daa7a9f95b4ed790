//! Closes connections, HTTP sessions and tasks whose credential was revoked or has expired.

use std::time::Duration;

use actors::{broker::BrokerHandle, clock};

use crate::transport::{Connections, streamable_http::HttpSessions};
use api::mcp::tasks::Tasks;

/// How long a credential must have been invalid before its connections are closed: a caller that ends its own key still
/// gets the answer.
const CLOSE_DELAY: Duration = Duration::from_millis(200);
/// Longest time between two checks, because the wall clock may be set.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Watches credentials until the broker ends.
pub async fn run(broker: &BrokerHandle, connections: &Connections, sessions: &HttpSessions, tasks: &Tasks) {
    let mut changes = broker.changes();
    let close_invalid = || {
        let now = clock::now();
        sessions.close_invalid(now, CLOSE_DELAY);
        tasks.close_of_ended_credentials(now, CLOSE_DELAY);
        let next_expiry_ms = connections.close_invalid(now, CLOSE_DELAY);
        Duration::from_millis(next_expiry_ms.saturating_sub(now.unix_ms)).min(CHECK_INTERVAL_MAX)
    };
    loop {
        let wait = close_invalid();
        connections.set_project_count(broker.open_projects().len());
        tokio::select! {
            changed = changes.changed() => if changed.is_err() {
                return;
            },
            () = connections.wait_for_earlier_expiry() => {}
            () = tokio::time::sleep(wait.max(Duration::from_millis(1))) => {}
        }
        // This check records which credentials are invalid; the next one, after the delay, closes their connections.
        close_invalid();
        tokio::time::sleep(CLOSE_DELAY).await;
    }
}
