//! Backends that write what they should not: answers twice, garbage, endless lines, floods.

use serde_json::json;

use crate::{
    harness::{Calls, Gateway, Plan},
    support::eventually,
};

#[test]
fn answers_that_belong_to_no_call_are_dropped() {
    let gateway = Gateway::with_fake(&[]);
    let (client, other) = (gateway.legacy(), gateway.legacy());
    let waiting = other.begins_call("fake__sleep", &json!({"ms": 300}));
    for tool in ["fake__twice", "fake__unknown_id", "fake__stray_progress"] {
        assert_eq!(client.gets(tool, json!({})), json!({"done": true}), "{tool}");
    }
    let result = other.wire.answer_to(&waiting).unwrap();
    assert_eq!(result["structuredContent"], json!({"done": true}));
    client.wire.syncs();
    assert_eq!(client.wire.notifications_so_far("notifications/progress"), 0);
}

#[test]
fn lines_that_are_no_messages_are_skipped() {
    let gateway = Gateway::with_fake(&["--garbage-at-start", "500"]);
    let client = gateway.legacy();
    assert_eq!(
        client.gets("fake__garbage", json!({"lines": 1_000})),
        json!({"done": true})
    );
    assert_eq!(client.gets("fake__bad_utf8", json!({})), json!({"done": true}));
    assert_eq!(
        client.gets("fake__pid", json!({}))["calls"],
        2,
        "it was not started again"
    );
}

#[test]
fn an_answer_that_is_nested_too_deeply_is_garbage() {
    let gateway = Plan::new().backend_with("fake", &[], "call_timeout = \"1s\"").start();
    let client = gateway.legacy();
    client.fails_as("timeout", "fake__deep", json!({"depth": 5_000}));
    client.gets("fake__echo", json!({}));
}

#[test]
fn a_result_that_is_too_large_is_refused_and_the_next_one_is_not() {
    let gateway = Plan::new().backend_with("fake", &[], "result_max = \"1MiB\"").start();
    let client = gateway.legacy();
    let error = client.fails_as("result_too_large", "fake__big", json!({"bytes": 5_000_000}));
    assert_eq!(error["detail"]["limit"], 1024 * 1024);
    let result = client.result_of("fake__big", json!({"bytes": 900_000})).unwrap();
    assert_eq!(result["content"][0]["text"].as_str().unwrap().len(), 900_000);
}

#[test]
fn an_endless_line_costs_no_memory() {
    let gateway = Plan::new().backend_with("fake", &[], "result_max = \"1MiB\"").start();
    let client = gateway.legacy();
    client.gets("fake__echo", json!({}));
    let before = gateway.rss_kib();
    client.gets("fake__endless", json!({"bytes": 200 * 1024 * 1024}));
    let grown = gateway.peak_kib().saturating_sub(before);
    assert!(
        grown < 32 * 1024,
        "200 MiB in one line made the broker grow by {grown} KiB"
    );
    client.gets("fake__echo", json!({}));
}

#[test]
fn a_flood_of_notifications_holds_up_no_call() {
    let gateway = Plan::new().backend("fake", &[]).backend("other", &[]).start();
    let client = gateway.legacy();
    let flood = client.begins_call("fake__flood", &json!({"count": 50_000}));
    for _ in 0..20 {
        client.gets("other__echo", json!({}));
    }
    client.gets("fake__echo", json!({}));
    client.wire.answer_to(&flood).unwrap();
}

#[test]
fn a_flood_on_stderr_is_read_and_bounded() {
    let gateway = Gateway::with_fake(&["--stderr-at-start", "3000000"]);
    let client = gateway.legacy();
    client.gets("fake__stderr", json!({"bytes": 20_000_000}));
    client.gets("fake__echo", json!({}));
    assert!(gateway.peak_kib() < 400 * 1024);
}

#[test]
fn a_backend_that_stops_reading_is_busy_and_blocks_no_other() {
    let gateway = Plan::new()
        .backend_with("fake", &[], "concurrency = 4000\ncall_timeout = \"2s\"")
        .backend("other", &[])
        .start();
    let client = gateway.legacy();
    client.gets("fake__stop_reading", json!({}));
    let text = "x".repeat(64 * 1024);
    let calls: Vec<_> = (0..100)
        .map(|_| client.begins_call("fake__echo", &json!({"text": text})))
        .collect();
    let busy = eventually("a call is refused as busy", || {
        calls.iter().find_map(|call| {
            let answer = client.wire.answer_so_far(call)?;
            (answer["result"]["structuredContent"]["code"] == "backend_busy").then_some(answer)
        })
    });
    assert!(busy["result"]["structuredContent"]["retry_after_ms"].is_u64(), "{busy}");
    client.gets("other__echo", json!({}));
}
