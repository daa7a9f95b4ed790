//! Attacks on the check of keys: ambiguous credentials, guesses, and ways around it by paths, bodies and upgrades.

use std::{io::Write, net::Ipv4Addr};

use serde_json::{Value, json};

use super::{entry_points, handshake, identity_request, send_raw};
use crate::{
    http::send_head_only,
    support::{
        ADMIN_KEY, Broker, HttpAgent, Request, Response, eventually, id_of_key, initialize_request, masked_frame,
    },
};

const UNAUTHORIZED: &str = "authentication_failed";

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 2, 0, last)
}

fn is_accepted(status: u16) -> bool {
    matches!(status, 101 | 200)
}

#[test]
fn a_key_in_the_query_is_refused_at_every_entry_point() {
    let broker = Broker::secured();
    for request in entry_points(&broker) {
        for name in [
            "api_key",
            "API-Key",
            "x-api-key",
            "key",
            "token",
            "access_token",
            "api%5Fkey",
            "%6Bey",
        ] {
            let path = format!("{}?cursor=1&{name}={ADMIN_KEY}", request.path);
            for request in [request.clone(), request.clone().with("X-API-Key", ADMIN_KEY)] {
                let answer = request.with_path(&path).answered();
                assert_eq!(answer.problem(), (400, "invalid_argument".to_owned()), "{path}");
                assert!(!answer.body.contains(ADMIN_KEY), "{answer:?}");
            }
        }
        // REST refuses unknown parameters.
        if matches!(request.path.as_str(), "/mcp" | "/ws") {
            let path = format!("{}?keys=1", request.path);
            let harmless = request.with_path(&path).with("X-API-Key", ADMIN_KEY);
            assert!(is_accepted(harmless.answered().status), "{path}");
        }
    }
}

#[test]
fn ambiguous_and_malformed_credentials_are_refused() {
    let broker = Broker::secured();
    let bearer = |key: &str| format!("Bearer {key}");
    let refused = |request: &Request, header: &str, value: &str| {
        let bytes = [request.head().as_bytes(), header.as_bytes(), b": ", value.as_bytes()].concat();
        let end = b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        send_raw(&broker, &[&bytes, &end[..]].concat())
    };
    for request in entry_points(&broker) {
        let keyed = request.clone().with("X-API-Key", ADMIN_KEY);
        for doubtful in [
            keyed.clone().with_another("X-API-Key", ADMIN_KEY),
            keyed.clone().with_another("X-API-Key", "another"),
            keyed.clone().with("Authorization", bearer("another")),
            keyed
                .clone()
                .with("Authorization", "Basic YTpi")
                .with_another("Authorization", bearer(ADMIN_KEY)),
            request.clone().with("Authorization", bearer("é")),
            request.clone().with("X-API-Key", "ключ"),
            request.clone().with("X-API-Key", "k".repeat(20_000)),
            request.clone().with("X-API-Key", format!("{ADMIN_KEY}\u{80}")),
            keyed
                .clone()
                .with("X-Project-ID", "default")
                .with_another("X-Project-ID", "default"),
            keyed.clone().with("X-Project-ID", "é"),
        ] {
            let answer = doubtful.answered();
            assert_eq!(
                answer.problem(),
                (400, "invalid_argument".to_owned()),
                "{} {answer:?}",
                request.path
            );
        }
        assert!(is_accepted(
            keyed.clone().with("Authorization", bearer(ADMIN_KEY)).answered().status
        ));
        assert!(is_accepted(keyed.with("Authorization", "Basic YTpi").answered().status));
        // A value that is not allowed in a header, or is longer than all headers may be.
        for value in ["a\0b", "a\u{1b}[2Jb", "a\u{7f}b"] {
            assert_eq!(refused(&request, "X-API-Key", value).0, [400], "{value:?}");
        }
        let long = "k".repeat(1 << 20);
        assert!(matches!(refused(&request, "X-API-Key", &long).0[..], [] | [431]));
    }
    for (at, key) in [
        "under_score",
        "das-hed",
        "UPPER",
        "a_b_c_d_e",
        "_",
        "-",
        "admin",
        "null",
        "\"\"",
        "default__x",
    ]
    .into_iter()
    .enumerate()
    {
        let source = address(100 + u8::try_from(at).unwrap());
        for request in entry_points(&broker) {
            for (name, value) in [("X-API-Key", key.to_owned()), ("Authorization", bearer(key))] {
                let answer = request.clone().with(name, value).sent_from(source).answered();
                assert_eq!(answer.problem(), (401, UNAUTHORIZED.to_owned()), "{key}");
                let challenge = answer.header("WWW-Authenticate").unwrap();
                assert!(challenge.starts_with("Bearer realm=\"mcp-broker\""), "{challenge}");
            }
        }
    }
}

#[test]
fn guesses_are_limited_and_reveal_nothing() {
    const TRIES: usize = 10;
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let (good, other) = (team.new_key_with_scope("member"), team.new_key_with_scope("member"));
    let id = id_of_key(&good);
    let ask = |key: &str, from: u8| {
        identity_request(&broker)
            .with("X-API-Key", key)
            .sent_from(address(from))
            .answered()
    };
    // A key that exists and one that does not, in a project that exists and in one that does not.
    let claims = [
        format!("team_{id}"),
        "team_nosuchkey".to_owned(),
        format!("nowhere_{id}"),
        "admin_tests".to_owned(),
    ];
    let mut answers = Vec::new();
    for (from, claim) in claims.iter().enumerate() {
        let from = u8::try_from(from + 1).unwrap();
        let answered: Vec<_> = (0..=TRIES).map(|n| ask(&format!("{claim}_{n}"), from)).collect();
        let (last, first) = answered.split_last().unwrap();
        assert_eq!(last.problem(), (429, "rate_limited".to_owned()), "{claim}");
        assert!((1..=60).contains(&last.header("Retry-After").unwrap().parse::<u32>().unwrap()));
        answers.push(first.iter().map(Response::without_date).collect::<Vec<_>>());
    }
    assert!(answers.iter().all(|of_one| *of_one == answers[0]), "{answers:#?}");
    assert!(answers[0].iter().all(|answer| *answer == answers[0][0]));
    // Valid keys are still accepted: many clients may share an address.
    for (key, from) in [
        (good.as_str(), 1),
        (&other, 1),
        (ADMIN_KEY, 4),
        (ADMIN_KEY, 1),
        (&good, 2),
    ] {
        assert_eq!(ask(key, from).status, 200);
        let answer = handshake(&broker)
            .with("X-API-Key", key)
            .sent_from(address(from))
            .answered();
        assert_eq!(answer.status, 101, "{answer:?}");
    }
    // The limit holds at every entry point, for that key and from that address.
    let guess = format!("team_{id}_0");
    let waits = |from: u8| {
        handshake(&broker)
            .with("X-API-Key", &guess)
            .sent_from(address(from))
            .answered()
            .status
    };
    assert_eq!((waits(1), waits(2)), (429, 401));
    eventually("the guesses are checked again", || {
        (ask(&guess, 1).status == 401).then_some(())
    });
}

#[test]
fn no_spelling_of_a_path_bypasses_authentication() {
    let broker = Broker::secured();
    let host = broker.address;
    for path in [
        "//api/v1/tree".to_owned(),
        "/API/V1/tree".to_owned(),
        "/%61pi/v1/tree".to_owned(),
        "/api%2fv1%2ftree".to_owned(),
        "/api/v1/tree/".to_owned(),
        "/api/v1//tree".to_owned(),
        "/./api/v1/tree".to_owned(),
        "/api/v1/projects/..%2ftree".to_owned(),
        "/health/../mcp".to_owned(),
        "/health/../api/v1/tree".to_owned(),
        "/health/%2e%2e/api/v1/tree".to_owned(),
        "/health;/../api/v1/tree".to_owned(),
        "/health/".to_owned(),
        "/health%00".to_owned(),
        "/health%23".to_owned(),
        "/health%3f".to_owned(),
        "//health".to_owned(),
        "/%2fhealth".to_owned(),
        "/%73ecurity/status".to_owned(),
        "/security/status#/health".to_owned(),
        "/security/status?/health".to_owned(),
        format!("http://{host}/api/v1/tree"),
        format!("http://{host}/security/status"),
        format!("http://{host}/health/../api/v1/tree"),
        "*".to_owned(),
    ] {
        for method in ["GET", "POST", "DELETE", "PATCH", "PUT", "HEAD", "TRACE", "get"] {
            let request = Request::get(host)
                .with_method(method)
                .with_path(&path)
                .with("Connection", "close");
            let (statuses, text) = send_raw(&broker, &request.bytes());
            assert_eq!(statuses, [401], "{method} {path}: {text}");
        }
    }
    // Public paths expose only what is public.
    for path in [
        "/.well-known/oauth-protected-resource/../../api/v1/tree",
        "/.well-known/oauth-protected-resource/%2e%2e/%2e%2e/api/v1/tree",
        "/.well-known/oauth-protected-resource-and-more",
    ] {
        assert_eq!(Request::get(host).with_path(path).answered().status, 404, "{path}");
    }
    for path in ["/health?x=/api/v1/tree", "/health#/api/v1/tree", "/?/api/v1/tree"] {
        let body = Request::get(host).with_path(path).answered().json();
        assert!(
            body.get("children").is_none() && body.get("projects").is_none(),
            "{path}: {body}"
        );
    }
    // No header of a proxy makes a path public.
    for (name, value) in [
        ("X-Original-URL", "/health"),
        ("X-Rewrite-URL", "/health"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-User", "admin"),
        ("X-HTTP-Method-Override", "OPTIONS"),
        ("X_API_Key", ADMIN_KEY),
        ("Cookie", ADMIN_KEY),
        ("Proxy-Authorization", ADMIN_KEY),
        ("Access-Control-Request-Method", "GET"),
    ] {
        assert_eq!(
            identity_request(&broker).with(name, value).answered().status,
            401,
            "{name}"
        );
    }
}

#[test]
fn each_request_of_a_connection_needs_its_own_key() {
    let broker = Broker::secured();
    let host = broker.address;
    let public = Request::get(host).with_path("/health").bytes();
    let bare = identity_request(&broker);
    let keyed = bare.clone().with("X-API-Key", ADMIN_KEY).bytes();
    let last = bare.clone().with("Connection", "close").bytes();
    let (answered, text) = send_raw(
        &broker,
        &[&public[..], &bare.bytes(), &keyed, &bare.bytes(), &public, &last].concat(),
    );
    assert_eq!(answered, [200, 401, 200, 401, 200, 401], "{text}");
    // A request in the body of another one is data.
    let hidden = [&keyed[..], &last].concat();
    for carrier in [
        bare.clone(),
        Request::get(host).with_path("/health"),
        Request::post(host, "").with_path("/mcp"),
    ] {
        let carrier = Request {
            body: hidden.clone(),
            ..carrier
        };
        let (answered, text) = send_raw(&broker, &carrier.bytes());
        assert!(answered.len() == 1 && !text.contains("operator"), "{text}");
    }
    for lengths in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 0\r\nContent-Length: 5",
        "Transfer-Encoding: xchunked",
    ] {
        for request in [
            Request::post(host, "").with_path("/api/v1/projects"),
            Request::post(host, "").with_path("/health"),
        ] {
            let head = format!(
                "{}{lengths}\r\n\r\n0\r\n\r\n",
                request.with("X-API-Key", ADMIN_KEY).head()
            );
            let (answered, text) = send_raw(&broker, &[head.as_bytes(), &keyed].concat());
            assert!(matches!(answered[..], [] | [400 | 501]), "{lengths:?}: {text}");
        }
    }
}

#[test]
fn an_upgrade_does_not_bypass_authentication() {
    let broker = Broker::secured();
    let whole = handshake(&broker);
    for path in [
        "/mcp",
        "/health",
        "/api/v1/tree",
        "/security/status",
        "/ws/",
        "//ws",
        "/%77s",
        "/ws/../ws",
    ] {
        for method in ["GET", "POST", "OPTIONS", "DELETE"] {
            let status = whole.clone().with_method(method).with_path(path).answered().status;
            assert!((400..500).contains(&status), "{method} {path}: {status}");
            let status = whole
                .clone()
                .with_method(method)
                .with_path(path)
                .with("X-API-Key", ADMIN_KEY)
                .answered()
                .status;
            assert!((400..500).contains(&status), "{method} {path} with a key: {status}");
        }
    }
    assert_eq!(whole.answered().problem(), (401, UNAUTHORIZED.to_owned()));
    // A connection whose upgrade was refused is not used further.
    let behind = identity_request(&broker).with("X-API-Key", ADMIN_KEY).bytes();
    let (answered, text) = send_raw(&broker, &[&whole.bytes()[..], &behind].concat());
    assert_eq!(answered, [401], "{text}");
    // Frames behind a refused handshake are discarded.
    let frame = masked_frame(0x81, br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    let (answered, text) = send_raw(&broker, &[&whole.bytes()[..], &frame].concat());
    assert!(answered == [401] && !text.contains("jsonrpc"), "{text}");
    for protocol in ["h2c", "TLS/1.0", "mcp"] {
        for (path, status) in [("/security/status", 401), ("/mcp", 401), ("/health", 200)] {
            let request = Request::get(broker.address).with_path(path).with("Upgrade", protocol);
            let request = request
                .with("Connection", "Upgrade, HTTP2-Settings")
                .with("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA");
            assert_eq!(request.answered().status, status, "{protocol} {path}");
        }
    }
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    assert!(matches!(send_raw(&broker, preface).0[..], [] | [400]));
}

#[test]
fn options_and_head_reveal_nothing_of_a_resource() {
    let broker = Broker::secured();
    for path in [
        "/mcp",
        "/security/status",
        "/api/v1/projects",
        "/api/v1/tree",
        "/api/v1/projects/default/keys",
    ] {
        let options = Request::get(broker.address)
            .with_method("OPTIONS")
            .with_path(path)
            .with("Connection", "close");
        let (answered, text) = send_raw(&broker, &options.bytes());
        assert!(matches!(answered[..], [204 | 404 | 405]), "{path}: {text}");
        let (_, with_key) = send_raw(&broker, &options.with("X-API-Key", ADMIN_KEY).bytes());
        // Each thread of a broker has an order of headers of its own.
        let undated = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.retain(|line| !line.starts_with("date:"));
            lines.sort_unstable();
            lines
        };
        assert_eq!(undated(&text), undated(&with_key), "{path}");
        let head = Request::get(broker.address)
            .with_method("HEAD")
            .with_path(path)
            .with("Connection", "close");
        let (answered, text) = send_raw(&broker, &head.bytes());
        assert!(answered == [401] && text.ends_with("\r\n\r\n"), "{path}: {text}");
    }
}

#[test]
fn a_key_that_is_revoked_while_the_body_is_read_has_no_effect() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let stolen = team.new_key_with_scope("admin");
    let wanted = json!({"scope": "admin"}).to_string();
    let rest = Request::post(broker.address, "")
        .with_path("/api/v1/projects/team/keys")
        .with("X-API-Key", &stolen);
    let modern = HttpAgent::modern_with(broker.address, json!({}), &[("X-API-Key", &stolen)]);
    let mcp = modern.call("rotate_project_keys", json!({"grace_period_seconds": 3600}));
    let legacy = initialize_request(broker.address, "2025-11-25", json!({})).with("X-API-Key", &stolen);
    let requests = [
        (rest.clone(), wanted.into_bytes()),
        (mcp.clone(), mcp.body.clone()),
        (legacy.clone(), legacy.body.clone()),
    ];
    let begun = requests.map(|(request, body)| {
        let reply = send_head_only(&request, body.len());
        // The request was authenticated with its first byte.
        reply.socket().write_all(&body[..1]).unwrap();
        (reply, body)
    });
    let keys = || team.rest("GET", "keys", &Value::Null).json()["keys"].take();
    eventually("the key has been used by all", || {
        let asked = broker.rest(&stolen, "GET", "/security/status", &Value::Null);
        (asked.status == 200).then_some(())
    });
    let revoked = team.rest("DELETE", &format!("keys/{}", id_of_key(&stolen)), &Value::Null);
    assert_eq!(revoked.status, 200, "{revoked:?}");
    let before = keys();
    for (reply, body) in begun {
        let mut socket = reply.socket();
        let _ = socket.write_all(&body[1..]);
        let answer = reply.into_response();
        assert_eq!(answer.problem(), (401, UNAUTHORIZED.to_owned()), "{answer:?}");
        assert!(answer.header("WWW-Authenticate").is_some());
    }
    assert_eq!(keys(), before, "the request made no key");
}

#[test]
fn a_rest_body_is_bounded_in_depth_and_size() {
    let broker = Broker::secured();
    let projects = Request::post(broker.address, "")
        .with_path("/api/v1/projects")
        .with("X-API-Key", ADMIN_KEY);
    let unknown = send_head_only(&projects.clone().without("X-API-Key"), 100);
    assert_eq!(
        unknown.into_response().status,
        401,
        "a caller without a key is refused at once"
    );
    let deep = |open: &str, close: &str| {
        let (open, close) = (open.repeat(10_000), close.repeat(10_000));
        format!(r#"{{"project_id": "x", "name": "x", "config": {open}1{close}}}"#)
    };
    let invalid = (400, "invalid_argument");
    for (body, expected) in [
        (deep("[", "]"), invalid),
        (deep(r#"{"a":"#, "}"), invalid),
        (
            format!(r#"{{"project_id": "x", "name": "{}"}}"#, "x".repeat(100_000)),
            (413, "payload_too_large"),
        ),
        (r#"["x", "x", null, [], null]"#.to_owned(), invalid),
        (
            r#"{"project_id": "x", "project_id": "y", "name": "x"}"#.to_owned(),
            invalid,
        ),
        (
            r#"{"project_id": "x", "name": "x", "scope": "operator"}"#.to_owned(),
            invalid,
        ),
        (
            r#"{"project_id": "x", "name": "x", "config": [true]}"#.to_owned(),
            invalid,
        ),
        (r#"{"project_id": "x\r\nX: y", "name": "x"}"#.to_owned(), invalid),
        (r#"{"project_id": "x", "name": "x\u001b[2J"}"#.to_owned(), invalid),
        (
            r#"{"project_id": "x", "name": "x", "tags": ["\r\n"]}"#.to_owned(),
            invalid,
        ),
        (r#"{"project_id": "admin", "name": "x"}"#.to_owned(), invalid),
        ("null".to_owned(), invalid),
        ("\u{0}".to_owned(), invalid),
        (String::new(), invalid),
    ] {
        let request = Request {
            body: body.clone().into_bytes(),
            ..projects.clone()
        };
        let answer = request.answered();
        assert_eq!(
            answer.problem(),
            (expected.0, expected.1.to_owned()),
            "{body:.80} {answer:?}"
        );
    }
    let listed = broker.rest(ADMIN_KEY, "GET", "/api/v1/projects", &Value::Null).json();
    assert_eq!(listed["projects"].as_array().unwrap().len(), 1, "{listed}");
}
