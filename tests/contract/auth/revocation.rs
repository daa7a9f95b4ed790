//! The end of a key closes every connection, stream and call that was authenticated with it, and no other.
//!
//! Heartbeats play no part here: they are an hour apart.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    Agent, Broker, HttpAgent, Request, ResponseReader, TIMEOUTS_OFF, Tenant, WAIT_TIMEOUT, eventually, id_of_key,
    masked_frame,
};

const UNAUTHORIZED: u16 = 4005;

fn timeless() -> Broker {
    Broker::secured_with(&TIMEOUTS_OFF)
}

/// Every kind of long-lived connection, all authenticated with one key.
struct KeyHolders {
    session: Agent,
    modern: Agent,
    visitor: Agent,
    waiting: Agent,
    streams: Vec<(&'static str, ResponseReader)>,
    legacy: HttpAgent,
}

impl KeyHolders {
    fn connect(team: &Tenant<'_>, key: &str, name: &str) -> Self {
        let named = |what: &str| format!("{name}-{what}");
        let waiting = team.agent_as(key, &named("waiting"));
        waiting.begins_call("receive_messages", &json!({"wait_seconds": 100}));
        let stateless = team.http_modern_as(key).registered(&named("stateless"));
        let legacy = team.http_legacy_as(key).registered(&named("legacy"));
        let wait = json!({"wait_seconds": 100});
        let events = "text/event-stream, application/json";
        let streams = vec![
            ("listen", stateless.subscribes_as(&json!("l"))),
            ("stream", legacy.opens_stream()),
            (
                "poll",
                team.http_modern_as(key)
                    .registered(&named("poll"))
                    .call("receive_messages", wait.clone())
                    .sent(),
            ),
            (
                "events",
                stateless
                    .call("receive_messages", wait.clone())
                    .with("Accept", events)
                    .sent()
                    .streams(),
            ),
            (
                "2024-11-05",
                Request::get(team.broker.address)
                    .with("X-API-Key", key)
                    .sent()
                    .streams(),
            ),
            ("legacy poll", legacy.call("receive_messages", wait).sent()),
        ];
        let holders = Self {
            session: team.agent_as(key, &named("session")),
            modern: Agent::modern(team.wire_as(key), json!({})).registered(&named("modern")),
            visitor: team.client_as(key),
            waiting,
            streams,
            legacy,
        };
        // All of them are connected before the test goes on.
        let listed = team.client();
        eventually("all clients are connected", || {
            listed.presence_of(&named("poll")).map(drop)
        });
        holders
    }

    fn expect_closed(self) {
        for agent in [&self.session, &self.modern, &self.visitor, &self.waiting] {
            agent.wire.closes_with(UNAUTHORIZED);
        }
        for (_, mut stream) in self.streams {
            stream.awaits_end();
        }
        assert_eq!(self.legacy.delete_request().answered().status, 401);
        assert_eq!(self.legacy.call("heartbeat", json!({})).answered().status, 401);
    }

    fn expect_unaffected(&mut self) {
        for agent in [&self.session, &self.modern, &self.visitor, &self.waiting] {
            agent.calls("list_sessions", json!({}));
        }
        self.legacy.calls("heartbeat", json!({}));
        // Calls that wait still get their message.
        let session = self.waiting.session.clone();
        self.session.sends("hi").to(&session);
        self.waiting.wire.awaits_frame("the answer", |frame| {
            frame["result"]["structuredContent"]["messages"][0]["payload"]["text"] == "hi"
        });
        let listener = self.session.name.replace("session", "stateless");
        self.session.sends("hi").to(&listener);
        let (_, listening) = &mut self.streams[0];
        listening.next_notification("notifications/resources/updated");
    }
}

#[test]
fn a_revoked_key_ends_its_connections() {
    let broker = timeless();
    let team = broker.project("team", &json!({}));
    let (gone, kept) = (team.new_key_with_scope("member"), team.new_key_with_scope("member"));
    let (going, mut staying) = (
        KeyHolders::connect(&team, &gone, "going"),
        KeyHolders::connect(&team, &kept, "staying"),
    );
    team.revoke_key(&gone);
    going.expect_closed();
    staying.expect_unaffected();
}

#[test]
fn a_rotated_key_ends_its_connections_at_once_or_after_its_grace_period() {
    let broker = timeless();
    let team = broker.project("team", &json!({}));
    let (at_once, later, kept) = (
        team.new_key_with_scope("member"),
        team.new_key_with_scope("member"),
        team.new_key_with_scope("member"),
    );
    let first = KeyHolders::connect(&team, &at_once, "first");
    let second = KeyHolders::connect(&team, &later, "second");
    let mut staying = KeyHolders::connect(&team, &kept, "staying");
    team.rotate_key(&later, 1);
    team.rotate_key(&at_once, 0);
    first.expect_closed();
    second.expect_closed();
    staying.expect_unaffected();
}

#[test]
fn an_expired_key_ends_its_connections() {
    let broker = timeless();
    let team = broker.project("team", &json!({}));
    // Long enough for the clients to connect on a slow machine.
    let key = team.new_key(&json!({"expires_in_seconds": 3}));
    let visitor = team.client_as(&key);
    let legacy = team.http_legacy_as(&key).registered("legacy");
    let mut stream = legacy.opens_stream();
    let kept = team.agent("kept");
    // A key that ends sooner than keys made before it ends in time.
    let [longer, shorter] = [60, 1].map(|seconds| team.new_key(&json!({"expires_in_seconds": seconds})));
    let (longer, shorter) = (team.client_as(&longer), team.client_as(&shorter));
    shorter.wire.closes_with(UNAUTHORIZED);
    visitor.wire.closes_with(UNAUTHORIZED);
    stream.awaits_end();
    kept.calls("heartbeat", json!({}));
    longer.calls("list_sessions", json!({}));
}

#[test]
fn a_caller_that_ends_its_own_key_gets_the_answer_first() {
    let broker = timeless();
    let team = broker.project("team", &json!({}));
    let admin = || team.new_key_with_scope("admin");
    // Over WebSocket.
    let key = admin();
    let visitor = team.client_as(&key);
    let done = visitor.calls("rotate_project_keys", json!({"key_id": id_of_key(&key)}));
    visitor.wire.closes_with(UNAUTHORIZED);
    let new = done["api_keys"][0]["api_key"].as_str().unwrap();
    team.client_as(new).calls("list_sessions", json!({}));
    // Over HTTP, with a session and without.
    for caller in [Tenant::http_modern_as, Tenant::http_legacy_as] {
        let key = admin();
        let caller = caller(&team, &key);
        let done = caller.calls("rotate_project_keys", json!({"key_id": id_of_key(&key)}));
        let new = done["api_keys"][0]["api_key"].as_str().unwrap();
        team.http_modern_as(new).calls("list_sessions", json!({}));
        assert_eq!(caller.call("list_sessions", json!({})).answered().status, 401);
    }
    // By REST, also with a revocation.
    let key = admin();
    let path = format!("/api/v1/projects/team/keys/{}", id_of_key(&key));
    let visitor = team.client_as(&key);
    assert_eq!(broker.rest(&key, "DELETE", &path, &Value::Null).status, 200);
    visitor.wire.closes_with(UNAUTHORIZED);
    assert_eq!(broker.rest(&key, "DELETE", &path, &Value::Null).status, 401);
}

#[test]
fn unacknowledged_pushes_wait_for_the_next_key() {
    let broker = timeless();
    let team = broker.project("team", &json!({}));
    let old = team.new_key_with_scope("member");
    let alice = team.agent("alice");
    let bob = team.push_agent_as(&old, "bob", &json!({"ack": "manual", "window": 2}));
    for text in ["1", "2", "3"] {
        alice.sends(text).to(&bob);
    }
    let pushed = bob.is_pushed(["1", "2"]);
    let new = team.rotate_key(&old, 0);
    bob.wire.closes_with(UNAUTHORIZED);
    // The session exists meanwhile, and messages to it wait.
    alice.awaits_status(pushed[1]["message_id"].as_str().unwrap(), "queued");
    alice.sends("4").to("bob");
    let bob = team.agent_as(&new, "bob");
    let seen = bob.sees(["1", "2", "3", "4"]);
    let counts: Vec<_> = seen.iter().map(|message| &message["delivery_count"]).collect();
    assert_eq!(counts, [2, 2, 1, 1]);
}

#[test]
fn an_http_session_moves_to_the_next_key_in_the_grace_period() {
    let broker = timeless();
    let team = broker.project("team", &json!({}));
    // Within the grace period the session moves to the new key, and can open a new stream when the old one has ended.
    let old = team.new_key_with_scope("member");
    let legacy = team.http_legacy_as(&old).registered("in-time");
    let mut stream = legacy.opens_stream();
    let new = team.rotate_key(&old, 1);
    let moved = legacy.with("X-API-Key", &new);
    moved.calls("heartbeat", json!({}));
    stream.awaits_end();
    assert_eq!(legacy.call("heartbeat", json!({})).answered().status, 401);
    moved.calls("heartbeat", json!({}));
    moved
        .request("resources/subscribe", json!({"uri": "broker://inbox"}))
        .unwrap();
    let mut stream = moved.opens_stream();
    team.agent("alice").sends("hi").to("in-time");
    stream.next_notification("notifications/resources/updated");
    // Without a grace period the session ends, whichever key comes.
    let old = team.new_key_with_scope("member");
    let legacy = team.http_legacy_as(&old).registered("too-late");
    let late = legacy.with("X-API-Key", &team.rotate_key(&old, 0));
    // Keys end one after the other: when the second has ended, the first is finished.
    end_another_key(&team);
    end_another_key(&team);
    assert_eq!(late.call("heartbeat", json!({})).answered().status, 404);
}

/// Revokes a key and waits until its connection is closed.
fn end_another_key(team: &Tenant<'_>) {
    let key = team.new_key_with_scope("member");
    let visitor = team.client_as(&key);
    team.revoke_key(&key);
    visitor.wire.closes_with(UNAUTHORIZED);
}

#[test]
fn many_connections_of_one_key_end_at_once() {
    let broker = timeless();
    let team = broker.project("team", &json!({}));
    let key = team.new_key_with_scope("member");
    let kept = team.agent("kept");
    let holders: Vec<_> = (0..200).map(|_| team.wire_as(&key)).collect();
    team.revoke_key(&key);
    for guest in &holders {
        guest.closes_with(UNAUTHORIZED);
    }
    kept.calls("heartbeat", json!({}));
    // Their connections no longer count.
    team.update(&json!({"config": {"max_sessions": 5}}));
    eventually("a connection is accepted", || {
        let room = broker.upgrade(&[("X-API-Key", team.key.as_str())]);
        (room.status == 101).then_some(())
    });
}

#[test]
fn no_connection_survives_that_opens_while_its_key_ends() {
    let broker = Broker::secured_with(&[&TIMEOUTS_OFF[..], &["--workers=2"]].concat());
    let team = broker.project("team", &json!({}));
    for round in 0..3 {
        let key = team.new_key_with_scope("member");
        let came: Vec<TcpStream> = std::thread::scope(|scope| {
            let comers = [(); 4].map(|()| {
                scope.spawn(|| {
                    let comes = || {
                        let (response, socket) = broker.upgrade_on(broker.socket(), &[("X-API-Key", &key)]);
                        assert!([101, 401].contains(&response.status), "{response:?}");
                        (response.status == 101).then_some(socket)
                    };
                    std::iter::from_fn(comes).collect::<Vec<_>>()
                })
            });
            eventually("the key has been used", || {
                let keys = team.rest("GET", "keys", &Value::Null).json();
                let mut keys = keys["keys"].as_array().unwrap().iter();
                let listed = keys.find(|listed| listed["key_id"] == id_of_key(&key)).unwrap();
                listed["last_used_at"].is_string().then_some(())
            });
            team.revoke_key(&key);
            comers.into_iter().flat_map(|comer| comer.join().unwrap()).collect()
        });
        assert!(!came.is_empty(), "{round}");
        for mut socket in came {
            let mut said = Vec::new();
            socket.read_to_end(&mut said).unwrap();
            let code = UNAUTHORIZED.to_be_bytes();
            assert!(said.windows(2).any(|bytes| bytes == code), "{said:?}");
        }
    }
}

#[test]
fn the_keys_of_a_deleted_project_end_their_connections() {
    let broker = timeless();
    let (team, other) = (broker.project("team", &json!({})), broker.project("other", &json!({})));
    let mut staying = KeyHolders::connect(&other, &other.key, "staying");
    let going = KeyHolders::connect(&team, &team.key, "going");
    team.delete();
    for agent in [&going.session, &going.modern, &going.visitor, &going.waiting] {
        // Its code says that the project is gone, not the key.
        agent.wire.closes_with(4004);
    }
    for (_, mut stream) in going.streams {
        stream.awaits_end();
    }
    assert_eq!(going.legacy.call("heartbeat", json!({})).answered().status, 401);
    staying.expect_unaffected();
}

#[test]
fn a_shutdown_does_not_wait_for_connections_of_an_ended_key() {
    let mut broker = timeless();
    let _guests = {
        let team = broker.project("team", &json!({}));
        let key = team.new_key_with_scope("member");
        let holders = KeyHolders::connect(&team, &key, "going");
        team.revoke_key(&key);
        holders
    };
    let began = Instant::now();
    broker.terminate();
    assert_eq!(broker.wait_for_exit().code(), Some(0));
    // Less than the grace period.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_call_that_waits_in_a_full_project_ends_with_its_key() {
    let broker = timeless();
    let team = broker.project("team", &json!({}));
    let key = team.new_key_with_scope("member");
    let caller = team.http_modern_as(&key).registered("caller");
    let legacy = team.http_legacy_as(&key).registered("legacy");
    let _first = team.agent("first");
    team.update(&json!({"config": {"max_sessions": 1}}));
    // The project is full, and these connections must still be tracked.
    let mut waiting = caller.call("receive_messages", json!({"wait_seconds": 100})).sent();
    let mut listening = caller.asks("subscriptions/listen", json!({"notifications": {}})).sent();
    let mut stream = legacy.stream_request().sent();
    listening.status();
    stream.status();
    team.revoke_key(&key);
    listening.awaits_end();
    stream.awaits_end();
    waiting.awaits_end();
}

#[test]
fn a_client_that_does_not_read_can_do_nothing_after_its_key_ended() {
    let broker = timeless();
    let team = broker.project("team", &json!({}));
    let key = team.new_key_with_scope("member");
    let (alice, marker) = (team.agent("alice"), team.client_as(&key));
    let request = |method: &str, params: Value| {
        let frame = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        masked_frame(0x81, frame.to_string().as_bytes())
    };
    let letter = |text: &str| {
        let arguments = alice.sends(text).arguments_to("alice");
        request("tools/call", json!({"name": "send_message", "arguments": arguments}))
    };
    let mut deaf = connect_deaf_client(&broker, &key);
    let info = json!({"name": "a test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    deaf.write_all(&request("initialize", hello)).unwrap();
    // It sends until so many answers wait that the broker stops reading, and then reads a little.
    loop {
        deaf.write_all(&request("tools/list", json!({}))).unwrap();
        deaf.write_all(&letter("x")).unwrap();
        if alice
            .reads(json!({"wait_seconds": 1, "acknowledge": "immediate"}))
            .is_empty()
        {
            break;
        }
    }
    eventually("the broker reads again", || {
        deaf.read_exact(&mut [0; 16_000]).unwrap();
        let read = alice.reads(json!({"acknowledge": "immediate"}));
        (!read.is_empty()).then_some(())
    });
    team.revoke_key(&key);
    marker.wire.closes_with(UNAUTHORIZED);
    end_another_key(&team);
    let _ = deaf.write_all(&letter("after"));
    eventually("the connection is gone", || {
        deaf.write_all(&letter("after")).is_err().then_some(())
    });
    alice.sees_nothing();
}

/// A connection whose client reads almost nothing.
fn connect_deaf_client(broker: &Broker, key: &str) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&broker.address.into()).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    socket.set_write_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let (response, socket) = broker.upgrade_on(socket, &[("X-API-Key", key)]);
    assert_eq!(response.status, 101, "{response:?}");
    socket
}
