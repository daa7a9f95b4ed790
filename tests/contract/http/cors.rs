//! CORS: pages of an allowed origin may read the answers of the broker, pages of other origins may not.

use serde_json::json;

use crate::support::{Broker, HttpAgent, Request, Response, initialize_request};

const OPS: &str = "https://ops.example";
const ALLOW_ORIGIN: &str = "access-control-allow-origin";
const ALLOW_CREDENTIALS: &str = "access-control-allow-credentials";

fn listed(response: &Response, header: &str) -> Vec<String> {
    let value = response
        .header(header)
        .unwrap_or_else(|| panic!("no {header}: {response:?}"));
    value.split(',').map(|item| item.trim().to_ascii_lowercase()).collect()
}

fn preflight(broker: &Broker, origin: &str, method: &str, headers: &str) -> Response {
    Request::get(broker.address)
        .with_method("OPTIONS")
        .without("Accept")
        .with("Origin", origin)
        .with("Access-Control-Request-Method", method)
        .with("Access-Control-Request-Headers", headers)
        .answered()
}

#[test]
fn a_preflight_of_an_allowed_origin_is_granted() {
    let broker = Broker::start_with(&["--cors-origins=https://ops.example,https://other.example"]);
    let headers = "content-type,mcp-method,mcp-name,mcp-protocol-version,mcp-session-id,last-event-id";
    for method in ["POST", "GET", "DELETE"] {
        for origin in [OPS, "https://other.example"] {
            let response = preflight(&broker, origin, method, headers);
            assert!([200, 204].contains(&response.status), "{response:?}");
            assert_eq!(response.header(ALLOW_ORIGIN), Some(origin));
            assert_eq!(response.header(ALLOW_CREDENTIALS), Some("true"));
            let methods = listed(&response, "access-control-allow-methods");
            assert!(methods.contains(&method.to_ascii_lowercase()), "{methods:?}");
            let allowed = listed(&response, "access-control-allow-headers");
            for header in headers.split(',') {
                assert!(
                    allowed.iter().any(|known| known == header || known == "*"),
                    "{header}: {allowed:?}"
                );
            }
        }
    }
    for origin in [
        "https://evil.example",
        "null",
        "https://ops.example.evil.example",
        "http://ops.example",
    ] {
        let response = preflight(&broker, origin, "POST", headers);
        assert_eq!(response.status, 403, "{origin}");
        assert_eq!(response.header(ALLOW_ORIGIN), None, "{origin}");
    }
}

#[test]
fn a_page_of_an_allowed_origin_can_read_every_answer() {
    let broker = Broker::start_with(&["--cors-origins=https://ops.example"]);
    let stateless = broker.http_modern("page");
    let session = HttpAgent::legacy(broker.address, "2025-11-25", json!({}));
    for request in [
        stateless.asks("server/discover", json!({})),
        stateless.asks("no/such", json!({})),
        stateless.asks("server/discover", json!({})).without("Mcp-Method"),
        stateless
            .call("heartbeat", json!({}))
            .with("Accept", "text/event-stream"),
        session.asks("ping", json!({})),
        session.asks("ping", json!({})).with("Mcp-Session-Id", "nonsense"),
        session.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
        initialize_request(broker.address, "2025-11-25", json!({})),
    ] {
        let response = request.with("Origin", OPS).answered();
        assert_eq!(response.header(ALLOW_ORIGIN), Some(OPS), "{response:?}");
        assert!(
            listed(&response, "access-control-expose-headers").contains(&"mcp-session-id".to_owned()),
            "{response:?}"
        );
        // A cache must not keep it for another origin.
        assert!(listed(&response, "vary").contains(&"origin".to_owned()), "{response:?}");
    }
    let mut stream = session.stream_request().with("Origin", OPS).sent().streams();
    assert_eq!(stream.header(ALLOW_ORIGIN).as_deref(), Some(OPS));
}

#[test]
fn no_origin_is_allowed_by_default() {
    let broker = Broker::start();
    let stateless = broker.http_modern("page");
    let response = stateless.asks("server/discover", json!({})).answered();
    assert_eq!(response.header(ALLOW_ORIGIN), None);
    let refused = stateless
        .asks("server/discover", json!({}))
        .with("Origin", OPS)
        .answered();
    assert_eq!((refused.status, refused.header(ALLOW_ORIGIN)), (403, None));
    assert_eq!(preflight(&broker, OPS, "POST", "content-type").status, 403);
}
