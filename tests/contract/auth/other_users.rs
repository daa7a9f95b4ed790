//! A broker without keys serves the user that runs it, and no page of another site.

use std::{net::SocketAddr, os::unix::process::CommandExt, process::Command};

use serde_json::json;

use super::{entry_points, handshake, identity_request};
use crate::support::{ADMIN_KEY, Broker, Request, initialize_request};

/// A user that no broker runs as.
const NOBODY: u32 = 65_534;

/// The status with which another user of the machine is answered. None where this process may not become another user.
fn status_for_other_user(address: SocketAddr, request: &str) -> Option<u16> {
    let (host, port) = (address.ip(), address.port());
    let script = format!("exec 3<>/dev/tcp/{host}/{port}; printf '{request}' >&3; head -n 1 <&3");
    let output = Command::new("bash").args(["-c", &script]).uid(NOBODY).output().ok()?;
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest[..3].parse().ok());
    Some(status.unwrap_or_else(|| panic!("{request}: {output:?}")))
}

/// A request for each way in, with this header.
fn requests(header: &str) -> [String; 4] {
    let head = |line: &str| format!("{line} HTTP/1.1\\r\\nHost: localhost\\r\\n{header}");
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#;
    let post = "Content-Type: application/json\\r\\nAccept: application/json, text/event-stream\\r\\n";
    let upgrade = "Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n";
    [
        format!("{}\\r\\n", head("GET /api/v1/sessions")),
        format!("{}\\r\\n", head("GET /metrics")),
        format!(
            "{}{post}Content-Length: {}\\r\\n\\r\\n{body}",
            head("POST /mcp"),
            body.len()
        ),
        format!("{}{upgrade}\\r\\n", head("GET /ws")),
    ]
}

#[test]
fn another_user_of_the_machine_needs_a_key_or_the_consent_of_the_operator() {
    let refused = [403, 403, 403, 403];
    for host in ["127.0.0.1", "::1"] {
        let broker = Broker::start_with(&["--host", host]);
        for (request, status) in requests("").iter().zip(refused) {
            let Some(answered) = status_for_other_user(broker.address, request) else {
                return;
            };
            assert_eq!(answered, status, "{request}");
        }
        // What says nothing of anyone stays public.
        let health = "GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n";
        assert_eq!(status_for_other_user(broker.address, health), Some(200));
    }
    let served = [200, 200, 200, 101];
    let open = Broker::start_with(&["--allow-anonymous=true"]);
    let keyed = Broker::with_admin_key();
    let key = format!("X-API-Key: {ADMIN_KEY}\\r\\n");
    for (broker, header) in [(&open, ""), (&keyed, key.as_str())] {
        for (request, status) in requests(header).iter().zip(served) {
            assert_eq!(
                status_for_other_user(broker.address, request),
                Some(status),
                "{request}"
            );
        }
    }
}

#[test]
fn a_page_of_another_site_reaches_no_entry_point() {
    let broker = Broker::start();
    for site in ["cross-site", "same-site"] {
        for mode in ["navigate", "no-cors", "websocket"] {
            for request in entry_points(&broker) {
                let request = request.with("Sec-Fetch-Site", site).with("Sec-Fetch-Mode", mode);
                let refused = request.with("Sec-Fetch-Dest", "document").answered();
                assert_eq!(refused.problem(), (403, "forbidden".to_owned()), "{site} {mode}");
            }
        }
        // A link leads to a page of the broker; a frame, a form or an image of the other site does not.
        for path in ["/dashboard", "/desk"] {
            let asked = |method: &str, dest: &str| {
                let request = Request::get(broker.address).with_path(path).with_method(method);
                let request = request.with("Sec-Fetch-Site", site).with("Sec-Fetch-Mode", "navigate");
                request.with("Sec-Fetch-Dest", dest).answered().status
            };
            assert_eq!(asked("GET", "document"), 200, "{path} {site}");
            for (method, dest) in [
                ("POST", "document"),
                ("GET", "iframe"),
                ("GET", "embed"),
                ("GET", "image"),
            ] {
                assert_eq!(asked(method, dest), 403, "{method} {path} {site} {dest}");
            }
        }
    }
    // Programs say nothing of a site, and the broker's own pages say the same origin.
    for site in ["same-origin", "none"] {
        assert_eq!(
            identity_request(&broker).with("Sec-Fetch-Site", site).answered().status,
            200
        );
    }
    assert_eq!(handshake(&broker).answered().status, 101);
    // A site that the operator allows says its origin.
    let origin = "https://ops.example";
    let broker = Broker::start_with(&["--cors-origins", origin]);
    let request = initialize_request(broker.address, "2025-11-25", json!({}));
    let request = request.with("Origin", origin).with("Sec-Fetch-Site", "cross-site");
    assert_eq!(request.answered().status, 200);
}
