//! `/api/v1/events`: followers, their ids, and their bounds.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use test_client::folder::Folder;

use super::{assert_refused, note, stranger};
use crate::support::{Broker, Event, Request, ResponseReader, Tenant, eventually};

impl Tenant<'_> {
    fn events_request(&self, key: &str, query: &str) -> Request {
        Request::get(self.broker.address)
            .with_path(&format!("/api/v1/events{query}"))
            .with("X-API-Key", key)
    }

    /// Follows the events. When this returns, the stream has begun: later events come on it.
    fn follows(&self, query: &str) -> ResponseReader {
        self.follows_as(&self.key, query)
    }

    fn follows_as(&self, key: &str, query: &str) -> ResponseReader {
        begins(self.events_request(key, query).sent())
    }
}

/// Waits until the stream has begun.
fn begins(mut stream: ResponseReader) -> ResponseReader {
    assert_eq!(stream.status(), 200, "{stream:?}");
    assert_eq!(stream.header("content-type").as_deref(), Some("text/event-stream"));
    stream.next_event().expect("the first frame");
    stream
}

/// The next event of this kind that `fits`.
fn awaits(stream: &mut ResponseReader, kind: &str, fits: impl Fn(&Value) -> bool) -> Event {
    loop {
        let event = stream.next_event().expect("the stream goes on");
        if event.kind.as_deref() == Some(kind) && fits(&event.json()) {
            return event;
        }
    }
}

#[test]
fn changes_of_lenses_are_told() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let mut stream = team.follows("?topics=protocol");
    for version in ["1.0.0", "2.0.0"] {
        let protocol = json!({"name": "clock", "version": version, "schema": {"type": "object"}});
        team.api("POST", "protocols", &protocol);
    }
    let path = "protocols/clock/2.0.0/lenses/1.0.0";
    team.api("PUT", path, &json!({"lens": []}));
    team.api(
        "PUT",
        path,
        &json!({"lens": [], "direction": "forward", "replace_lens": true}),
    );
    team.api("DELETE", path, &Value::Null);
    for kind in ["lens_registered", "lens_replaced", "lens_removed"] {
        let told = awaits(&mut stream, "protocol", |data| data["event"] != "registered").json();
        assert_eq!(told["event"], kind, "{told}");
        assert_eq!(
            (&told["name"], &told["version"], &told["from"]),
            (&json!("clock"), &json!("2.0.0"), &json!("1.0.0"))
        );
    }
}

#[test]
fn a_delivery_in_another_version_is_told_without_the_payload() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    for (version, member) in [("1.0.0", "what"), ("2.0.0", "title")] {
        let schema = json!({"type": "object", "properties": {member: {"type": "string"}}, "required": [member]});
        let mut protocol = json!({"name": "clock", "version": version, "schema": schema});
        if member == "title" {
            protocol["from"] = json!("1.0.0");
            protocol["lens"] = json!([{"op": "rename", "path": "/what", "to": "title"}]);
        }
        assert_eq!(team.api("POST", "protocols", &protocol).status, 201);
    }
    let (alice, bob) = (team.agent("alice"), team.agent("bob"));
    let capabilities = json!({"supported_protocols": {"clock": ["2.0.0"]}});
    bob.calls("register_session", json!({"name": "bob", "capabilities": capabilities}));
    let mut stream = team.follows("?topics=message");
    let sent = alice
        .sends("")
        .with_argument("protocol_name", "clock")
        .with_argument("protocol_version", "1.0.0")
        .with_argument("payload", json!({"what": "canary", "title": "lost"}))
        .to(&bob);
    bob.reads(json!({"wait_seconds": 20}));
    let told = awaits(&mut stream, "message", |data| data["event"] == "transformed").json();
    let facts =
        ["message_id", "session_id", "delivery", "from", "to", "lost", "made_up"].map(|name| told[name].clone());
    let expected = [
        json!(sent.id),
        json!(bob.session),
        json!(1),
        json!("1.0.0"),
        json!("2.0.0"),
        json!(1),
        json!(0),
    ];
    assert_eq!(facts, expected, "{told}");
    assert!(!format!("{stream:?}").contains("canary"), "payloads are in no event");
}

#[test]
fn what_happens_in_a_project_is_told_as_it_happens() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let mut stream = team.follows("");
    let bob = team.agent("bob");
    let event = awaits(&mut stream, "session", |data| data["event"] == "registered");
    assert_eq!(event.json()["session_id"], json!(bob.session));
    let protocol = json!({"name": "clock", "version": "1.0.0", "schema": {}});
    team.api("POST", "protocols", &protocol);
    awaits(&mut stream, "protocol", |data| data["name"] == "clock");
    let sent = team.posts(&team.key, &note("reporter", Some("bob"), "canary"));
    let id = sent["message_id"].clone();
    let accepted = awaits(&mut stream, "message", |data| data["event"] == "accepted");
    assert_eq!(accepted.json()["message"]["message_id"], id);
    bob.sees(["canary"]);
    awaits(&mut stream, "message", |data| {
        data["event"] == "delivered" && data["message_id"] == id
    });
    bob.reads(json!({}));
    awaits(&mut stream, "message", |data| {
        data["event"] == "acknowledged" && data["message_id"] == id
    });
    team.posts(&team.key, &note("reporter", Some("bob"), "lost"));
    team.api("DELETE", "sessions/bob?forget=true", &Value::Null);
    awaits(&mut stream, "dead_letter", |data| data["reason"] == "recipient_gone");
    awaits(&mut stream, "audit", |data| data["action"] == "session.forget");
    assert!(!format!("{stream:?}").contains("canary"), "payloads are in no event");
}

#[test]
fn a_stale_session_that_answers_again_is_told_at_once() {
    let broker = Broker::secured_with(&[
        "--heartbeat-interval=100ms",
        "--stale-threshold=800ms",
        // The timer of a stale session, which must not be what tells of it.
        "--disconnect-threshold=1h",
    ]);
    let team = broker.project("team", &json!({}));
    let bob = team.agent("bob");
    let mut stream = team.follows("?topics=session");
    bob.wire.stops_answering_pings();
    awaits(&mut stream, "session", |data| data["event"] == "stale");
    // Any frame is a heartbeat.
    bob.wire.sends_frame(0x8a, b"");
    let event = awaits(&mut stream, "session", |data| data["event"] == "active");
    assert_eq!(event.json()["session_id"], json!(bob.session));
}

#[test]
fn followers_see_what_their_scope_allows() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let [mine, yours, observer] = ["member", "member", "observer"].map(|scope| team.new_key_with_scope(scope));
    team.agent_as(&mine, "mine");
    team.agent_as(&yours, "yours");
    for key in [&mine, &observer] {
        let refused = team.events_request(key, "?topics=audit").answered();
        assert_refused(&refused, 403, "forbidden");
    }
    let (mut of_member, mut of_observer) = (team.follows_as(&mine, ""), team.follows_as(&observer, ""));
    let other = stranger(&broker);
    let mut of_stranger = team.follows_as(&other, "");
    team.posts(&yours, &note("yours", Some("yours"), "1"));
    let seen = team.posts(&yours, &note("yours", Some("mine"), "2"));
    let accepted = |data: &Value| data["event"] == "accepted";
    // The member gets no event about the first message.
    let event = awaits(&mut of_member, "message", |_| true);
    assert_eq!(event.json()["message"]["message_id"], seen["message_id"]);
    awaits(&mut of_observer, "message", accepted);
    let event = awaits(&mut of_observer, "message", accepted);
    assert_eq!(event.json()["message"]["message_id"], seen["message_id"]);
    // The stranger sees its own project alone.
    broker.rest(
        &other,
        "POST",
        "/api/v1/protocols",
        &json!({"name": "mine", "version": "1.0.0", "schema": {}}),
    );
    let event = of_stranger.next_event().unwrap();
    assert_eq!(event.kind.as_deref(), Some("protocol"), "{event:?}");
}

#[test]
fn topics_select_events() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let mut stream = team.follows("?topics=protocol");
    let bob = team.agent("bob");
    bob.sends("hi").to(&bob);
    team.api(
        "POST",
        "protocols",
        &json!({"name": "clock", "version": "1.0.0", "schema": {}}),
    );
    let event = stream.next_event().unwrap();
    assert_eq!(event.kind.as_deref(), Some("protocol"), "{event:?}");
}

#[test]
fn a_follower_returns_with_its_last_id_and_misses_nothing() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let bob = team.agent("bob");
    let mut stream = team.follows("?topics=message");
    let one = team.posts(&team.key, &note("reporter", Some("bob"), "1"));
    let last = awaits(&mut stream, "message", |data| {
        data["message"]["message_id"] == one["message_id"]
    });
    stream.disconnects();
    let missed: Vec<_> = (0..50)
        .map(|at| team.posts(&team.key, &note("reporter", Some("bob"), &at.to_string()))["message_id"].clone())
        .collect();
    let id = last.id.unwrap();
    let by_header = team
        .events_request(&team.key, "?topics=message")
        .with("Last-Event-ID", &id);
    let by_query = team.events_request(&team.key, &format!("?topics=message&last_event_id={id}"));
    for request in [by_header, by_query] {
        let mut stream = begins(request.sent());
        for expected in &missed {
            let event = awaits(&mut stream, "message", |data| data["event"] == "accepted");
            assert_eq!(event.json()["message"]["message_id"], *expected);
        }
        // What follows comes on the same stream.
        let live = team.posts(&team.key, &note("reporter", Some("bob"), "live"));
        awaits(&mut stream, "message", |data| {
            data["message"]["message_id"] == live["message_id"]
        });
    }
    drop(bob);
}

#[test]
fn an_id_of_a_lost_log_is_answered_with_a_gap() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    team.agent("bob");
    let request = team
        .events_request(&team.key, "?topics=session")
        .with("Last-Event-ID", "abc-1-0");
    let mut stream = begins(request.sent());
    let gap = awaits(&mut stream, "gap", |_| true);
    assert_eq!((gap.json(), gap.id.is_none()), (json!({"dropped": null}), true));
    awaits(&mut stream, "session", |data| data["name"] == "bob");
}

#[test]
fn a_revoked_key_ends_its_stream_and_no_other() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let observer = team.new_key_with_scope("observer");
    let mut ended = team.follows_as(&observer, "?topics=session");
    let mut other = team.follows("?topics=session");
    team.revoke_key(&observer);
    ended.awaits_end();
    team.agent("bob");
    awaits(&mut other, "session", |data| data["name"] == "bob");
}

#[test]
fn the_broker_ends_its_streams_when_it_stops() {
    let mut broker = Broker::secured();
    let request = {
        let team = broker.project("team", &json!({}));
        team.events_request(&team.key, "")
    };
    let mut stream = begins(request.sent());
    broker.terminate();
    stream.awaits_end();
    assert!(broker.wait_for_exit().success());
}

#[test]
fn a_stalled_follower_costs_bounded_memory_and_learns_what_it_missed() {
    const MESSAGES: usize = 6000;
    let broker = Broker::secured();
    let team = broker.project("team", &json!({"queue_capacity": 1_000_000}));
    let bob = team.push_agent_as(&team.key, "bob", &json!({"ack": "auto", "window": 1000}));
    let mut stalled = TcpStream::connect(broker.address).unwrap();
    stalled.write_all(&team.events_request(&team.key, "").bytes()).unwrap();
    let mut first = [0; 64];
    stalled.read_exact(&mut first).unwrap();
    let before = broker.rss_kib();
    let alice = team.agent("alice");
    for batch in 0..MESSAGES / 100 {
        let calls: Vec<_> = (0..100)
            .map(|at| alice.sends(&format!("{batch} {at}")).begins_sending_to("bob"))
            .collect();
        for call in calls {
            alice.finishes_call("send_message", &call);
        }
    }
    let grown = broker.rss_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB");
    // The follower reads again: the stream goes on, and says how much is missing.
    stalled.set_read_timeout(Some(crate::support::WAIT_TIMEOUT)).unwrap();
    let mut text = String::new();
    let mut buffer = vec![0; 64 * 1024];
    while !text.contains("event: gap") {
        let len = stalled.read(&mut buffer).unwrap();
        assert!(
            len > 0,
            "the stream has ended: {}",
            &text[text.len().saturating_sub(500)..]
        );
        text.push_str(&String::from_utf8_lossy(&buffer[..len]));
    }
    drop(bob);
}

#[test]
fn followers_are_bounded_for_each_project() {
    // The broker sees that a follower has left when it writes to it: at the latest with the next heartbeat.
    let broker = Broker::secured_with(&crate::support::FAST_TIMEOUTS);
    let team = broker.project("team", &json!({}));
    let streams: Vec<_> = (0..250)
        .map(|_| team.events_request(&team.key, "?topics=session").sent())
        .collect();
    let streams: Vec<_> = streams.into_iter().map(begins).collect();
    let refused = team.events_request(&team.key, "").answered();
    assert_refused(&refused, 429, "rate_limited");
    assert!(refused.body.contains("250"), "{refused:?}");
    drop(streams);
    eventually("there is room again", || {
        let mut stream = team.events_request(&team.key, "").sent();
        (stream.status() == 200).then_some(())
    });
}

#[test]
fn bad_requests_are_refused() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    for query in [
        "?topics=",
        "?topics=news",
        "?topics=session,,message",
        "?last_event_id=7",
        "?project=A",
        "?since=1",
    ] {
        assert_refused(
            &team.events_request(&team.key, query).answered(),
            400,
            "invalid_argument",
        );
    }
    let foreign = team.events_request(&team.key, "?project=default").answered();
    assert_refused(&foreign, 404, "project_not_found");
}

#[test]
fn a_broker_restart_on_disk_loses_no_event_that_an_id_says_exists() {
    let folder = Folder::new();
    let flags = ["--storage=disk".to_owned(), folder.data_dir()];
    let flags = flags.each_ref().map(String::as_str);
    let (mut sent, mut seen, mut last) = (Vec::new(), BTreeSet::new(), None);
    for round in 0..3 {
        let mut broker = if round == 0 {
            Broker::start_with(&flags)
        } else {
            Broker::on_existing_storage(&flags)
        };
        let address = broker.address;
        let mut request = Request::get(address).with_path("/api/v1/events?topics=message");
        if let Some(id) = &last {
            request = request.with("Last-Event-ID", id);
        }
        let mut stream = begins(request.sent());
        let alice = broker.agent("alice");
        for at in 0..20 {
            sent.push(alice.sends(&format!("{round} {at}")).to("alice").id);
        }
        // The first half is read before the broker stops, the second half by the next follower.
        let wanted = if round < 2 { sent.len() - 10 } else { sent.len() };
        while seen.len() < wanted {
            let event = awaits(&mut stream, "message", |data| data["event"] == "accepted");
            seen.insert(event.json()["message"]["message_id"].as_str().unwrap().to_owned());
            last = event.id;
        }
        drop((alice, stream));
        if round < 2 {
            broker.terminate();
            assert!(broker.wait_for_exit().success());
        }
    }
    let sent: BTreeSet<_> = sent.into_iter().collect();
    assert_eq!(seen, sent);
}

#[test]
fn curl_follows_events() {
    let broker = Broker::start();
    let url = format!("http://{}/api/v1/events?topics=session&project=default", broker.address);
    let mut curl = Command::new("curl")
        .args(["-sN", "--max-time", "30", &url])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = curl.stdout.take().unwrap();
    let mut text = String::new();
    let mut read = |text: &mut String| {
        let mut buffer = [0; 4096];
        let len = output.read(&mut buffer).unwrap();
        assert!(len > 0, "the stream has ended: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..len]));
    };
    while !text.contains("retry: ") {
        read(&mut text);
    }
    let _bob = broker.agent("bob");
    while !text.contains("\"name\":\"bob\"") {
        read(&mut text);
    }
    curl.kill().unwrap();
    curl.wait().unwrap();
}
