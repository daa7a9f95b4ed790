//! Where MCP clients look for an authorization server once they were answered 401 (2025-11-25 and 2026-07-28,
//! basic/authorization).
//!
//! The broker issues no tokens. These paths answer without a key, and 404 where there is nothing: a client that is
//! answered 401 here too asks for a login that no one can give, and waits for it without an end.

/// Well-known URIs are public by their purpose (RFC 8615): among them the metadata of the protected resource.
const WELL_KNOWN: &str = "/.well-known/";
/// The endpoints that clients of 2025-03-26 assume where they find no metadata.
const ASSUMED_ENDPOINTS: [&str; 3] = ["/register", "/authorize", "/token"];

/// The MCP endpoints. Some clients put the well-known part behind the path of the resource.
const ENDPOINTS: [&str; 2] = ["/mcp", "/sse"];

/// Whether a client without a key asks here.
pub fn is_discovery_path(path: &str) -> bool {
    let resource = ENDPOINTS.iter().find_map(|endpoint| path.strip_prefix(endpoint));
    ASSUMED_ENDPOINTS.contains(&path) || resource.unwrap_or(path).starts_with(WELL_KNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_a_discovery_are_probed() {
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
