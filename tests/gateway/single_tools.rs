//! What is set for single tools of a backend: how long their calls may take, and the texts that are listed.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan},
    support::{Agent, eventually},
};

/// A tool of the backend `fake` as a client sees it in its list.
fn listed(client: &Agent, tool: &str) -> Option<Value> {
    let mut params = json!({});
    loop {
        let mut page = client.request("tools/list", params).unwrap();
        let tools = page["tools"].as_array_mut().unwrap();
        if let Some(tool) = tools.iter_mut().find(|known| known["name"] == format!("fake__{tool}")) {
            return Some(tool.take());
        }
        params = json!({"cursor": page.get("nextCursor")?});
    }
}

#[test]
fn a_tool_with_a_short_deadline_ends_while_another_of_the_same_backend_goes_on() {
    let lines = "
        call_timeout = \"1h\"
        tools.rename = { never = \"wait\", sleep = \"never\" }
        tools.never.call_timeout = \"500ms\"";
    let late = ["--start-delay", "1500"];
    let gateway = Plan::new().backend_with("fake", &late, lines).start();
    let client = gateway.legacy();
    // The first calls wait until the backend has told its tools: a name alone does not say which one it is.
    let params = json!({"name": "never", "arguments": {"ms": 100}});
    let http = gateway.modern_http();
    let mut sleeps = http.asks("tools/call", params).with_path("/mcp/fake").sent();
    let waits = |client: &dyn Calls| {
        let error = client.fails_as("timeout", "fake__wait", json!({}));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("no answer within"), "{error}");
    };
    waits(&client);
    let result = sleeps.answer_to(&json!(1)).unwrap();
    assert_eq!(result["structuredContent"], json!({"done": true}), "{result}");
    let open = client.begins_call("fake__never", &json!({"ms": 1_500}));
    client.wire.syncs();
    waits(&client);
    waits(&http);
    let result = client.wire.answer_to(&open).unwrap();
    assert_eq!(result["structuredContent"], json!({"done": true}), "{result}");
}

#[test]
fn a_tool_may_take_longer_than_the_others_of_its_backend() {
    let lines = "
        call_timeout = \"300ms\"
        [backends.fake.tools.sleep]
        call_timeout = \"1h\"";
    let gateway = Plan::new().backend_with("fake", &[], lines).start();
    let client = gateway.legacy();
    eventually("the backend runs", || {
        let result = client.result_of("fake__echo", json!({})).ok()?;
        (result["isError"] != true).then_some(())
    });
    let slow = client.gets("fake__sleep", json!({"ms": 1_000}));
    assert_eq!(slow, json!({"done": true}));
    client.fails_as("timeout", "fake__never", json!({}));
}

#[test]
fn a_tool_that_is_called_like_a_key_of_the_table_has_timeouts_of_its_own() {
    let lines = "
        call_timeout = \"1h\"
        tools.deny = [\"override\"]
        tools.rename.never = \"rename\"
        tools.override.rename.call_timeout = \"300ms\"
        tools.override.deny.call_timeout = \"200ms\"";
    let args = ["--tool", "deny", "--tool", "override"];
    let gateway = Plan::new().backend_with("fake", &args, lines).start();
    let client = gateway.legacy();
    eventually("the tools are known", || listed(&client, "deny"));
    for tool in ["fake__deny", "fake__rename"] {
        client.fails_as("timeout", tool, json!({"ms": 60_000}));
    }
    assert!(listed(&client, "override").is_none());
}

#[test]
fn progress_prolongs_a_call_up_to_the_longest_time_of_its_tool() {
    let lines = "
        call_timeout = \"1h\"
        tools.progress.call_timeout_max = \"1s\"";
    let gateway = Plan::new().backend_with("fake", &[], lines).start();
    let client = gateway.legacy();
    let params = json!({
        "name": "fake__progress",
        "arguments": {"steps": 1_000, "ms": 100},
        "_meta": {"progressToken": 1},
    });
    let result = client.request("tools/call", params).unwrap();
    assert_eq!(result["structuredContent"]["code"], "timeout", "{result}");
}

#[test]
fn changed_texts_and_deadlines_hold_at_once_and_the_backend_goes_on() {
    let with = |lines: &'static str| move |plan: Plan| plan.backend_with("fake", &[], lines);
    let gateway = with("tools.rename = { echo = \"say\" }")(Plan::new()).start();
    let client = gateway.legacy();
    let pid = client.gets("fake__pid", json!({}))["pid"].clone();
    let before = listed(&client, "say").unwrap();
    assert!(before.get("title").is_none(), "{before}");

    gateway.is_configured(with(
        "
        tools.rename = { echo = \"say\" }
        tools.override.say = { title = \"Say it\", description = \"\" }
        tools.override.missing.title = \"Missing\"
        tools.missing.call_timeout = \"1s\"
        tools.never.call_timeout = \"200ms\"",
    ));
    let changed = eventually("the title is listed", || {
        listed(&client, "say").filter(|tool| tool["title"] == "Say it")
    });
    let mut expected = before.clone();
    (expected["title"], expected["description"]) = (json!("Say it"), json!(""));
    assert_eq!(changed, expected);
    client.wire.next_notification("notifications/tools/list_changed");
    let alone = gateway
        .modern_http()
        .asks("tools/list", json!({}))
        .with_path("/mcp/fake")
        .sent()
        .answer_to(&json!(1))
        .unwrap();
    let alone = alone["tools"].as_array().unwrap();
    let said = alone.iter().find(|tool| tool["name"] == "say").unwrap();
    assert_eq!(said["title"], "Say it", "at its own place too");
    client.fails_as("timeout", "fake__never", json!({}));

    gateway.is_configured(with("tools.rename = { echo = \"say\" }"));
    eventually("its own texts are listed again", || {
        (listed(&client, "say")? == before).then_some(())
    });
    client.wire.next_notification("notifications/tools/list_changed");
    assert_eq!(
        client.gets("fake__pid", json!({}))["pid"],
        pid,
        "it was not started again"
    );
}

#[test]
fn what_an_administrator_sets_for_single_tools_survives_a_restart() {
    let plan = Plan::new().flag("--gateway-commands=admin").flag("--storage=disk");
    let data = format!("--data-dir={}", plan.file("data"));
    let mut gateway = plan.flag(&data).start();
    gateway.adds("fake", gateway.fake_table(&[]));
    let patch = |tools: Value| gateway.asks_backends("PATCH", "/fake", &json!({"tools": tools}));
    let tools = json!({
        "override": {
            "echo": {"title": "Say it"},
            "late": {"call_timeout": "400ms"},
            "pid": {"title": "Number"},
        },
        "never": {"call_timeout": "300ms"},
        "sleep": {"call_timeout": "100ms"},
    });
    assert_eq!(patch(tools).status, 200);
    let taken_back = json!({"override": {"pid": null}, "sleep": null});
    assert_eq!(patch(taken_back).status, 200);
    for (tools, key) in [
        (json!({"never": {"call_timeout": "soon"}}), "tools.never.call_timeout"),
        (json!({"override": {"echo": {"name": "x"}}}), "tools.override.echo.name"),
    ] {
        let refused = patch(tools);
        assert_eq!(refused.problem(), (400, "invalid_argument".to_owned()));
        assert!(refused.body.contains(key), "{refused:?}");
    }
    let holds = |gateway: &Gateway| {
        let client = gateway.legacy();
        client.gets("fake__sleep", json!({"ms": 300}));
        assert_eq!(listed(&client, "echo").unwrap()["title"], "Say it");
        assert!(listed(&client, "pid").unwrap().get("title").is_none());
        client.fails_as("timeout", "fake__never", json!({}));
        client.fails_as("timeout", "fake__late", json!({"ms": 2_000}));
    };
    holds(&gateway);
    gateway.restarts(|_| ());
    holds(&gateway);
}
