//! `gateway watch`: one program for one client, in the place of the program itself.

use std::fs;

use serde_json::{Value, json};

use crate::{
    harness::{Calls, Plan, replace_file, tool_names},
    running::program,
    support::{Agent, eventually},
};

fn has_tool(client: &Agent, name: &str) -> bool {
    tool_names(client).iter().any(|tool| tool == name)
}

#[test]
fn a_changed_program_takes_over_while_its_client_stays_connected() {
    let plan = Plan::new();
    let (file, log) = (plan.file("src/server.flags"), plan.file("watch.log"));
    fs::create_dir(plan.file("src")).unwrap();
    fs::write(&file, "--tool first").unwrap();
    let args = ["-w", "src/", "-e", "flags,json", "-t", "-l", &log];
    let mut gateway = plan.watch(&args, &["--flags-of", &file]);
    let client = gateway.legacy();
    assert!(has_tool(&client, "first"), "tools have their own names");
    let open = client.begins_call("sleep", &json!({"ms": 1_500}));
    client.wire.syncs();
    replace_file(file.as_ref(), "--tool second");
    eventually("the changed program is listed", || {
        has_tool(&client, "second").then_some(())
    });
    assert!(!has_tool(&client, "first"));
    client.wire.next_notification("notifications/tools/list_changed");
    client.gets("second", json!({}));
    assert_ne!(client.wire.answer_to(&open).unwrap()["isError"], true);

    replace_file(file.as_ref(), "--exit-at-start 3");
    eventually("the log says why the changed program does not start", || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        log.contains("the changed one does not start").then_some(())
    });
    client.gets("second", json!({}));
    let log = fs::read_to_string(&log).unwrap();
    assert!(
        log.contains("missing FAKE_TOKEN"),
        "the program's stderr is in the log: {log}"
    );
}

#[test]
fn the_program_has_the_environment_and_the_arguments_of_the_command() {
    let plan = Plan::new();
    let folder = plan.file("");
    let text = "${HOME} ${nothing $HOME";
    let mut gateway = plan.watch(&["--quiet"], &["--description", text]);
    let client = gateway.legacy();
    let tools = client.request("tools/list", json!({})).unwrap();
    assert_eq!(tools["tools"][0]["description"], text, "nothing is replaced in them");
    let env: Value = client.gets("env", json!({}));
    assert_eq!(
        env["HOME"].as_str().map(|home| home.trim_end_matches('/')),
        Some(folder.trim_end_matches('/'))
    );
    assert!(env.get("MCP_BROKER_GATEWAY_LIST_WAIT").is_none(), "{env}");
    assert!(gateway.log().is_empty(), "{}", gateway.log());
}

#[test]
fn a_wrong_command_line_says_what_is_wrong() {
    for (args, reason) in [
        (vec!["--watch", "src"], "COMMAND"),
        (vec!["--ext", "[", "--", "true"], "unclosed character class"),
        (vec!["--quiet", "--debug", "--", "true"], "cannot be used with"),
    ] {
        let output = program(&std::env::temp_dir(), "watch", &args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
    }
}
