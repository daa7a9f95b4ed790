//! Where names of tools and prompts have the name of their backend: `gateway_prefix`.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Plan, tool_names},
    operators::{cli, text},
    support::eventually,
};

/// Two backends with one tool each that the other has not, and one that the broker has too.
fn backends(plan: Plan) -> Plan {
    plan.backend("one", &["--tool", "mine", "--tool", "send_message"])
        .backend("two", &["--era", "modern", "--tool", "yours"])
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}

#[test]
fn without_prefixes_tools_have_their_own_names_unless_these_are_ambiguous() {
    let gateway = backends(Plan::new().flag("--gateway-prefix=never")).start();
    let client = gateway.legacy();
    let names = tool_names(&client);
    for name in ["mine", "yours", "one__echo", "two__echo", "one__send_message"] {
        assert!(has(&names, name), "{name}: {names:?}");
    }
    assert_eq!(
        names.iter().filter(|name| *name == "send_message").count(),
        1,
        "the broker's"
    );
    for other in ["one__mine", "echo"] {
        assert!(!has(&names, other), "{other}: {names:?}");
    }
    for (called, original) in [
        ("mine", "mine"),
        ("one__mine", "mine"),
        ("one.mine", "mine"),
        ("two__echo", "echo"),
        ("one__send_message", "send_message"),
    ] {
        assert_eq!(client.gets(called, json!({}))["name"], original, "{called}");
    }
    assert_eq!(client.code_of("echo", json!({})), -32602);
    let own = client.result_of("send_message", json!({}));
    assert!(
        own.as_ref().is_ok_and(|result| result["isError"] == true),
        "the broker's: {own:?}"
    );
    // Prompts likewise; resources keep their prefix.
    let prompts = client.request("prompts/list", json!({})).unwrap()["prompts"].take();
    let prompts: Vec<&Value> = prompts
        .as_array()
        .unwrap()
        .iter()
        .map(|prompt| &prompt["name"])
        .collect();
    for name in ["one__greet", "two__greet"] {
        assert!(prompts.contains(&&json!(name)), "{prompts:?}");
    }
    let read = client.request("resources/read", json!({"uri": "one+fake://one"}));
    assert!(read.is_ok(), "{read:?}");
}

#[test]
fn operators_see_which_names_are_ambiguous() {
    let gateway = backends(Plan::new().flag("--gateway-prefix=never")).start();
    tool_names(&gateway.legacy());
    let tools = gateway.get("/api/v1/backends/one/tools").json()["tools"].take();
    let tool = |name: &str| -> Value {
        let mut tools = tools.as_array().unwrap().iter();
        tools.find(|tool| tool["tool"] == name).unwrap().clone()
    };
    assert_eq!(tool("mine")["name"], "mine");
    assert!(tool("mine").get("ambiguous").is_none());
    for name in ["echo", "send_message"] {
        assert_eq!(tool(name)["name"], format!("one__{name}"));
        assert_eq!(tool(name)["ambiguous"], true);
    }
    let table = text(&cli(&gateway, &["tools", "one"]));
    assert!(table.contains("one__echo (ambiguous without its prefix)"), "{table}");
    eventually("the log says it", || {
        let log = gateway.log();
        let is_named =
            |line: &str| line.contains("tools keep the names of their backends") && line.contains("one__ask ");
        log.lines().any(is_named).then_some(())
    });
}

#[test]
fn a_name_gets_its_prefix_when_another_backend_has_it_too() {
    let gateway = Plan::new()
        .flag("--gateway-prefix=never")
        .backend("one", &["--only-tools", "--tool", "mine"])
        .start();
    let client = gateway.legacy();
    assert!(has(&tool_names(&client), "mine"));
    gateway.is_configured(|plan| {
        plan.backend("one", &["--only-tools", "--tool", "mine"])
            .backend("two", &["--only-tools", "--tool", "mine"])
    });
    eventually("both keep their prefix", || {
        let names = tool_names(&client);
        (has(&names, "one__mine") && has(&names, "two__mine") && !has(&names, "mine")).then_some(())
    });
    assert_eq!(client.gets("one__mine", json!({}))["name"], "mine");
}

#[test]
fn a_gateway_for_one_client_follows_the_same_rule() {
    for (rule, has_prefix) in [
        (None, false),
        (Some("auto"), false),
        (Some("never"), false),
        (Some("always"), true),
    ] {
        let line = rule.map_or_else(String::new, |rule| format!("gateway_prefix = {rule:?}"));
        let mut gateway = Plan::new().lines(&line).backend("one", &[]).run(&[]);
        let client = gateway.legacy();
        let names = tool_names(&client);
        assert_eq!(has(&names, "one__echo"), has_prefix, "{rule:?}: {names:?}");
        assert_eq!(has(&names, "echo"), !has_prefix, "{rule:?}: {names:?}");
        for name in ["echo", "one__echo"] {
            assert_eq!(client.gets(name, json!({}))["name"], "echo", "{rule:?}");
        }
    }
    // With several, `auto` is `always`.
    for (rule, expected) in [("auto", "one__mine"), ("never", "mine")] {
        let plan = Plan::new().lines(&format!("gateway_prefix = {rule:?}"));
        let mut gateway = backends(plan).run(&[]);
        let client = gateway.legacy();
        let names = tool_names(&client);
        assert!(has(&names, expected), "{rule}: {names:?}");
        assert!(
            has(&names, "send_message") == (rule == "never"),
            "no broker has it: {names:?}"
        );
    }
}

#[test]
fn beside_the_tools_of_a_broker_a_single_backend_has_its_prefix() {
    let gateway = Plan::new().flag("--gateway-prefix=auto").backend("one", &[]).start();
    let names = tool_names(&gateway.legacy());
    assert!(has(&names, "one__echo") && !has(&names, "echo"), "{names:?}");
}
