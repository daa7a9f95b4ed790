//! Bodies and answers of the REST API in flight take a bounded number of bytes, and leave room for other projects.

use std::{
    io::{ErrorKind, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use super::peek_at_once;
use crate::support::{ADMIN_KEY, Broker, Request, ResponseReader, Tenant, connect, eventually};

/// Bytes of the longest body.
const BODY_LEN_MAX: usize = 64 * 1024;

/// A REST request with the key of a project.
fn project_request(team: &Tenant<'_>, method: &str, path: &str, body: &Value) -> Request {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    Request::post(team.broker.address, body)
        .with_method(method)
        .with_path(&format!("/api/v1/projects/{}/{path}", team.id))
        .with("X-API-Key", team.key.as_str())
}

/// Whether bytes or the end have come on a connection.
fn is_answered(socket: &TcpStream) -> bool {
    !matches!(peek_at_once(socket, &mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// A body of nearly the largest length: a permission for another project.
fn long_grant() -> Value {
    let protocols: Vec<_> = (0..950).map(|at| format!("p{at:0>60}x")).collect();
    let grant = json!({"allowed_protocols": protocols});
    assert!((60_000..BODY_LEN_MAX).contains(&grant.to_string().len()));
    grant
}

#[test]
fn unfinished_bodies_wait_for_room_without_delaying_small_ones_and_other_projects() {
    let broker = Broker::secured_with(&["--max-payload-mb=1", "--inbound-buffer-mb=4"]);
    let [team, other] = ["team", "other"].map(|id| broker.project(id, &json!({})));
    // More than fit into half of 4 MiB, each with a body that never ends.
    let mut held: Vec<_> = (0..40)
        .map(|at| {
            let head = project_request(&team, "PUT", &format!("grants/other{at}"), &Value::Null).head();
            let mut socket = connect(broker.address);
            let head = format!("{head}Content-Length: {BODY_LEN_MAX}\r\n\r\n{}", " ".repeat(8 * 1024));
            socket.write_all(head.as_bytes()).unwrap();
            socket
        })
        .collect();
    // The broker has read all heads: a request on a later connection is answered.
    assert_eq!(team.rest("PUT", "grants/small", &json!({})).status, 200);
    let late = project_request(&team, "PUT", "grants/late", &long_grant()).sent();
    assert_eq!(team.rest("PUT", "grants/small", &json!({})).status, 200);
    assert_eq!(other.rest("PUT", "grants/late", &long_grant()).status, 200);
    // It is answered once others have left, or were refused as too slow.
    assert!(!is_answered(late.socket()) || held.iter().any(is_answered));
    held.clear();
    assert_eq!(late.into_response().status, 200);
}

/// Gives a project permissions for nearly a page.
fn grants_a_page(project: &Tenant<'_>) {
    for at in 0..7 {
        let granted = project.rest("PUT", &format!("grants/other{at}"), &long_grant());
        assert_eq!(granted.status, 200, "{granted:?}");
    }
}

/// Asks for a page on connections that read nothing. Each holds one page; a quarter of 8 MiB has room for five.
fn leaves_unread(page: &Request) -> Vec<TcpStream> {
    /// Pages on one connection, more than the operating system buffers.
    const PIPELINED: usize = 80;
    assert!(page.answered().body.len() > 300_000);
    let held = (0..8).map(|_| {
        let mut socket = connect(page.address);
        socket.write_all(&page.bytes().repeat(PIPELINED)).unwrap();
        socket
    });
    held.collect()
}

#[test]
fn metrics_wait_for_no_room_of_a_project() {
    let broker = Broker::secured_with(&["--max-payload-mb=1", "--outbound-buffer-mb=8"]);
    let team = broker.project("team", &json!({}));
    grants_a_page(&team);
    // What the administrator reads takes room of the default project, whose share is full then.
    let page = Request::get(broker.address)
        .with_path("/api/v1/projects/team/grants")
        .with("X-API-Key", ADMIN_KEY);
    let _held = leaves_unread(&page);
    eventually("the metrics come before an earlier page of the project", || {
        let late = page.sent();
        assert!(team.rest("GET", "grants", &Value::Null).status == 200);
        assert!(team.rest("GET", "grants", &Value::Null).status == 200);
        let metrics = broker.rest(ADMIN_KEY, "GET", "/metrics", &Value::Null);
        assert_eq!(metrics.status, 200, "{metrics:?}");
        (!is_answered(late.socket())).then_some(())
    });
}

#[test]
fn pages_that_are_not_read_hold_room() {
    let broker = Broker::secured_with(&["--max-payload-mb=1", "--outbound-buffer-mb=8"]);
    let [team, other] = ["team", "other"].map(|id| broker.project(id, &json!({})));
    for project in [&team, &other] {
        grants_a_page(project);
    }
    let page = project_request(&team, "GET", "grants", &Value::Null);
    let held = leaves_unread(&page);
    let late = eventually("the project has no room for another page", || {
        let late = page.sent();
        assert!(other.rest("GET", "grants", &Value::Null).status == 200);
        assert!(other.rest("GET", "grants", &Value::Null).status == 200);
        (!is_answered(late.socket())).then_some(late)
    });
    // A short answer does not wait.
    assert_eq!(team.rest("PUT", "grants/small", &json!({})).status, 200);
    // The room of connections that close goes to those that read.
    drop(held);
    assert_eq!(late.into_response().status, 200);
}

#[test]
fn a_public_page_that_is_not_read_holds_no_room_of_a_project() {
    let broker = Broker::secured_with(&["--max-payload-mb=1", "--outbound-buffer-mb=8"]);
    let team = broker.project("team", &json!({}));
    let document = Request::get(broker.address).with_path("/openapi.json");
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut socket = connect(broker.address);
        socket.write_all(&document.bytes().repeat(100)).unwrap();
        held.push(ResponseReader::from_socket(socket));
    }
    let granted = team.rest("PUT", "grants/other", &long_grant());
    assert_eq!(granted.status, 200, "{granted:?}");
    assert_eq!(team.rest("GET", "grants", &Value::Null).status, 200);
    // Each connection gets its answer.
    for reply in held {
        assert_eq!(reply.into_response().status, 200);
    }
}
