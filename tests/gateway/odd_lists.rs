//! Lists of backends that are wrong in a part: what clients can read of them is offered, and the rest is named.

use std::{collections::BTreeSet, path::Path, process::Command};

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, tools_of},
    support::{Agent, eventually},
};

/// Items that clients of official SDKs refuse, and with them their whole list: the list, the item, and whether it is offered
/// after it was corrected.
#[expect(clippy::too_many_lines, reason = "a table")]
fn odd_items() -> Vec<(&'static str, Value, bool)> {
    let tool = |name: &str, member: &str, value: Value| {
        let mut tool = json!({"name": name, "inputSchema": {"type": "object"}});
        tool[member] = value;
        tool
    };
    let resource = |uri: &str, member: &str, value: Value| {
        let mut resource = json!({"uri": uri, "name": "r"});
        resource[member] = value;
        resource
    };
    vec![
        ("tools", json!({"name": "schema-null", "inputSchema": null}), false),
        ("tools", json!({"name": "schema-missing"}), false),
        ("tools", json!({"name": "schema-list", "inputSchema": []}), false),
        ("tools", json!({"name": "", "inputSchema": {"type": "object"}}), false),
        (
            "tools",
            tool("type-of-text", "inputSchema", json!({"type": "string"})),
            false,
        ),
        (
            "tools",
            tool(
                "required-of-numbers",
                "inputSchema",
                json!({"type": "object", "required": [1]}),
            ),
            false,
        ),
        ("tools", tool("description-number", "description", json!(5)), false),
        ("tools", tool("annotations-text", "annotations", json!("x")), false),
        (
            "tools",
            tool("hint-text", "annotations", json!({"readOnlyHint": "yes"})),
            false,
        ),
        ("tools", tool("meta-list", "_meta", json!([1])), false),
        (
            "tools",
            tool("type-missing", "inputSchema", json!({"properties": {}})),
            true,
        ),
        ("tools", tool("any-of", "inputSchema", json!({"anyOf": [{}]})), true),
        (
            "tools",
            tool(
                "properties-list",
                "inputSchema",
                json!({"type": "object", "properties": []}),
            ),
            true,
        ),
        (
            "tools",
            tool(
                "property-true",
                "inputSchema",
                json!({"type": "object", "properties": {"a": true}}),
            ),
            true,
        ),
        (
            "tools",
            tool(
                "required-null",
                "inputSchema",
                json!({"type": "object", "required": null}),
            ),
            true,
        ),
        ("tools", tool("description-null", "description", json!(null)), true),
        ("tools", tool("annotations-null", "annotations", json!(null)), true),
        ("tools", tool("hint-null", "annotations", json!({"title": null})), true),
        ("tools", tool("output-null", "outputSchema", json!(null)), true),
        (
            "tools",
            tool("output-list", "outputSchema", json!({"type": "array"})),
            true,
        ),
        ("tools", tool("icons-null", "icons", json!(null)), true),
        (
            "tools",
            tool("icon-sizes", "icons", json!([{"src": "a", "sizes": "48x48"}])),
            true,
        ),
        ("tools", tool("execution-null", "execution", json!(null)), true),
        ("prompts", json!({"name": "arguments-object", "arguments": {}}), false),
        (
            "prompts",
            json!({"name": "argument-nameless", "arguments": [{}]}),
            false,
        ),
        ("prompts", json!({"name": "arguments-null", "arguments": null}), true),
        (
            "prompts",
            json!({"name": "required-null", "arguments": [{"name": "a", "required": null}]}),
            true,
        ),
        ("resources", json!({"uri": "fake://nameless"}), false),
        ("resources", json!({"uri": "no-uri", "name": "r"}), false),
        ("resources", resource("fake://half", "size", json!(1.5)), false),
        ("resources", resource("fake://null", "mimeType", json!(null)), true),
        ("resources", resource("fake://size", "size", json!(null)), true),
        (
            "resources",
            resource("fake://time", "annotations", json!({"lastModified": "yesterday"})),
            true,
        ),
        (
            "resourceTemplates",
            json!({"uriTemplate": "fake://nameless/{a}"}),
            false,
        ),
        (
            "resourceTemplates",
            json!({"uriTemplate": "fake://null/{a}", "name": "t", "mimeType": null}),
            true,
        ),
    ]
}

/// A broker with a backend that lists all odd items, and a sound one.
fn odd_gateway() -> Gateway {
    let items: Vec<(&str, String)> = odd_items()
        .iter()
        .map(|(list, item, _)| (*list, item.to_string()))
        .collect();
    let flags: Vec<&str> = items.iter().flat_map(|(list, item)| ["--item", list, item]).collect();
    Plan::new().backend("odd", &flags).backend("sound", &[]).start()
}

/// The names of the items of a list that are offered after they were corrected, or of those that are not.
fn names(wanted: &str, are_offered: bool) -> Vec<String> {
    let items = odd_items().into_iter();
    let items = items.filter(|(list, _, is_offered)| *list == wanted && *is_offered == are_offered);
    items
        .map(|(_, item, _)| {
            let name = ["uri", "uriTemplate", "name"]
                .into_iter()
                .find_map(|member| item[member].as_str());
            name.unwrap().to_owned()
        })
        .collect()
}

/// What a program with an official SDK sees in all lists.
fn seen_by(program: &str, script: &str, args: &[&str]) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (program, needed) = match program {
        "node" => ("node".into(), root.join("tests/clients/node_modules")),
        python => {
            let program = root.join(format!("target/clients/{python}/bin/python"));
            (program.clone(), program)
        }
    };
    assert!(needed.exists(), "{} is missing: run scripts/test", needed.display());
    let output = Command::new(program)
        .arg(root.join("tests/clients").join(script))
        .args(args)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check_seen(seen: &Value, who: &str) {
    let texts = |member: &str| -> BTreeSet<String> {
        let list = seen[member].as_array().unwrap();
        list.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    for (list, member, prefix, own, sound) in [
        ("tools", "tools", "odd__", "register_session", "sound__echo"),
        ("prompts", "prompts", "odd__", "odd__greet", "sound__greet"),
        ("resources", "resources", "odd+", "broker://inbox", "sound+fake://one"),
        (
            "resourceTemplates",
            "templates",
            "odd+",
            "odd+fake://{id}",
            "sound+fake://{id}",
        ),
    ] {
        let all = texts(member);
        assert!(all.contains(own) && all.contains(sound), "{who}: {all:?}");
        for name in names(list, true) {
            assert!(all.contains(&format!("{prefix}{name}")), "{who}: {name} in {all:?}");
        }
        for name in names(list, false) {
            assert!(!all.contains(&format!("{prefix}{name}")), "{who}: {name} in {all:?}");
        }
    }
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn clients_of_the_typescript_sdks_see_all_that_is_sound_beside_odd_items() {
    let gateway = odd_gateway();
    let url = format!("http://{}/mcp", gateway.address);
    for kind in ["v1", "pin", "legacy"] {
        check_seen(&seen_by("node", "js/lists.js", &[&url, kind]), kind);
    }
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn clients_of_the_python_sdks_see_all_that_is_sound_beside_odd_items() {
    let gateway = odd_gateway();
    let url = format!("http://{}/mcp", gateway.address);
    check_seen(&seen_by("python-v1", "py/lists.py", &[&url]), "python-v1");
    for mode in ["2026-07-28", "legacy"] {
        check_seen(&seen_by("python-v2", "py/lists.py", &[&url, mode]), mode);
    }
}

fn list_problems(gateway: &Gateway, backend: &str) -> Vec<String> {
    let shown = gateway
        .asks_backends("GET", &format!("/{backend}"), &Value::Null)
        .json();
    let problems = shown["list_problems"].as_array().cloned().unwrap_or_default();
    problems
        .iter()
        .map(|problem| problem.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn items_that_are_left_out_are_named_to_operators() {
    let gateway = odd_gateway();
    let client = gateway.legacy();
    tools_of(&client, "odd");
    let problems = list_problems(&gateway, "odd");
    for expected in [
        "tool schema-null: inputSchema is no object",
        "tool schema-missing: inputSchema is missing",
        "tool hint-text: annotations.readOnlyHint is neither true nor false",
        "prompt argument-nameless: arguments.0.name is missing",
        "resource fake://nameless: name is missing",
        "resource no-uri: uri is no URI",
        "template fake://nameless/{a}: name is missing",
    ] {
        assert!(
            problems.iter().any(|problem| problem == expected),
            "{expected} in {problems:#?}"
        );
    }
    assert_eq!(
        problems.len(),
        odd_items().iter().filter(|(_, _, is_offered)| !is_offered).count()
    );
    let log = gateway
        .asks_backends("GET", "/odd/log", &Value::Null)
        .json()
        .to_string();
    assert!(log.contains("not offered: tool schema-null"), "{log}");
    let summary = client
        .request("resources/read", json!({"uri": "broker://backends/odd"}))
        .unwrap();
    assert!(summary.to_string().contains("tool schema-null"), "{summary}");
    assert_eq!(list_problems(&gateway, "sound"), [""; 0]);
    assert_eq!(client.code_of("odd__schema-null", json!({})), -32602, "it is unknown");
    assert_eq!(client.gets("odd__echo", json!({}))["name"], "echo");
}

/// The tools of a fake backend with these flags, and what is not offered of its lists.
fn offered(flags: &[&str]) -> (Gateway, Agent, Vec<String>, Vec<String>) {
    let gateway = Gateway::with_fake(flags);
    let client = gateway.legacy();
    let (tools, problems) = (tools_of(&client, "fake"), list_problems(&gateway, "fake"));
    (gateway, client, tools, problems)
}

#[test]
fn a_list_that_ends_with_an_empty_cursor_is_whole() {
    for size in ["10", "1000"] {
        let (_gateway, _, tools, problems) = offered(&["--last-cursor", "", "--page-size", size, "--tool", "last"]);
        assert!(
            tools.contains(&"echo".to_owned()) && tools.contains(&"last".to_owned()),
            "{tools:?}"
        );
        assert_eq!(tools.iter().collect::<BTreeSet<_>>().len(), tools.len());
        assert_eq!(problems, [""; 0]);
    }
}

#[test]
fn a_list_whose_cursor_comes_again_is_kept_and_named() {
    let (_gateway, _, tools, problems) = offered(&["--last-cursor", "9999", "--page-size", "10", "--tool", "last"]);
    assert!(tools.contains(&"last".to_owned()), "{tools:?}");
    let expected = "tools/list: what may follow a cursor that it gives again".to_owned();
    assert!(problems.contains(&expected), "{problems:?}");
}

#[test]
fn the_pages_before_a_failing_one_are_kept() {
    let (gateway, client, tools, problems) = offered(&["--failing-page", "2", "--page-size", "30", "--tool", "last"]);
    assert_eq!(tools.len(), 30, "{tools:?}");
    assert_eq!(
        problems,
        ["tools/list: page 2 and what follows: {\"code\":-32603,\"message\":\"the page is lost\"}"]
    );
    // It is tried again, and said once.
    eventually("the list was read again", || {
        let lists = client.gets("fake__lists", json!({}))["tools_lists"].as_u64().unwrap();
        (lists >= 4).then_some(())
    });
    let log = gateway
        .asks_backends("GET", "/fake/log", &Value::Null)
        .json()
        .to_string();
    assert_eq!(log.matches("not offered").count(), 1, "{log}");
    let prompt = client.request("prompts/get", json!({"name": "fake__greet"})).unwrap();
    assert_eq!(
        prompt["messages"][0]["content"]["text"], "Hello you",
        "short lists are whole"
    );
}

#[test]
fn a_list_of_too_many_pages_or_items_is_cut_and_named() {
    let (_gateway, _, tools, problems) = offered(&["--page-size", "1", "--extra-tools", "300"]);
    assert_eq!(tools.len(), 200);
    assert_eq!(problems, ["tools/list: what follows its first 200 pages"]);
    let (_gateway, _, tools, problems) = offered(&["--extra-tools", "11000"]);
    assert_eq!(tools.len(), 10_000);
    assert_eq!(problems, ["tools/list: what is over 10000 items or 16777216 bytes"]);
}

#[test]
fn a_backend_without_the_lists_that_it_declares_has_none() {
    let (gateway, client, tools, problems) = offered(&[
        "--missing-method",
        "resources/list",
        "--missing-method",
        "prompts/list",
        "--tool",
        "last",
    ]);
    assert!(tools.contains(&"last".to_owned()), "{tools:?}");
    assert_eq!(problems, [""; 0]);
    let resources = client.request("resources/list", json!({})).unwrap();
    assert!(!resources.to_string().contains("fake+"), "{resources}");
    let log = gateway
        .asks_backends("GET", "/fake/log", &Value::Null)
        .json()
        .to_string();
    assert!(!log.contains("resources"), "{log}");
}
