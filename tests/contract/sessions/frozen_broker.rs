//! A broker that was frozen for longer than anybody may be silent (SIGSTOP; a machine that slept) calls nobody silent.

use std::time::Duration;

use serde_json::json;

use crate::support::Broker;

/// Longer than any silence that is allowed here.
const FROZEN_FOR: Duration = Duration::from_secs(6);
const SETTINGS: [&str; 4] = [
    "--heartbeat-interval=100ms",
    "--stale-threshold=2s",
    "--disconnect-threshold=3s",
    "--session-retention=4s",
];

#[test]
fn who_is_connected_stays_connected() {
    let broker = Broker::with(&SETTINGS);
    let bob = broker.pushed("bob", &json!({"ack": "manual"}));
    let alice = broker.agent("alice");
    // An inbox is read at least once in a while by a caller without a connection, and by an HTTP session.
    let (carol, dora) = (broker.stateless("carol"), broker.resumable("dora"));
    alice.sends("one").to(&bob);
    let one = bob.is_pushed(["one"]);
    broker.is_frozen_for(FROZEN_FOR);
    for name in ["bob", "carol", "dora"] {
        assert_ne!(alice.presence_of(name).as_deref(), Some("disconnected"), "{name}");
    }
    carol.calls("heartbeat", json!({}));
    dora.calls("heartbeat", json!({}));
    // What bob has in hand is still his, and comes to nobody again.
    alice.sends("two").to(&bob);
    let two = bob.is_pushed(["two"]);
    bob.acknowledges(&one);
    bob.acknowledges(&two);
    alice.learns(one[0]["message_id"].as_str().unwrap(), "acknowledged");
    assert!(bob.wire.is_open() && alice.wire.is_open());
}

#[test]
fn who_was_silent_before_is_still_called_silent() {
    let broker = Broker::with(&[&SETTINGS[..3], &["--session-retention=1h"]].concat());
    let alice = broker.agent("alice");
    broker.stateless("carol");
    alice.notices("carol", "disconnected");
    broker.is_frozen_for(FROZEN_FOR);
    assert_eq!(alice.presence_of("carol").as_deref(), Some("disconnected"));
    // And who falls silent afterwards.
    let bob = broker.agent("bob");
    bob.wire.falls_silent();
    bob.wire.is_closed_with(4002);
}

#[test]
fn a_body_on_its_way_is_waited_for() {
    use std::io::{Read, Write};
    let broker = Broker::start();
    let post = broker.stateless("alice").asks("server/discover", json!({}));
    let request = post.bytes();
    let (first, rest) = request.split_at(request.len() - 10);
    let mut socket = broker.socket();
    socket.write_all(first).unwrap();
    // The handler has begun to wait for the rest when a later request has been served.
    broker.get("/livez");
    // As long as the next bytes of a body are waited for.
    broker.is_frozen_for(Duration::from_secs(11));
    // Its timers have gone off when another request has been served.
    broker.get("/livez");
    socket.write_all(rest).unwrap();
    let mut head = [0; 12];
    socket.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
}
