//! HTTP sessions of the revisions up to 2025-11-25, from `initialize` to `DELETE`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{INBOX, UPDATED, open_session};
use crate::support::{Broker, HttpAgent, Request, TIMEOUTS_OFF, initialize_request, keys};

const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const SESSION: &str = "Mcp-Session-Id";

fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

fn call(id: impl Into<Value>, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
}

#[test]
fn each_initialize_opens_its_own_session() {
    let broker = Broker::without_timeouts();
    let mut ids = std::collections::HashSet::new();
    for version in LEGACY {
        for accept in ["application/json, text/event-stream", "application/json"] {
            let response = initialize_request(broker.address, version, json!({}))
                .with("Accept", accept)
                .answered();
            assert_eq!(response.status, 200);
            assert_eq!(response.header("content-type"), Some("application/json"));
            let frame = response.json();
            assert_eq!(keys(&frame), ["id", "jsonrpc", "result"]);
            assert_eq!(frame["result"]["protocolVersion"], version);
            let id = response.header(SESSION).expect("a session").to_owned();
            assert!(id.len() >= 16 && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
            assert!(ids.insert(id), "an id is given twice");
        }
    }
    // The version header is ignored before a version is agreed, and an unknown version is answered with the newest.
    let response = initialize_request(broker.address, "1999-01-01", json!({}))
        .with("MCP-Protocol-Version", "2025-06-18")
        .answered();
    assert_eq!(response.json()["result"]["protocolVersion"], LEGACY[0]);
    // As an event for a client that prefers events.
    let mut reply = initialize_request(broker.address, LEGACY[0], json!({}))
        .with("Accept", "text/event-stream, application/json")
        .sent();
    assert!(reply.header(SESSION).is_some());
    assert_eq!(reply.answer_to(&json!(1)).unwrap()["protocolVersion"], LEGACY[0]);
}

#[test]
fn a_refused_initialize_opens_no_session() {
    let broker = Broker::without_timeouts();
    for params in [
        json!({}),
        json!({"protocolVersion": 1}),
        json!({"protocolVersion": "2025-11-25", "capabilities": {"experimental": {"dev.mcp-broker/push": 1}}}),
    ] {
        let response = Request::post(broker.address, request(1, "initialize", params.clone()).to_string()).answered();
        assert_eq!(response.json()["error"]["code"], -32602, "{params}");
        assert_eq!(response.header(SESSION), None, "{params}");
    }
}

#[test]
fn a_second_initialize_is_refused() {
    let broker = Broker::without_timeouts();
    let bob = open_session(&broker, LEGACY[0]).registered("bob");
    let again = json!({"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let (status, code) = bob.asks("initialize", again).refused();
    assert_eq!((status, code), (400, -32600));
    // The session stays usable, and `initialize` without its id opens another one.
    bob.calls("heartbeat", json!({}));
    open_session(&broker, LEGACY[0]);
}

#[test]
fn a_session_lives_until_it_is_deleted() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = open_session(&broker, LEGACY[0]).registered("bob");
    assert_eq!(bob.request("ping", json!({})), Ok(json!({})));
    let mut stream = bob.opens_stream();
    let deleted = bob.delete_request().answered();
    assert!((200..300).contains(&deleted.status), "{deleted:?}");
    // Its stream ends with it.
    stream.ends();
    for request in [
        bob.asks("tools/list", json!({})),
        bob.call("heartbeat", json!({})),
        bob.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
        bob.post(&json!({"jsonrpc": "2.0", "id": 1, "result": {}})),
        bob.stream_request(),
        bob.stream_request().with("Last-Event-ID", "0-0"),
        bob.delete_request(),
    ] {
        let response = request.answered();
        assert_eq!(response.status, 404, "{request:?}");
    }
    // The broker's session outlives the HTTP session: its name keeps its inbox.
    alice.sends("later").to("bob");
    let again = open_session(&broker, LEGACY[0]).registered("bob");
    assert_eq!(again.listed(), bob.listed());
    assert_eq!(again.reads(json!({}))[0]["payload"]["text"], "later");
}

#[test]
fn requests_without_a_session_or_with_an_unknown_one_are_refused() {
    let broker = Broker::without_timeouts();
    let bob = open_session(&broker, LEGACY[0]);
    let without_session = |request: Request| request.without(SESSION);
    for request in [
        bob.asks("tools/list", json!({})),
        bob.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
        bob.post(&json!({"jsonrpc": "2.0", "id": 1, "result": {}})),
        bob.stream_request(),
        bob.delete_request(),
    ] {
        // A GET without a session id opens a stream of 2024-11-05, whichever version it names.
        if request.method != "GET" {
            assert_eq!(without_session(request.clone()).answered().status, 400, "{request:?}");
        }
        for id in ["nonsense", "", "00000000000000000000000000000000", "a b", "\u{e9}"] {
            let response = request.clone().with(SESSION, id).answered();
            assert_eq!(response.status, 404, "{id:?} {request:?}");
        }
    }
    let response = without_session(bob.asks("tools/list", json!({}))).answered();
    assert_eq!(response.json()["id"], 1);
    bob.request("tools/list", json!({})).unwrap();
}

#[test]
fn the_version_header_must_name_a_supported_version() {
    let broker = Broker::without_timeouts();
    let bob = open_session(&broker, LEGACY[0]);
    for version in ["nonsense", "", "2025-11-26", "1900-01-01", "2025-11-25, 2025-06-18"] {
        for request in [
            bob.asks("tools/list", json!({})),
            bob.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
            bob.stream_request(),
            bob.delete_request(),
        ] {
            let response = request.with("MCP-Protocol-Version", version).answered();
            assert_eq!(response.status, 400, "{version:?}");
        }
    }
    // Every supported version is accepted, and so is none: the agreed version counts.
    for version in LEGACY {
        let request = bob.asks("tools/list", json!({})).with("MCP-Protocol-Version", version);
        assert_eq!(request.answered().status, 200, "{version}");
    }
    let request = bob.asks("tools/list", json!({})).without("MCP-Protocol-Version");
    assert_eq!(request.answered().status, 200);
}

#[test]
fn a_session_follows_the_rules_of_its_revision() {
    let broker = Broker::without_timeouts();
    for version in LEGACY {
        let bob = open_session(&broker, version);
        assert_eq!(bob.request("ping", json!({})), Ok(json!({})));
        assert_eq!(
            bob.request("logging/setLevel", json!({"level": "error"})),
            Ok(json!({}))
        );
        let tools = bob.request("tools/list", json!({})).unwrap();
        assert!(tools["tools"].as_array().unwrap().len() > 5);
        let response = bob.asks("no/such", json!({})).answered();
        assert_eq!(
            (response.status, response.json()["error"]["code"].as_i64()),
            (200, Some(-32601))
        );
        let error = bob.request("tools/call", json!({"name": "no_such"})).unwrap_err();
        assert_eq!(error["code"], -32602);
        // Methods of the modern era are unknown.
        let error = bob
            .request("subscriptions/listen", json!({"notifications": {}}))
            .unwrap_err();
        assert_eq!(error["code"], -32601);
    }
}

#[test]
fn notifications_and_responses_are_accepted_without_a_body() {
    let broker = Broker::without_timeouts();
    let bob = open_session(&broker, LEGACY[0]);
    for frame in [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "method": "notifications/no_such", "params": {"x": 1}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        json!({"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "no"}}),
    ] {
        let response = bob.post(&frame).answered();
        assert_eq!((response.status, response.body.as_str()), (202, ""), "{frame}");
        // Also for a client that accepts no content type.
        let response = bob.post(&frame).without("Accept").answered();
        assert_eq!(response.status, 202, "{frame}");
    }
}

#[test]
fn only_one_revision_has_batches() {
    let broker = Broker::without_timeouts();
    let batch = json!([
        request("a", "ping", json!({})),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        call(2, "list_sessions", json!({})),
        {"jsonrpc": "2.0", "id": 77, "result": {}},
        request("c", "no/such", json!({})),
    ]);
    for version in LEGACY {
        let bob = open_session(&broker, version);
        let response = bob.post(&batch).answered();
        if version != "2025-03-26" {
            assert_eq!(response.refusal(), (400, -32600), "{version}");
            bob.request("ping", json!({})).unwrap();
            continue;
        }
        assert_eq!(response.status, 200, "{response:?}");
        let answers = response.json();
        let mut ids: Vec<_> = answers
            .as_array()
            .unwrap()
            .iter()
            .map(|answer| (answer["id"].to_string(), answer.get("result").is_some()))
            .collect();
        ids.sort();
        let expected = [("\"a\"", true), ("\"c\"", false), ("2", true)].map(|(id, is)| (id.to_owned(), is));
        assert_eq!(ids, expected);
        // The answers can also come as events.
        let mut reply = bob
            .post(&batch)
            .with("Accept", "text/event-stream, application/json")
            .sent()
            .streams();
        let mut answers = Vec::new();
        while let Some(event) = reply.next_event() {
            match event.json() {
                Value::Array(all) => answers.extend(all),
                one => answers.push(one),
            }
        }
        assert_eq!(answers.len(), 3, "{answers:?}");
        // A batch without requests has no answer.
        for batch in [
            json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]),
            json!([{"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 2, "result": {}}]),
        ] {
            let response = bob.post(&batch).answered();
            assert_eq!((response.status, response.body.as_str()), (202, ""), "{batch}");
        }
        assert_eq!(bob.post(&json!([])).refused(), (400, -32600));
    }
}

#[test]
fn a_first_call_may_send_without_a_registration() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for version in LEGACY {
        // The broker registers a session for it implicitly.
        let bob = open_session(&broker, version);
        let sent = bob.calls("send_message", alice.sends(version).arguments_to("alice"));
        assert_eq!(alice.sees([version])[0]["message_id"], sent["message_id"]);
    }
}

#[test]
fn a_batch_may_act_as_the_session() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = open_session(&broker, "2025-03-26");
    let letter = |text: &str| alice.sends(text).arguments_to("alice");
    let batch = json!([
        call(1, "send_message", letter("one")),
        call(2, "send_message", letter("two")),
    ]);
    let answers = bob.post(&batch).answered().json();
    for answer in answers.as_array().unwrap() {
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    assert_eq!(answers.as_array().unwrap().len(), 2);
    alice.sees(["one", "two"]);
}

#[test]
fn the_stream_of_a_session_notifies_of_its_inbox() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for version in LEGACY {
        let bob = open_session(&broker, version).registered(version);
        let mut stream = bob.opens_stream();
        assert_eq!(stream.header("x-accel-buffering").as_deref(), Some("no"));
        assert_eq!(bob.request("resources/subscribe", json!({"uri": INBOX})), Ok(json!({})));
        // When this is answered, the check for waiting messages, which would notify as well, is done.
        assert!(bob.reads(json!({})).is_empty());
        alice.sends("hi").to(version);
        assert_eq!(stream.next_notification(UPDATED), json!({"uri": INBOX}));
        // Answers never come on this stream: the next frame is the notification after two more calls.
        bob.calls("heartbeat", json!({}));
        assert_eq!(bob.reads(json!({})).len(), 1);
        alice.sends("ho").to(version);
        let frame = stream.next_frame();
        assert_eq!(frame["method"], UPDATED, "{frame}");
        bob.request("resources/unsubscribe", json!({"uri": INBOX})).unwrap();
        bob.delete_request().answered();
        stream.ends();
    }
}

#[test]
fn a_subscription_made_before_the_stream_opens_notifies_on_it() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = open_session(&broker, LEGACY[0]).registered("bob");
    bob.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    alice.sends("hi").to("bob");
    let mut stream = bob.opens_stream();
    assert_eq!(stream.next_notification(UPDATED), json!({"uri": INBOX}));
    // The client disconnects silently and comes back.
    stream.disconnects();
    alice.sends("ho").to("bob");
    let mut stream = bob.opens_stream();
    assert_eq!(stream.next_notification(UPDATED), json!({"uri": INBOX}));
}

#[test]
fn a_client_receives_log_messages_from_its_level_on() {
    let broker = Broker::without_timeouts();
    let bob = open_session(&broker, LEGACY[0]);
    let refused = || bob.call("get_message_status", json!({"message_id": "nonsense"}));
    assert_eq!(refused().answered().header("content-type"), Some("application/json"));
    bob.request("logging/setLevel", json!({"level": "debug"})).unwrap();
    let mut reply = refused().sent().streams();
    let logged = reply.next_notification("notifications/message");
    assert_eq!(logged["level"], "warning");
    assert_eq!(reply.answer_to(&json!(1)).unwrap()["isError"], true);
    reply.ends();
    bob.request("logging/setLevel", json!({"level": "alert"})).unwrap();
    assert_eq!(refused().answered().header("content-type"), Some("application/json"));
    let error = bob.request("logging/setLevel", json!({"level": "loud"})).unwrap_err();
    assert_eq!(error["code"], -32602);
    // The level applies to this client alone.
    bob.request("logging/setLevel", json!({"level": "debug"})).unwrap();
    let carol = open_session(&broker, LEGACY[0]);
    let response = carol
        .call("get_message_status", json!({"message_id": "nonsense"}))
        .answered();
    assert_eq!(response.header("content-type"), Some("application/json"));
}

#[test]
fn many_sessions_on_several_threads_do_not_mix_up() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let threads: Vec<_> = (0..8)
        .map(|at| {
            let address = broker.address;
            std::thread::spawn(move || {
                let name = format!("bob{at}");
                let bob = HttpAgent::legacy(address, LEGACY[at % 2], json!({})).registered(&name);
                bob.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
                let mut stream = bob.opens_stream();
                for round in 0..20 {
                    // Each request has its own connection, on any thread.
                    let text = format!("{at} {round}");
                    let sent = bob.calls(
                        "send_message",
                        json!({
                            "recipient_id": name, "protocol_name": "note", "protocol_version": "1.0.0",
                            "payload": {"text": text},
                        }),
                    );
                    stream.next_notification(UPDATED);
                    let read = bob.reads(json!({"acknowledge": "immediate"}));
                    assert_eq!(read.len(), 1);
                    assert_eq!(read[0]["message_id"], sent["message_id"]);
                    assert_eq!(read[0]["sender_id"], bob.listed().unwrap().as_str());
                }
                assert_eq!(bob.delete_request().answered().status, 204);
                assert_eq!(bob.call("heartbeat", json!({})).answered().status, 404);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    alice.calls("heartbeat", json!({}));
}

#[test]
fn a_wait_of_a_deleted_session_loses_no_message() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for round in 0..10 {
        let name = format!("bob{round}");
        let bob = open_session(&broker, LEGACY[0]).registered(&name);
        let id = json!("wait");
        let params = json!({"name": "receive_messages", "arguments": {"wait_seconds": 100}});
        let mut waiting = bob
            .asks_as(&id, "tools/call", params)
            .with("Accept", "text/event-stream, application/json")
            .sent()
            .streams();
        // The wait has begun.
        assert_eq!(waiting.next_event().unwrap().data, "");
        assert_eq!(bob.delete_request().answered().status, 204);
        let sent = alice.sends("hi").to(name.as_str());
        // The message is in the answer of the wait, in the inbox of the next client of this name, or in both.
        let again = open_session(&broker, LEGACY[0]).registered(&name);
        let mut taken = again.reads(json!({}));
        alice.sends("bye").to(name.as_str());
        let answer = waiting.answer_to(&id).unwrap();
        taken.extend_from_slice(answer["structuredContent"]["messages"].as_array().unwrap());
        assert!(
            taken.iter().any(|message| message["message_id"] == sent.id.as_str()),
            "{taken:?}"
        );
        // No response is left open.
        waiting.awaits_end();
    }
}

#[test]
fn every_connection_ends_when_the_broker_stops() {
    for workers in ["--workers=1", "--workers=2"] {
        let mut broker = Broker::start_with(&[&TIMEOUTS_OFF[..], &[workers, "--shutdown-grace=20s"]].concat());
        let bob = open_session(&broker, LEGACY[0]).registered("bob");
        // One idle connection, one stream of each kind, and one call that waits.
        let idle = broker.socket();
        crate::support::exchange(&idle, &bob.asks("ping", json!({})).bytes());
        let mut old = Request::get(broker.address).sent().streams();
        let mut stream = bob.opens_stream();
        let mut waiting = bob
            .call("receive_messages", json!({"wait_seconds": 100}))
            .with("Accept", "text/event-stream, application/json")
            .sent()
            .streams();
        let began = Instant::now();
        broker.terminate();
        let result = waiting.answer_to(&json!(1)).unwrap();
        assert_eq!(result["structuredContent"]["code"], "unavailable", "{result}");
        for stream in [&mut old, &mut stream, &mut waiting] {
            stream.awaits_end();
        }
        assert_eq!(broker.wait_for_exit().code(), Some(0));
        // Less than the keep-alive time of an idle HTTP connection.
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

#[test]
fn a_batch_has_at_most_a_hundred_requests() {
    let broker = Broker::without_timeouts();
    let bob = open_session(&broker, "2025-03-26");
    let batch = |len: usize| -> Value { (0..len).map(|id| request(id, "ping", json!({}))).collect() };
    let answers = bob.post(&batch(100)).answered().json();
    assert_eq!(answers.as_array().map(Vec::len), Some(100));
    let refused = bob.post(&batch(101)).answered();
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].as_i64()),
        (400, Some(-32600))
    );
    // A batch that is not JSON as a whole has no effect.
    let mut broken = bob.post(&batch(1));
    broken.body = br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"id":2,}]"#.to_vec();
    let refused = broken.answered();
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].as_i64()),
        (400, Some(-32700))
    );
}
