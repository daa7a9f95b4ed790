//! What is with Redis and not answered, when its sender takes it back and when the replica stops.

use serde_json::json;

use crate::{
    cluster::BrokerCluster,
    support::{Agent, Broker, Caller, Proxy, Redis, Reply, TIMELESS, eventually, texts},
};

/// One replica whose Redis answers when the test wants it to, and one that is as fast as ever.
struct DelayedRedis {
    proxy: Proxy,
    slow: Broker,
    quick: BrokerCluster,
    _redis: Redis,
}

impl DelayedRedis {
    fn new(deadline: &str) -> Self {
        let redis = Redis::start();
        let quick = BrokerCluster::start_with(1, &redis.url(), &TIMELESS);
        let proxy = Proxy::to(redis.address);
        // What one thread has answered came after what it had read before.
        let flags = ["--workers=1", "--storage-deadline", deadline, "--shutdown-grace=60s"];
        let slow = Broker::replica(&format!("redis://{}", proxy.address), &[&TIMELESS[..], &flags].concat());
        Self {
            proxy,
            slow,
            quick,
            _redis: redis,
        }
    }

    fn callers(&self) -> [Caller; 2] {
        [self.slow.stateless("modern"), self.slow.resumable("legacy")]
    }

    /// Everything that was asked has been read.
    fn await_requests_read(&self) {
        self.slow.visitor().wire.catches_up();
    }
}

fn begin_send(caller: &Caller, text: &str) -> Reply {
    let message = json!({
        "recipient_id": "bob", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": text},
    });
    caller.call("send_message", message).sent()
}

/// Reads these, in whatever order, and nothing else.
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
fn nobody_is_answered_what_it_has_cancelled() {
    let held = DelayedRedis::new("60s");
    let bob = held.quick.replicas[0].agent("bob");
    let alice = held.slow.agent("alice");
    let carol = held.slow.resumable("carol");
    alice.sends("first").to("bob");
    held.proxy.silence();
    let calls = [
        alice.sends("plain").off_to("bob"),
        alice.sends("watched").and("wait_for", "acknowledged").off_to("bob"),
        alice.sends("keyed").with("idempotency_key", "k").off_to("bob"),
        alice.sends("all").off_to_everyone(),
    ];
    let kept = alice.sends("kept").off_to("bob");
    let mut stream = begin_send(&carol, "from carol");
    held.await_requests_read();
    for call in &calls {
        alice.wire.cancels(call);
    }
    alice.wire.catches_up();
    carol.cancels(&json!(1));
    held.proxy.open();
    assert_eq!(alice.returns("send_message", &kept)["status"], "queued");
    // It is sent all the same, and acknowledged, as one of them wanted to hear.
    expect_messages(
        &bob,
        ["first", "plain", "watched", "keyed", "all", "kept", "from carol"],
    );
    for call in &calls {
        assert_eq!(alice.wire.answer_so_far(call), None);
    }
    stream.is_over();
}

#[test]
fn what_is_under_way_when_the_replica_stops_is_answered() {
    let mut held = DelayedRedis::new("60s");
    let bob = held.quick.replicas[0].agent("bob");
    let alice = held.slow.agent("alice");
    let callers = held.callers();
    alice.sends("first").to("bob");
    held.proxy.silence();
    let plain = alice.sends("plain").off_to("bob");
    let watched = alice.sends("watched").and("wait_for", "acknowledged").off_to("bob");
    let newcomer = held.slow.visitor();
    let registration = newcomer.begins("register_session", &json!({"name": "carol"}));
    let mut replies = callers.each_ref().map(|caller| begin_send(caller, &caller.name));
    held.await_requests_read();
    held.slow.is_told_to_stop();
    eventually("it is about to stop", || {
        held.slow.log().contains("shutting down").then_some(())
    });
    held.proxy.open();
    for call in [&plain, &watched] {
        assert_eq!(alice.returns("send_message", call)["status"], "queued");
    }
    assert_eq!(newcomer.returns("register_session", &registration)["name"], "carol");
    for agent in [&alice, &newcomer] {
        agent.wire.is_closed_with(1012);
    }
    for reply in &mut replies {
        let result = reply.answer_to(&json!(1)).unwrap();
        assert_eq!(result["structuredContent"]["status"], "queued", "{result}");
    }
    assert_eq!(held.slow.ends().code(), Some(0));
    expect_messages(&bob, ["first", "plain", "watched", "modern", "legacy"]);
}

#[test]
fn a_replica_stops_though_redis_says_nothing() {
    let mut held = DelayedRedis::new("500ms");
    let bob = held.quick.replicas[0].agent("bob");
    let alice = held.slow.agent("alice");
    alice.sends("first").to("bob");
    held.proxy.silence();
    let call = alice.sends("lost?").off_to("bob");
    alice.wire.catches_up();
    held.slow.is_told_to_stop();
    // It has not been accepted, as far as anybody knows.
    let result = alice.wire.answer_to(&call).unwrap();
    assert_eq!(result["structuredContent"]["code"], "unavailable", "{result}");
    alice.wire.is_closed_with(1012);
    assert_eq!(held.slow.ends().code(), Some(0));
    expect_messages(&bob, ["first"]);
}
