//! What the port refuses: bad lines, other clients' ids, a taken port, too many connections.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use serde_json::json;
use socket2::{Domain, Socket, Type};

use super::program::{Broker, Program, WAIT_TIMEOUT};
use test_client::process::RunningServer;

#[test]
fn a_bad_line_is_answered_and_the_connection_stays() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server("alice");
    for (line, expected) in [
        ("{\n".to_owned(), "Invalid message format"),
        (
            format!("\"{}\"\n", "x".repeat(1024 * 1024)),
            "the line is longer than 1 MiB",
        ),
    ] {
        alice.write(&line);
        assert_eq!(alice.next("error"), json!({"error": expected}));
    }
    alice.say("response", &json!({"requestId": "q", "response": "me"}));
    assert_eq!(
        alice.next("error")["error"],
        "this type of client does not send this message"
    );
    // The program shows no error, so the reason comes as the answer.
    alice.ask("q", "", "low");
    let refused = alice.next("response");
    assert_eq!(refused["requestId"], "q");
    let why = refused["response"].as_str().unwrap();
    assert!(why.contains("the question was not asked"), "{refused}");
    alice.has_got_nothing();
}

#[test]
fn a_connection_speaks_for_the_client_that_it_registered() {
    let broker = Broker::start(&[]);
    let mut early = Program::connect(broker.port, "early", "cli");
    early.say("heartbeat", &json!({}));
    assert_eq!(early.next("error"), json!({"error": "register first"}));
    let mut alice = broker.server("alice");
    alice.id = "bob".to_owned();
    alice.ask("q", "As bob?", "low");
    assert_eq!(
        alice.next("error"),
        json!({"error": "this connection is registered as another client"})
    );
}

/// A port that the system gives to no other program: one socket has it, and another one listens there.
fn taken_port() -> (Socket, Socket) {
    let bound = |address: SocketAddr| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&address.into()).unwrap();
        socket
    };
    let kept = bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let taken = bound(kept.local_addr().unwrap().as_socket().unwrap());
    taken.listen(1).unwrap();
    (kept, taken)
}

#[test]
fn a_taken_port_is_one_warning_and_the_broker_serves_it_once_it_is_free() {
    let (kept, taken) = taken_port();
    let address = kept.local_addr().unwrap().as_socket().unwrap();
    let broker = RunningServer::broker(&["--rubberduck-port", &address.port().to_string()]);
    assert!(!broker.announced.contains("rubberduck programs are served at"));
    drop(taken);
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(began.elapsed() < WAIT_TIMEOUT, "the port is free and not served");
        thread::yield_now();
    }
    Program::register(address, "alice", "mcp-server").has_got_nothing();
    drop(kept);
    let log = broker.stop();
    let warnings = log
        .lines()
        .filter(|line| line.contains("rubberduck programs are not served"));
    assert_eq!(warnings.count(), 1, "{log}");
    assert!(log.contains("another program listens there"), "{log}");
}

#[test]
fn without_the_setting_there_is_no_port() {
    for settings in [&[][..], &["--rubberduck-port", "off"]] {
        let broker = RunningServer::broker(settings);
        assert!(!broker.stop().contains("rubberduck"));
    }
}

#[test]
fn at_most_64_connections_are_served() {
    let broker = Broker::start(&[]);
    let served: Vec<_> = (0..64).map(|number| broker.console(&number.to_string())).collect();
    let mut refused = Program::connect(broker.port, "more", "cli");
    let why = refused.next("error")["error"].as_str().unwrap().to_owned();
    assert!(why.contains("at most 64 connections"), "{why}");
    refused.is_closed();
    drop(served);
}

#[test]
fn a_project_that_does_not_exist_refuses_the_start() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-broker"));
    command.env_clear().args([
        "serve",
        "--port=0",
        "--rubberduck-port=0",
        "--rubberduck-project=missing",
    ]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && said.contains("rubberduck_project = missing"),
        "{said}"
    );
}

/// A user that no broker runs as.
const NOBODY: u32 = 65_534;

#[test]
fn another_user_is_refused_unless_the_loopback_interface_is_trusted() {
    for (settings, expected) in [
        (&[][..], "this port serves programs of the user that runs the broker"),
        (&["--rubberduck-trust-loopback", "true"], "registered"),
    ] {
        let broker = Broker::start(settings);
        let register = r#"{"id":"1","type":"register","clientId":"other","clientType":"cli","timestamp":1,"data":{}}"#;
        let port = broker.port.port();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo '{register}' >&3; head -n 1 <&3");
        let started = Command::new("bash").args(["-c", &script]).uid(NOBODY).output();
        // Only root may become another user.
        let Ok(output) = started else { return };
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(answer.contains(expected), "{settings:?}: {answer}");
    }
}
