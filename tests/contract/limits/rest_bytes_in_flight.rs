//! Bodies and answers of REST that are under way take a bounded number of bytes, and leave room for other projects.

use std::{
    io::{ErrorKind, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::support::{Broker, Reply, Request, Tenant, connect, eventually};

/// Bytes of the longest body.
const BODY_LEN_MAX: usize = 64 * 1024;

/// A request of REST with the key of a project.
fn asked(team: &Tenant<'_>, method: &str, path: &str, body: &Value) -> Request {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    Request::post(team.broker.address, body)
        .by(method)
        .at(&format!("/api/v1/projects/{}/{path}", team.id))
        .with("X-API-Key", team.key.as_str())
}

/// Whether something came on a connection, or its end.
fn is_answered(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let peeked = socket.peek(&mut [0]);
    socket.set_nonblocking(false).unwrap();
    !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// A body that is as long as may be, in a permission for another project.
fn long_grant() -> Value {
    let protocols: Vec<_> = (0..950).map(|at| format!("p{at:0>60}x")).collect();
    let grant = json!({"allowed_protocols": protocols});
    assert!((60_000..BODY_LEN_MAX).contains(&grant.to_string().len()));
    grant
}

#[test]
fn unfinished_bodies_wait_for_room_and_small_ones_and_other_projects_do_not() {
    let broker = Broker::secured_with(&["--max-payload-mb=1", "--inbound-buffer-mb=4"]);
    let [team, other] = ["team", "other"].map(|id| broker.project(id, &json!({})));
    // More than fit into the half of 4 MiB, each with a body that does not come to its end.
    let mut held: Vec<_> = (0..40)
        .map(|at| {
            let head = asked(&team, "PUT", &format!("grants/other{at}"), &Value::Null).head();
            let mut socket = connect(broker.address);
            let head = format!("{head}Content-Length: {BODY_LEN_MAX}\r\n\r\n{}", " ".repeat(8 * 1024));
            socket.write_all(head.as_bytes()).unwrap();
            socket
        })
        .collect();
    // The broker has taken up all of them: a request on a later connection is answered.
    assert_eq!(team.rest("PUT", "grants/small", &json!({})).status, 200);
    let late = asked(&team, "PUT", "grants/late", &long_grant()).sent();
    assert_eq!(team.rest("PUT", "grants/small", &json!({})).status, 200);
    assert_eq!(other.rest("PUT", "grants/late", &long_grant()).status, 200);
    // It is answered once others have left, or were told that they are too slow.
    assert!(!is_answered(late.socket()) || held.iter().any(is_answered));
    held.clear();
    assert_eq!(late.whole().status, 200);
}

#[test]
fn pages_that_are_not_read_hold_room_until_they_are() {
    /// Pages of one connection that the operating system has no room for.
    const PIPELINED: usize = 40;
    let broker = Broker::secured_with(&["--max-payload-mb=1", "--outbound-buffer-mb=8"]);
    let [team, other] = ["team", "other"].map(|id| broker.project(id, &json!({})));
    for project in [&team, &other] {
        for at in 0..7 {
            let granted = project.rest("PUT", &format!("grants/other{at}"), &long_grant());
            assert_eq!(granted.status, 200, "{granted:?}");
        }
    }
    let page = asked(&team, "GET", "grants", &Value::Null);
    assert!(page.answered().body.len() > 300_000);
    // Each of them holds a page; a quarter of 8 MiB has room for five.
    let held: Vec<_> = (0..8)
        .map(|_| {
            let mut socket = connect(broker.address);
            socket.write_all(&page.bytes().repeat(PIPELINED)).unwrap();
            socket
        })
        .collect();
    let late = eventually("the project has no room for another page", || {
        let late = page.sent();
        assert!(other.rest("GET", "grants", &Value::Null).status == 200);
        assert!(other.rest("GET", "grants", &Value::Null).status == 200);
        (!is_answered(late.socket())).then_some(late)
    });
    // What is short waits for nothing.
    assert_eq!(team.rest("PUT", "grants/small", &json!({})).status, 200);
    // The room of those that leave is for those that read.
    drop(held);
    assert_eq!(late.whole().status, 200);
}

#[test]
fn a_page_for_everybody_that_is_not_read_holds_room_of_nobody_else() {
    let broker = Broker::secured_with(&["--max-payload-mb=1", "--outbound-buffer-mb=8"]);
    let team = broker.project("team", &json!({}));
    let document = Request::get(broker.address).at("/openapi.json");
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut socket = connect(broker.address);
        socket.write_all(&document.bytes().repeat(100)).unwrap();
        held.push(Reply::on(socket));
    }
    let granted = team.rest("PUT", "grants/other", &long_grant());
    assert_eq!(granted.status, 200, "{granted:?}");
    assert_eq!(team.rest("GET", "grants", &Value::Null).status, 200);
    // Each reads what it asked for.
    for reply in held {
        assert_eq!(reply.whole().status, 200);
    }
}
