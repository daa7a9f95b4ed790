//! `gateway watch`: one program for one client, in the place of the program itself.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{
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

/// What the log says, once it says this.
fn logged(log: &str, wanted: &str) -> String {
    eventually(&format!("the log has {wanted:?}"), || {
        let text = fs::read_to_string(log).unwrap_or_default();
        text.contains(wanted).then_some(text)
    })
}

#[test]
fn the_log_has_the_words_of_mcpmon_and_a_touched_file_restarts() {
    let plan = Plan::new();
    let (file, log) = (plan.file("src/server.flags"), plan.file("watch.log"));
    fs::create_dir(plan.file("src")).unwrap();
    fs::write(&file, "--tool first").unwrap();
    let args = ["-w", "src", "-e", "flags", "--debug", "-l", &log];
    let other = plan.file("src/readme.txt");
    let mut gateway = plan.watch(&args, &["--flags-of", &file]);
    let client = gateway.legacy();
    client.gets("first", json!({}));
    let text = logged(&log, "Started: ");
    assert!(text.contains("Watching src for .flags changes"), "{text}");
    fs::write(&other, "x").unwrap();
    logged(&log, "Ignored added: ");
    // As touch does: the content is the same.
    fs::File::options()
        .append(true)
        .open(&file)
        .unwrap()
        .set_modified(std::time::SystemTime::now())
        .unwrap();
    let text = logged(&log, "Restart #1 complete");
    assert!(
        text.contains("File modified: ") && text.contains("server.flags"),
        "{text}"
    );
    logged(&log, "Sent tools/list_changed notification");
    client.wire.next_notification("notifications/tools/list_changed");
    gateway.receives(Signal::TERM);
    assert!(gateway.ends().success());
    let text = logged(&log, "Shutdown complete (restarts: 1)");
    let time = text.lines().next().unwrap();
    let (date, rest) = time.split_once(' ').unwrap();
    assert!(
        date.len() == 10 && rest.as_bytes()[2] == b':',
        "no T in the time: {time}"
    );
}

#[test]
fn a_program_that_speaks_no_mcp_is_started_again_too_and_needs_no_client() {
    let plan = Plan::new();
    let (file, log) = (plan.file("server.py"), plan.file("watch.log"));
    fs::write(&file, "# one").unwrap();
    let folder = plan.file("");
    let args = ["-w", &folder, "-l", &log, "--", "/bin/sleep", "1000"];
    let mut child = program(folder.as_ref(), "watch", &args)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    logged(&log, "Started: /bin/sleep 1000");
    fs::write(&file, "# two").unwrap();
    logged(&log, "Restart #1 complete");
    assert!(child.try_wait().unwrap().is_none(), "it runs without a client");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    logged(&log, "Shutdown complete (restarts: 1)");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_client_that_wants_no_news_of_tools_gets_none() {
    let plan = Plan::new();
    let (file, log) = (plan.file("src/server.flags"), plan.file("watch.log"));
    fs::create_dir(plan.file("src")).unwrap();
    fs::write(&file, "--tool first").unwrap();
    let args = ["-w", "src", "-e", "flags", "--no-notify-tools-changed", "-l", &log];
    let mut gateway = plan.watch(&args, &["--flags-of", &file]);
    let client = gateway.legacy();
    client.gets("first", json!({}));
    replace_file(file.as_ref(), "--tool second");
    eventually("the changed program is listed", || {
        has_tool(&client, "second").then_some(())
    });
    let text = logged(&log, "Restart #1 complete");
    assert!(!text.contains("Sent tools/list_changed"), "{text}");
    assert_eq!(client.wire.notifications_so_far("notifications/tools/list_changed"), 0);
}

#[test]
fn the_help_has_the_headings_of_mcpmon() {
    let output = program(&std::env::temp_dir(), "watch", &["--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for heading in ["Usage:", "Logging levels:", "Examples:"] {
        assert!(help.contains(heading), "{help}");
    }
}
