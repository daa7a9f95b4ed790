//! Requests to REST that no client of good will sends. Each is answered with a problem that has a code.

use crate::support::{ADMIN_KEY, Broker, Request, Response};

fn asked(broker: &Broker, method: &str, path: &str) -> Request {
    Request::post(broker.address, "")
        .by(method)
        .at(path)
        .without("Content-Type")
        .with("X-API-Key", ADMIN_KEY)
}

/// Its status, after looking at whether it is a problem as it should be.
fn refused(response: &Response) -> (u16, String) {
    assert_eq!(
        response.header("content-type"),
        Some("application/problem+json"),
        "{response:?}"
    );
    let problem = response.json();
    assert_eq!(problem["status"], response.status);
    (response.status, problem["code"].as_str().unwrap().to_owned())
}

fn is_refused(request: &Request, status: u16, code: &str) {
    let response = request.answered();
    assert_eq!(refused(&response), (status, code.to_owned()), "{request:?}");
}

#[test]
fn a_key_in_a_url_is_refused_everywhere() {
    let broker = Broker::secured();
    for path in [
        "/",
        "/health",
        "/livez",
        "/readyz",
        "/startupz",
        "/docs",
        "/openapi.json",
        "/nothing",
        "/mcp",
        "/.well-known/oauth-protected-resource",
        "/security/status",
        "/api/v1/projects",
    ] {
        for name in ["api_key", "Token", "access_token"] {
            for method in ["GET", "POST", "OPTIONS"] {
                let path = format!("{path}?a=b&{name}={ADMIN_KEY}");
                is_refused(&asked(&broker, method, &path), 400, "invalid_argument");
                is_refused(
                    &asked(&broker, method, &path).without("X-API-Key"),
                    400,
                    "invalid_argument",
                );
            }
        }
    }
    let upgrade = asked(&broker, "GET", &format!("/ws?key={ADMIN_KEY}"))
        .with("Connection", "Upgrade")
        .with("Upgrade", "websocket")
        .with("Sec-WebSocket-Version", "13")
        .with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    is_refused(&upgrade, 400, "invalid_argument");
    assert!(!broker.log().contains(ADMIN_KEY));
}
