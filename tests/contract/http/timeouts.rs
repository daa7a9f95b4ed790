//! Requests that come too slowly: heads, bodies of MCP and bodies of REST time out.
//!
//! Each timeout is a constant of ten seconds, so the cases wait side by side in one test.

use std::{
    io::{ErrorKind, Read, Write},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use super::send_head_only;
use crate::support::{Broker, Request, WAIT_TIMEOUT};

#[test]
fn heads_and_bodies_that_come_too_slowly_time_out() {
    let broker = Broker::start();
    thread::scope(|scope| {
        scope.spawn(|| unfinished_heads_time_out(&broker));
        scope.spawn(|| a_dripping_head_times_out(&broker));
        scope.spawn(|| unfinished_bodies_time_out(&broker));
        scope.spawn(|| an_unfinished_rest_body_times_out(&broker));
    });
}

#[test]
fn an_idle_connection_is_kept_longer_than_balancers_keep_one_and_as_long_as_is_set() {
    let (kept, closed) = (Broker::start(), Broker::start_with(&["--keep-alive=1s"]));
    let open = |broker: &Broker| {
        let mut socket = broker.socket();
        write!(socket, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        socket
    };
    let (mut kept, mut closed) = (open(&kept), open(&closed));
    let mut rest = Vec::new();
    closed.read_to_end(&mut rest).unwrap();
    // The default is in the table of settings; here it is longer than the other.
    kept.set_nonblocking(true).unwrap();
    rest.clear();
    assert_eq!(kept.read_to_end(&mut rest).unwrap_err().kind(), ErrorKind::WouldBlock);
}

fn unfinished_heads_time_out(broker: &Broker) {
    let began = Instant::now();
    let silent = broker.socket();
    let mut slow = broker.socket();
    slow.write_all(b"GET /ws HTTP/1.1\r\n").unwrap();
    for mut socket in [silent, slow] {
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    assert!(began.elapsed() < WAIT_TIMEOUT);
}

/// Single bytes from time to time do not keep a connection open.
fn a_dripping_head_times_out(broker: &Broker) {
    let mut socket = broker.socket();
    let _ = socket.set_read_timeout(Some(Duration::from_millis(300)));
    let began = Instant::now();
    let mut answer = [0; 512];
    loop {
        assert!(began.elapsed() < WAIT_TIMEOUT, "the connection is still open");
        let sent = socket.write_all(b"x");
        match socket.read(&mut answer) {
            Ok(0) => return,
            Err(_) if sent.is_err() => return,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            _ => {}
        }
    }
}

fn unfinished_bodies_time_out(broker: &Broker) {
    let alice = broker.agent("alice");
    let caller = broker.http_modern("modern");
    let request = caller.call("send_message", alice.sends("slow").arguments_to("alice"));
    let slow: Vec<_> = (0..20).map(|_| send_head_only(&request, request.body.len())).collect();
    // A client that sends a few bytes from time to time gets more time.
    let dripping = thread::spawn({
        let request = request.clone();
        move || {
            const DROPS: usize = 30;
            let mut reply = send_head_only(&request, request.body.len());
            for byte in &request.body[..DROPS] {
                let mut socket = reply.socket();
                socket.write_all(&[*byte]).unwrap();
                thread::sleep(Duration::from_millis(400));
            }
            let mut socket = reply.socket();
            socket.write_all(&request.body[DROPS..]).unwrap();
            reply.status()
        }
    });
    // Other clients are served meanwhile.
    for reply in slow {
        caller.calls("heartbeat", json!({}));
        assert_eq!(reply.into_response().status, 408);
    }
    assert_eq!(dripping.join().unwrap(), 200);
    alice.sees(["slow"]);
    alice.sees_nothing();
}

fn an_unfinished_rest_body_times_out(broker: &Broker) {
    let projects = Request::post(broker.address, "").with_path("/api/v1/projects");
    let slow = send_head_only(&projects, 100);
    assert_eq!(slow.into_response().problem(), (408, "timeout".to_owned()));
}
