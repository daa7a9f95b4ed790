//! The lists that clients see: names, pages, changes, and which tools are offered.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, introduction, tool_names, tools_of},
    support::{Agent, Wire, eventually},
};

#[test]
fn the_lists_have_the_own_tools_first_and_then_those_of_each_backend() {
    let gateway = Plan::new()
        .backend("b", &["--page-size", "7"])
        .backend("a", &["--era", "modern"])
        .start();
    for client in [gateway.legacy(), gateway.modern_socket()] {
        let names = tool_names(&client);
        let first = |prefix: &str| names.iter().position(|name| name.starts_with(prefix)).unwrap();
        assert!(
            first("register_session") < first("a__") && first("a__") < first("b__"),
            "{names:?}"
        );
        assert_eq!(tools_of(&client, "a"), tools_of(&client, "b"));
        let prompts = client.request("prompts/list", json!({})).unwrap();
        let prompts: Vec<&str> = prompts["prompts"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|p| p["name"].as_str())
            .collect();
        assert!(
            prompts.contains(&"a__greet") && prompts.contains(&"b__greet"),
            "{prompts:?}"
        );
        let resources = client.request("resources/list", json!({})).unwrap();
        assert!(
            resources["resources"].to_string().contains("\"b+fake://two\""),
            "{resources}"
        );
        let templates = client.request("resources/templates/list", json!({})).unwrap();
        assert!(
            templates["resourceTemplates"].to_string().contains("\"a+fake://{id}\""),
            "{templates}"
        );
    }
}

#[test]
fn prompts_resources_and_completions_lead_to_their_backend() {
    let gateway = Plan::new().backend("a", &[]).backend("b", &["--era", "modern"]).start();
    let client = gateway.legacy();
    for backend in ["a", "b"] {
        let params = json!({"name": format!("{backend}__greet"), "arguments": {"name": "Ada"}});
        let prompt = client.request("prompts/get", params).unwrap();
        assert_eq!(prompt["messages"][0]["content"]["text"], "Hello Ada");
        for uri in ["fake://one", "fake://from-the-template"] {
            let read = client
                .request("resources/read", json!({"uri": format!("{backend}+{uri}")}))
                .unwrap();
            assert_eq!(read["contents"][0]["text"], format!("content of {uri}"));
        }
        let completed = client
            .request(
                "completion/complete",
                json!({
                    "ref": {"type": "ref/prompt", "name": format!("{backend}__greet")},
                    "argument": {"name": "name", "value": "a"},
                }),
            )
            .unwrap();
        assert_eq!(completed["completion"]["values"], json!(["alpha", "beta"]));
        assert_eq!(completed["asked"], json!({"type": "ref/prompt", "name": "greet"}));
    }
    // Both have it, so the original URI alone leads to neither for a client that got it from none.
    let other = gateway.legacy();
    assert!(other.request("resources/read", json!({"uri": "fake://one"})).is_err());
    assert!(
        client
            .request("resources/read", json!({"uri": "c+fake://one"}))
            .is_err()
    );
}

#[test]
fn tools_are_called_by_every_way_to_write_their_name() {
    let long = "x".repeat(90);
    let gateway = Gateway::with_fake(&["--tool", "dotted.name/here", "--tool", &long]);
    let client = gateway.legacy();
    for name in ["fake__echo", "fake::echo", "fake.echo"] {
        assert_eq!(client.gets(name, json!({}))["name"], "echo", "{name}");
    }
    let names = tools_of(&client, "fake");
    for original in ["dotted.name/here", &long] {
        let begins = original.replace(['.', '/'], "_");
        let begins = &begins[..begins.len().min(30)];
        let name = names.iter().find(|name| name.starts_with(begins)).unwrap();
        let full = format!("fake__{name}");
        assert!(
            full.len() <= 51 && full.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)),
            "{full}"
        );
        assert_eq!(client.gets(&full, json!({}))["name"], *original);
        assert_eq!(
            client.gets(&format!("fake__{original}"), json!({}))["name"],
            *original,
            "the full name"
        );
    }
}

#[test]
fn denied_tools_are_like_unknown_ones_and_renamed_ones_have_their_new_name() {
    let gateway = Plan::new()
        .backend_with(
            "fake",
            &[],
            "[backends.fake.tools]\ndeny = [\"di*\", \"kill\"]\nrename = { echo = \"say\" }",
        )
        .start();
    let client = gateway.legacy();
    let names = tools_of(&client, "fake");
    assert!(
        !names
            .iter()
            .any(|name| name == "die" || name == "kill" || name == "echo"),
        "{names:?}"
    );
    assert_eq!(client.gets("fake__say", json!({}))["name"], "echo");
    let denied = client.result_of("fake__die", json!({})).unwrap_err();
    let unknown = client.result_of("fake__dix", json!({})).unwrap_err();
    assert_eq!(
        denied.to_string().replace("fake__die", ""),
        unknown.to_string().replace("fake__dix", "")
    );
}

#[test]
fn a_large_catalogue_comes_in_pages_that_have_every_tool_once() {
    let gateway = Gateway::with_fake(&["--extra-tools", "3000", "--page-size", "500"]);
    let client = gateway.legacy();
    let names = tools_of(&client, "fake");
    assert!(names.len() > 3_000);
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    for wrong in ["x", "b", "b99999999", "-1"] {
        assert_eq!(
            client.error_of("tools/list", json!({"cursor": wrong})),
            -32602,
            "{wrong}"
        );
    }
    let page = client.request("tools/list", json!({})).unwrap();
    assert!(page.to_string().len() < 700_000);
}

/// A legacy client and a modern one with a subscription, which get notifications of changed lists. They connect once the
/// broker knows the first lists, because clients that connect earlier are notified of these, too.
fn told_of_changes(gateway: &Gateway) -> (Agent, Agent) {
    assert!(!tools_of(&gateway.legacy(), "fake").is_empty());
    let (legacy, modern) = (gateway.legacy(), gateway.modern_socket());
    let listen = json!({"notifications": {"toolsListChanged": true}});
    modern.wire.asks("subscriptions/listen", modern.params(listen));
    let acknowledged = modern
        .wire
        .next_notification("notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["notifications"], json!({"toolsListChanged": true}));
    (legacy, modern)
}

#[test]
fn a_new_tool_is_told_to_clients_of_both_eras() {
    let gateway = Gateway::with_fake(&[]);
    let (legacy, modern) = told_of_changes(&gateway);
    legacy.gets("fake__add_tool", json!({"name": "fresh"}));
    legacy.wire.next_notification("notifications/tools/list_changed");
    modern.wire.next_notification("notifications/tools/list_changed");
    assert!(tools_of(&legacy, "fake").contains(&"fresh".to_owned()));
    assert_eq!(modern.gets("fake__fresh", json!({}))["name"], "fresh");
}

#[test]
fn a_storm_of_changes_is_read_a_few_times_and_told_only_if_something_changed() {
    let gateway = Gateway::with_fake(&[]);
    let (legacy, _modern) = told_of_changes(&gateway);
    legacy.gets("fake__list_changed", json!({"count": 200}));
    let lists = eventually("the lists were read again", || {
        let lists = legacy.gets("fake__lists", json!({}))["tools_lists"].as_u64().unwrap();
        (lists > 1).then_some(lists)
    });
    assert!(
        lists <= 4,
        "200 notifications made the gateway read the list {lists} times"
    );
    legacy.gets("fake__add_tool", json!({"name": "marker"}));
    legacy.wire.next_notification("notifications/tools/list_changed");
    assert_eq!(
        legacy.wire.notifications_so_far("notifications/tools/list_changed"),
        0,
        "the same lists again are not told"
    );
}

#[test]
fn a_backend_whose_lists_cannot_be_read_is_still_called() {
    let gateway = Plan::new()
        .backend("fake", &["--no-lists"])
        .backend("other", &[])
        .start();
    let client = gateway.legacy();
    assert!(tools_of(&client, "fake").is_empty());
    assert!(!tools_of(&client, "other").is_empty());
    let prompt = client.request("prompts/get", json!({"name": "fake__greet"})).unwrap();
    assert_eq!(prompt["messages"][0]["content"]["text"], "Hello you");
}

#[test]
fn one_backend_alone_has_its_own_names_and_instructions() {
    let gateway = Plan::new()
        .backend("fake", &["--tool", "register_session"])
        .backend("other", &[])
        .start();
    let alone = Agent::legacy(wire_at(&gateway, "/ws/fake"), "2025-11-25", &json!({}));
    let names = tool_names(&alone);
    assert!(
        names.contains(&"echo".to_owned()) && !names.iter().any(|name| name.contains("__")),
        "{names:?}"
    );
    assert_eq!(alone.gets("echo", json!({"a": 1}))["arguments"]["a"], 1);
    assert_eq!(
        alone.gets("register_session", json!({}))["name"],
        "register_session",
        "its own tool"
    );
    assert_eq!(alone.code_of("send_message", json!({})), -32602);
    assert_eq!(alone.code_of("other__echo", json!({})), -32602);
    let read = alone.request("resources/read", json!({"uri": "fake://one"})).unwrap();
    assert_eq!(read["contents"][0]["text"], "content of fake://one");
    // Over HTTP the path is a part of the session.
    let http = gateway.modern_http();
    let call = |path: &str, tool: &str| {
        let params = json!({"name": tool, "arguments": {}});
        http.asks("tools/call", params)
            .with_path(path)
            .sent()
            .answer_to(&json!(1))
    };
    assert_eq!(call("/mcp/fake", "echo").unwrap()["structuredContent"]["name"], "echo");
    assert!(call("/mcp/broker", "fake__echo").is_err());
    let discovered = http
        .asks("server/discover", json!({}))
        .with_path("/mcp/fake")
        .sent()
        .answer_to(&json!(1));
    assert_eq!(discovered.unwrap()["instructions"], "Use the fake tools.");
    let missing = http.asks("tools/list", json!({})).with_path("/mcp/missing").answered();
    assert_eq!(missing.status, 404);
}

#[test]
fn a_door_hears_of_the_lists_of_its_own_backend_alone() {
    const CHANGED: &str = "notifications/tools/list_changed";
    let gateway = Plan::new().backend("a", &[]).backend("b", &[]).start();
    let all = gateway.legacy();
    assert!(!tools_of(&all, "a").is_empty() && !tools_of(&all, "b").is_empty());
    let [door_a, door_b] =
        ["/ws/a", "/ws/b"].map(|path| Agent::legacy(wire_at(&gateway, path), "2025-11-25", &json!({})));
    let modern = Agent::modern(wire_at(&gateway, "/ws/a"), json!({}));
    let listen = json!({"notifications": {"toolsListChanged": true}});
    modern.wire.asks("subscriptions/listen", modern.params(listen));
    modern
        .wire
        .next_notification("notifications/subscriptions/acknowledged");
    for name in ["one", "two", "three"] {
        all.gets("b__add_tool", json!({"name": name}));
        eventually("the door of the backend hears of its new tool", || {
            door_b.wire.next_notification(CHANGED);
            tool_names(&door_b).contains(&name.to_owned()).then_some(())
        });
    }
    for client in [&door_a, &modern] {
        // The first announcement of its own lists may have come after it connected.
        assert!(client.wire.notifications_so_far(CHANGED) <= 1);
    }
    all.gets("a__add_tool", json!({"name": "of-a"}));
    for client in [&door_a, &modern] {
        eventually("the door hears of its own new tool", || {
            client.wire.next_notification(CHANGED);
            tool_names(client).contains(&"of-a".to_owned()).then_some(())
        });
    }
}

fn wire_at(gateway: &Gateway, path: &str) -> Wire {
    Wire::open_at(gateway.address, path)
}

#[test]
fn clients_are_told_at_the_start_that_lists_change() {
    let gateway = Gateway::with_fake(&[]);
    let hello: Value = gateway.wire().request("initialize", introduction()).unwrap();
    for list in ["tools", "prompts", "resources"] {
        assert_eq!(hello["capabilities"][list]["listChanged"], true, "{list}");
    }
}

#[test]
fn a_backend_cannot_take_the_place_of_the_own_resources_and_tools() {
    let gateway = Gateway::with_fake(&["--resource", "broker://inbox", "--tool", "register_session"]);
    let client = gateway.legacy();
    tools_of(&client, "fake");
    let session = client.result_of("register_session", json!({"name": "alice"})).unwrap();
    assert!(session["structuredContent"]["session_id"].is_string(), "{session}");
    let inbox = client
        .request("resources/read", json!({"uri": "broker://inbox"}))
        .unwrap();
    assert!(!inbox.to_string().contains("content of"), "{inbox}");
    assert_eq!(
        client.error_of("resources/read", json!({"uri": "fake+broker://inbox"})),
        -32002,
        "the backend's own"
    );
}

#[test]
fn a_tool_that_a_backend_lists_twice_is_offered_once() {
    let gateway = Gateway::with_fake(&["--tool", "same", "--tool", "same", "--tool", "echo"]);
    let names = tools_of(&gateway.legacy(), "fake");
    for name in ["same", "echo"] {
        assert_eq!(
            names.iter().filter(|known| known.starts_with(name)).count(),
            1,
            "{names:?}"
        );
    }
}

#[test]
fn an_observer_of_one_backend_sees_nothing() {
    let gateway = Gateway::of_team();
    let team = gateway.project("team", &json!({}));
    team.client().gets("fake__echo", json!({}));
    let observer = team.new_key_with_scope("observer");
    let http = team.http_modern_as(&observer);
    let ask = |method: &str, params: Value| {
        let request = http.asks(method, params).with_path("/mcp/fake");
        request.sent().answer_to(&json!(1))
    };
    assert_eq!(ask("tools/list", json!({})).unwrap()["tools"], json!([]));
    for tool in ["echo", "list_sessions"] {
        let error = ask("tools/call", json!({"name": tool, "arguments": {}})).unwrap_err();
        assert_eq!(error["message"], format!("Unknown tool: {tool}"));
    }
}

/// Bytes of the items of one page.
const PAGE_BYTES_MAX: usize = 384 * 1024;

/// Follows the cursors of `tools/list` to the end. Returns the names, and the bytes of the items of each page.
fn tool_pages(request: impl Fn(&str, Value) -> Result<Value, Value>) -> (Vec<String>, Vec<usize>) {
    let (mut names, mut bytes, mut params) = (Vec::new(), Vec::new(), json!({}));
    loop {
        let page = request("tools/list", params).unwrap();
        let tools = page["tools"].as_array().unwrap();
        let len = page["tools"].to_string().len() - 2;
        assert!(len <= PAGE_BYTES_MAX || tools.len() == 1, "a page of {len} bytes");
        bytes.push(len);
        names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        match page.get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return (names, bytes),
        }
    }
}

#[test]
fn a_page_is_bounded_in_bytes_together_with_the_own_items() {
    let plan = Plan::new();
    let flags = plan.file("tools.flags");
    // The first leaves the own tools no room, the second is longer than a page, and the others fill pages.
    let lengths = [380, 500, 100, 100, 100, 100, 100, 100].map(|kib| kib * 1024);
    let tools = lengths.iter().enumerate().map(|(at, len)| {
        let schema = json!({"type": "object"});
        let tool = json!({"name": format!("wide{at}"), "description": "x".repeat(*len), "inputSchema": schema});
        format!("--item tools {tool}\n")
    });
    fs::write(&flags, tools.collect::<String>()).unwrap();
    let gateway = plan
        .backend_with("fake", &["--flags-of", &flags], "tools.allow = [\"wide*\"]")
        .start();
    let (client, http) = (gateway.legacy(), gateway.modern_http());
    for (names, bytes) in [
        tool_pages(|method, params| client.request(method, params)),
        tool_pages(|method, params| http.request(method, params)),
    ] {
        assert!(bytes[0] < 380 * 1024, "the own tools come alone: {bytes:?}");
        assert_eq!(
            names.iter().filter(|name| name.starts_with("fake__wide")).count(),
            lengths.len()
        );
        assert_eq!(
            names.iter().collect::<BTreeSet<_>>().len(),
            names.len(),
            "none comes twice"
        );
        assert!(names.iter().any(|name| name == "register_session"));
    }
}
