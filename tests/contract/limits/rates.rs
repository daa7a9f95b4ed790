//! Rates and connections: requests per caller, address and project, and the number of connections.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Instant,
};

use serde_json::{Value, json};

use crate::support::{
    ADMIN_KEY, Agent, Broker, FAST_TIMEOUTS, HttpAgent, Request, Response, WAIT_TIMEOUT, Wire, eventually, exchange,
    masked_frame, read_frame,
};

const RATE_LIMITED: i64 = -32000;

fn retry_after_ms(error: &Value) -> u64 {
    assert_eq!(error["code"], "rate_limited", "{error}");
    error["retry_after_ms"].as_u64().unwrap()
}

/// Sends pings until one is refused. Waits for each answer: requests beyond the limit are delayed.
fn exhaust(wire: &Wire) -> Value {
    let began = Instant::now();
    loop {
        if let Err(error) = wire.request("ping", Value::Null) {
            assert_eq!(error["code"], RATE_LIMITED, "{error}");
            return error;
        }
        assert!(began.elapsed() < WAIT_TIMEOUT, "no request is refused");
    }
}

/// Asks by REST until a request is refused.
fn exhaust_by_rest(broker: &Broker, key: &str) -> Response {
    eventually("a request is refused", || {
        let response = broker.rest(key, "GET", "/api/v1/projects", &Value::Null);
        (response.status != 200).then_some(response)
    })
}

fn expect_rate_limit_problem(response: &Response) {
    assert_eq!(response.status, 429, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    let problem = response.json();
    let wait_ms = retry_after_ms(&problem);
    assert_eq!(
        (&problem["status"], &problem["type"]),
        (&json!(429), &json!("about:blank"))
    );
    let seconds: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(seconds, wait_ms.div_ceil(1000).max(1));
}

#[test]
fn the_requests_of_a_key_are_limited() {
    let broker = Broker::secured_with(&["--rate-limit=60"]);
    let team = broker.project("team", &json!({}));
    let (key, other) = (team.new_key_with_scope("member"), team.new_key_with_scope("member"));
    let visitor = team.client_as(&key);
    let error = exhaust(&visitor.wire);
    assert!((1..=1000).contains(&retry_after_ms(&error["data"])), "{error}");
    // The limit belongs to the key, on every transport, and to no other key.
    let call = json!({"name": "list_sessions", "arguments": {}});
    let stateless = team.http_modern_as(&other);
    let limited = stateless.with("X-API-Key", &key);
    expect_rate_limit_problem(&limited.asks("tools/call", call.clone()).answered());
    expect_rate_limit_problem(&exhaust_by_rest(&broker, &key));
    stateless.calls("list_sessions", json!({}));
    team.client_as(&other).calls("list_sessions", json!({}));
    // After the wait requests are accepted again.
    eventually("a request is accepted again", || {
        let result = visitor.wire.request("tools/call", call.clone()).unwrap();
        let object = &result["structuredContent"];
        if result["isError"] == true {
            assert!((1..=1000).contains(&retry_after_ms(object)), "{object}");
            return None;
        }
        Some(())
    });
}

#[test]
fn the_requests_of_the_operator_are_limited() {
    let broker = Broker::secured_with(&["--rate-limit=30"]);
    expect_rate_limit_problem(&exhaust_by_rest(&broker, ADMIN_KEY));
}

#[test]
fn callers_without_a_key_are_limited_by_connection_or_address() {
    let broker = Broker::start_with(&["--rate-limit=60"]);
    let (one, two) = (broker.client(), broker.client());
    exhaust(&one.wire);
    exhaust(&two.wire);
    let request = Request::get(broker.address)
        .with_path("/api/v1/projects")
        .with("Connection", "close");
    expect_rate_limit_problem(&eventually("a request is refused", || {
        let response = request.answered();
        (response.status != 200).then_some(response)
    }));
    let elsewhere = exchange(&socket_from([127, 0, 0, 2], broker.address), &request.bytes());
    assert_eq!(elsewhere.status, 200, "{elsewhere:?}");
    // Public endpoints, which monitors ask, are not limited.
    for _ in 0..70 {
        assert_eq!(broker.get("/livez").status, 200);
    }
}

/// A socket with this source address.
fn socket_from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    socket.into()
}

#[test]
fn the_requests_of_a_project_are_limited_for_all_its_keys() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let other = broker.project("other", &json!({}));
    let (one, two) = (team.client(), team.client_as(&team.new_key_with_scope("member")));
    team.update(&json!({"config": {"rate_limit": 60}}));
    exhaust(&one.wire);
    exhaust(&two.wire);
    expect_rate_limit_problem(&exhaust_by_rest(&broker, &team.key));
    other.client().calls("list_sessions", json!({}));
    // The operator can lift the limit.
    let project = team.update(&json!({"config": {"rate_limit": 0}}));
    assert_eq!(project["config"]["rate_limit"], 0);
    for _ in 0..200 {
        two.wire.request("ping", Value::Null).unwrap();
    }
}

#[test]
fn each_request_of_a_batch_counts() {
    let broker = Broker::secured_with(&["--rate-limit=120"]);
    let team = broker.project("team", &json!({}));
    let batch = |len: usize| -> Value {
        let ping = |id| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        (0..len).map(ping).collect()
    };
    let heartbeats = |len: usize| -> Value {
        let params = json!({"name": "heartbeat", "arguments": {}});
        let call = |id| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        (0..len).map(call).collect()
    };
    let refused = |answers: &Value| {
        let answers = answers.as_array().unwrap();
        assert_eq!(answers.len(), 90);
        answers
            .iter()
            .filter(|answer| {
                let of_tool = &answer["result"]["structuredContent"]["code"];
                answer["error"]["code"] == RATE_LIMITED || *of_tool == json!("rate_limited")
            })
            .count()
    };
    let agent = Agent::legacy(
        team.wire_as(&team.new_key_with_scope("member")),
        "2025-03-26",
        &json!({}),
    );
    let counts = [(); 2].map(|()| {
        agent.wire.sends(&batch(90));
        refused(&agent.wire.awaits_frame("the answers", Value::is_array))
    });
    assert!(counts[0] == 0 && counts[1] > 40, "{counts:?}");
    // The first of them waits for a session.
    let agent = Agent::legacy(
        team.wire_as(&team.new_key_with_scope("member")),
        "2025-03-26",
        &json!({}),
    );
    let counts = [(); 2].map(|()| {
        agent.wire.sends(&heartbeats(90));
        refused(&agent.wire.awaits_frame("the answers", Value::is_array))
    });
    assert!(counts[0] == 0 && counts[1] > 40, "{counts:?}");
    let key = team.new_key_with_scope("member");
    let caller = HttpAgent::legacy_with(broker.address, "2025-03-26", json!({}), &[("X-API-Key", key.as_str())]);
    let counts = [(); 2].map(|()| refused(&caller.post(&batch(90)).answered().json()));
    assert!(counts[0] == 0 && counts[1] > 40, "{counts:?}");
}

#[test]
fn a_caller_over_its_limit_still_gets_pushes() {
    let broker = Broker::secured_with(&["--rate-limit=60", "--heartbeat-interval=100ms"]);
    let team = broker.project("team", &json!({}));
    let key = team.new_key_with_scope("member");
    let alice = team.agent("alice");
    let bob = team.push_agent_as(&key, "bob", &json!({"ack": "manual"}));
    exhaust(&bob.wire);
    let sent = alice.sends("hi").to(&bob);
    let pushed = bob.is_pushed(["hi"]);
    // Acknowledgements and heartbeats are not counted.
    bob.acknowledges(&pushed);
    alice.awaits_status(&sent.id, "acknowledged");
    let before = bob.wire.pings();
    eventually("the broker sends pings", || {
        (bob.wire.pings() > before + 2).then_some(())
    });
    exhaust(&bob.wire);
    bob.wire.sends_frame(0x88, &1000_u16.to_be_bytes());
    assert_eq!(bob.wire.awaits_close().code, Some(1000));
}

#[test]
fn a_caller_over_its_limit_is_not_taken_for_silent() {
    let broker = Broker::secured_with(&[&FAST_TIMEOUTS[..], &["--rate-limit=60"]].concat());
    let team = broker.project("team", &json!({}));
    let visitor = team.client_as(&team.new_key_with_scope("member"));
    exhaust(&visitor.wire);
    // Each is delayed by a quarter of a second: together longer than the silence that is allowed.
    let calls: Vec<_> = (0..12).map(|_| visitor.wire.asks("ping", Value::Null)).collect();
    for call in &calls {
        let _ = visitor.wire.answer_to(call);
    }
    assert!(visitor.wire.is_open());
}

#[test]
fn a_connection_over_its_limit_still_answers_ping_frames() {
    let broker = Broker::start_with(&["--rate-limit=60"]);
    let mut socket = broker.upgraded();
    exhaust(&broker.client().wire);
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let flood = masked_frame(0x81, request.as_bytes()).repeat(4);
    socket
        .write_all(&[flood, masked_frame(0x89, b"are you there")].concat())
        .unwrap();
    let mut frames = std::iter::repeat_with(|| read_frame(&mut socket));
    assert!(frames.by_ref().take(5).any(|payload| payload == b"are you there"));
}

#[test]
fn the_connections_of_an_address_are_limited() {
    let mut broker = Broker::start_with(&["--connections-per-address=3"]);
    let request = Request::get(broker.address).with_path("/livez").bytes();
    let is_served = |socket: &TcpStream| {
        let mut socket = socket.try_clone().unwrap();
        socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        let mut answer = [0; 12];
        let is_whole = socket.write_all(&request).and_then(|()| socket.read_exact(&mut answer));
        is_whole.is_ok() && &answer == b"HTTP/1.1 200"
    };
    // The connections of the start close after a while.
    let mut held = Vec::new();
    eventually("three connections are held", || {
        let socket = TcpStream::connect(broker.address).unwrap();
        if is_served(&socket) {
            held.push(socket);
        }
        (held.len() == 3).then_some(())
    });
    assert!(!is_served(&TcpStream::connect(broker.address).unwrap()));
    let elsewhere = socket_from([127, 0, 0, 2], broker.address);
    assert!(is_served(&elsewhere));
    for _ in 0..2 {
        held.pop();
        eventually("another connection is accepted", || {
            is_served(&TcpStream::connect(broker.address).unwrap()).then_some(())
        });
    }
    // The final check of the broker might be refused, so the test stops it here.
    broker.terminate();
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn the_connections_of_a_project_are_limited_by_its_sessions() {
    let broker = Broker::secured();
    let (team, other) = (broker.project("team", &json!({})), broker.project("other", &json!({})));
    let key = team.new_key_with_scope("member");
    // A refused upgrade ends its connection; an accepted one is held.
    let upgrade = |key: &str| broker.upgrade_on(broker.socket(), &[("X-API-Key", key)]);
    // Twice as many connections as sessions: an agent may come back before its old connection is known to be dead.
    team.update(&json!({"config": {"max_sessions": 1}}));
    let mut held = Vec::new();
    eventually("both connections are held", || {
        let (response, socket) = upgrade(&key);
        if response.status == 101 {
            held.push(socket);
        }
        (held.len() == 2).then_some(())
    });
    let (refused, _) = upgrade(&team.key);
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (503, &json!("unavailable")),
        "{refused:?}"
    );
    assert!(refused.header("retry-after").is_some());
    // A short request needs no permit, and other projects have their own.
    team.http_modern_as(&key).calls("list_sessions", json!({}));
    let others: Vec<_> = (0..5).map(|_| other.client()).collect();
    held.pop();
    eventually("another connection is accepted", || {
        let (response, socket) = upgrade(&team.key);
        (response.status == 101).then_some(socket)
    });
    for visitor in others {
        visitor.calls("list_sessions", json!({}));
    }
}

#[test]
fn a_long_answer_counts_as_several_requests() {
    let broker = Broker::secured_with(&["--rate-limit=60"]);
    let team = broker.project("team", &json!({}));
    let keys: Vec<_> = (0..3).map(|_| team.new_key_with_scope("member")).collect();
    let names = ["alice", "bob", "carol"];
    let [alice, bob, carol] = [0, 1, 2].map(|at| team.agent_as(&keys[at], names[at]));
    alice.sends(&"x".repeat(2_000_000)).to(&bob);
    bob.reads(json!({}));
    carol.reads(json!({}));
    // More than 30 times 64 KiB.
    let left = [&bob, &carol].map(|agent| {
        let allowed = (0..).take_while(|_| agent.wire.request("ping", Value::Null).is_ok());
        allowed.count()
    });
    assert!(left[0] + 25 < left[1], "{left:?}");
}

#[test]
fn a_message_that_is_expensive_to_check_counts_as_several_requests() {
    let broker = Broker::secured_with(&["--rate-limit=60"]);
    let team = broker.project("team", &json!({}));
    let items: Vec<_> = (0..700).map(|item| json!([item])).collect();
    let schemas = [
        ("listed", json!({"type": "array"})),
        ("compared", json!({"type": "array", "uniqueItems": true})),
        (
            "refused",
            json!({"type": "array", "uniqueItems": true, "minItems": 800}),
        ),
    ];
    // The same bytes under each schema, each by its own caller.
    let left = schemas.map(|(name, items_schema)| {
        let agent = team.agent_as(&team.new_key_with_scope("member"), name);
        let schema = json!({"type": "object", "properties": {"items": items_schema}});
        agent.calls(
            "register_protocol",
            json!({"name": name, "version": "1.0.0", "schema": schema}),
        );
        let message = json!({
            "recipient_id": name, "protocol_name": name, "protocol_version": "1.0.0", "payload": {"items": items},
        });
        if name == "refused" {
            agent.is_refused_as("payload_invalid", "send_message", message);
        } else {
            agent.calls("send_message", message);
        }
        let allowed = (0..).take_while(|_| agent.wire.request("ping", Value::Null).is_ok());
        allowed.count()
    });
    assert!(left[1] + 25 < left[0], "{left:?}");
    assert!(left[2] + 25 < left[0], "{left:?}");
}
