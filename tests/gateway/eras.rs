//! Every client with every backend: the four pairs of eras.

use serde_json::{Value, json};

use super::harness::{Calls, Gateway, Plan};

const ERAS: [(&str, &[&str]); 3] = [
    ("legacy", &["--era", "legacy"]),
    ("modern", &["--era", "modern"]),
    ("locked", &["--era", "both", "--lock"]),
];

fn with_all_eras() -> Gateway {
    let plan = ERAS
        .iter()
        .fold(Plan::new(), |plan, (name, flags)| plan.backend(name, flags));
    plan.start()
}

#[test]
fn clients_of_both_eras_call_backends_of_both_eras() {
    let gateway = with_all_eras();
    let (legacy, modern, http) = (gateway.legacy(), gateway.modern_socket(), gateway.modern_http());
    for (backend, _) in ERAS {
        let tool = format!("{backend}__echo");
        // Numbers that no double holds, and members in an order of their own.
        let arguments = json!({"z": 10_000_000_000_000_001_u64, "a": {"b": [1, "ü\n\"", null]}});
        for (era, echoed) in [
            ("legacy", legacy.gets(&tool, arguments.clone())),
            ("modern", modern.gets(&tool, arguments.clone())),
            ("modern over HTTP", http.gets(&tool, arguments.clone())),
        ] {
            assert_eq!(echoed["arguments"], arguments, "{era} client, {backend} backend");
            assert_eq!(echoed["name"], "echo");
            let meta = &echoed["meta"];
            if backend == "legacy" {
                assert!(
                    meta.is_null(),
                    "a legacy backend gets no members of the other era: {meta}"
                );
            } else {
                assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
                assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "a test", "{era}");
            }
        }
        let from_legacy = legacy.result_of(&tool, json!({})).unwrap();
        assert!(from_legacy.get("resultType").is_none(), "{from_legacy}");
        assert_eq!(modern.result_of(&tool, json!({})).unwrap()["resultType"], "complete");
    }
}

#[test]
fn unknown_members_of_params_and_meta_are_passed_on() {
    let gateway = with_all_eras();
    let client = gateway.legacy();
    for (backend, _) in ERAS {
        let params = json!({
            "name": format!("{backend}__received"),
            "arguments": {},
            "_meta": {"vendor/x": {"y": 1}, "traceparent": "00-1-2-01"},
            "vendor": [1],
        });
        let result = client.request("tools/call", params).unwrap();
        let lines = result["structuredContent"]["lines"].as_array().unwrap();
        let seen: Value = serde_json::from_str(lines.last().unwrap().as_str().unwrap()).unwrap();
        assert_eq!(seen["params"]["vendor"], json!([1]), "{backend}");
        assert_eq!(seen["params"]["_meta"]["vendor/x"], json!({"y": 1}), "{backend}");
        assert_eq!(seen["params"]["_meta"]["traceparent"], "00-1-2-01", "{backend}");
    }
}

#[test]
fn results_that_the_other_era_does_not_know_are_translated() {
    let gateway = with_all_eras();
    let (legacy, modern) = (gateway.legacy(), gateway.modern_socket());
    // Structured content that is no object is new in 2026-07-28.
    let result = modern.result_of("modern__structured_array", json!({})).unwrap();
    assert_eq!(result["structuredContent"], json!([1, 2]));
    let result = legacy.result_of("modern__structured_array", json!({})).unwrap();
    assert!(result.get("structuredContent").is_none(), "{result}");
    assert_eq!(result["content"][0]["text"], "[1,2]");
    // The code for a resource that does not exist.
    let missing = json!({"uri": "legacy+fake://none"});
    assert_eq!(legacy.error_of("resources/read", missing.clone()), -32002);
    assert_eq!(modern.error_of("resources/read", missing), -32602);
    let read = modern
        .request("resources/read", json!({"uri": "legacy+fake://one"}))
        .unwrap();
    assert_eq!(
        (&read["resultType"], &read["cacheScope"]),
        (&json!("complete"), &json!("private"))
    );
    assert!(read["ttlMs"].is_u64());
}

#[test]
fn a_backend_that_asks_its_caller_gets_no_answer_and_the_caller_an_error() {
    let gateway = with_all_eras();
    let client = gateway.legacy();
    let error = client.fails_as("backend_protocol", "modern__input_required", json!({}));
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("asks its caller") && message.contains("not declared elicitation"),
        "{error}"
    );
    for (method, expected) in [("elicitation/create", -32601), ("sampling/createMessage", -32601)] {
        let answer = client.gets("legacy__ask", json!({"method": method}));
        assert_eq!(answer["response"]["code"], expected, "{answer}");
    }
    let roots = client.gets("legacy__ask", json!({"method": "roots/list"}));
    assert_eq!(roots["response"], json!({"roots": []}));
}

#[test]
fn errors_of_a_backend_are_passed_on_as_they_are() {
    let gateway = with_all_eras();
    for (backend, _) in ERAS {
        let error = gateway.modern_socket().result_of(
            &format!("{backend}__error"),
            json!({"code": -32050, "message": "quota"}),
        );
        assert_eq!(
            error,
            Err(json!({"code": -32050, "message": "quota", "data": {"x": 1}}))
        );
        let result = gateway
            .legacy()
            .result_of(&format!("{backend}__tool_error"), json!({}))
            .unwrap();
        assert_eq!(result["isError"], true);
    }
}

#[test]
fn progress_reaches_the_caller_that_asked_for_it_and_no_other() {
    let gateway = with_all_eras();
    for (backend, _) in ERAS {
        let (client, other) = (gateway.legacy(), gateway.legacy());
        let params = |steps: u64, token: Value| {
            json!({
                "name": format!("{backend}__progress"),
                "arguments": {"steps": steps},
                "_meta": {"progressToken": token},
            })
        };
        let first = client.wire.asks("tools/call", params(3, json!("mine")));
        let second = other.wire.asks("tools/call", params(2, json!(7)));
        client.wire.answer_to(&first).unwrap();
        other.wire.answer_to(&second).unwrap();
        for step in 1..=3 {
            let progress = client.wire.next_notification("notifications/progress");
            assert_eq!(
                (&progress["progressToken"], &progress["progress"]),
                (&json!("mine"), &json!(step))
            );
            assert_eq!(progress["message"], "on it");
        }
        for _ in 1..=2 {
            assert_eq!(
                other.wire.next_notification("notifications/progress")["progressToken"],
                7
            );
        }
        assert_eq!(client.wire.notifications_so_far("notifications/progress"), 0);
    }
}

#[test]
fn a_modern_client_over_http_gets_progress_before_its_answer() {
    let gateway = with_all_eras();
    let params = json!({"name": "legacy__progress", "arguments": {"steps": 2}, "_meta": {"progressToken": "t"}});
    let mut stream = gateway.modern_http().asks("tools/call", params).sent().streams();
    for step in 1..=2 {
        let frame = stream.next_frame();
        assert_eq!(
            (&frame["params"]["progressToken"], &frame["params"]["progress"]),
            (&json!("t"), &json!(step))
        );
    }
    assert_eq!(stream.next_frame()["result"]["resultType"], "complete");
}
