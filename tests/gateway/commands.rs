//! Tools of backends from a shell: `call`, by its former name `gateway call`, and `gateway ready`.

use std::process::Output;

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan},
    operators::{cli, json_of, text},
    support::eventually,
};

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_call_prints_the_result_and_says_what_failed() {
    let gateway = Plan::new()
        .backend("fake", &["--era", "modern"])
        .backend("broken", &["--exit-at-start", "3"])
        .start();
    let [echo] = json_of(&cli(&gateway, &["call", "fake__echo", "{\"a\": [1, \"ü\"]}"]))
        .try_into()
        .unwrap();
    assert_eq!(echo["arguments"], json!({"a": [1, "ü"]}));
    assert_eq!(
        json_of(&cli(&gateway, &["call", "fake::echo"]))[0]["arguments"],
        json!({})
    );

    let refused = cli(&gateway, &["call", "fake__tool_error"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(String::from_utf8(refused.stdout.clone()).unwrap(), "[]\n");
    assert!(
        stderr(&refused).contains("fake__tool_error: the tool answered with an error"),
        "{refused:?}"
    );
    let unavailable = cli(&gateway, &["call", "broken__echo"]);
    assert_eq!(unavailable.status.code(), Some(1));
    assert!(
        stderr(&unavailable).contains("backend_unavailable: broken") && stderr(&unavailable).lines().count() == 1,
        "{unavailable:?}"
    );
    let object: Value = serde_json::from_slice(&unavailable.stdout).unwrap();
    assert_eq!(object["code"], "backend_unavailable");
    for (arguments, reason, code) in [
        (&["call", "fake__none"][..], "the broker has no tool \"fake__none\"", 2),
        (
            &["call", "fake__error", "{\"code\": -32000, \"message\": \"no disk\"}"],
            "fake__error: no disk (-32000)",
            1,
        ),
        (&["call", "fake__never", "--timeout", "1s"], "did not answer in time", 1),
        (&["call", "fake__echo", "[1]"], "one JSON object", 2),
        (&["call"], "<TOOL>", 2),
    ] {
        let failed = cli(&gateway, arguments);
        assert_eq!(failed.status.code(), Some(code), "{failed:?}");
        assert!(stderr(&failed).contains(reason), "{arguments:?}: {failed:?}");
        assert!(failed.stdout.is_empty(), "{failed:?}");
    }
}

/// The status over REST, and the exit code and the table of the command.
fn readiness(gateway: &Gateway, tools: &[&str]) -> (u16, Option<i32>, Value) {
    let path = format!("/api/v1/gateway/ready?tools={}", tools.join(","));
    let response = gateway.get(&path);
    let output = cli(gateway, &[&["ready", "--json"], tools].concat());
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let body = response.json();
    assert_eq!(printed, body);
    (response.status, output.status.code(), body)
}

#[test]
fn tools_are_ready_wait_need_a_person_or_are_unknown() {
    let plan = Plan::new();
    let file = plan.file("hold");
    std::fs::write(&file, "").unwrap();
    let gateway = plan
        .backend("works", &[])
        .backend_with("idles", &[], "stop_when_idle = \"1s\"")
        .backend("slow", &["--start-delay", "600000"])
        .backend("crashes", &["--exit-while", &file])
        .backend_with("off", &[], "disabled = true")
        .lines("[backends.nope]\ncommand = \"no-such-program\"")
        .start();
    let client = gateway.legacy();
    for tool in ["works__echo", "idles__echo"] {
        client.gets(tool, json!({}));
    }
    eventually("the backend that crashes waits for its next start", || {
        (gateway.get("/api/v1/backends/crashes").json()["state"] == "backoff").then_some(())
    });
    eventually("the idle backend has ended", || {
        (gateway.get("/api/v1/backends/idles").json()["state"] == "idle").then_some(())
    });
    let (status, code, body) = readiness(&gateway, &["works__echo", "works::pid", "idles__echo"]);
    assert_eq!((status, code), (200, Some(0)), "{body}");
    assert_eq!(body["readiness"], "ready");
    assert_eq!(
        body["tools"][1],
        json!({"tool": "works::pid", "readiness": "ready", "backend": "works", "state": "ready"})
    );
    let (status, code, body) = readiness(&gateway, &["works__echo", "slow__echo"]);
    assert_eq!((status, code), (503, Some(10)), "{body}");
    assert_eq!(body["tools"][1]["state"], "starting");
    let (status, code, body) = readiness(&gateway, &["crashes__echo"]);
    assert_eq!((status, code), (503, Some(10)), "{body}");
    for tool in ["nope__anything", "off__echo"] {
        let (status, code, body) = readiness(&gateway, &["slow__echo", tool]);
        assert_eq!((status, code), (409, Some(11)), "{body}");
        assert_eq!(body["readiness"], "needs_person");
    }
    for tool in ["works__none", "none__echo", "echo"] {
        let (status, code, body) = readiness(&gateway, &["nope__anything", tool, "works__echo"]);
        assert_eq!((status, code), (404, Some(12)), "{body}");
        assert_eq!(body["tools"][1]["readiness"], "unknown");
    }
    let table = cli(&gateway, &["ready", "nope__anything"]);
    assert!(
        stderr(&table).contains("nope__anything: not ready until a person acts"),
        "{table:?}"
    );
    assert!(String::from_utf8(table.stdout).unwrap().contains("no program"));
    // All backends, except those that are switched off.
    let all = cli(&gateway, &["ready", "--all", "--json"]);
    assert_eq!(all.status.code(), Some(11), "{all:?}");
    let shown: Value = serde_json::from_slice(&all.stdout).unwrap();
    let backends = shown["backends"].as_array().unwrap();
    let readiness = |name: &str| {
        let found = backends.iter().find(|backend| backend["backend"] == name);
        found.map(|backend| backend["readiness"].as_str().unwrap().to_owned())
    };
    assert_eq!(readiness("works").as_deref(), Some("ready"), "{shown}");
    assert_eq!(readiness("slow").as_deref(), Some("transient"), "{shown}");
    assert_eq!(readiness("nope").as_deref(), Some("needs_person"), "{shown}");
    assert_eq!(readiness("off"), None, "{shown}");
    assert!(stderr(&all).contains("nope: not ready until a person acts"), "{all:?}");
    let names = vec!["a"; 101].join(",");
    for tools in ["", &names, &"a".repeat(257)] {
        let refused = gateway.get(&format!("/api/v1/gateway/ready?tools={tools}"));
        assert_eq!(refused.problem(), (400, "invalid_argument".to_owned()));
    }
}

#[test]
fn readiness_is_waited_for() {
    let plan = Plan::new();
    let file = plan.file("hold");
    std::fs::write(&file, "").unwrap();
    let gateway = plan.backend("late", &["--exit-while", &file]).start();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cli(&gateway, &["ready", "late__echo", "added__echo", "--wait", "1h"]));
        eventually("it has crashed once", || {
            (gateway.get("/api/v1/backends/late").json()["state"] == "backoff").then_some(())
        });
        gateway.removes("hold");
        gateway.is_configured(|plan| plan.backend("late", &["--exit-while", &file]).backend("added", &[]));
        assert!(text(&waiting.join().unwrap()).contains("late"));
    });
    assert!(text(&cli(&gateway, &["ready", "--all", "--wait", "1h"])).contains("added"));
    let output = cli(&gateway, &["ready", "none__echo", "--wait", "1s"]);
    assert_eq!(output.status.code(), Some(12), "{output:?}");
}

#[test]
fn readiness_is_shown_to_callers_of_the_project_alone() {
    let gateway = Gateway::of_team();
    let team = gateway.project("team", &json!({}));
    team.client().gets("fake__echo", json!({}));
    let path = "/api/v1/gateway/ready?tools=fake__echo";
    let observer = team.new_key_with_scope("observer");
    assert_eq!(gateway.rest(&observer, "GET", path, &Value::Null).status, 200);
    let other = gateway.project("other", &json!({})).new_key_with_scope("member");
    assert_eq!(gateway.rest(&other, "GET", path, &Value::Null).status, 404);
    assert_eq!(gateway.get(path).status, 401);
}
