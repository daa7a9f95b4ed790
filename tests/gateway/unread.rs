//! Results of backends that their clients do not read.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
};

use serde_json::json;
use socket2::{Domain, Socket, Type};

use super::{
    harness::{Calls, Plan},
    support::{HttpAgent, Request, eventually},
};

const MIB: u64 = 1024 * 1024;

/// Sends a request and reads nothing. The system keeps little of the answer.
fn send_unread(address: SocketAddr, request: &Request) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut socket = TcpStream::from(socket);
    socket.write_all(&request.bytes()).unwrap();
    socket
}

#[test]
fn results_over_http_that_are_not_read_are_bounded_and_the_calls_beyond_are_told() {
    const UNREAD: usize = 8;
    /// As much as the project may hold.
    const BYTES: u64 = 4 * MIB;
    let gateway = Plan::new()
        .backend_with("fake", &[], "call_timeout = \"20s\"")
        .flag("--outbound-buffer-mb=16")
        .start();
    let client = gateway.legacy();
    client.gets("fake__echo", json!({}));
    let before = gateway.rss_kib();
    let callers = [
        gateway.modern_http(),
        HttpAgent::legacy(gateway.address, "2025-11-25", json!({})),
    ];
    let held: Vec<_> = (0..UNREAD)
        .map(|at| {
            let request = callers[at % 2].call("fake__big", json!({"bytes": BYTES}));
            send_unread(gateway.address, &request)
        })
        .collect();
    // The first call, and those that are held.
    let mut begun = 1 + UNREAD;
    // It may be answered before the others.
    let error = eventually("a call beyond them has no room", || {
        begun += 1;
        let mut result = client.result_of("fake__big", json!({"bytes": BYTES})).unwrap();
        (result["isError"] == true).then(|| result["structuredContent"].take())
    });
    assert_eq!(
        (&error["code"], &error["detail"]["retryable"]),
        (&json!("unavailable"), &json!(false)),
        "it was carried out: {error}"
    );
    let grown = gateway.peak_kib().saturating_sub(before);
    assert!(grown < 96 * 1024, "the broker grew by {grown} KiB");
    drop(held);
    eventually("there is room again", || {
        begun += 1;
        let result = client.result_of("fake__big", json!({"bytes": BYTES})).unwrap();
        (result["isError"] != true).then_some(())
    });
    // How many of the held answers had room depends on how much of them the kernel takes.
    eventually(
        "each call is counted once, and the one without room as cancelled",
        || {
            let metrics = gateway.get("/metrics").body;
            let counted = |outcome: &str| -> usize {
                let lines = metrics
                    .lines()
                    .filter(|line| line.starts_with("mcp_broker_backend_calls_total"));
                let counts = lines
                    .filter(|line| line.contains(outcome))
                    .filter_map(|line| line.rsplit(' ').next());
                counts.map(|count| count.parse::<usize>().unwrap()).sum()
            };
            (counted("") == begun && counted("outcome=\"cancelled\"") > 0).then_some(())
        },
    );
}

#[test]
fn results_that_are_read_wait_for_room() {
    let gateway = Plan::new().backend("fake", &[]).flag("--outbound-buffer-mb=8").start();
    // A quarter of the budget has room for one of them at a time.
    let clients: Vec<_> = (0..6).map(|_| gateway.modern_http()).collect();
    let sent: Vec<_> = clients
        .iter()
        .map(|client| client.call("fake__big", json!({"bytes": 3 * MIB / 2})).sent())
        .collect();
    for mut answer in sent {
        let result = answer.answer_to(&json!(1)).unwrap();
        assert_ne!(result["isError"], true, "{result}");
    }
}
