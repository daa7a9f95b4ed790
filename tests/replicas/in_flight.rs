//! Operations in flight at Redis when the sender cancels them or the replica stops.

use serde_json::{Value, json};

use super::{
    cluster::BrokerCluster,
    support::{Agent, Broker, HttpAgent, Proxy, Redis, ResponseReader, TIMEOUTS_OFF, eventually, texts},
};

/// One replica behind a proxy that delays Redis, and a fast one.
struct DelayedRedis {
    proxy: Proxy,
    slow: Broker,
    quick: BrokerCluster,
    _redis: Redis,
}

impl DelayedRedis {
    fn new(deadline: &str) -> Self {
        let redis = Redis::start();
        let quick = BrokerCluster::start_with(1, &redis.url(), &TIMEOUTS_OFF);
        let proxy = Proxy::to(redis.address);
        // With one worker, an answer proves that earlier requests have been read.
        let flags = ["--workers=1", "--storage-deadline", deadline, "--shutdown-grace=60s"];
        let slow = Broker::replica(
            &format!("redis://{}", proxy.address),
            &[&TIMEOUTS_OFF[..], &flags].concat(),
        );
        Self {
            proxy,
            slow,
            quick,
            _redis: redis,
        }
    }

    fn callers(&self) -> [HttpAgent; 2] {
        [self.slow.http_modern("modern"), self.slow.http_legacy("legacy")]
    }

    /// Returns when the replica has read every request.
    fn await_requests_read(&self) {
        self.slow.client().wire.syncs();
    }
}

fn begin_send(caller: &HttpAgent, text: &str) -> ResponseReader {
    let message = json!({
        "recipient_id": "bob", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": text},
    });
    caller.call("send_message", message).sent()
}

/// Asserts that exactly these messages arrive, in any order.
fn expect_messages<const N: usize>(agent: &Agent, mut expected: [&str; N]) {
    let mut read = Vec::new();
    while read.len() < N {
        let messages = agent.reads(json!({"wait_seconds": 20, "acknowledge": "immediate"}));
        assert!(!messages.is_empty(), "read only {:?}", texts(&read));
        read.extend(messages);
    }
    let mut read = texts(&read);
    read.sort_unstable();
    expected.sort_unstable();
    assert_eq!(read, expected);
    agent.sees_nothing();
}

#[test]
fn a_cancelled_request_is_not_answered() {
    let held = DelayedRedis::new("60s");
    let bob = held.quick.replicas[0].agent("bob");
    let alice = held.slow.agent("alice");
    let carol = held.slow.http_legacy("carol");
    alice.sends("first").to("bob");
    held.proxy.silence();
    let calls = [
        alice.sends("plain").begins_sending_to("bob"),
        alice
            .sends("watched")
            .with_argument("wait_for", "acknowledged")
            .begins_sending_to("bob"),
        alice
            .sends("keyed")
            .with("idempotency_key", "k")
            .begins_sending_to("bob"),
        alice.sends("all").begins_broadcast(),
    ];
    let kept = alice.sends("kept").begins_sending_to("bob");
    let mut stream = begin_send(&carol, "from carol");
    held.await_requests_read();
    for call in &calls {
        alice.wire.cancels(call);
    }
    alice.wire.syncs();
    carol.cancels(&json!(1));
    held.proxy.restore();
    assert_eq!(alice.finishes_call("send_message", &kept)["status"], "queued");
    // The message is sent although its call was cancelled, and its delivery is tracked.
    expect_messages(
        &bob,
        ["first", "plain", "watched", "keyed", "all", "kept", "from carol"],
    );
    for call in &calls {
        assert_eq!(alice.wire.answer_so_far(call), None);
    }
    stream.awaits_end();
}

#[test]
fn requests_in_flight_when_the_replica_stops_are_answered() {
    let mut held = DelayedRedis::new("60s");
    let bob = held.quick.replicas[0].agent("bob");
    let alice = held.slow.agent("alice");
    let callers = held.callers();
    alice.sends("first").to("bob");
    held.proxy.silence();
    let plain = alice.sends("plain").begins_sending_to("bob");
    let watched = alice
        .sends("watched")
        .with_argument("wait_for", "acknowledged")
        .begins_sending_to("bob");
    let newcomer = held.slow.client();
    let registration = newcomer.begins_call("register_session", &json!({"name": "carol"}));
    let mut replies = callers.each_ref().map(|caller| begin_send(caller, &caller.name));
    held.await_requests_read();
    held.slow.terminate();
    eventually("the replica is stopping", || {
        held.slow.log().contains("shutting down").then_some(())
    });
    held.proxy.restore();
    for call in [&plain, &watched] {
        assert_eq!(alice.finishes_call("send_message", call)["status"], "queued");
    }
    assert_eq!(
        newcomer.finishes_call("register_session", &registration)["name"],
        "carol"
    );
    for agent in [&alice, &newcomer] {
        agent.wire.closes_with(1012);
    }
    for reply in &mut replies {
        let result = reply.answer_to(&json!(1)).unwrap();
        assert_eq!(result["structuredContent"]["status"], "queued", "{result}");
    }
    assert_eq!(held.slow.wait_for_exit().code(), Some(0));
    expect_messages(&bob, ["first", "plain", "watched", "modern", "legacy"]);
}

#[test]
fn calls_that_would_wait_for_a_status_or_a_message_are_answered_when_the_broker_stops() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address);
    let url = format!("--redis-url=redis://{}", proxy.address);
    let flags = [
        "--storage=redis",
        &url,
        "--workers=1",
        "--storage-deadline=60s",
        "--shutdown-grace=60s",
    ];
    let mut broker = Broker::secured_with(&[&TIMEOUTS_OFF[..], &flags].concat());
    let [here, there] = broker.two_projects();
    let (_bob, _carol) = (there.agent("bob"), here.agent("carol"));
    let (alice, dora) = (here.agent("alice"), here.agent("dora"));
    let http_agents = |name: &str| {
        [
            here.http_modern_as(&here.key).registered(&format!("modern {name}")),
            here.http_legacy_as(&here.key).registered(&format!("legacy {name}")),
        ]
    };
    let targets = ["carol", "bob@there"];
    let sends = targets.map(|target| ["delivered", "acknowledged"].map(|goal| (target, goal)));
    let sends = sends.as_flattened();
    let senders: Vec<_> = (0..sends.len())
        .map(|at| http_agents(&format!("sender {at}")))
        .collect();
    let readers = http_agents("reader");
    proxy.silence();
    let mut calls = Vec::new();
    let mut responses = Vec::new();
    for ((target, goal), senders) in sends.iter().zip(&senders) {
        // Longer than the time limit of the test.
        let message = alice.sends(goal).with_argument("timeout_seconds", 100);
        let message = message.with_argument("wait_for", *goal).arguments_to(*target);
        calls.push(alice.begins_call("send_message", &message));
        responses.extend(
            senders
                .each_ref()
                .map(|sender| sender.call("send_message", message.clone()).sent()),
        );
    }
    let receive = json!({"wait_seconds": 100});
    let receiving = dora.begins_call("receive_messages", &receive);
    let mut receiving_over_http = readers.map(|reader| reader.call("receive_messages", receive.clone()).sent());
    alice.wire.syncs();
    dora.wire.syncs();
    // A busy worker may let the requests of a project wait for its share.
    eventually("every request over HTTP has begun", || {
        let stats = broker.rest(&here.key, "GET", "/api/v1/stats?replica=self", &Value::Null);
        let open = stats.json()["connections"]["http"].as_u64().unwrap();
        (open as usize == responses.len() + receiving_over_http.len()).then_some(())
    });
    broker.terminate();
    eventually("the broker is stopping", || {
        broker.log().contains("shutting down").then_some(())
    });
    proxy.restore();
    for call in &calls {
        assert_eq!(alice.finishes_call("send_message", call)["status"], "queued");
    }
    for response in &mut responses {
        let result = response.answer_to(&json!(1)).unwrap();
        assert_eq!(result["structuredContent"]["status"], "queued", "{result}");
    }
    let mut received = vec![dora.wire.answer_to(&receiving).unwrap()];
    received.extend(
        receiving_over_http
            .iter_mut()
            .map(|response| response.answer_to(&json!(1)).unwrap()),
    );
    for result in received {
        assert_eq!(result["structuredContent"]["code"], "unavailable", "{result}");
    }
    for agent in [&alice, &dora] {
        agent.wire.closes_with(1012);
    }
    assert_eq!(broker.wait_for_exit().code(), Some(0));
}

#[test]
fn a_request_behind_a_registration_is_answered_when_the_replica_stops() {
    let mut held = DelayedRedis::new("60s");
    let newcomer = HttpAgent::legacy(held.slow.address, "2025-11-25", json!({}));
    held.proxy.silence();
    let mut registering = newcomer.call("register_session", json!({"name": "carol"})).sent();
    held.await_requests_read();
    let heartbeat = json!({"name": "heartbeat", "arguments": {}});
    let mut behind = newcomer.asks_as(&json!(2), "tools/call", heartbeat).sent();
    held.await_requests_read();
    held.slow.terminate();
    eventually("the replica is stopping", || {
        held.slow.log().contains("shutting down").then_some(())
    });
    held.proxy.restore();
    let registered = registering.answer_to(&json!(1)).unwrap();
    assert_eq!(registered["structuredContent"]["name"], "carol", "{registered}");
    let result = behind.answer_to(&json!(2)).unwrap();
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(held.slow.wait_for_exit().code(), Some(0));
}

#[test]
fn a_replica_stops_although_redis_does_not_answer() {
    let mut held = DelayedRedis::new("500ms");
    let bob = held.quick.replicas[0].agent("bob");
    let alice = held.slow.agent("alice");
    alice.sends("first").to("bob");
    held.proxy.silence();
    let call = alice.sends("lost?").begins_sending_to("bob");
    alice.wire.syncs();
    held.slow.terminate();
    // The outcome of the message is unknown.
    let result = alice.wire.answer_to(&call).unwrap();
    assert_eq!(result["structuredContent"]["code"], "unavailable", "{result}");
    alice.wire.closes_with(1012);
    assert_eq!(held.slow.wait_for_exit().code(), Some(0));
    expect_messages(&bob, ["first"]);
}
