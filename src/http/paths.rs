//! Which paths are probes, public, or have short answers.

use super::oauth;

/// Paths of the probes of load balancers and Kubernetes.
pub const PROBES: [&str; 3] = ["/livez", "/readyz", "/startupz"];

/// The path of the metrics.
pub const METRICS: &str = "/metrics";

/// The page on which people answer agents.
pub const DESK: &str = "/desk";

/// Where a browser exchanges a key for a cookie: the key is in the body.
pub const LOGIN: &str = "/api/v1/login";
/// Where a browser gets rid of the cookie, whether its key is still valid or not.
pub const LOGOUT: &str = "/api/v1/logout";

/// Whether the answer at a path is always short, or is a stream.
pub fn has_short_answer(path: &str) -> bool {
    PROBES.contains(&path) || ["/", "/health", "/api/v1/events"].contains(&path)
}

/// Whether a path needs no credential.
pub fn is_public(path: &str) -> bool {
    const PUBLIC: [&str; 8] = [
        "/",
        "/health",
        "/openapi.json",
        "/docs",
        "/dashboard",
        DESK,
        LOGIN,
        LOGOUT,
    ];
    PUBLIC.contains(&path)
        || path.starts_with("/dashboard/")
        || path.starts_with("/desk/")
        || path.starts_with("/a/")
        || PROBES.contains(&path)
        || oauth::is_discovery_path(path)
}
