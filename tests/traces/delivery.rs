//! The way of a message as a trace: direct and broadcast, on one broker and across replicas.

use serde_json::json;

use super::{
    CALLER, CALLER_SPAN, CALLER_TRACE, calls_with_meta,
    collector::{Collector, Span},
    note,
    support::{Broker, Redis, TIMEOUTS_OFF, broker_program, eventually},
    traced,
};

const STEPS: [&str; 5] = ["tools/call send_message", "accept", "store", "deliver", "acknowledge"];

/// Asserts that the steps of a direct message are children of each other, and those of one trace of the caller.
fn is_complete(steps: &[Span; 5]) {
    let [receive, accept, store, deliver, acknowledge] = steps;
    assert_eq!(receive.parent, CALLER_SPAN);
    assert_eq!(accept.parent, receive.id);
    assert_eq!(store.parent, accept.id);
    assert_eq!(deliver.parent, accept.id);
    assert_eq!(acknowledge.parent, deliver.id);
    for span in steps {
        assert!(span.started_ns > 0 && span.started_ns <= span.ended_ns, "{span:?}");
        assert!(!span.is_failed, "{span:?}");
    }
    assert_eq!(
        accept.attribute("messaging.message.id"),
        deliver.attribute("messaging.message.id")
    );
}

#[test]
fn a_direct_message_across_two_replicas_is_one_trace() {
    for collector in [Collector::grpc(), Collector::http()] {
        let redis = Redis::start();
        let replica = || Broker::replica_with_program(traced(&collector), &redis.url(), &TIMEOUTS_OFF);
        let replicas = [replica(), replica()];
        Broker::register_note_protocol(&replicas[0].client());
        let alice = replicas[0].agent("alice");
        let bob = replicas[1].push_agent("bob", &json!({"ack": "auto"}));
        let meta = json!({"traceparent": CALLER, "tracestate": "vendor=\"x\\y\""});
        let sent = calls_with_meta(&alice, "send_message", note("hi", "bob"), &meta);
        let pushed = bob.wire.next_notification("notifications/dev.mcp-broker/message");
        let steps = collector.awaits(CALLER_TRACE, STEPS);
        is_complete(&steps);
        let [receive, accept, _, deliver, acknowledge] = &steps;
        assert_eq!(accept.attribute("messaging.message.id"), sent["message_id"].as_str());
        assert_eq!(receive.attribute("gen_ai.tool.name"), Some("send_message"));
        assert_eq!(receive.state, "vendor=\"x\\y\"");
        assert_ne!(
            accept.instance(),
            deliver.instance(),
            "the recipient is at the other replica"
        );
        assert_eq!(deliver.instance(), acknowledge.instance());
        assert_eq!(deliver.attribute("mcp_broker.session.id"), Some(bob.session.as_str()));
        // The recipient continues the trace at the message.
        let continued = format!("00-{CALLER_TRACE}-{}-01", accept.id);
        for meta in [&pushed["_meta"], &pushed["message"]["_meta"]] {
            assert_eq!(meta["traceparent"], continued, "{pushed}");
            assert_eq!(meta["tracestate"], "vendor=\"x\\y\"", "{pushed}");
        }
        let names: Vec<_> = receive
            .resource
            .iter()
            .filter(|(name, _)| name == "service.name")
            .collect();
        assert_eq!(names, [&("service.name".to_owned(), "mcp-broker".to_owned())]);
    }
}

#[test]
fn a_message_that_is_fetched_is_one_trace_on_one_broker() {
    let collector = Collector::http();
    let broker = Broker::with_program(traced(&collector), &TIMEOUTS_OFF);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    calls_with_meta(
        &alice,
        "send_message",
        note("hi", "bob"),
        &json!({"traceparent": CALLER}),
    );
    let received = bob.sees(["hi"]);
    let arguments = json!({"message_ids": [received[0]["message_id"]]});
    bob.calls("acknowledge_messages", arguments);
    let steps = collector.awaits(CALLER_TRACE, STEPS);
    is_complete(&steps);
    let continued = format!("00-{CALLER_TRACE}-{}-01", steps[1].id);
    assert_eq!(received[0]["_meta"], json!({"traceparent": continued}));
}

#[test]
fn a_broadcast_has_one_linked_trace_for_each_recipient() {
    let collector = Collector::grpc();
    let broker = Broker::with_program(traced(&collector), &TIMEOUTS_OFF);
    let alice = broker.agent("alice");
    let readers = ["bob", "carol", "dave"].map(|name| broker.push_agent(name, &json!({"ack": "auto"})));
    let arguments = json!({"protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "all"}});
    calls_with_meta(&alice, "broadcast_message", arguments, &json!({"traceparent": CALLER}));
    let pushed = readers
        .each_ref()
        .map(|reader| reader.wire.next_notification("notifications/dev.mcp-broker/message"));
    let names = ["tools/call broadcast_message", "accept", "store"];
    let [receive, accept, store] = collector.awaits(CALLER_TRACE, names);
    assert_eq!([&accept.parent, &store.parent], [&receive.id, &accept.id]);
    assert_eq!(accept.attribute("mcp_broker.recipients"), Some("3"));
    let cause = (CALLER_TRACE.to_owned(), accept.id.clone());
    let deliveries = eventually("three linked deliveries", || {
        let spans = collector.spans();
        let linked = spans.into_iter().filter(|span| span.links.contains(&cause));
        let linked: Vec<_> = linked.collect();
        (linked.len() == 3).then_some(linked)
    });
    for (reader, message) in readers.iter().zip(&pushed) {
        let of_reader = |span: &&Span| span.attribute("mcp_broker.session.id") == Some(&reader.session);
        let deliver = deliveries.iter().find(of_reader).unwrap();
        assert_eq!((deliver.name.as_str(), deliver.parent.as_str()), ("deliver", ""));
        assert_ne!(deliver.trace, CALLER_TRACE);
        let [acknowledge] = collector.awaits(&deliver.trace, ["acknowledge"]);
        assert_eq!(acknowledge.parent, deliver.id);
        let continued = format!("00-{CALLER_TRACE}-{}-01", accept.id);
        assert_eq!(message["_meta"]["traceparent"], continued);
    }
}

#[test]
fn a_broker_that_does_not_trace_hands_a_trace_on() {
    let broker = Broker::with_program(broker_program(), &TIMEOUTS_OFF);
    let alice = broker.agent("alice");
    let bob = broker.push_agent("bob", &json!({"ack": "manual"}));
    let meta = json!({"traceparent": CALLER, "tracestate": "a=1,b=2"});
    calls_with_meta(&alice, "send_message", note("traced", "bob"), &meta);
    let pushed = bob.wire.next_notification("notifications/dev.mcp-broker/message");
    assert_eq!(pushed["_meta"], meta);
    assert_eq!(pushed["message"]["_meta"], meta);
    let long = format!("a={}", "x".repeat(512));
    for ignored in [
        json!({"traceparent": "00-0-0-00"}),
        json!({"traceparent": 7}),
        json!({"tracestate": "a=1"}),
        json!({"traceparent": format!("{CALLER}0")}),
    ] {
        calls_with_meta(&alice, "send_message", note("plain", "bob"), &ignored);
        let pushed = bob.wire.next_notification("notifications/dev.mcp-broker/message");
        assert!(
            pushed.get("_meta").is_none() && pushed["message"].get("_meta").is_none(),
            "{pushed}"
        );
    }
    let meta = json!({"traceparent": CALLER, "tracestate": long});
    calls_with_meta(&alice, "send_message", note("without its state", "bob"), &meta);
    let pushed = bob.wire.next_notification("notifications/dev.mcp-broker/message");
    assert_eq!(pushed["_meta"], json!({"traceparent": CALLER}));
}

#[test]
fn a_listener_of_2026_gets_the_trace_beside_the_id_of_its_subscription() {
    let broker = Broker::with_program(broker_program(), &TIMEOUTS_OFF);
    let alice = broker.agent("alice");
    let carol = broker.http_modern("carol");
    let mut stream = carol.subscribes_as(&json!("mine"));
    calls_with_meta(
        &alice,
        "send_message",
        note("hi", "carol"),
        &json!({"traceparent": CALLER}),
    );
    // Only the message itself carries the trace where nothing is pushed.
    stream.next_notification("notifications/resources/updated");
    assert_eq!(carol.reads(json!({}))[0]["_meta"], json!({"traceparent": CALLER}));
}

#[test]
fn what_is_transformed_for_a_delivery_is_a_part_of_it() {
    let collector = Collector::http();
    let broker = Broker::with_program(traced(&collector), &TIMEOUTS_OFF);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let text = json!({"type": "string", "not": {"const": "forbidden"}});
    for (version, member) in [("1.0.0", "what"), ("2.0.0", "title")] {
        let text = if member == "what" {
            json!({"type": "string"})
        } else {
            text.clone()
        };
        let schema = json!({"type": "object", "properties": {member: text}, "required": [member]});
        let mut task = json!({"name": "task", "version": version, "schema": schema});
        if member == "title" {
            task["from"] = json!("1.0.0");
            task["lens"] = json!([{"op": "rename", "path": "/what", "to": "title"}]);
        }
        alice.calls("register_protocol", task);
    }
    let speaks = |version: &str| {
        let capabilities = json!({"supported_protocols": {"task": [version]}});
        bob.calls("register_session", json!({"name": "bob", "capabilities": capabilities}));
    };
    speaks("1.0.0");
    let traces = [CALLER_TRACE, "1af7651916cd43dd8448eb211c80319c"];
    for (trace, what) in traces.iter().zip(["dig", "forbidden"]) {
        let task = json!({
            "recipient_id": "bob", "protocol_name": "task", "protocol_version": "1.0.0", "payload": {"what": what},
        });
        let meta = json!({"traceparent": format!("00-{trace}-{CALLER_SPAN}-01")});
        calls_with_meta(&alice, "send_message", task, &meta);
    }
    speaks("2.0.0");
    let seen = bob.reads(json!({"wait_seconds": 20}));
    assert_eq!(seen[0]["payload"], json!({"title": "dig"}));
    for (trace, is_failed) in traces.iter().zip([false, true]) {
        let [accept, deliver, transform] = collector.awaits(trace, ["accept", "deliver", "transform"]);
        assert_eq!([&deliver.parent, &transform.parent], [&accept.id, &deliver.id]);
        assert!(deliver.started_ns <= transform.started_ns && transform.ended_ns <= deliver.ended_ns);
        assert_eq!([deliver.is_failed, transform.is_failed], [is_failed; 2]);
        assert_eq!(deliver.attribute("mcp_broker.session.id"), Some(bob.session.as_str()));
    }
}
