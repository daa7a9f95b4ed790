//! Discovery paths: where MCP clients look for an authorization server after a 401 (2025-11-25 and 2026-07-28,
//! basic/authorization).
//!
//! The broker issues no tokens. These paths answer without a key and with 404 where nothing exists: a client that got a
//! 401 here too would start a login that cannot succeed, and wait for it forever.

/// Well-known URIs are public (RFC 8615), among them the metadata of the protected resource.
const WELL_KNOWN: &str = "/.well-known/";
/// Endpoints that clients of 2025-03-26 assume without metadata.
const ASSUMED_ENDPOINTS: [&str; 3] = ["/register", "/authorize", "/token"];

/// The MCP endpoints. Some clients append the well-known part to the path of the resource.
const ENDPOINTS: [&str; 2] = ["/mcp", "/sse"];

/// Whether a path belongs to discovery and needs no key.
pub fn is_discovery_path(path: &str) -> bool {
    let resource = ENDPOINTS.iter().find_map(|endpoint| path.strip_prefix(endpoint));
    ASSUMED_ENDPOINTS.contains(&path) || resource.unwrap_or(path).starts_with(WELL_KNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_discovery_paths_are_public() {
        for probed in [
            "/.well-known/oauth-protected-resource",
            "/.well-known/oauth-authorization-server/mcp",
            "/mcp/.well-known/openid-configuration",
            "/sse/.well-known/openid-configuration",
            "/token",
        ] {
            assert!(is_discovery_path(probed), "{probed}");
        }
        for other in [
            "/",
            "/mcp",
            "/sse",
            "/token/",
            "/tokens",
            "/.well-known",
            "/ws/.well-known/openid-configuration",
            "/api/v1/projects/.well-known/x",
        ] {
            assert!(!is_discovery_path(other), "{other}");
        }
    }
}
