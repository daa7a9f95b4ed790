//! SIGTERM: every client is told, and the process ends in time.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{Agent, Broker, HttpAgent, ResponseReader, WAIT_TIMEOUT, eventually};

#[test]
fn every_client_is_told_when_to_come_back() {
    let mut broker = Broker::start_with(&["--shutdown-grace=10s"]);
    let agents = broker.agents("agent", 4);
    let modern = broker.modern("modern");
    let wait = agents[0].begins_call("receive_messages", &json!({"wait_seconds": 100}));
    let watched = agents[1]
        .sends("hi")
        .with_argument("wait_for", "acknowledged")
        .begins_sending_to(&agents[2]);
    agents[0].syncs();
    agents[1].wire.syncs();
    let filter = json!({"notifications": {"resourceSubscriptions": ["broker://inbox"]}});
    let listen = modern.wire.asks("subscriptions/listen", modern.params(filter));
    modern
        .wire
        .next_notification("notifications/subscriptions/acknowledged");
    let told = Instant::now();
    broker.terminate();
    // An open subscription ends with its result (2026-07-28, subscriptions).
    let ended = modern.wire.answer_to(&listen).unwrap();
    assert_eq!(ended["resultType"], "complete");
    assert_eq!(ended["_meta"]["io.modelcontextprotocol/subscriptionId"], listen);
    // Waiting calls are answered with the current status.
    let waited = agents[0].wire.answer_to(&wait).unwrap();
    assert_eq!(waited["structuredContent"]["code"], "unavailable", "{waited}");
    assert!(waited["structuredContent"]["retry_after_ms"].is_u64(), "{waited}");
    assert_eq!(agents[1].finishes_call("send_message", &watched)["status"], "queued");
    let mut hints = Vec::new();
    for agent in agents.iter().chain([&modern]) {
        let reason = agent.wire.closes_with(1012);
        let digits: String = reason.chars().filter(char::is_ascii_digit).collect();
        let hint: u64 = digits
            .parse()
            .unwrap_or_else(|_| panic!("no hint when to retry: {reason}"));
        assert!((1..60_000).contains(&hint), "{reason}");
        hints.push(hint);
    }
    assert!(
        hints.iter().any(|hint| *hint != hints[0]),
        "all clients would come back at once: {hints:?}"
    );
    assert_eq!(broker.wait_for_exit().code(), Some(0));
    assert!(told.elapsed() < Duration::from_secs(10));
}

#[test]
fn calls_accepted_before_the_stop_are_answered() {
    let mut broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let calls: Vec<_> = (0..50)
        .map(|at| alice.sends(&at.to_string()).begins_sending_to(&bob))
        .collect();
    alice.finishes_call("send_message", &calls[49]);
    broker.terminate();
    for call in &calls[..49] {
        assert_eq!(alice.finishes_call("send_message", call)["status"], "queued");
    }
    alice.wire.closes_with(1012);
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn a_batch_is_answered_completely() {
    let mut broker = Broker::start_with(&["--shutdown-grace=20s"]);
    let batch = json!([
        {"jsonrpc": "2.0", "id": "p", "method": "ping"},
        {"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": {
            "name": "receive_messages", "arguments": {"wait_seconds": 100},
        }},
    ]);
    let agent = Agent::legacy(broker.wire(), "2025-03-26", &json!({})).registered("agent");
    agent.wire.sends(&batch);
    agent.wire.syncs();
    let caller = HttpAgent::legacy(broker.address, "2025-03-26", json!({})).registered("caller");
    let whole = caller.post(&batch).with("Accept", "application/json").sent();
    eventually("the batch has been read", || caller.request("ping", json!({})).ok());
    broker.terminate();
    for answers in [
        agent.wire.awaits_frame("the answers", Value::is_array),
        whole.into_response().json(),
    ] {
        let is_wait = |answer: &&Value| answer["id"] == "w";
        let wait = answers
            .as_array()
            .unwrap()
            .iter()
            .find(is_wait)
            .expect("an answer to each");
        assert_eq!(wait["result"]["structuredContent"]["code"], "unavailable", "{answers}");
        assert_eq!(answers.as_array().unwrap().len(), 2, "{answers}");
    }
    assert!(broker.wait_for_exit().success());
}

#[test]
fn a_call_whose_body_arrives_after_the_stop_does_not_wait() {
    let mut broker = Broker::start_with(&["--shutdown-grace=60s", "--workers=1"]);
    let callers = [broker.http_modern("modern"), broker.http_legacy("legacy")];
    let begin = |caller: &HttpAgent| {
        let request = caller.call("receive_messages", json!({"wait_seconds": 100})).bytes();
        let (last, first) = request.split_last().unwrap();
        let mut socket = broker.socket();
        socket.write_all(first).unwrap();
        (socket, *last)
    };
    let begun = callers.each_ref().map(begin);
    // With one worker, this answer proves that both heads have been read.
    assert_eq!(broker.get("/livez").status, 200);
    broker.terminate();
    eventually("the broker stops", || {
        broker.log().contains("shutting down").then_some(())
    });
    for (mut socket, last) in begun {
        socket.write_all(&[last]).unwrap();
        let result = ResponseReader::from_socket(socket).answer_to(&json!(1)).unwrap();
        assert_eq!(result["structuredContent"]["code"], "unavailable", "{result}");
    }
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn a_draining_broker_is_alive_not_ready_and_refuses_new_clients() {
    let mut broker = Broker::start_with(&["--shutdown-grace=20s"]);
    // A client that does not answer the close frame keeps the drain going for a while.
    let stubborn = broker.upgraded();
    let observer = broker.socket();
    broker.terminate();
    eventually("the broker is not ready", || {
        (broker.get("/readyz").status == 503).then_some(())
    });
    assert_eq!(broker.get("/livez").status, 200);
    assert_eq!(broker.get("/health").json()["status"], "unhealthy");
    let refused = broker.upgrade(&[]);
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    drop((stubborn, observer));
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn no_client_can_delay_the_process_beyond_its_grace_period() {
    let mut broker = Broker::start_with(&["--shutdown-grace=3s"]);
    let stubborn = broker.upgraded();
    let silent = broker.socket();
    let agent = broker.agent("agent");
    let told = Instant::now();
    broker.terminate();
    agent.wire.closes_with(1012);
    assert_eq!(broker.wait_for_exit().code(), Some(0));
    // The rest is the delay of a busy machine.
    let took = told.elapsed();
    assert!(took < Duration::from_secs(3 + 3), "{took:?}");
    drop((stubborn, silent));
}

#[test]
fn an_idle_broker_ends_at_once() {
    let mut broker = Broker::start();
    let told = Instant::now();
    broker.terminate();
    assert_eq!(broker.wait_for_exit().code(), Some(0));
    assert!(told.elapsed() < WAIT_TIMEOUT / 2);
}
