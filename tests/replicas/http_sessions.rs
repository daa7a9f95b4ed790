//! HTTP sessions (2025-11-25 and before) and tasks, behind a load balancer that sends each request to another replica.

use std::{
    io::{Read, Write},
    net::SocketAddr,
};

use serde_json::{Value, json};

use super::{
    cluster::BrokerCluster,
    support::{
        Broker, HttpAgent, Redis, Request, ResponseReader, TIMEOUTS_OFF, Tenant, connect, eventually,
        initialize_request,
    },
};

const SESSION: &str = "Mcp-Session-Id";
const INBOX: &str = "broker://inbox";

fn cluster_without_timeouts(len: usize, redis: &Redis) -> BrokerCluster {
    BrokerCluster::start_with(len, &redis.url(), &TIMEOUTS_OFF)
}

/// The same client, whose requests go to another replica.
fn at(address: SocketAddr, caller: &HttpAgent) -> HttpAgent {
    let mut elsewhere = caller.clone();
    elsewhere.address = address;
    elsewhere
}

/// One client per replica, all with one session that the first has opened.
fn caller_at_each_replica(cluster: &BrokerCluster, version: &str, capabilities: Value, name: &str) -> Vec<HttpAgent> {
    let caller = HttpAgent::legacy(cluster.replicas[0].address, version, capabilities).registered(name);
    let replicas = cluster.replicas.iter();
    replicas.map(|replica| at(replica.address, &caller)).collect()
}

fn texts(messages: &[Value]) -> Vec<&str> {
    let texts = messages
        .iter()
        .map(|message| message["payload"]["text"].as_str().unwrap());
    texts.collect()
}

#[test]
fn a_session_is_served_at_every_replica() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(3, &redis);
    let alice = cluster.replicas[1].agent("alice");
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let bob = caller_at_each_replica(&cluster, version, json!({}), version);
        // The stream, the subscription and the change of the inbox are requested at different replicas.
        let mut stream = bob[1].opens_stream();
        bob[2].request("resources/subscribe", json!({"uri": INBOX})).unwrap();
        alice.sends("hi").to(version);
        assert_eq!(
            stream.next_notification("notifications/resources/updated"),
            json!({"uri": INBOX})
        );
        assert_eq!(texts(&bob[2].reads(json!({"acknowledge": "immediate"}))), ["hi"]);
        // A call that waits at one replica is cancelled at another, and takes no message.
        let wait = json!({"name": "receive_messages", "arguments": {"wait_seconds": 100}});
        let wait = |id: &str, at: &HttpAgent| at.asks_as(&json!(id), "tools/call", wait.clone()).sent();
        let mut cancelled = wait("cancelled", &bob[1]);
        // The cancellation is known there once a later request of the session has been answered.
        bob[1].calls("heartbeat", json!({}));
        bob[2].cancels(&json!("cancelled"));
        cancelled.awaits_end();
        let mut waits = wait("waits", &bob[2]);
        alice.sends("ho").to(version);
        let read = waits.answer_to(&json!("waits")).unwrap();
        let messages = read["structuredContent"]["messages"].as_array().unwrap().clone();
        assert_eq!(texts(&messages), ["ho"]);
        // A DELETE at any replica ends the session at all of them.
        assert_eq!(bob[2].delete_request().answered().status, 204);
        stream.awaits_end();
        for bob in &bob {
            for request in [bob.asks("ping", json!({})), bob.stream_request(), bob.delete_request()] {
                assert_eq!(request.answered().status, 404, "{request:?}");
            }
        }
    }
}

#[test]
fn messages_are_pushed_to_a_stream_that_another_replica_forwards() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(3, &redis);
    let alice = cluster.replicas[2].agent("alice");
    let push = json!({"experimental": {"dev.mcp-broker/push": {"window": 2, "ack": "manual"}}});
    let bob = caller_at_each_replica(&cluster, "2025-11-25", push, "bob");
    let mut stream = bob[1].opens_stream();
    for round in 0..4 {
        let sent = alice.sends(&format!("{round}")).to("bob");
        let pushed = stream.next_notification("notifications/dev.mcp-broker/message");
        assert_eq!(pushed["message"]["message_id"], sent.id.as_str());
        // The acknowledgement goes to another replica.
        bob[2].notifies("notifications/dev.mcp-broker/ack", json!({"message_ids": [sent.id]}));
        alice.awaits_status(&sent.id, "acknowledged");
    }
    // A later reader at another replica takes over and continues after the last event that it has.
    let other = bob[2].opens_stream();
    stream.awaits_end();
    other.disconnects();
}

/// A client of 2024-11-05 whose POSTs go to the replicas in turn.
struct SseClient {
    stream: ResponseReader,
    path: String,
    replicas: Vec<SocketAddr>,
    last_id: usize,
}

impl SseClient {
    fn open(cluster: &BrokerCluster) -> Self {
        let replicas: Vec<_> = cluster.replicas.iter().map(|replica| replica.address).collect();
        let mut stream = Request::get(replicas[0]).with_path("/sse").sent().streams();
        let endpoint = stream.next_event().unwrap();
        assert_eq!(endpoint.kind.as_deref(), Some("endpoint"));
        let mut old = Self {
            stream,
            path: format!("/{}", endpoint.data),
            replicas,
            last_id: 0,
        };
        let params =
            json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
        old.request("initialize", params);
        old
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let frame = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        let replica = self.replicas[self.last_id % self.replicas.len()];
        let posted = Request::post(replica, frame.to_string())
            .with_path(&self.path)
            .answered();
        assert_eq!(posted.status, 202, "{posted:?}");
        self.stream.answer_to(&json!(self.last_id)).unwrap()
    }

    fn calls(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))["structuredContent"].take()
    }
}

#[test]
fn a_stream_of_2024_11_05_is_answered_when_any_replica_takes_the_posts() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(3, &redis);
    let alice = cluster.replicas[1].agent("alice");
    let mut old = SseClient::open(&cluster);
    old.calls("register_session", json!({"name": "old"}));
    for round in 0..4 {
        let text = format!("{round}");
        let sent = alice.sends(&text).to("old");
        let read = old.calls("receive_messages", json!({"acknowledge": "manual"}));
        assert_eq!(texts(read["messages"].as_array().unwrap()), [text]);
        old.calls("acknowledge_messages", json!({"message_ids": [sent.id]}));
        alice.awaits_status(&sent.id, "acknowledged");
    }
}

#[test]
fn a_client_of_a_killed_replica_resumes_its_name_at_another() {
    let redis = Redis::start();
    let mut cluster = cluster_without_timeouts(3, &redis);
    let alice = cluster.replicas[1].agent("alice");
    let bob = caller_at_each_replica(&cluster, "2025-11-25", json!({}), "bob");
    let mut stream = bob[1].opens_stream();
    let wait = json!({"name": "receive_messages", "arguments": {"wait_seconds": 100}});
    let mut waits = bob[2].asks("tools/call", wait).sent();
    bob[2].calls("heartbeat", json!({}));
    cluster.replicas[0].kill();
    // A forwarded stream ends with the replica that writes it.
    stream.awaits_end();
    waits.awaits_end();
    for bob in &bob[1..] {
        let refused = bob.asks("ping", json!({})).answered();
        assert_eq!(refused.status, 404, "{refused:?}");
        assert_eq!(refused.json()["id"], 1, "{refused:?}");
    }
    alice.sends("hi").to("bob");
    let again = HttpAgent::legacy(cluster.replicas[2].address, "2025-11-25", json!({})).registered("bob");
    assert_eq!(again.listed(), bob[0].listed());
    let again = at(cluster.replicas[1].address, &again);
    assert_eq!(texts(&again.reads(json!({}))), ["hi"]);
}

#[test]
fn a_replica_that_stops_ends_the_streams_that_it_forwards() {
    let redis = Redis::start();
    let mut cluster = cluster_without_timeouts(2, &redis);
    let bob = caller_at_each_replica(&cluster, "2025-11-25", json!({}), "bob");
    let mut stream = bob[1].opens_stream();
    cluster.restart(1);
    stream.awaits_end();
    // The session is still at its replica.
    let bob = at(cluster.replicas[1].address, &bob[0]);
    bob.opens_stream().disconnects();
    assert_eq!(bob.calls("heartbeat", json!({}))["status"], "active");
}

#[test]
fn an_unknown_or_foreign_session_id_is_not_found_at_any_replica() {
    let redis = Redis::start();
    let redis_url = format!("--redis-url={}", redis.url());
    let brokers = [(); 2].map(|()| Broker::secured_with(&["--storage=redis", &redis_url]));
    let [team, other] = ["team", "other"].map(|id| brokers[0].project(id, &json!({})));
    let knows = |tenant: &Tenant<'_>| {
        let key = tenant.key.as_str();
        let upgrade = || brokers[1].upgrade(&[("X-API-Key", key)]).status;
        eventually("the second knows the key", || (upgrade() == 101).then_some(()));
    };
    knows(&team);
    knows(&other);
    let key = ("X-API-Key", team.key.as_str());
    let bob = HttpAgent::legacy_with(brokers[0].address, "2025-11-25", json!({}), &[key]);
    let elsewhere = at(brokers[1].address, &bob);
    assert_eq!(elsewhere.asks("ping", json!({})).answered().status, 200);
    let unknown = |caller: &HttpAgent| {
        let refused = caller.asks("ping", json!({})).answered();
        assert_eq!(refused.status, 404, "{refused:?}");
        refused.body
    };
    let head = bob.stream_request().head();
    let id = head
        .lines()
        .find_map(|line| line.strip_prefix("Mcp-Session-Id: "))
        .unwrap();
    // Another key, another session of that replica, another replica, and an id that never existed.
    let strangers = elsewhere.with("X-API-Key", &other.key);
    let answer = unknown(&strangers);
    let replica = &id[..32];
    for id in [
        format!("{replica}{}", "0".repeat(32)),
        "0".repeat(64),
        format!("{}{}", "f".repeat(32), &id[32..]),
    ] {
        assert_eq!(unknown(&elsewhere.with(SESSION, &id)), answer, "{id}");
    }
    // A caller without a key cannot tell them apart.
    let refused = elsewhere.stream_request().without("X-API-Key").answered();
    assert_eq!(refused.status, 401);
    // A forwarded request is not forwarded again.
    assert_eq!(unknown(&elsewhere.with("Mcp-Broker-Forwarded", "1")), answer);
    // A request for a session that is being opened does not open another.
    let again = initialize_request(brokers[1].address, "2025-11-25", json!({}))
        .with("X-API-Key", &team.key)
        .with(SESSION, id);
    assert_eq!(again.answered().status, 400);
}

#[test]
fn a_revoked_key_ends_the_streams_forwarded_for_it() {
    let redis = Redis::start();
    let redis_url = format!("--redis-url={}", redis.url());
    let brokers = [(); 2].map(|()| Broker::secured_with(&["--storage=redis", &redis_url]));
    let team = brokers[0].project("team", &json!({}));
    let key = team.new_key_with_scope("member");
    eventually("the second knows the key", || {
        (brokers[1].upgrade(&[("X-API-Key", &key)]).status == 101).then_some(())
    });
    let bob = HttpAgent::legacy_with(brokers[0].address, "2025-11-25", json!({}), &[("X-API-Key", &key)]);
    let elsewhere = at(brokers[1].address, &bob);
    let mut stream = elsewhere.opens_stream();
    team.revoke_key(&key);
    stream.awaits_end();
    eventually("the key is refused everywhere", || {
        (elsewhere.asks("ping", json!({})).answered().status == 401).then_some(())
    });
}

#[test]
fn a_task_of_a_modern_client_is_found_at_every_replica() {
    let redis = Redis::start();
    let mut cluster = cluster_without_timeouts(3, &redis);
    let alice = cluster.replicas[2].agent("alice");
    let bob = HttpAgent::modern(
        cluster.replicas[0].address,
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}),
    );
    let bob = bob.registered("bob");
    let begins = || {
        let begun = bob.call("receive_messages", json!({"wait_seconds": 60})).sent();
        let task = { begun }.answer_to(&json!(1)).unwrap();
        assert_eq!(task["resultType"], "task", "{task}");
        task["taskId"].as_str().unwrap().to_owned()
    };
    let asks = |replica: &Broker, method: &str, task: &str| {
        let bob = at(replica.address, &bob);
        let request = bob.asks(method, json!({"taskId": task})).with("Mcp-Name", task);
        request.sent().answer_to(&json!(1))
    };
    let task = begins();
    for replica in &cluster.replicas {
        assert_eq!(asks(replica, "tasks/get", &task).unwrap()["status"], "working");
    }
    alice.sends("hi").to("bob");
    let found = eventually("the task is completed", || {
        let found = asks(&cluster.replicas[1], "tasks/get", &task).unwrap();
        (found["status"] == "completed").then_some(found)
    });
    let messages = &found["result"]["structuredContent"]["messages"];
    assert_eq!(texts(messages.as_array().unwrap()), ["hi"]);
    let task = begins();
    asks(&cluster.replicas[2], "tasks/cancel", &task).unwrap();
    assert_eq!(
        asks(&cluster.replicas[0], "tasks/get", &task).unwrap()["status"],
        "cancelled"
    );
    // The tasks of a killed replica are lost; callers retry until that is known.
    cluster.replicas[0].kill();
    let request = at(cluster.replicas[1].address, &bob).asks("tasks/get", json!({"taskId": task}));
    let refused = request.with("Mcp-Name", task).answered();
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
}

#[test]
fn a_large_body_with_expect_continue_is_forwarded() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(2, &redis);
    let bob = caller_at_each_replica(&cluster, "2025-11-25", json!({}), "bob");
    // curl sends a body of this length in the same way.
    let text = "x".repeat(2 * 1024 * 1024);
    let arguments = note_to("bob", &text);
    let request = bob[1]
        .call("send_message", arguments)
        .with("Expect", "100-continue")
        .with("Connection", "close");
    let mut socket = connect(request.address);
    socket.write_all(&request.bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let heads: Vec<_> = answer.matches("HTTP/1.1 ").collect();
    assert!(
        answer.starts_with("HTTP/1.1 100 ") && heads.len() == 2 && answer.contains("HTTP/1.1 200 "),
        "{answer}"
    );
    assert_eq!(texts(&bob[1].reads(json!({}))), [text]);
}

fn note_to(name: &str, text: &str) -> Value {
    json!({
        "recipient_id": name, "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": text},
    })
}
