//! Which paths are probes, public, or have short answers.

use super::oauth;

/// Paths of the probes of load balancers and Kubernetes.
pub const PROBES: [&str; 3] = ["/livez", "/readyz", "/startupz"];

/// The path of the metrics.
pub const METRICS: &str = "/metrics";

/// Whether the answer at a path is always short, or is a stream.
pub fn has_short_answer(path: &str) -> bool {
    PROBES.contains(&path) || ["/", "/health", "/api/v1/events"].contains(&path)
}

/// Whether a path needs no credential.
pub fn is_public(path: &str) -> bool {
    const PUBLIC: [&str; 4] = ["/", "/health", "/openapi.json", "/docs"];
    PUBLIC.contains(&path) || PROBES.contains(&path) || oauth::is_discovery_path(path)
}
