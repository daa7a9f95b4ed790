//! Clients that get 401 look for an authorization server. A broker without one says so, without asking for a key.

use serde_json::json;

use crate::support::{Broker, Request};

const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The URLs that clients of the different revisions request when they know only the endpoint.
fn probes() -> Vec<(&'static str, String)> {
    let mut probes = Vec::new();
    for known in [
        METADATA,
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
    ] {
        probes.extend(["", "/mcp", "/sse", "/ws"].map(|resource| ("GET", format!("{known}{resource}"))));
    }
    for endpoint in ["/mcp", "/sse"] {
        probes.push(("GET", format!("{endpoint}/.well-known/openid-configuration")));
    }
    probes.push(("GET", "/authorize?response_type=code&client_id=x".to_owned()));
    probes.push(("POST", "/register".to_owned()));
    probes.push(("POST", "/token".to_owned()));
    probes
}

fn probe_request(broker: &Broker, (method, path): &(&str, String)) -> Request {
    let body = match *method {
        "POST" => json!({"client_name": "a bridge", "redirect_uris": ["http://127.0.0.1:3334/callback"]}).to_string(),
        _ => String::new(),
    };
    Request::post(broker.address, body).with_method(method).with_path(path)
}

#[test]
fn a_client_without_a_key_is_told_that_no_tokens_are_issued() {
    for broker in [Broker::secured(), Broker::start()] {
        for probe in probes() {
            let response = probe_request(&broker, &probe).answered();
            assert_eq!(
                response.problem(),
                (404, "invalid_argument".to_owned()),
                "{probe:?}: {response:?}"
            );
            assert!(response.body.len() < 300, "{probe:?}: {response:?}");
            let detail = response.json()["detail"].to_string();
            assert!(detail.contains("API key"), "{probe:?}: {detail}");
        }
    }
}

#[test]
fn a_client_with_an_invalid_key_is_told_that_no_tokens_are_issued() {
    let broker = Broker::secured();
    for probe in probes() {
        let asked = probe_request(&broker, &probe).with("Authorization", "Bearer nonsense");
        assert_eq!(asked.answered().status, 404, "{probe:?}");
    }
}

#[test]
fn only_discovery_is_open_to_clients_without_a_key() {
    let broker = Broker::secured();
    for path in ["/mcp", "/sse", "/sse?session_id=x", "/tokens", "/register/x", "/mcp/x"] {
        for method in ["GET", "POST"] {
            let response = probe_request(&broker, &(method, path.to_owned())).answered();
            assert_eq!(response.status, 401, "{method} {path}: {response:?}");
        }
    }
}
