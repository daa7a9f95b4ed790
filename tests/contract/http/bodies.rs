//! Bodies of HTTP requests that are too large, not JSON, or framed ambiguously.

use std::{
    io::{Read, Write},
    net::Shutdown,
    time::Duration,
};

use serde_json::json;

use super::{open_session, send_head_only, unregistered_client};
use crate::support::{Broker, Request, ResponseReader, connect, initialize_request};

#[test]
fn foreign_origins_and_hosts_are_refused_before_the_body_is_read() {
    let broker = Broker::start_with(&[
        "--cors-origins=https://ops.example",
        "--allowed-hosts=localhost,127.0.0.1",
    ]);
    let post = unregistered_client(&broker).asks("server/discover", json!({}));
    let get = open_session(&broker, "2025-11-25").stream_request();
    for (name, value) in [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Origin", ""),
        ("Origin", "https://ops.example.evil.example"),
        ("Origin", "http://localhost:1"),
        ("Host", "evil.example"),
        ("Host", "localhost.evil.example"),
        ("Host", ""),
    ] {
        let response = send_head_only(&post.clone().with(name, value), 1_000_000).into_response();
        assert_eq!(response.status, 403, "{name}: {value}");
        for request in [
            post.clone(),
            get.clone(),
            get.clone().with_method("DELETE"),
            get.clone().with_method("OPTIONS"),
        ] {
            assert_eq!(request.with(name, value).answered().status, 403, "{name}: {value}");
        }
    }
    for (name, value) in [
        ("Origin", "https://ops.example"),
        ("Origin", format!("http://{}", broker.address).as_str()),
        ("Host", "localhost:8000"),
    ] {
        assert_eq!(post.clone().with(name, value).answered().status, 200, "{name}: {value}");
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let broker = Broker::start_with(&["--max-payload-mb=1"]);
    let post = unregistered_client(&broker).asks("server/discover", json!({}));
    let before = broker.rss_kib();
    for len in [2 << 20, 1 << 40, usize::MAX / 2] {
        let response = send_head_only(&post, len).into_response();
        assert_eq!(response.refusal(), (413, -32600), "{len}");
    }
    // The length of a chunked body is unknown in advance.
    for _ in 0..4 {
        let mut socket = connect(broker.address);
        socket.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        let head = format!("{}Transfer-Encoding: chunked\r\n\r\n", post.head());
        socket.write_all(head.as_bytes()).unwrap();
        let chunk = [b"10000\r\n".to_vec(), vec![b' '; 0x10000], b"\r\n".to_vec()].concat();
        let mut sent = 0;
        // The broker stops reading it at some point, and does not keep what it has read.
        while sent < 64 << 20 && socket.write_all(&chunk).is_ok() {
            sent += chunk.len();
        }
        assert!(sent < 64 << 20, "the broker accepted everything");
        if let Some(response) = ResponseReader::from_socket(socket).into_response_if_complete() {
            assert_eq!(response.refusal(), (413, -32600));
        }
    }
    let grown = broker.rss_kib().saturating_sub(before);
    assert!(grown < 30_000, "{grown} KiB");
    assert_eq!(post.answered().status, 200);
}

#[test]
fn a_chunked_body_just_above_the_limit_is_refused() {
    let broker = Broker::start_with(&["--max-payload-mb=1"]);
    let post = unregistered_client(&broker).asks("server/discover", json!({}));
    let mut socket = connect(broker.address);
    let head = format!("{}Transfer-Encoding: chunked\r\n\r\n", post.head());
    socket.write_all(head.as_bytes()).unwrap();
    // As many bytes as are accepted, and then one byte at a time until an answer comes.
    let len = (1 << 20) + (64 << 10);
    socket.write_all(format!("{len:x}\r\n").as_bytes()).unwrap();
    socket.write_all(&vec![b' '; len]).unwrap();
    socket.write_all(b"\r\n1\r\n \r\n").unwrap();
    let response = ResponseReader::from_socket(socket).into_response();
    assert_eq!(response.refusal(), (413, -32600));
}

#[test]
fn a_body_as_large_as_the_limit_is_accepted() {
    let broker = Broker::start_with(&["--max-payload-mb=1"]);
    let alice = broker.agent("alice");
    for caller in [broker.http_modern("modern"), broker.http_legacy("legacy")] {
        let text = "x".repeat((1 << 20) - 200);
        let request = caller.call("send_message", alice.sends(&text).arguments_to("alice"));
        assert_eq!(request.sent().answer_to(&json!(1)).unwrap()["isError"], false);
        assert_eq!(alice.reads(json!({"acknowledge": "immediate"})).len(), 1);
        // A client with `Expect: 100-continue` is told to continue.
        let mut socket = connect(broker.address);
        let head = format!(
            "{}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            request.head(),
            request.body.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut interim = [0; 25];
        socket.read_exact(&mut interim).unwrap();
        assert_eq!(interim, *b"HTTP/1.1 100 Continue\r\n\r\n");
        socket.write_all(&request.body).unwrap();
        assert_eq!(ResponseReader::from_socket(socket).into_response().status, 200);
        assert_eq!(alice.reads(json!({"acknowledge": "immediate"})).len(), 1);
    }
}

#[test]
fn a_body_that_is_not_json_is_refused() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let frame = |params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    for caller in [broker.http_modern("modern"), broker.http_legacy("legacy")] {
        let request = caller.call("heartbeat", json!({}));
        let whole = String::from_utf8(request.body.clone()).unwrap();
        let mut bodies: Vec<Vec<u8>> = [
            "",
            " ",
            "nonsense",
            "{",
            "[",
            "}",
            "[1,]",
            "{\"jsonrpc\"}",
            "\u{feff}{}",
            "\0",
            "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"",
            "{'jsonrpc': '2.0'}",
            "NaN",
        ]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect();
        bodies.push(whole.as_bytes()[..whole.len() - 1].to_vec());
        bodies.push(format!("{whole}{whole}").into_bytes());
        bodies.push(format!("{whole}x").into_bytes());
        bodies.push(b"\"\xff\xfe\"".to_vec());
        bodies.push(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\xc3\"}".to_vec());
        bodies.push(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xed\xa0\x80\"}".to_vec());
        for depth in [200, 10_000, 400_000] {
            bodies.push("[".repeat(depth).into_bytes());
            bodies.push(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).into_bytes());
            bodies.push(frame(&format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))).into_bytes());
        }
        for body in bodies {
            let mut bad = request.clone();
            bad.body = body;
            let shown = String::from_utf8_lossy(&bad.body[..bad.body.len().min(60)]).into_owned();
            let response = bad.answered();
            assert_eq!(response.refusal(), (400, -32700), "{shown}");
        }
        for body in [
            "1",
            "\"text\"",
            "null",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            r#"{"id":1,"method":"ping"}"#,
        ] {
            let mut bad = request.clone();
            bad.body = body.as_bytes().to_vec();
            assert_eq!(bad.refused(), (400, -32600), "{body}");
        }
        // The error is in the arguments, which only the tool parses.
        let arguments = alice.sends("x").arguments_to("alice").to_string().replace("\"x\"", "x");
        let mut bad = caller.call("send_message", json!({}));
        bad.body = String::from_utf8(bad.body)
            .unwrap()
            .replace("\"arguments\":{", &format!("\"arguments\":{{\"payload\":{arguments},"))
            .into_bytes();
        assert_eq!(bad.refused(), (400, -32700));
    }
    alice.sees_nothing();
}

#[test]
fn unsupported_content_types_are_refused() {
    let broker = Broker::start();
    for request in [
        unregistered_client(&broker).asks("server/discover", json!({})),
        open_session(&broker, "2025-11-25").asks("tools/list", json!({})),
        initialize_request(broker.address, "2025-11-25", json!({})),
    ] {
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/json",
            "application/jsonp",
            "application/json2",
            "",
            "application/xml, application/json",
        ] {
            let response = request.clone().with("Content-Type", kind).answered();
            assert_eq!(response.status, 415, "{kind}");
        }
        assert_eq!(request.clone().without("Content-Type").answered().status, 415);
        for accept in [
            "text/html",
            "image/*",
            "application/xml;q=0.9",
            "text/html, application/jsonx",
        ] {
            let response = request.clone().with("Accept", accept).answered();
            assert_eq!(response.status, 406, "{accept}");
        }
        assert_eq!(request.answered().status, 200);
    }
}

#[test]
fn requests_with_ambiguous_framing_are_refused() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let caller = broker.http_modern("modern");
    let call = caller.call("send_message", alice.sends("smuggled").arguments_to("alice"));
    let outer = caller.call("heartbeat", json!({}));
    let head = outer.head();
    let body = String::from_utf8(outer.body.clone()).unwrap();
    let len = body.len();
    for lines in [
        format!("Content-Length: {len}\r\nTransfer-Encoding: chunked"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {len}"),
        "Content-Length: 0\r\nTransfer-Encoding: chunked".to_owned(),
        format!("Content-Length: {len}\r\nContent-Length: {}", len + 1),
        format!("Content-Length: {len}, {len}"),
        format!("Content-Length: +{len}"),
        format!("Content-Length: -{len}"),
        format!("Content-Length: 0x{len:x}"),
        "Content-Length: 99999999999999999999999".to_owned(),
        "Transfer-Encoding: chunked, identity".to_owned(),
        "Transfer-Encoding: xchunked".to_owned(),
        "Transfer-Encoding: gzip".to_owned(),
        format!("Content-Length : {len}"),
        "Transfer-Encoding : chunked".to_owned(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity".to_owned(),
        format!("Content-Length: {len}\r\n Folded: x"),
        format!("Content-Length: {len}\0"),
    ] {
        // Followed by bytes that another reader would take for a second request.
        let bytes = [format!("{head}{lines}\r\n\r\n{body}").as_bytes(), &call.bytes()].concat();
        let mut socket = connect(broker.address);
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 501"),
            "{lines:?}: {answer}"
        );
        assert_eq!(
            answer.matches("HTTP/1.1").count().min(2),
            usize::from(!answer.is_empty()),
            "{lines:?}: {answer}"
        );
    }
    alice.sees_nothing();
}

#[test]
fn the_body_of_a_refused_request_is_not_parsed_as_a_request() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let caller = broker.http_modern("modern");
    let hidden = caller
        .call("send_message", alice.sends("smuggled").arguments_to("alice"))
        .bytes();
    let ping = caller.call("heartbeat", json!({}));
    let carrier = |request: Request| Request {
        body: hidden.clone(),
        ..request
    };
    for (request, status) in [
        (carrier(ping.clone()).with("Content-Type", "text/plain"), 415),
        (carrier(ping.clone()).with("Accept", "text/html"), 400),
        (carrier(ping.clone()).with("Origin", "https://evil.example"), 403),
        (carrier(ping.clone()).with_method("PUT"), 405),
        (carrier(caller.stream_request()), 405),
        (carrier(caller.delete_request()), 405),
        (carrier(ping.clone()).with_path("/elsewhere"), 404),
    ] {
        let mut socket = connect(broker.address);
        let last = ping.clone().with("Connection", "close");
        let _ = socket.write_all(&[request.bytes(), last.bytes()].concat());
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let statuses: Vec<_> = answer
            .match_indices("HTTP/1.1 ")
            .map(|(at, _)| &answer[at + 9..at + 12])
            .collect();
        // The request behind it is answered, or the connection is closed before.
        let expected = status.to_string();
        assert!(!statuses.is_empty() && statuses.len() <= 2, "{statuses:?}");
        assert!(
            statuses[0] == expected && statuses.get(1).is_none_or(|second| *second == "200"),
            "{statuses:?} {expected:?} {answer}"
        );
    }
    alice.sees_nothing();
}
