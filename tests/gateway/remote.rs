//! Backends behind a URL, over every transport. The server is another broker, which shares a fake backend.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, tools_of},
    support::{Agent, Proxy, eventually},
};

/// The names of the backends of [`over_all`], each with what its tools begin with.
const TRANSPORTS: [(&str, &str); 4] = [
    ("modern", "modern__"),
    ("legacy", "legacy__"),
    // This endpoint shows all of the server, so the tools of its backend have names with a prefix there.
    ("sse", "sse__fake__"),
    ("socket", "socket__"),
];

/// A gateway that reaches the backend `fake` of this server over each transport.
fn over_all(server: &Gateway) -> Gateway {
    let at = server.address;
    let gateway = Plan::new()
        .url("modern", &format!("http://{at}/mcp/fake"), "era = \"modern\"")
        .url("legacy", &format!("http://{at}/mcp/fake"), "era = \"legacy\"")
        .url("sse", &format!("http://{at}/sse"), "transport = \"sse\"")
        .url("socket", &format!("ws://{at}/ws/fake"), "")
        .start();
    for (transport, _) in TRANSPORTS {
        assert!(!tools_of(&gateway.legacy(), transport).is_empty(), "{transport}");
    }
    gateway
}

#[test]
fn clients_of_both_eras_call_a_server_over_every_transport() {
    let server = Gateway::with_fake(&[]);
    let gateway = over_all(&server);
    let (legacy, modern) = (gateway.legacy(), gateway.modern_http());
    let arguments = json!({"z": 10_000_000_000_000_001_u64, "a": {"b": [1, "ü\n\"", null]}});
    for (transport, prefix) in TRANSPORTS {
        for client in [&legacy as &dyn Calls, &modern] {
            let echoed = client.gets(&format!("{prefix}echo"), arguments.clone());
            assert_eq!(echoed["arguments"], arguments, "{transport}");
            let error = client.result_of(&format!("{prefix}error"), json!({"code": -32050, "message": "quota"}));
            assert_eq!(
                error,
                Err(json!({"code": -32050, "message": "quota", "data": {"x": 1}})),
                "{transport}"
            );
            let result = client.result_of(&format!("{prefix}tool_error"), json!({})).unwrap();
            assert_eq!(result["isError"], true, "{transport}");
        }
    }
    let shown = gateway.get("/api/v1/backends").json();
    let shown = shown["backends"].as_array().unwrap().iter();
    let eras: Vec<_> = shown
        .map(|shown| (shown["name"].as_str().unwrap(), shown["era"].as_str().unwrap()))
        .collect();
    assert_eq!(
        eras,
        [
            ("legacy", "legacy"),
            ("modern", "modern"),
            ("socket", "modern"),
            ("sse", "legacy")
        ]
    );
}

#[test]
fn progress_comes_over_every_transport() {
    let server = Gateway::with_fake(&[]);
    let gateway = over_all(&server);
    for (transport, prefix) in TRANSPORTS {
        let client = gateway.legacy();
        let params = json!({
            "name": format!("{prefix}progress"),
            "arguments": {"steps": 3},
            "_meta": {"progressToken": "mine"},
        });
        client.request("tools/call", params).unwrap();
        for step in 1..=3 {
            let progress = client.wire.next_notification("notifications/progress");
            assert_eq!(
                (&progress["progressToken"], &progress["progress"]),
                (&json!("mine"), &json!(step)),
                "{transport}"
            );
        }
    }
}

#[test]
fn a_cancelled_call_is_cancelled_at_the_server_over_every_transport() {
    let server = Gateway::with_fake(&[]);
    let gateway = over_all(&server);
    let at_server = server.legacy();
    let count = |tool: &str, of: &str| at_server.gets(tool, json!({}))[of].to_string();
    for (at, (transport, prefix)) in TRANSPORTS.into_iter().enumerate() {
        let client = gateway.legacy();
        let call = client.begins_call(&format!("{prefix}never"), &json!({}));
        eventually(&format!("the call has come over {transport}"), || {
            let received = count("fake__received", "lines");
            (received.matches("\\\"name\\\":\\\"never\\\"").count() == at + 1).then_some(())
        });
        client.wire.cancels(&call);
        eventually(&format!("it is cancelled over {transport}"), || {
            let cancelled = at_server.gets("fake__cancelled", json!({}));
            (cancelled["ids"].as_array().unwrap().len() == at + 1).then_some(())
        });
    }
}

#[test]
fn a_new_tool_is_heard_of_over_every_transport() {
    let server = Gateway::with_fake(&[]);
    let gateway = over_all(&server);
    server.legacy().gets("fake__add_tool", json!({"name": "brand_new"}));
    let client = gateway.legacy();
    for (transport, prefix) in TRANSPORTS {
        eventually(&format!("the new tool is listed over {transport}"), || {
            let name = format!("{prefix}brand_new");
            let names = tools_of(&client, transport);
            let is_listed = names.iter().any(|known| format!("{transport}__{known}") == name);
            is_listed.then_some(())
        });
        client.gets(&format!("{prefix}brand_new"), json!({}));
    }
}

#[test]
fn many_calls_run_at_once_and_each_has_its_own_answer() {
    let server = Gateway::with_fake(&[]);
    let gateway = over_all(&server);
    let clients: Vec<Agent> = (0..4).map(|_| gateway.legacy()).collect();
    for (transport, prefix) in TRANSPORTS {
        let mut calls = Vec::new();
        for at in 0..50 {
            for (number, client) in clients.iter().enumerate() {
                let id = client.begins_call(&format!("{prefix}echo"), &json!({"at": at, "client": number}));
                calls.push((client, number, at, id));
            }
        }
        for (client, number, at, id) in calls {
            let result = client.wire.answer_to(&id).unwrap();
            let echoed = &result["structuredContent"]["arguments"];
            assert_eq!(*echoed, json!({"at": at, "client": number}), "{transport}: {result}");
        }
    }
}

#[test]
fn a_large_result_comes_over_every_transport_and_one_that_is_too_large_does_not() {
    let server = Gateway::with_fake(&[]);
    let at = server.address;
    let limit = "result_max = \"1MiB\"";
    let gateway = Plan::new()
        .url("modern", &format!("http://{at}/mcp/fake"), limit)
        .url(
            "legacy",
            &format!("http://{at}/mcp/fake"),
            &format!("era = \"legacy\"\n{limit}"),
        )
        .url(
            "sse",
            &format!("http://{at}/sse"),
            &format!("transport = \"sse\"\n{limit}"),
        )
        .start();
    let client = gateway.legacy();
    for prefix in ["modern__", "legacy__", "sse__fake__"] {
        let big = format!("{prefix}big");
        let result = client.result_of(&big, json!({"bytes": 900_000})).unwrap();
        assert_eq!(
            result["content"][0]["text"].as_str().unwrap().len(),
            900_000,
            "{prefix}"
        );
        let error = client.fails_as("result_too_large", &big, json!({"bytes": 5_000_000}));
        assert_eq!(error["detail"]["limit"], 1024 * 1024);
        client.gets(&format!("{prefix}echo"), json!({}));
    }
}

#[test]
fn a_server_that_was_started_again_is_used_again_without_a_word_to_the_callers() {
    let first = Gateway::with_fake(&[]);
    let proxy = Proxy::to(first.address);
    let at = proxy.address;
    let gateway = Plan::new()
        .url("legacy", &format!("http://{at}/mcp/fake"), "era = \"legacy\"")
        .url("modern", &format!("http://{at}/mcp/fake"), "")
        .start();
    let client = gateway.legacy();
    for name in ["legacy", "modern"] {
        client.gets(&format!("{name}__echo"), json!({}));
    }
    // The session of the first one is unknown to the second.
    let second = Gateway::with_fake(&["--tool", "of_second"]);
    proxy.redirect_to(second.address);
    for name in ["legacy", "modern"] {
        client.gets(&format!("{name}__echo"), json!({}));
    }
    eventually("the tools of the new server are listed", || {
        let names = tools_of(&client, "legacy");
        names.iter().any(|name| name == "of_second").then_some(())
    });
    let starts = |name: &str| gateway.get(&format!("/api/v1/backends/{name}")).json()["starts"].clone();
    assert_eq!(starts("legacy"), 1, "its session was renewed");
}

#[test]
fn a_server_that_is_gone_costs_the_others_nothing_and_is_found_when_it_is_back() {
    let (gone, there) = (Gateway::with_fake(&[]), Gateway::with_fake(&[]));
    let proxy = Proxy::to(gone.address);
    let gateway = Plan::new()
        .url("gone", &format!("http://{}/mcp/fake", proxy.address), "")
        .url("socket", &format!("ws://{}/ws/fake", proxy.address), "")
        .url("there", &format!("http://{}/mcp/fake", there.address), "")
        .start();
    let client = gateway.legacy();
    for name in ["gone", "socket"] {
        client.gets(&format!("{name}__echo"), json!({}));
    }
    let open: Vec<Value> = ["gone__never", "socket__never"]
        .map(|tool| client.begins_call(tool, &json!({})))
        .into();
    let at_server = gone.legacy();
    eventually("both calls have reached the server", || {
        let received = at_server.gets("fake__received", json!({})).to_string();
        (received.matches("\\\"never\\\"").count() >= 2).then_some(())
    });
    proxy.cut();
    for call in open {
        let result = client.wire.answer_to(&call).unwrap();
        assert_eq!(result["structuredContent"]["code"], "backend_died", "{result}");
    }
    for name in ["gone", "socket"] {
        eventually("calls are refused at once", || {
            let mut result = client.result_of(&format!("{name}__echo"), json!({})).unwrap();
            let error = result["structuredContent"].take();
            (error["code"] == "backend_unavailable" && error["retry_after_ms"].is_u64()).then_some(())
        });
    }
    client.gets("there__echo", json!({}));
    proxy.restore();
    for name in ["gone", "socket"] {
        eventually("it is used again", || {
            let result = client.result_of(&format!("{name}__echo"), json!({})).unwrap();
            (result["isError"] != true).then_some(())
        });
    }
}
