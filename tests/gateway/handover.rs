//! A watched program whose files change: another one takes its place, and no call is lost.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, tools_of},
    support::{Agent, eventually},
};

/// A backend whose flags are in a file that it watches, and the path of the file.
fn watching(lines: &str) -> (Gateway, String) {
    let plan = Plan::new();
    let (file, starts) = (plan.file("src/server.flags"), plan.file("starts"));
    fs::create_dir(plan.file("src")).unwrap();
    save(&file, "--tool first");
    let folder = plan.file("");
    let lines = format!("cwd = {folder:?}\nwatch = [\"src/**/*.flags\"]\n{lines}");
    let plan = plan.backend_with("fake", &["--starts", &starts, "--flags-of", &file], &lines);
    (plan.start(), file)
}

/// Replaces a file in one step, as editors do.
fn save(file: &str, text: &str) {
    let written = format!("{file}~");
    fs::write(&written, text).unwrap();
    fs::rename(written, file).unwrap();
}

fn has_tool(client: &Agent, name: &str) -> bool {
    tools_of(client, "fake").iter().any(|tool| tool == name)
}

fn pid(client: &Agent) -> Value {
    client.gets("fake__pid", json!({}))["pid"].clone()
}

/// The backend as operators see it.
fn shown(gateway: &Gateway) -> Value {
    gateway.get("/api/v1/backends/fake").json()
}

#[test]
fn a_saved_file_brings_its_tool_to_connected_clients_of_both_eras() {
    let (gateway, file) = watching("");
    let (legacy, modern) = (gateway.legacy(), gateway.modern_http());
    assert!(has_tool(&legacy, "first"));
    let before = pid(&legacy);
    save(&file, "--tool second --era modern");
    legacy.wire.next_notification("notifications/tools/list_changed");
    assert!(has_tool(&legacy, "second") && !has_tool(&legacy, "first"));
    for client in [&legacy as &dyn Calls, &modern] {
        client.gets("fake__second", json!({}));
    }
    assert_ne!(pid(&legacy), before);
    assert_eq!(
        shown(&gateway)["era"],
        "modern",
        "the changed program speaks another era"
    );
    eventually("the one before has ended", || {
        (gateway.programs().len() == 1).then_some(())
    });
}

#[test]
fn open_calls_go_on_in_the_program_that_began_them() {
    let (gateway, file) = watching("");
    let client = gateway.legacy();
    let before = pid(&client);
    let open = client.begins_call("fake__sleep", &json!({"ms": 4_000}));
    client.wire.syncs();
    save(&file, "--tool second");
    // A notification could be that of the first start.
    eventually("the changed program is listed", || {
        has_tool(&client, "second").then_some(())
    });
    assert_ne!(pid(&client), before, "new calls go to the changed program");
    let result = client.wire.answer_to(&open).unwrap();
    assert_ne!(result["isError"], true, "{result}");
    eventually("the one before has ended", || {
        (gateway.programs().len() == 1).then_some(())
    });
}

#[test]
fn no_call_fails_while_a_program_changes_again_and_again() {
    let (gateway, file) = watching("");
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let watcher = gateway.legacy();
    assert!(has_tool(&watcher, "first"));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let client = gateway.legacy();
                while !is_over.load(Ordering::Relaxed) {
                    client.gets("fake__echo", json!({}));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..5 {
            let tool = format!("of_round_{round}");
            save(&file, &format!("--tool {tool}"));
            eventually("the changed program is listed", || {
                has_tool(&watcher, &tool).then_some(())
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(answered.load(Ordering::Relaxed) > 0);
    assert_eq!(gateway.starts("starts"), 6);
}

#[test]
fn a_broken_program_leaves_the_one_before_serving() {
    let (gateway, file) = watching("");
    let client = gateway.legacy();
    let before = pid(&client);
    save(&file, "--exit-at-start 3");
    let reason = eventually("operators are told", || {
        let shown = shown(&gateway);
        shown["reason"].as_str().map(str::to_owned)
    });
    assert!(reason.starts_with("the changed one does not start"), "{reason}");
    assert!(reason.ends_with("exited with code 3: missing FAKE_TOKEN"), "{reason}");
    assert_eq!(shown(&gateway)["state"], "ready");
    assert_eq!(pid(&client), before);
    save(&file, "--tool mended");
    eventually("the mended one is listed", || has_tool(&client, "mended").then_some(()));
    assert_eq!(shown(&gateway)["reason"], Value::Null);
    assert_ne!(pid(&client), before);
}

#[test]
fn a_change_starts_a_program_that_has_failed() {
    let plan = Plan::new();
    let file = plan.file("server.flags");
    save(&file, "--exit-at-start 3");
    let lines = format!("restart = \"on-change\"\nwatch = [{file:?}]");
    let gateway = plan.backend_with("fake", &["--flags-of", &file], &lines).start();
    eventually("it has failed", || (shown(&gateway)["state"] == "failed").then_some(()));
    save(&file, "--tool mended");
    let client = gateway.legacy();
    eventually("its tool is listed", || has_tool(&client, "mended").then_some(()));
}

#[test]
fn without_handover_the_program_ends_before_the_next_one_starts() {
    let (gateway, file) = watching("handover = false");
    let client = gateway.legacy();
    let before = pid(&client);
    let open = client.begins_call("fake__sleep", &json!({"ms": 1_000}));
    client.wire.syncs();
    save(&file, "--tool second");
    let result = client.wire.answer_to(&open).unwrap();
    assert_ne!(result["isError"], true, "{result}");
    eventually("the changed program is listed", || {
        assert!(gateway.programs().len() <= 1);
        has_tool(&client, "second").then_some(())
    });
    assert_ne!(pid(&client), before);
}

#[test]
fn a_folder_with_many_files_is_one_change() {
    let (gateway, file) = watching("");
    let client = gateway.legacy();
    assert!(has_tool(&client, "first"));
    let source = std::path::Path::new(&file).parent().unwrap();
    let checkout = source.with_file_name("checkout");
    fs::create_dir(&checkout).unwrap();
    for at in 0..2_000 {
        fs::write(checkout.join(format!("{at}.flags")), at.to_string()).unwrap();
    }
    fs::write(checkout.join("server.flags"), "--tool second").unwrap();
    fs::rename(source, source.with_file_name("before")).unwrap();
    fs::rename(&checkout, source).unwrap();
    eventually("the changed program is listed", || {
        has_tool(&client, "second").then_some(())
    });
    save(&file, "--tool third");
    eventually("the folder is still watched", || {
        has_tool(&client, "third").then_some(())
    });
    assert_eq!(gateway.starts("starts"), 3);
}
