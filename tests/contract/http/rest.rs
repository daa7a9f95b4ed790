//! Invalid requests to the REST API. Each is answered with a problem document that has a code.

use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Broker, Request, Response};

const PROJECTS: &str = "/api/v1/projects";

fn admin_request(broker: &Broker, method: &str, path: &str) -> Request {
    Request::post(broker.address, "")
        .with_method(method)
        .with_path(path)
        .without("Content-Type")
        .with("X-API-Key", ADMIN_KEY)
}

/// The status and the code of a response, which must be a valid problem document.
fn problem_of(response: &Response) -> (u16, String) {
    assert_eq!(
        response.header("content-type"),
        Some("application/problem+json"),
        "{response:?}"
    );
    let problem = response.json();
    assert_eq!(problem["status"], response.status);
    (response.status, problem["code"].as_str().unwrap().to_owned())
}

fn expect_problem(request: &Request, status: u16, code: &str) {
    let response = request.answered();
    assert_eq!(problem_of(&response), (status, code.to_owned()), "{request:?}");
}

#[test]
fn an_invalid_project_id_is_not_found() {
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
        expect_problem(&admin_request(&broker, "GET", &path), 404, "project_not_found");
        expect_problem(&admin_request(&broker, "DELETE", &path), 404, "project_not_found");
    }
    for path in [
        "/",
        "//",
        "/acme/",
        "/acme/../default",
        "/acme//keys",
        "/acme/keys/rotate/",
    ] {
        let request = admin_request(&broker, "GET", &format!("{PROJECTS}{path}"));
        expect_problem(&request, 404, "invalid_argument");
    }
    for key in ["%2F", "k1", "%00", "K1"] {
        let request = admin_request(&broker, "DELETE", &format!("{PROJECTS}/acme/keys/{key}"));
        expect_problem(&request, 404, "invalid_argument");
    }
    assert_eq!(
        admin_request(&broker, "GET", &format!("{PROJECTS}/%61cme"))
            .answered()
            .status,
        200
    );
}

#[test]
fn unknown_and_repeated_parameters_are_refused() {
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
        expect_problem(
            &admin_request(&broker, "GET", &format!("/api/v1/{rest}")),
            400,
            "invalid_argument",
        );
    }
}

#[test]
fn invalid_bodies_are_refused() {
    let broker = Broker::secured();
    let sends = |body: &[u8]| {
        let mut request = admin_request(&broker, "POST", PROJECTS).with("Content-Type", "application/json");
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
        expect_problem(&sends(body.as_bytes()), 400, "invalid_argument");
    }
    expect_problem(&sends(b"{\"name\": \"\xFF\"}"), 400, "invalid_argument");
    for len in [64 * 1024 + 1, 1024 * 1024] {
        expect_problem(&sends(&vec![b' '; len]), 413, "payload_too_large");
    }
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        ";;",
    ] {
        expect_problem(&sends(b"{}").with("Content-Type", kind), 415, "invalid_argument");
    }
    expect_problem(&sends(b"{}").without("Content-Type"), 415, "invalid_argument");
    let listed = admin_request(&broker, "GET", PROJECTS).answered().json();
    assert_eq!(listed["projects"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn the_body_of_a_get_request_is_ignored() {
    let broker = Broker::secured();
    let mut request = admin_request(&broker, "GET", PROJECTS).with("Content-Type", "application/json");
    for len in [2, 100_000] {
        request.body = vec![b'x'; len];
        assert_eq!(request.answered().status, 200);
    }
}

#[test]
fn every_path_lists_its_methods() {
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
        let options = admin_request(&broker, "OPTIONS", &path).answered();
        assert_eq!(options.status, 204, "{path}");
        allowed(&options);
        let response = admin_request(&broker, "TRACE", &path).answered();
        assert_eq!(problem_of(&response), (405, "invalid_argument".to_owned()), "{path}");
        allowed(&response);
    }
    expect_problem(
        &admin_request(&broker, "OPTIONS", "/api/v1/nothing"),
        404,
        "invalid_argument",
    );
}

#[test]
fn head_is_get_without_the_body() {
    let broker = Broker::secured();
    for (path, status) in [
        ("/health", 200),
        ("/livez", 200),
        ("/docs", 200),
        ("/api/v1/projects", 200),
        ("/api/v1/events", 200),
        ("/api/v1/projects/none", 404),
        ("/nothing", 404),
    ] {
        let mut socket = broker.socket();
        let request = admin_request(&broker, "HEAD", path).with("Connection", "close");
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
                expect_problem(&admin_request(&broker, method, &path), 400, "invalid_argument");
                expect_problem(
                    &admin_request(&broker, method, &path).without("X-API-Key"),
                    400,
                    "invalid_argument",
                );
            }
        }
    }
    let upgrade = admin_request(&broker, "GET", &format!("/ws?key={ADMIN_KEY}"))
        .with("Connection", "Upgrade")
        .with("Upgrade", "websocket")
        .with("Sec-WebSocket-Version", "13")
        .with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    expect_problem(&upgrade, 400, "invalid_argument");
    assert!(!broker.log().contains(ADMIN_KEY));
}

#[test]
fn refusals_have_the_headers_of_their_status() {
    let broker = Broker::secured();
    let without_key = admin_request(&broker, "GET", PROJECTS).without("X-API-Key").answered();
    assert_eq!(problem_of(&without_key), (401, "authentication_failed".to_owned()));
    assert!(without_key.header("www-authenticate").unwrap().starts_with("Bearer "));
    let limited = broker.project("limited", &json!({}));
    let path = format!("{PROJECTS}/limited");
    let changed = broker.rest(ADMIN_KEY, "PATCH", &path, &json!({"config": {"rate_limit": 1}}));
    assert_eq!(changed.status, 200);
    let responses: Vec<_> = (0..3).map(|_| limited.rest("GET", "", &Value::Null)).collect();
    let last = responses.last().unwrap();
    assert_eq!(problem_of(last), (429, "rate_limited".to_owned()));
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
    assert_eq!(problem_of(&again), (409, "project_exists".to_owned()));
    expect_problem(
        &admin_request(&broker, "DELETE", "/api/v1/projects/default"),
        403,
        "forbidden",
    );
}

#[test]
fn the_documentation_page_loads_nothing_from_other_origins() {
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
