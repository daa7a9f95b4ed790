//! Backends that administrators add while the broker runs: they are served, kept, and seen at every replica.

use std::{fs, thread};

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, fake_backend, tools_of},
    operators::{cli, text},
    support::{Agent, Redis, Wire, eventually},
};

/// A plan whose administrators may add commands.
fn open_plan() -> Plan {
    Plan::new().flag("--gateway-commands=admin")
}

fn shown(gateway: &Gateway, name: &str) -> Value {
    gateway.get(&format!("/api/v1/backends/{name}")).json()
}

fn lists(gateway: &Gateway, name: &str, tool: &str) {
    let client = gateway.legacy();
    eventually(tool, || {
        tools_of(&client, name).contains(&tool.to_owned()).then_some(())
    });
}

#[test]
fn a_list_that_waits_while_a_backend_is_added_is_that_of_its_own_backend() {
    let gate = std::env::temp_dir().join(format!("mcp-broker-gate-{}", uuid::Uuid::new_v4().simple()));
    let (path, fake) = (gate.display(), fake_backend().display().to_string());
    let script = format!("until [ -e '{path}' ]; do sleep 0.05; done; exec '{fake}' --tool of-b");
    let gateway = open_plan().program("b", "sh", &["-c".to_owned(), script], "").start();
    let door = Agent::legacy(Wire::open_at(gateway.address, "/ws/b"), "2025-11-25", &json!({}));
    let list = door.wire.asks("tools/list", json!({}));
    door.wire.syncs();
    gateway.adds("a", gateway.fake_table(&["--tool", "of-a"]));
    eventually("the backend that comes first by name is ready", || {
        (shown(&gateway, "a")["state"] == "ready").then_some(())
    });
    fs::write(&gate, "").unwrap();
    let tools = door.wire.answer_to(&list).unwrap().to_string();
    assert!(tools.contains("of-b") && !tools.contains("of-a"), "{tools}");
    fs::remove_file(gate).unwrap();
}

#[test]
fn an_added_backend_serves_calls_until_it_is_removed() {
    let gateway = open_plan().start();
    let client = gateway.legacy();
    let mut table = gateway.fake_table(&[]);
    table["env"]["TOKEN"] = json!("very-secret");
    let added = gateway.adds("fake", table);
    assert_eq!((&added["name"], &added["origin"]), (&json!("fake"), &json!("added")));
    assert_eq!(client.gets("fake__env", json!({}))["TOKEN"], "very-secret");
    let open = client.begins_call("fake__sleep", &json!({"ms": 1_000}));
    client.wire.syncs();

    let args = json!({"args": ["--tool", "fresh"]});
    let patched = gateway.asks_backends("PATCH", "/fake", &args);
    assert_eq!(patched.status, 200, "{patched:?}");
    lists(&gateway, "fake", "fresh");
    let result = client.wire.answer_to(&open).unwrap();
    assert_eq!(result["structuredContent"], json!({"done": true}), "it was handed over");
    assert_eq!(
        client.gets("fake__env", json!({}))["TOKEN"],
        "very-secret",
        "the other keys stay"
    );
    for path in ["", "/fake"] {
        let shown = gateway.asks_backends("GET", path, &Value::Null).body;
        assert!(!shown.contains("very-secret"), "{shown}");
    }

    let replaced = gateway.asks_backends("PUT", "/fake", &gateway.fake_table(&["--tool", "other"]));
    assert_eq!(replaced.status, 200, "{replaced:?}");
    lists(&gateway, "fake", "other");
    let env = client.gets("fake__env", json!({}));
    assert!(env.get("TOKEN").is_none(), "{env}");

    assert_eq!(gateway.asks_backends("DELETE", "/fake", &Value::Null).status, 204);
    assert_eq!(
        gateway.asks_backends("GET", "/fake", &Value::Null).problem(),
        (404, "backend_not_found".to_owned())
    );
    eventually("it is unknown", || {
        client.result_of("fake__pid", json!({})).is_err().then_some(())
    });
    gateway.awaits_no_processes();
}

#[test]
fn an_added_server_at_a_url_is_called_with_its_headers_in_every_mode() {
    let server = Gateway::with_fake(&[]);
    let url = format!("http://{}/mcp/fake", server.address);
    for mode in ["none", "configured"] {
        let gateway = Plan::new().flag(&format!("--gateway-commands={mode}")).start();
        gateway.adds("docs", json!({"url": url, "headers": {"X-Token": "very-secret"}}));
        gateway.legacy().gets("docs__echo", json!({}));
        let all = gateway.asks_backends("GET", "", &Value::Null).body;
        assert!(!all.contains("very-secret"), "{all}");
    }
}

#[test]
fn an_added_backend_is_switched_off_and_on() {
    let gateway = open_plan().start();
    gateway.adds("fake", gateway.fake_table(&[]));
    lists(&gateway, "fake", "echo");
    let table = text(&cli(&gateway, &["list"]));
    assert!(table.contains("ORIGIN") && table.contains("added"), "{table}");
    text(&cli(&gateway, &["disable", "fake"]));
    gateway.awaits_no_processes();
    eventually("it is switched off", || {
        (shown(&gateway, "fake")["state"] == "disabled").then_some(())
    });
    assert!(tools_of(&gateway.legacy(), "fake").is_empty());
    text(&cli(&gateway, &["enable", "fake"]));
    gateway.legacy().gets("fake__echo", json!({}));
}

#[test]
fn an_added_backend_and_its_lists_survive_a_restart() {
    let plan = open_plan();
    let data = format!("--data-dir={}", plan.file("data"));
    let plan = plan.flag("--storage=disk").flag(&data).flag("--log-level=debug");
    let starts = plan.file("starts");
    let mut gateway = plan.start();
    gateway.adds("fake", gateway.fake_table(&["--tool", "mine", "--starts", &starts]));
    gateway.adds("gone", gateway.fake_table(&[]));
    lists(&gateway, "fake", "mine");
    eventually("the lists are kept", || {
        let log = gateway.log();
        let mut lines = log.lines();
        let given = "the lists of a backend were given to the storage";
        lines
            .any(|line| line.contains(given) && line.contains("\"backend\":\"fake\""))
            .then_some(())
    });
    assert_eq!(gateway.asks_backends("DELETE", "/gone", &Value::Null).status, 204);

    gateway.restarts(|_| ());
    assert!(tools_of(&gateway.legacy(), "fake").contains(&"mine".to_owned()));
    assert_eq!(
        (gateway.starts("starts"), &shown(&gateway, "fake")["state"]),
        (1, &json!("idle"))
    );
    assert_eq!(shown(&gateway, "fake")["origin"], "added");
    assert_eq!(gateway.get("/api/v1/backends/gone").status, 404);
    gateway.legacy().gets("fake__mine", json!({}));
}

#[test]
fn every_replica_follows_what_was_added_changed_and_removed_at_another_one() {
    let redis = Redis::start();
    let url = format!("--redis-url=redis://{}", redis.address);
    let plan = || open_plan().flag("--storage=redis").flag(&url);
    // The processes of both have the marker of the first, which is dropped last.
    let first = plan().start();
    let second = plan().start();
    first.adds("fake", first.fake_table(&["--tool", "one"]));
    lists(&second, "fake", "one");
    second.legacy().gets("fake__one", json!({}));
    let args = json!({"args": ["--tool", "two"]});
    assert_eq!(second.asks_backends("PATCH", "/fake", &args).status, 200);
    lists(&first, "fake", "two");
    lists(&second, "fake", "two");
    assert_eq!(second.asks_backends("DELETE", "/fake", &Value::Null).status, 204);
    eventually("it is gone at the other replica", || {
        (first.get("/api/v1/backends/fake").status == 404).then_some(())
    });
    let third = plan().start();
    assert_eq!(third.get("/api/v1/backends").json(), json!({"backends": []}));
}

#[test]
fn of_several_who_add_one_name_at_once_one_wins() {
    let gateway = open_plan().start();
    let statuses: Vec<u16> = thread::scope(|scope| {
        let adding: Vec<_> = (0..8)
            .map(|number| {
                let gateway = &gateway;
                scope.spawn(move || {
                    let table = json!({"name": "one", "url": format!("http://localhost:9/{number}"), "disabled": true});
                    gateway.asks_backends("POST", "", &table).status
                })
            })
            .collect();
        adding.into_iter().map(|adding| adding.join().unwrap()).collect()
    });
    let with = |status| statuses.iter().filter(|found| **found == status).count();
    assert_eq!((with(201), with(409)), (1, 7), "{statuses:?}");
}

#[test]
fn changes_of_one_backend_at_once_are_all_made() {
    let gateway = open_plan().start();
    gateway.adds("fake", gateway.fake_table(&[]));
    let tools = ["echo", "pid", "env", "cwd", "fds", "twice"];
    thread::scope(|scope| {
        for tool in tools {
            let gateway = &gateway;
            scope.spawn(move || {
                let patch = json!({"tools": {"rename": {tool: format!("new_{tool}")}}});
                let patched = gateway.asks_backends("PATCH", "/fake", &patch);
                assert_eq!(patched.status, 200, "{patched:?}");
            });
        }
    });
    let client = gateway.legacy();
    eventually("all have their new names", || {
        let listed = tools_of(&client, "fake");
        tools
            .iter()
            .all(|tool| listed.contains(&format!("new_{tool}")))
            .then_some(())
    });
}

#[test]
fn the_configuration_file_wins_over_an_added_backend_of_the_same_name() {
    let gateway = open_plan().lines("# no backends yet").start();
    gateway.adds("fake", gateway.fake_table(&["--tool", "added"]));
    lists(&gateway, "fake", "added");
    gateway.is_configured(|plan| plan.backend("fake", &["--tool", "configured"]));
    lists(&gateway, "fake", "configured");
    assert_eq!(shown(&gateway, "fake")["origin"], "file");
    for (method, path, body) in [
        ("PUT", "/fake", json!({"url": "http://localhost:9"})),
        ("PATCH", "/fake", json!({"disabled": true})),
        ("POST", "/fake/disable", Value::Null),
        ("POST", "/fake/enable", Value::Null),
    ] {
        let refused = gateway.asks_backends(method, path, &body);
        assert_eq!(refused.problem(), (403, "forbidden".to_owned()), "{method} {path}");
        assert!(
            refused.body.contains("configuration file: change it there"),
            "{refused:?}"
        );
    }
    gateway.is_configured(|plan| plan.backend("fake", &["--tool", "configured"]).backend("more", &[]));
    lists(&gateway, "more", "echo");
    gateway.is_configured(|plan| plan.lines("# no backends again"));
    lists(&gateway, "fake", "added");
    assert_eq!(shown(&gateway, "fake")["origin"], "added");
    let log = gateway.log();
    let told = log
        .lines()
        .filter(|line| line.contains("an added backend is not served"));
    assert_eq!(told.count(), 1, "{log}");

    gateway.is_configured(|plan| plan.backend("fake", &["--tool", "configured"]));
    lists(&gateway, "fake", "configured");
    let remove = || gateway.asks_backends("DELETE", "/fake", &Value::Null);
    assert_eq!(remove().status, 204, "the one that is not served");
    assert_eq!(remove().problem(), (403, "forbidden".to_owned()));
    lists(&gateway, "fake", "configured");
}

#[test]
fn an_agent_that_administers_adds_and_removes_a_backend() {
    let gateway = open_plan().start();
    let client = gateway.legacy();
    let mut table = gateway.fake_table(&[]);
    table["name"] = json!("fake");
    table["call_timeout"] = json!("5s");
    assert_eq!(client.calls("add_backend", table.clone())["name"], "fake");
    client.gets("fake__echo", json!({}));
    client.is_refused_as("backend_exists", "add_backend", table);
    client.is_refused_as(
        "invalid_argument",
        "add_backend",
        json!({"name": "x", "url": "http://a", "comand": "y"}),
    );
    client.calls(
        "add_backend",
        json!({"name": "other", "url": "http://localhost:9", "disabled": true}),
    );
    let removed = client.calls("remove_backend", json!({"name": "fake"}));
    assert_eq!(removed, json!({"removed": "fake"}));
    client.is_refused_as("backend_not_found", "remove_backend", json!({"name": "fake"}));
}
