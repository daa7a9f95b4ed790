//! Backends that write what they should not: answers twice, garbage, endless lines, floods.

use serde_json::json;

use super::{
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
    assert_eq!(
        client.gets("fake__pid", json!({}))["calls"],
        1,
        "it was not started again"
    );
}

#[test]
fn what_is_recognisably_an_answer_ends_its_call_at_once() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.legacy();
    for (text, reason) in [
        (r#"{"jsonrpc":"2.0","id":ID,"result":{"x":NaN}}"#, "it is no JSON"),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"x\":\"\u{1}\"}}",
            "control character",
        ),
        (r#"{"result":{"x":[1,]},"jsonrpc":"2.0","id":"ID"}"#, "it is no JSON"),
        (r#"{"id":ID,"result":{}}"#, "jsonrpc"),
        (r#"{"jsonrpc":"2.0","id":ID.0,"error":null}"#, "neither"),
        (
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what is this"}}"#,
            "without its id: what is this",
        ),
    ] {
        let error = client.fails_as("backend_protocol", "fake__raw", json!({"text": text}));
        assert!(error["message"].as_str().unwrap().contains(reason), "{text}: {error}");
    }
    // What answers a notification, and what a program prints, is about no call.
    for text in [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}"#,
        r#"{"level":"info","id":ID,"msg":"called"}"#,
    ] {
        let answer = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"done":true}}}"#;
        let text = format!("{text}\n{answer}");
        assert_eq!(client.gets("fake__raw", json!({"text": text})), json!({"done": true}));
    }
    // With two open calls it is not known which one is meant.
    let waiting = client.begins_call("fake__sleep", &json!({"ms": 300}));
    let refusal = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#;
    let unnamed = client.begins_call("fake__raw", &json!({"text": refusal}));
    client.wire.answer_to(&waiting).unwrap();
    assert!(client.wire.answer_so_far(&unnamed).is_none());
}

#[test]
fn an_answer_that_is_written_in_another_way_is_one() {
    let gateway = Gateway::with_fake(&[]);
    let (client, modern) = (gateway.legacy(), gateway.modern_http());
    let result = r#"{"content":[],"structuredContent":{"x":1},"isError":null,"_meta":null}"#;
    for form in [
        r#"{"jsonrpc":"2.0","id":ID,"error":null,"result":RESULT}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":RESULT,"error":null}"#,
        r#"{"jsonrpc":"2.0","id":"ID","method":null,"params":null,"result":RESULT}"#,
        r#"{"jsonrpc":"2.0","id":ID.0,"result":RESULT}"#,
        r#"{"jsonrpc":"2.0","id":IDe0,"result":RESULT}"#,
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":RESULT}",
        r#"[{"jsonrpc":"2.0","id":ID,"result":RESULT}]"#,
    ] {
        let text = form.replace("RESULT", result);
        for client in [&client as &dyn Calls, &modern] {
            let mut answer = client.result_of("fake__raw", json!({"text": text})).unwrap();
            assert_eq!(answer["structuredContent"].take(), json!({"x": 1}), "{form}");
            let answer = answer.as_object().unwrap();
            assert!(
                !answer.contains_key("isError") && answer.get("_meta") != Some(&json!(null)),
                "{form}"
            );
        }
    }
    let error = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000.0,"message":"no"}}"#;
    assert_eq!(client.code_of("fake__raw", json!({"text": error})), -32000);
}

#[test]
fn what_would_spoil_the_frame_of_the_caller_is_replaced() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.legacy();
    let result = client.result_of("fake__bad_utf8", json!({})).unwrap();
    assert_eq!(result["x"], "\u{fffd}");
    let text = r#"{"jsonrpc":"2.0","id":ID,"result":{"x":"a\ud800b\ud83d\ude00\\ud800"}}"#;
    let result = client.result_of("fake__raw", json!({"text": text})).unwrap();
    assert_eq!(result["x"], "a\u{fffd}b\u{1f600}\\ud800");
}

#[test]
fn deep_results_are_passed_on() {
    let gateway = Gateway::with_fake(&[]);
    let of_depth = |depth: usize| {
        let call = gateway.modern_http().call("fake__deep", json!({"depth": depth}));
        call.answered().body.matches('[').count()
    };
    for depth in [110, 5_000, 100_000] {
        assert_eq!(of_depth(depth), depth);
    }
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
