//! Backends that ask their caller for input while a call runs, and callers that answer: every pair of eras.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan},
    support::{Agent, HttpAgent, Wire},
};

/// Backends of both eras that may ask.
fn asking() -> Gateway {
    Plan::new()
        .backend_with("old", &["--era", "legacy"], "asks = true")
        .backend("new", &["--era", "modern"])
        .start()
}

fn answers() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn legacy(gateway: &Gateway) -> Agent {
    Agent::legacy(gateway.wire(), "2025-11-25", &answers())
}

fn modern(gateway: &Gateway) -> HttpAgent {
    HttpAgent::modern(gateway.address, answers())
}

/// Waits for a question to a legacy client, and answers it.
pub fn is_asked(client: &Agent, method: &str, answer: &Value) -> Value {
    let question = client
        .wire
        .awaits_frame("the client is asked", |frame| frame["method"] == method);
    client
        .wire
        .sends(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    question["params"].clone()
}

pub fn accepted() -> Value {
    json!({"action": "accept", "content": {"colour": "red"}})
}

/// The params of a call that asks for a colour.
fn call(tool: &str, more: &[(&str, Value)]) -> Value {
    let mut params = json!({"name": tool, "arguments": {"method": "elicitation/create"}});
    for (member, value) in more {
        params[member] = value.clone();
    }
    params
}

#[test]
fn a_legacy_client_answers_a_legacy_backend() {
    let gateway = asking();
    let client = legacy(&gateway);
    for (method, answer) in [
        ("elicitation/create", accepted()),
        ("elicitation/create", json!({"action": "decline"})),
        (
            "sampling/createMessage",
            json!({"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}),
        ),
        ("roots/list", json!({"roots": [{"uri": "file:///a"}]})),
    ] {
        let call = client.begins_call("old__ask", &json!({"method": method}));
        let params = is_asked(&client, method, &answer);
        if method == "elicitation/create" {
            assert_eq!(params["message"], "old: Which colour?", "people see who asks");
        }
        let result = client.wire.answer_to(&call).unwrap();
        assert_eq!(result["structuredContent"]["response"], answer);
    }
}

#[test]
fn a_legacy_client_answers_a_modern_backend() {
    let gateway = asking();
    let client = legacy(&gateway);
    let call = client.begins_call("new__input_required", &json!({}));
    is_asked(&client, "elicitation/create", &accepted());
    let result = client.wire.answer_to(&call).unwrap();
    let expected = json!({"responses": {"q": accepted()}, "state": "fake-state"});
    assert_eq!(result["structuredContent"], expected);
    assert!(result.get("resultType").is_none(), "{result}");
    // A client may refuse to answer at all.
    let call = client.begins_call("new__input_required", &json!({}));
    let question = client
        .wire
        .awaits_frame("the client is asked", |frame| frame["method"] == "elicitation/create");
    let error = json!({"code": -1, "message": "no"});
    client
        .wire
        .sends(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}));
    assert_eq!(client.wire.answer_to(&call).unwrap_err(), error);
}

#[test]
fn a_modern_client_answers_backends_of_both_eras_by_calling_again() {
    let gateway = asking();
    let http = modern(&gateway);
    let socket = Agent::modern(gateway.wire(), answers());
    let clients: [&dyn Fn(Value) -> Result<Value, Value>; 2] =
        [&|params| http.request("tools/call", params), &|params| {
            socket.request("tools/call", params)
        }];
    for client in clients {
        for (tool, key) in [("old__ask", "input"), ("new__input_required", "q")] {
            let asked = client(call(tool, &[])).unwrap();
            assert_eq!(asked["resultType"], "input_required", "{asked}");
            let question = &asked["inputRequests"][key];
            assert_eq!(question["method"], "elicitation/create", "{asked}");
            let (backend, _) = tool.split_once("__").unwrap();
            assert_eq!(question["params"]["message"], format!("{backend}: Which colour?"));
            let state = &asked["requestState"];
            assert_ne!(*state, "fake-state", "the state of the backend is sealed");
            let answered = call(
                tool,
                &[
                    ("inputResponses", json!({key: accepted()})),
                    ("requestState", state.clone()),
                ],
            );
            let result = client(answered).unwrap();
            let got = &result["structuredContent"];
            match backend {
                "old" => assert_eq!(got["response"], accepted()),
                _ => assert_eq!(*got, json!({"responses": {"q": accepted()}, "state": "fake-state"})),
            }
        }
    }
}

#[test]
fn questions_that_a_legacy_backend_asks_beside_each_other_are_asked_together() {
    let gateway = asking();
    let client = modern(&gateway);
    let asked = client.request("tools/call", call("old__ask_both", &[])).unwrap();
    let methods = ["input", "input-2"].map(|key| asked["inputRequests"][key]["method"].clone());
    assert_eq!(methods, ["elicitation/create", "roots/list"], "{asked}");
    // What has no answer is asked again.
    let roots = json!({"roots": [{"uri": "file:///a"}]});
    let answered = |state: &Value, responses: Value| {
        call(
            "old__ask_both",
            &[("inputResponses", responses), ("requestState", state.clone())],
        )
    };
    let some = answered(&asked["requestState"], json!({"input-2": roots}));
    let asked = client.request("tools/call", some).unwrap();
    assert_eq!(asked["inputRequests"].as_object().unwrap().len(), 1, "{asked}");
    assert_eq!(asked["inputRequests"]["input"]["method"], "elicitation/create");
    let rest = answered(&asked["requestState"], json!({"input": accepted()}));
    let result = client.request("tools/call", rest).unwrap();
    assert_eq!(result["structuredContent"]["responses"], json!([accepted(), roots]));

    // A caller that cannot answer one of them is asked the other.
    let forms = HttpAgent::modern(gateway.address, json!({"elicitation": {}}));
    let asked = forms.request("tools/call", call("old__ask_both", &[])).unwrap();
    assert_eq!(asked["inputRequests"].as_object().unwrap().len(), 1, "{asked}");
    let all = answered(&asked["requestState"], json!({"input": accepted()}));
    let result = forms.request("tools/call", all).unwrap();
    assert_eq!(
        result["structuredContent"]["responses"],
        json!([accepted(), {"roots": []}])
    );
}

#[test]
fn a_state_is_good_for_its_caller_and_its_request_alone() {
    let gateway = Plan::new()
        .table("projects.team.backends.old", &["--era", "legacy"], "asks = true")
        .table("projects.team.backends.new", &["--era", "modern"], "")
        .start_secured();
    let team = gateway.project("team", &json!({}));
    let (mine, other) = (team.key.clone(), team.new_key_with_scope("member"));
    let ask = |key: &str, params: Value| {
        let headers = [("X-API-Key", key)];
        HttpAgent::modern_with(gateway.address, answers(), &headers).request("tools/call", params)
    };
    for (tool, key) in [("old__ask", "input"), ("new__input_required", "q")] {
        let asked = ask(&mine, call(tool, &[])).unwrap();
        let with =
            |responses: Value, state: Value| call(tool, &[("inputResponses", responses), ("requestState", state)]);
        let responses = json!({key: accepted()});
        let state = asked["requestState"].clone();
        let good = with(responses.clone(), state.clone());
        let mut other_arguments = good.clone();
        other_arguments["arguments"]["more"] = json!(1);
        let mut other_tool = good.clone();
        other_tool["name"] = json!(format!("{}__echo", &tool[..3]));
        for (who, refused) in [
            (&other, good.clone()),
            (&mine, other_arguments),
            (&mine, other_tool),
            (&mine, with(responses.clone(), json!("forged"))),
            (&mine, with(responses.clone(), json!(7))),
        ] {
            let error = ask(who, refused).unwrap_err();
            assert_eq!(error["data"]["reason"], "invalid_request_state", "{error}");
        }
        // Without the answer the question is asked again.
        let again = ask(&mine, with(json!({}), state)).unwrap();
        if tool == "old__ask" {
            assert_eq!(again["resultType"], "input_required", "{again}");
            let good = with(responses.clone(), again["requestState"].clone());
            assert_eq!(
                ask(&mine, good.clone()).unwrap()["structuredContent"]["response"],
                accepted()
            );
            let error = ask(&mine, good).unwrap_err();
            assert_eq!(
                error["data"]["reason"], "invalid_request_state",
                "the call is over: {error}"
            );
        } else {
            assert_eq!(ask(&mine, good).unwrap()["structuredContent"]["state"], "fake-state");
        }
    }
}

#[test]
fn a_backend_that_may_not_ask_and_a_caller_that_cannot_answer_are_told() {
    let gateway = Plan::new()
        .backend_with("old", &["--era", "legacy"], "asks = true\ninstances_max = 1")
        .backend("quiet", &["--era", "legacy"])
        .backend_with("barred", &["--era", "modern"], "asks = false")
        .start();
    let without = gateway.legacy();
    let answer =
        |client: &Agent, tool: &str, method: &str| client.gets(tool, json!({"method": method}))["response"].clone();
    let error = answer(&without, "old__ask", "elicitation/create");
    assert_eq!(error["message"], "the caller of this call has not declared elicitation");
    assert_eq!(answer(&without, "old__ask", "roots/list"), json!({"roots": []}));
    let with = legacy(&gateway);
    assert_eq!(answer(&with, "quiet__ask", "elicitation/create")["code"], -32601);
    with.fails_as("backend_protocol", "barred__input_required", json!({}));
}

#[test]
fn a_question_that_is_left_open_holds_up_the_next_call_for_a_short_time() {
    let gateway = Plan::new()
        .backend_with(
            "old",
            &["--era", "legacy"],
            "asks = true\ninstances_max = 1\ncall_timeout = \"30s\"",
        )
        .start();
    let (forgetful, other) = (legacy(&gateway), legacy(&gateway));
    let asked = r#"{"jsonrpc":"2.0","id":"last","method":"elicitation/create","params":{"message":"Which colour?","requestedSchema":{"type":"object","properties":{}}}}"#;
    let answer = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"done":true}}}"#;
    // The broker has read the question when it reads the answer.
    let between = "-".repeat(256 * 1024);
    let text = format!("{asked}\n{between}\n{answer}");
    assert_eq!(forgetful.gets("old__raw", json!({"text": text})), json!({"done": true}));
    other.gets("old__echo", json!({}));
}

#[test]
fn a_client_of_one_backend_sees_its_question_as_it_is() {
    let gateway = asking();
    let client = Agent::legacy(Wire::open_at(gateway.address, "/ws/old"), "2025-11-25", &answers());
    let call = client.begins_call("ask", &json!({"method": "elicitation/create"}));
    let params = is_asked(&client, "elicitation/create", &accepted());
    assert_eq!(params["message"], "Which colour?");
    client.wire.answer_to(&call).unwrap();
}

#[test]
fn a_server_over_http_is_asked_by_its_own_callers_at_once() {
    let server = Plan::new()
        .backend_with("fake", &["--era", "legacy"], "asks = true")
        .start();
    let at = server.address;
    let gateway = Plan::new()
        .url("old", &format!("http://{at}/mcp/fake"), "era = \"legacy\"\nasks = true")
        .url("new", &format!("http://{at}/mcp/fake"), "era = \"modern\"")
        .start();
    for backend in ["old", "new"] {
        let client = legacy(&gateway);
        let call = client.begins_call(&format!("{backend}__ask"), &json!({"method": "elicitation/create"}));
        is_asked(&client, "elicitation/create", &accepted());
        let result = client.wire.answer_to(&call).unwrap();
        assert_eq!(result["structuredContent"]["response"], accepted(), "{backend}");
    }
}

#[test]
fn log_messages_reach_the_caller_that_wants_them() {
    let gateway = asking();
    for backend in ["old", "new"] {
        let (client, quiet) = (gateway.legacy(), gateway.legacy());
        client.request("logging/setLevel", json!({"level": "info"})).unwrap();
        client.gets(&format!("{backend}__log"), json!({"n": 1}));
        let message = client.wire.next_notification("notifications/message");
        assert_eq!(
            (&message["level"], &message["data"]["call"]["n"]),
            (&json!("info"), &json!(1)),
            "{backend}"
        );
        client.request("logging/setLevel", json!({"level": "error"})).unwrap();
        client.gets(&format!("{backend}__log"), json!({"n": 2}));
        quiet.gets(&format!("{backend}__log"), json!({"n": 3}));
        for client in [&client, &quiet] {
            client.wire.syncs();
            assert_eq!(
                client.wire.notifications_so_far("notifications/message"),
                0,
                "{backend}"
            );
        }
    }
}
