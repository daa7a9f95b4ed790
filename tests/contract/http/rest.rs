//! Requests to REST that no client of good will sends. Each is answered with a problem that has a code.

use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Broker, Request, Response};

const PROJECTS: &str = "/api/v1/projects";

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
fn what_cannot_be_the_id_of_a_project_is_not_found() {
    let broker = Broker::secured();
    broker.project("acme", &json!({}));
    let long = "a".repeat(5000);
    for id in [
        "acme%2Fgrants",
        "%2e%2e",
        "..%2F..",
        "acme%00",
        "%FF%FE",
        "%C3%A9",
        "%",
        "%zz",
        "%2561cme",
        "ACME",
        "acme;x",
        &long,
    ] {
        let path = format!("{PROJECTS}/{id}");
        is_refused(&asked(&broker, "GET", &path), 404, "project_not_found");
        is_refused(&asked(&broker, "DELETE", &path), 404, "project_not_found");
    }
    for path in [
        "/",
        "//",
        "/acme/",
        "/acme/../default",
        "/acme//keys",
        "/acme/keys/rotate/",
    ] {
        let request = asked(&broker, "GET", &format!("{PROJECTS}{path}"));
        is_refused(&request, 404, "invalid_argument");
    }
    for key in ["%2F", "k1", "%00", "K1"] {
        let request = asked(&broker, "DELETE", &format!("{PROJECTS}/acme/keys/{key}"));
        is_refused(&request, 404, "invalid_argument");
    }
    assert_eq!(
        asked(&broker, "GET", &format!("{PROJECTS}/%61cme")).answered().status,
        200
    );
}

#[test]
fn parameters_that_are_not_known_or_given_twice_are_refused() {
    let broker = Broker::secured();
    for rest in [
        "projects?unknown=1",
        "projects?include_inactive=true&include_inactive=true",
        "projects?include_inactive",
        "projects?include_inactive=maybe",
        "projects?%00=1",
        "projects/default?x",
        "projects/default/keys?limit=1",
        "tree?depth=1",
        "audit?limit=0",
        "audit?limit=1001",
        "audit?limit=99999999999999999999999",
        "audit?limit=1.0",
        "audit?cursor=x",
        "audit?project=A",
        "audit?outcome=DONE",
    ] {
        is_refused(
            &asked(&broker, "GET", &format!("/api/v1/{rest}")),
            400,
            "invalid_argument",
        );
    }
}

#[test]
fn bodies_that_are_none_of_ours_are_refused() {
    let broker = Broker::secured();
    let sends = |body: &[u8]| {
        let mut request = asked(&broker, "POST", PROJECTS).with("Content-Type", "application/json");
        request.body = body.to_vec();
        request
    };
    let nested = |len| format!("{{\"x\": {}{}}}", "[".repeat(len), "]".repeat(len));
    for body in [
        "",
        "{",
        "no",
        "[]",
        "null",
        "\"x\"",
        "1",
        "{} {}",
        "\u{feff}{}",
        r#"{"project_id": "a"}"#,
        r#"{"project_id": "a", "name": null}"#,
        r#"{"project_id": "a", "name": "b", "name": "c"}"#,
        r#"{"project_id": "a", "name": "b", "more": 1}"#,
        r#"{"project_id": "a", "name": "b", "config": []}"#,
        &format!(
            r#"{{"project_id": "a", "name": "b", "tags": [{}"t"]}}"#,
            "\"t\",".repeat(32)
        ),
        r#"{"project_id": "a", "name": "b", "config": [true]}"#,
        r#"{"project_id": "a", "name": "b", "config": {"max_sessions": 1e400}}"#,
        r#"{"project_id": "a", "name": "b", "config": {"max_sessions": 1e30}}"#,
        r#"{"project_id": "a", "name": "b", "config": {"max_sessions": 1.5}}"#,
        r#"{"project_id": "a", "name": "b", "config": {"rate_limit": 4294967296}}"#,
        r#"{"project_id": "a", "name": "\ud800"}"#,
        r#"{"project_id": "a\u0000", "name": "b"}"#,
        r#"["a", "b", null, [], {}]"#,
        &nested(100),
        &nested(10_000),
    ] {
        is_refused(&sends(body.as_bytes()), 400, "invalid_argument");
    }
    is_refused(&sends(b"{\"name\": \"\xFF\"}"), 400, "invalid_argument");
    for len in [64 * 1024 + 1, 1024 * 1024] {
        is_refused(&sends(&vec![b' '; len]), 413, "payload_too_large");
    }
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        ";;",
    ] {
        is_refused(&sends(b"{}").with("Content-Type", kind), 415, "invalid_argument");
    }
    is_refused(&sends(b"{}").without("Content-Type"), 415, "invalid_argument");
    let listed = asked(&broker, "GET", PROJECTS).answered().json();
    assert_eq!(listed["projects"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn a_body_where_none_belongs_is_passed_over() {
    let broker = Broker::secured();
    let mut request = asked(&broker, "GET", PROJECTS).with("Content-Type", "application/json");
    for len in [2, 100_000] {
        request.body = vec![b'x'; len];
        assert_eq!(request.answered().status, 200);
    }
}

#[test]
fn every_path_says_which_methods_it_takes() {
    let broker = Broker::secured();
    let document = broker.get("/openapi.json").json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace(['{', '}'], "");
        let methods: Vec<_> = methods
            .as_object()
            .unwrap()
            .keys()
            .map(|name| name.to_uppercase())
            .collect();
        let allowed = |response: &Response| {
            let allowed = response
                .header("allow")
                .unwrap_or_else(|| panic!("{response:?}"))
                .to_owned();
            for method in &methods {
                assert!(allowed.split(", ").any(|known| known == method), "{path}: {allowed}");
            }
            assert_eq!(allowed.contains("HEAD"), methods.contains(&"GET".to_owned()), "{path}");
        };
        let options = asked(&broker, "OPTIONS", &path).answered();
        assert_eq!(options.status, 204, "{path}");
        allowed(&options);
        let response = asked(&broker, "TRACE", &path).answered();
        assert_eq!(refused(&response), (405, "invalid_argument".to_owned()), "{path}");
        allowed(&response);
    }
    is_refused(&asked(&broker, "OPTIONS", "/api/v1/nothing"), 404, "invalid_argument");
}

#[test]
fn head_is_get_without_the_body() {
    let broker = Broker::secured();
    for (path, status) in [
        ("/health", 200),
        ("/livez", 200),
        ("/docs", 200),
        ("/api/v1/projects", 200),
        ("/api/v1/projects/none", 404),
        ("/nothing", 404),
    ] {
        let mut socket = broker.socket();
        let request = asked(&broker, "HEAD", path).with("Connection", "close");
        socket.write_all(&request.bytes()).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {text}");
        assert!(
            text.ends_with("\r\n\r\n") && text.contains("content-length: "),
            "{path}: {text}"
        );
    }
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

#[test]
fn refusals_have_the_headers_that_say_what_to_do() {
    let broker = Broker::secured();
    let nobody = asked(&broker, "GET", PROJECTS).without("X-API-Key").answered();
    assert_eq!(refused(&nobody), (401, "authentication_failed".to_owned()));
    assert!(nobody.header("www-authenticate").unwrap().starts_with("Bearer "));
    let limited = broker.project("limited", &json!({}));
    let path = format!("{PROJECTS}/limited");
    let changed = broker.rest(ADMIN_KEY, "PATCH", &path, &json!({"config": {"rate_limit": 1}}));
    assert_eq!(changed.status, 200);
    let responses: Vec<_> = (0..3).map(|_| limited.rest("GET", "", &Value::Null)).collect();
    let last = responses.last().unwrap();
    assert_eq!(refused(last), (429, "rate_limited".to_owned()));
    assert!(last.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let made = broker.rest(
        ADMIN_KEY,
        "POST",
        PROJECTS,
        &json!({"project_id": "made", "name": "Made"}),
    );
    assert_eq!(made.header("location"), Some("/api/v1/projects/made"));
    let again = broker.rest(
        ADMIN_KEY,
        "POST",
        PROJECTS,
        &json!({"project_id": "made", "name": "Made"}),
    );
    assert_eq!(refused(&again), (409, "project_exists".to_owned()));
    is_refused(&asked(&broker, "DELETE", "/api/v1/projects/default"), 403, "forbidden");
}

#[test]
fn the_page_of_the_document_brings_nothing_from_elsewhere() {
    let broker = Broker::secured();
    let page = broker.get("/docs");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(
        !page.body.contains("://") && !page.body.contains(" src="),
        "{}",
        page.body
    );
}
