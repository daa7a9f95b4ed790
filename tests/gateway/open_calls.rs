//! The open calls of backends: operators see them in each of their states, and end them.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan},
    operators::{cli, json_of, text},
    support::{ADMIN_KEY, Agent, HttpAgent, Redis, Response, eventually, id_of_key, keys},
};

const PATH: &str = "/api/v1/gateway/calls";

fn shown(gateway: &Gateway) -> Vec<Value> {
    gateway.get(PATH).json()["calls"].as_array().unwrap().clone()
}

/// Waits until the open calls are in these states, the oldest first.
fn awaits_states<const N: usize>(gateway: &Gateway, states: [&str; N]) -> [Value; N] {
    eventually(&format!("the calls are {states:?}"), || {
        let calls: [Value; N] = shown(gateway).try_into().ok()?;
        let fit = calls.iter().zip(states).all(|(call, state)| call["state"] == state);
        fit.then_some(calls)
    })
}

fn ends(gateway: &Gateway, call: &Value) -> Response {
    let id = call["call_id"].as_str().unwrap();
    gateway.rest_with(&[], "DELETE", &format!("{PATH}/{id}"), &Value::Null)
}

fn is_ended(gateway: &Gateway, call: &Value) {
    let response = ends(gateway, call);
    assert_eq!((response.status, response.body.as_str()), (204, ""));
}

/// The one answer to a call says that an operator has ended it.
fn is_told(client: &Agent, call: &Value, backend: &str) {
    let result = client.wire.answer_to(call).unwrap();
    assert_eq!(result["isError"], true, "{result}");
    let error = &result["structuredContent"];
    assert_eq!(error["code"], "call_cancelled", "{result}");
    assert_eq!(error["detail"], json!({"backend": backend, "retryable": false}));
    assert!(client.wire.answer_so_far(call).is_none(), "it is answered once");
}

/// Waits until the backend was told that so many calls are not wanted.
fn were_cancelled(client: &Agent, backend: &str, count: usize) {
    eventually("the backend was told", || {
        let cancelled = client.gets(&format!("{backend}__cancelled"), json!({}));
        (cancelled["ids"].as_array().unwrap().len() == count).then_some(())
    });
}

fn asking_clients() -> Value {
    json!({"elicitation": {}, "roots": {}})
}

#[test]
fn calls_that_run_and_that_wait_for_their_turn_are_shown_and_ended() {
    let gateway = Plan::new()
        .backend_with("fake", &[], "concurrency = 1")
        .backend("other", &[])
        .start();
    let client = gateway.client().registered("alice");
    client.gets("fake__echo", json!({}));
    assert_eq!(
        gateway.get(PATH).json(),
        json!({"calls": [], "total": 0, "replica": null})
    );

    let never = client.begins_call("fake__never", &json!({}));
    awaits_states(&gateway, ["running"]);
    let later = client.begins_call("fake__echo", &json!({"x": "not-sent"}));
    let [running, waiting] = awaits_states(&gateway, ["running", "waiting"]);
    assert_eq!(
        keys(&running),
        [
            "age_ms",
            "backend",
            "call_id",
            "caller",
            "method",
            "name",
            "session_id",
            "session_name",
            "since",
            "state",
            "tool"
        ]
    );
    for (call, tool) in [(&running, "never"), (&waiting, "echo")] {
        let expected = json!({
            "backend": "fake", "method": "tools/call", "tool": tool, "name": format!("fake__{tool}"),
            "caller": "anonymous", "session_id": client.session, "session_name": "alice",
        });
        for (member, value) in expected.as_object().unwrap() {
            assert_eq!(call[member], *value, "{call}");
        }
    }
    assert!(running["age_ms"].as_u64() >= waiting["age_ms"].as_u64());
    for (backend, count) in [("fake", 2), ("other", 0)] {
        let calls = gateway.get(&format!("{PATH}?backend={backend}")).json();
        assert_eq!(calls["total"], count, "{calls}");
    }
    let unknown = gateway.get(&format!("{PATH}?backend=none"));
    assert_eq!(unknown.problem(), (404, "backend_not_found".to_owned()));

    is_ended(&gateway, &waiting);
    is_told(&client, &later, "fake");
    awaits_states(&gateway, ["running"]);
    is_ended(&gateway, &running);
    is_told(&client, &never, "fake");
    awaits_states(&gateway, []);
    for call in [&running, &waiting, &json!({"call_id": "no-id"})] {
        let again = ends(&gateway, call);
        assert_eq!(again.problem(), (404, "call_not_found".to_owned()));
    }
    were_cancelled(&client, "fake", 1);
    let received = client.gets("fake__received", json!({}));
    assert!(!received.to_string().contains("not-sent"), "{received}");
    let metrics = gateway.get("/metrics").body;
    let line = "mcp_broker_backend_calls_total{project=\"default\",backend=\"fake\",outcome=\"cancelled\"} 2";
    assert!(metrics.lines().any(|known| known == line), "{metrics}");
}

#[test]
fn a_call_that_waits_for_its_backend_is_ended() {
    let gateway = Plan::new()
        .backend_with("silent", &["--silent"], "start_timeout = \"1h\"")
        .flag("--gateway-list-wait=100ms")
        .start();
    let client = gateway.legacy();
    let call = client.begins_call("silent__anything", &json!({}));
    let [waiting] = awaits_states(&gateway, ["waiting"]);
    assert_eq!(waiting["name"], "silent__anything", "the name that was called");
    assert!(waiting.get("tool").is_none(), "the backend has not told of it");
    is_ended(&gateway, &waiting);
    is_told(&client, &call, "silent");
}

#[test]
fn a_name_that_was_called_before_the_backend_told_of_its_tools_becomes_its_own_one() {
    let plan = Plan::new();
    let starts = plan.file("starts");
    let gateway = plan
        .backend("fake", &["--start-delay", "300", "--starts", &starts])
        .start();
    let client = gateway.legacy();
    let call = client.begins_call("fake__never", &json!({}));
    let [running] = awaits_states(&gateway, ["running"]);
    assert_eq!(
        (&running["tool"], &running["name"]),
        (&json!("never"), &json!("fake__never"))
    );
    is_ended(&gateway, &running);
    is_told(&client, &call, "fake");
}

#[test]
fn calls_that_are_answered_while_they_are_ended_have_one_answer() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.legacy();
    client.gets("fake__echo", json!({}));
    let calls: Vec<_> = (0..60)
        .map(|at| client.begins_call("fake__late", &json!({"ms": at * 3})))
        .collect();
    client.wire.syncs();
    let statuses: Vec<_> = shown(&gateway).iter().map(|call| ends(&gateway, call).status).collect();
    assert!(
        statuses.iter().all(|status| matches!(status, 204 | 404)),
        "{statuses:?}"
    );
    let is_cancelled = |call: &&Value| {
        let result = client.wire.answer_to(call).unwrap();
        assert!(client.wire.answer_so_far(call).is_none(), "it is answered once");
        result["structuredContent"]["code"] == "call_cancelled"
    };
    let cancelled = calls.iter().filter(is_cancelled).count();
    let ended = statuses.iter().filter(|status| **status == 204).count();
    assert_eq!(cancelled, ended, "the answer of a caller is what its operator was told");
}

#[test]
fn the_caller_of_another_method_gets_an_error() {
    let gateway = Plan::new().backend_with("fake", &[], "concurrency = 1").start();
    let client = gateway.legacy();
    client.gets("fake__echo", json!({}));
    let never = client.begins_call("fake__never", &json!({}));
    awaits_states(&gateway, ["running"]);
    let prompt = client.wire.asks("prompts/get", json!({"name": "fake__greet"}));
    let [running, waiting] = awaits_states(&gateway, ["running", "waiting"]);
    assert_eq!(waiting["method"], "prompts/get");
    is_ended(&gateway, &waiting);
    let error = client.wire.answer_to(&prompt).unwrap_err();
    assert_eq!(error["data"]["code"], "call_cancelled", "{error}");
    is_ended(&gateway, &running);
    is_told(&client, &never, "fake");
}

/// Waits until the backend `old` has written that a call was cancelled. It takes no other call then.
fn awaits_cancellation(gateway: &Gateway) {
    eventually("the backend was told", || {
        let log = gateway.asks_backends("GET", "/old/log", &Value::Null).json();
        log.to_string().contains("was cancelled").then_some(())
    });
}

#[test]
fn a_parked_call_is_shown_under_one_id_and_its_caller_does_not_find_it_once_it_is_ended() {
    let gateway = Plan::new()
        .backend_with("old", &["--era", "legacy"], "asks = true")
        .start();
    let client = HttpAgent::modern(gateway.address, asking_clients());
    let call = json!({"name": "old__ask_both", "arguments": {}});
    let asked = client.request("tools/call", call.clone()).unwrap();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let [parked] = awaits_states(&gateway, ["parked"]);
    assert_eq!(parked["tool"], "ask_both");

    // With one of two answers it is parked again.
    let answered = |asked: &Value, responses: Value| {
        let mut call = call.clone();
        call["inputResponses"] = responses;
        call["requestState"] = asked["requestState"].clone();
        client.request("tools/call", call)
    };
    let asked = answered(&asked, json!({"input-2": {"roots": []}})).unwrap();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let [again] = awaits_states(&gateway, ["parked"]);
    assert_eq!(again["call_id"], parked["call_id"]);

    is_ended(&gateway, &again);
    assert_eq!(shown(&gateway), [] as [Value; 0]);
    assert_eq!(ends(&gateway, &again).problem(), (404, "call_not_found".to_owned()));
    let answer = json!({"input": {"action": "accept", "content": {"colour": "red"}}});
    let error = answered(&asked, answer).unwrap_err();
    assert_eq!(error["data"]["reason"], "invalid_request_state", "{error}");
    awaits_cancellation(&gateway);
}

#[test]
fn a_parked_call_whose_caller_has_come_back_is_over() {
    let gateway = Plan::new()
        .backend_with("old", &["--era", "legacy"], "asks = true")
        .start();
    let client = Agent::modern(gateway.wire(), asking_clients());
    let call = json!({"name": "old__ask_both", "arguments": {}});
    let asked = client.request("tools/call", call.clone()).unwrap();
    let [parked] = awaits_states(&gateway, ["parked"]);
    let mut answered = call;
    answered["inputResponses"] = json!({
        "input": {"action": "accept", "content": {"colour": "red"}}, "input-2": {"roots": []},
    });
    answered["requestState"] = asked["requestState"].clone();
    let result = client.request("tools/call", answered).unwrap();
    assert_eq!(result["structuredContent"]["responses"][1], json!({"roots": []}));
    assert_eq!(ends(&gateway, &parked).problem(), (404, "call_not_found".to_owned()));
}

#[test]
fn a_call_whose_legacy_caller_is_asked_is_ended() {
    let gateway = Plan::new()
        .backend_with("old", &["--era", "legacy"], "asks = true")
        .backend("new", &["--era", "modern"])
        .start();
    let client = Agent::legacy(gateway.wire(), "2025-11-25", &asking_clients());
    for (tool, state) in [("old__ask", "running"), ("new__input_required", "waiting")] {
        let call = client.begins_call(tool, &json!({"method": "elicitation/create"}));
        let question = client
            .wire
            .awaits_frame("the client is asked", |frame| frame["method"] == "elicitation/create");
        let [open] = awaits_states(&gateway, [state]);
        is_ended(&gateway, &open);
        let (backend, _) = tool.split_once("__").unwrap();
        is_told(&client, &call, backend);
        let late = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
        client.wire.sends(&late);
        assert!(
            client.wire.answer_so_far(&call).is_none(),
            "a late answer changes nothing"
        );
    }
    awaits_cancellation(&gateway);
}

#[test]
fn calls_belong_to_their_project_and_administrators_alone_end_them() {
    let gateway = Gateway::of_team();
    let team = gateway.project("team", &json!({}));
    let stranger = gateway.project("other", &json!({})).new_key_with_scope("admin");
    let [observer, member, admin] = ["observer", "member", "admin"].map(|scope| team.new_key_with_scope(scope));
    let client = team.client_as(&member);
    client.gets("fake__echo", json!({}));
    let call = client.begins_call("fake__never", &json!({}));
    let list = |key: &str| gateway.rest(key, "GET", PATH, &Value::Null).json();
    let running = eventually("the call runs", || {
        let calls = list(&observer);
        (calls["calls"][0]["state"] == "running").then(|| calls["calls"][0].clone())
    });
    assert_eq!(running["caller"], format!("key:team/{}", id_of_key(&member)));
    assert_eq!(list(&stranger)["total"], 0);
    let id = running["call_id"].as_str().unwrap();
    let end = |key: &str| gateway.rest(key, "DELETE", &format!("{PATH}/{id}"), &Value::Null);
    for (key, refusal) in [
        (&observer, (403, "forbidden".to_owned())),
        (&member, (403, "forbidden".to_owned())),
        (&stranger, (404, "call_not_found".to_owned())),
    ] {
        assert_eq!(end(key).problem(), refusal);
    }
    assert!(client.wire.answer_so_far(&call).is_none(), "it still runs");
    assert_eq!(end(&admin).status, 204);
    is_told(&client, &call, "fake");

    let outcomes = eventually("the audit has them", || {
        let audit = gateway.rest(ADMIN_KEY, "GET", "/api/v1/audit?project=team", &Value::Null);
        let audit = audit.json();
        let entries = audit["entries"].as_array()?.iter();
        let outcomes: Vec<_> = entries
            .filter(|entry| entry["action"] == "backend.cancel_call")
            .map(|entry| (entry["outcome"].clone(), entry["target"].clone()))
            .collect();
        (outcomes.len() == 3).then_some(outcomes)
    });
    let done: Vec<_> = outcomes.iter().filter(|(outcome, _)| outcome == "done").collect();
    assert_eq!(done, [&(json!("done"), json!(format!("fake {id}")))]);
}

#[test]
fn every_replica_shows_and_ends_the_calls_of_all() {
    let redis = Redis::start();
    let replica = || {
        let plan = Plan::new().backend("fake", &[]).flag("--storage=redis");
        plan.flag(&format!("--redis-url={}", redis.url())).start()
    };
    let (here, mut there) = (replica(), replica());
    let ids = [&here, &there].map(|replica| replica.get(PATH).json()["replica"].clone());
    assert_ne!(ids[0], ids[1]);
    let clients = [here.legacy(), there.legacy()];
    let first = clients[0].begins_call("fake__never", &json!({}));
    awaits_states(&here, ["running"]);
    let _second = clients[1].begins_call("fake__never", &json!({}));
    let mut open = awaits_states(&here, ["running", "running"]);
    assert!(
        open.is_sorted_by_key(|call| call["since"].as_str().unwrap().to_owned()),
        "the oldest is first: {open:?}"
    );
    open.sort_by_key(|call| ids.iter().position(|id| *id == call["replica"]));
    for (replica, own) in [(&here, 0), (&there, 1)] {
        let all = replica.get(PATH).json();
        assert_eq!((&all["total"], all.get("partial")), (&json!(2), None), "{all}");
        let alone = replica.get(&format!("{PATH}?replica=self")).json();
        let shown = [&alone["total"], &alone["calls"][0]["call_id"]];
        assert_eq!(shown, [&json!(1), &open[own]["call_id"]], "{alone}");
    }

    let id = open[0]["call_id"].as_str().unwrap();
    let alone = there.rest_with(&[], "DELETE", &format!("{PATH}/{id}?replica=self"), &Value::Null);
    assert_eq!(alone.problem(), (404, "call_not_found".to_owned()));
    is_ended(&there, &open[0]);
    is_told(&clients[0], &first, "fake");
    assert_eq!(ends(&there, &open[0]).problem(), (404, "call_not_found".to_owned()));
    let outcomes = eventually("the audit has the end and both refusals, once each", || {
        let audit = here.get("/api/v1/audit").json();
        let entries = audit["entries"].as_array()?.iter();
        let ends = entries.filter(|entry| entry["action"] == "backend.cancel_call");
        let mut outcomes: Vec<_> = ends
            .filter_map(|entry| entry["outcome"].as_str().map(str::to_owned))
            .collect();
        outcomes.sort();
        (outcomes.len() == 3).then_some(outcomes)
    });
    assert_eq!(outcomes, ["done", "refused", "refused"]);

    there.broker().kill();
    let all = here.get(PATH).json();
    assert_eq!(
        (&all["total"], &all["partial"]),
        (&json!(0), &json!([ids[1]])),
        "a replica that does not answer is named"
    );
    let unknown = ends(&here, &open[1]);
    assert_eq!(unknown.problem(), (503, "unavailable".to_owned()), "it may be there");
}

#[test]
fn the_command_line_lists_and_ends_calls() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.legacy();
    assert_eq!(text(&cli(&gateway, &["calls"])), "no open calls\n");
    client.gets("fake__echo", json!({}));
    let call = client.begins_call("fake__never", &json!({}));
    let [running] = awaits_states(&gateway, ["running"]);
    let id = running["call_id"].as_str().unwrap();
    let table = text(&cli(&gateway, &["calls", "--backend", "fake"]));
    for cell in ["fake", "never", "running", "anonymous", id] {
        assert!(table.contains(cell), "{cell}: {table}");
    }
    let lines = json_of(&cli(&gateway, &["calls", "--json"]));
    assert_eq!(lines[0]["call_id"], id);
    assert_eq!(text(&cli(&gateway, &["cancel", id])), "the call is ended\n");
    is_told(&client, &call, "fake");
    let again = cli(&gateway, &["cancel", id]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    let line = String::from_utf8(again.stderr).unwrap();
    assert!(line.contains(&format!("no open call {id}")), "{line}");
    let unknown = cli(&gateway, &["calls", "--backend", "none"]);
    assert!(!unknown.status.success());
}
