//! A broker that was frozen (SIGSTOP, a machine that slept) for longer than the presence thresholds does not blame its
//! clients for it.

use std::time::Duration;

use serde_json::json;

use crate::support::Broker;

/// Longer than every threshold below.
const FROZEN_FOR: Duration = Duration::from_secs(3);
const SETTINGS: [&str; 4] = [
    "--heartbeat-interval=100ms",
    "--stale-threshold=1s",
    "--disconnect-threshold=1500ms",
    "--session-retention=2s",
];

#[test]
fn connected_clients_stay_connected() {
    let broker = Broker::start_with(&SETTINGS);
    let bob = broker.push_agent("bob", &json!({"ack": "manual"}));
    let alice = broker.agent("alice");
    // A caller without a connection and an HTTP session each read an inbox from time to time.
    let (carol, dora) = (broker.http_modern("carol"), broker.http_legacy("dora"));
    alice.sends("one").to(&bob);
    let one = bob.is_pushed(["one"]);
    broker.freeze_for(FROZEN_FOR);
    for name in ["bob", "carol", "dora"] {
        assert_ne!(alice.presence_of(name).as_deref(), Some("disconnected"), "{name}");
    }
    carol.calls("heartbeat", json!({}));
    dora.calls("heartbeat", json!({}));
    // The messages in flight to bob stay his, and are not delivered again.
    alice.sends("two").to(&bob);
    let two = bob.is_pushed(["two"]);
    bob.acknowledges(&one);
    bob.acknowledges(&two);
    alice.awaits_status(one[0]["message_id"].as_str().unwrap(), "acknowledged");
    assert!(bob.wire.is_open() && alice.wire.is_open());
}

#[test]
fn a_client_that_was_silent_before_stays_disconnected() {
    let broker = Broker::start_with(&[&SETTINGS[..3], &["--session-retention=1h"]].concat());
    let alice = broker.agent("alice");
    broker.http_modern("carol");
    alice.awaits_presence("carol", "disconnected");
    broker.freeze_for(FROZEN_FOR);
    assert_eq!(alice.presence_of("carol").as_deref(), Some("disconnected"));
    // A client that falls silent later is noticed as usual.
    let bob = broker.agent("bob");
    bob.wire.stops_answering_pings();
    bob.wire.closes_with(4002);
}

#[test]
fn a_request_body_is_still_accepted() {
    use std::io::{Read, Write};
    let broker = Broker::start();
    let post = broker.http_modern("alice").asks("server/discover", json!({}));
    let request = post.bytes();
    let (first, rest) = request.split_at(request.len() - 10);
    let mut socket = broker.socket();
    socket.write_all(first).unwrap();
    // The handler waits for the rest of the body once a later request has been served.
    broker.get("/livez");
    // Longer than the pause that is allowed between bytes of a body.
    broker.freeze_for(Duration::from_secs(11));
    // Expired timers have fired once another request has been served.
    broker.get("/livez");
    socket.write_all(rest).unwrap();
    let mut head = [0; 12];
    socket.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
}
