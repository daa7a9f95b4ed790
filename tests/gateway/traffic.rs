//! Many calls at once: deadlines, cancellation, turns, and the end of the broker.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan},
    support::{HttpAgent, eventually},
};

#[test]
fn a_call_without_an_answer_ends_at_its_deadline_and_is_cancelled_at_the_backend() {
    let gateway = Plan::new()
        .backend_with("fake", &[], "call_timeout = \"500ms\"")
        .start();
    let client = gateway.legacy();
    let error = client.fails_as("timeout", "fake__late", json!({"ms": 700}));
    assert!(
        error["message"].as_str().unwrap().contains("no answer within 0.5"),
        "{error}"
    );
    eventually("the backend was told", || {
        let cancelled = client.gets("fake__cancelled", json!({}));
        (cancelled["ids"].as_array().unwrap().len() == 1).then_some(())
    });
    // The late answer reaches no other call.
    for at in 0..50 {
        assert_eq!(client.gets("fake__echo", json!({"at": at}))["arguments"]["at"], at);
    }
}

#[test]
fn progress_gives_a_call_more_time() {
    let gateway = Plan::new().backend_with("fake", &[], "call_timeout = \"2s\"").start();
    let client = gateway.legacy();
    let params = json!({
        "name": "fake__progress",
        "arguments": {"steps": 6, "ms": 600},
        "_meta": {"progressToken": 1},
    });
    let result = client.request("tools/call", params).unwrap();
    assert_eq!(
        result["structuredContent"],
        json!({"done": true}),
        "it took 3.6 s of at most 2 s without progress"
    );
}

#[test]
fn slow_calls_hold_up_no_fast_ones_of_the_same_backend() {
    let gateway = Gateway::with_fake(&[]);
    let (slow, fast) = (gateway.legacy(), gateway.legacy());
    let waiting: Vec<_> = (0..10).map(|_| slow.begins_call("fake__never", &json!({}))).collect();
    for at in 0..100 {
        assert_eq!(fast.gets("fake__echo", json!({"at": at}))["arguments"]["at"], at);
    }
    for call in &waiting {
        slow.wire.cancels(call);
    }
    eventually("the cancelled calls were told to the backend", || {
        let cancelled = fast.gets("fake__cancelled", json!({}));
        (cancelled["ids"].as_array().unwrap().len() == 10).then_some(())
    });
    slow.wire.syncs();
    assert!(
        waiting.iter().all(|call| slow.wire.answer_so_far(call).is_none()),
        "a cancelled call has no answer"
    );
}

#[test]
fn a_caller_that_disconnects_cancels_its_call() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.legacy();
    let http = gateway.modern_http();
    let params = json!({"name": "fake__never", "arguments": {}, "_meta": {"progressToken": 1}});
    let call = http.asks("tools/call", params).sent();
    let socket = gateway.legacy();
    socket.begins_call("fake__never", &json!({}));
    eventually("both calls have reached the backend", || {
        let received = client.gets("fake__received", json!({}));
        (received.to_string().matches("\\\"never\\\"").count() >= 2).then_some(())
    });
    call.disconnects();
    socket.wire.disconnects();
    eventually("both were cancelled", || {
        let cancelled = client.gets("fake__cancelled", json!({}));
        (cancelled["ids"].as_array().unwrap().len() == 2).then_some(())
    });
}

#[test]
fn callers_take_turns_where_a_backend_runs_one_call_at_a_time() {
    let gateway = Plan::new().backend_with("fake", &[], "concurrency = 1").start();
    let (greedy, modest) = (gateway.legacy(), gateway.legacy());
    greedy.gets("fake__echo", json!({}));
    let many: Vec<_> = (0..60)
        .map(|_| greedy.begins_call("fake__sleep", &json!({"ms": 50})))
        .collect();
    greedy.wire.syncs();
    modest.gets("fake__echo", json!({}));
    let served = many
        .iter()
        .filter(|call| greedy.wire.answer_so_far(call).is_some())
        .count();
    assert!(served < 30, "{served} calls of another caller came first");
}

#[test]
fn a_cancelled_call_that_goes_on_counts_among_those_that_run_at_once() {
    const LIMIT: u64 = 2;
    let gateway = Plan::new()
        .backend_with("fake", &[], &format!("concurrency = {LIMIT}"))
        .start();
    let client = gateway.legacy();
    client.gets("fake__echo", json!({}));
    for _ in 0..5 {
        let call = client.begins_call("fake__late", &json!({"ms": 300}));
        eventually("it runs", || {
            let calls = gateway.get("/api/v1/gateway/calls").json();
            (calls["calls"][0]["state"] == "running").then_some(())
        });
        client.wire.cancels(&call);
        eventually("it is cancelled", || {
            (gateway.get("/api/v1/gateway/calls").json()["total"] == 0).then_some(())
        });
    }
    let most = client.gets("fake__most_at_once", json!({}));
    assert_eq!(most, json!({"calls": LIMIT}));
}

#[test]
fn further_calls_of_a_connection_are_refused_as_unavailable() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.legacy();
    client.gets("fake__echo", json!({}));
    for _ in 0..256 {
        client.begins_call("fake__never", &json!({}));
    }
    let error = client.fails_as("unavailable", "fake__echo", json!({}));
    assert_eq!(error["detail"]["retryable"], true, "{error}");
}

#[test]
fn ids_and_tokens_of_clients_are_their_own() {
    let gateway = Gateway::with_fake(&[]);
    let clients: Vec<_> = (0..5).map(|_| gateway.legacy()).collect();
    for id in [
        json!(1),
        json!("1"),
        json!("a\"b"),
        json!(-5),
        json!(9_007_199_254_740_993_u64),
    ] {
        for (at, client) in clients.iter().enumerate() {
            let params = json!({"name": "fake__echo", "arguments": {"at": at}});
            client.wire.asks_as(&id, "tools/call", params);
        }
        for (at, client) in clients.iter().enumerate() {
            let result = client.wire.answer_to(&id).unwrap();
            assert_eq!(result["structuredContent"]["arguments"]["at"], at);
        }
    }
}

#[test]
fn ten_agents_of_both_eras_share_one_process() {
    let gateway = Gateway::with_fake(&[]);
    let (legacy, modern): (Vec<_>, Vec<HttpAgent>) = (0..5).map(|_| (gateway.legacy(), gateway.modern_http())).unzip();
    let pids: Vec<Value> = legacy
        .iter()
        .map(|client| client.gets("fake__pid", json!({}))["pid"].clone())
        .chain(
            modern
                .iter()
                .map(|client| client.gets("fake__pid", json!({}))["pid"].clone()),
        )
        .collect();
    assert_eq!(pids.len(), 10);
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    assert_eq!(gateway.programs().len(), 1);
}

#[test]
fn a_line_break_between_tokens_does_not_make_two_messages() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.modern_http();
    let mut request = client.asks(
        "tools/call",
        json!({"name": "fake__echo", "arguments": {"a": {"b": [1]}}}),
    );
    let text = String::from_utf8(request.body.clone()).unwrap();
    request.body = text.replace(":{", ":\r\n{\n").replace('[', "\n[\r").into_bytes();
    let result = request.sent().answer_to(&json!(1)).unwrap();
    assert_eq!(result["structuredContent"]["arguments"], json!({"a": {"b": [1]}}));
}

#[test]
fn params_that_are_not_json_never_reach_the_backend() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.legacy();
    for wrong in [
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"fake__echo","arguments":{"a":tru}}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"fake__echo","arguments":{},"x":1e}}"#,
    ] {
        client.wire.sends_text(wrong);
        let answer = client
            .wire
            .awaits_frame("a refusal", |frame| frame["error"]["code"] == -32700);
        assert!(answer.get("result").is_none());
    }
    let received = client.gets("fake__received", json!({}));
    assert!(!received.to_string().contains("tru}"), "{received}");
}

#[test]
fn the_broker_ends_open_calls_and_all_programs_when_it_stops() {
    let mut gateway = Plan::new().backend("fake", &[]).flag("--shutdown-grace=2s").start();
    let client = gateway.legacy();
    client.gets("fake__echo", json!({}));
    let (never, slow) = (
        client.begins_call("fake__never", &json!({})),
        client.begins_call("fake__sleep", &json!({"ms": 300})),
    );
    client.wire.syncs();
    gateway.broker().terminate();
    let result = client.wire.answer_to(&slow).unwrap();
    assert_eq!(
        result["structuredContent"],
        json!({"done": true}),
        "it ends within the grace"
    );
    let result = client.wire.answer_to(&never).unwrap();
    assert_eq!(result["structuredContent"]["code"], "shutting_down", "{result}");
    gateway.broker().wait_for_exit();
    gateway.awaits_no_processes();
}
