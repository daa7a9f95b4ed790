//! The lists of backends in the storage: after a restart of the broker they are complete before a backend runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, introduction, tool_names, tools_of},
    support::{Agent, eventually},
};

/// A plan with the disk storage, whose broker logs when it keeps lists.
fn on_disk() -> Plan {
    let plan = Plan::new();
    let data = format!("--data-dir={}", plan.file("data"));
    plan.flag("--storage=disk").flag(&data).flag("--log-level=debug")
}

/// Waits until the storage was given lists of a backend this many times since the broker was started.
fn keeps_lists(gateway: &Gateway, backend: &str, times: usize) {
    eventually("the storage was given the lists", || {
        let log = gateway.log();
        let given = log.lines().filter(|line| {
            line.contains("the lists of a backend were given to the storage")
                && line.contains(&format!("\"backend\":\"{backend}\""))
        });
        (given.count() == times).then_some(())
    });
}

/// What all lists have of the backends.
fn all_lists(client: &Agent) -> Vec<Value> {
    let lists = [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ];
    lists.map(|list| client.request(list, json!({})).unwrap()).to_vec()
}

fn state(gateway: &Gateway, backend: &str) -> Value {
    gateway.get(&format!("/api/v1/backends/{backend}")).json()["state"].clone()
}

#[test]
fn after_a_restart_all_lists_are_there_before_a_backend_runs_and_the_first_call_starts_it() {
    let plan = on_disk();
    let starts = plan.file("starts");
    let mut gateway = plan
        .backend("fake", &["--tool", "mine", "--starts", &starts])
        .backend("other", &["--era", "modern", "--starts", &starts])
        .start();
    let before = all_lists(&gateway.legacy());
    for backend in ["fake", "other"] {
        keeps_lists(&gateway, backend, 1);
    }
    gateway.restarts(|_| ());
    let client = gateway.legacy();
    assert_eq!(all_lists(&client), before);
    assert_eq!((gateway.programs(), gateway.starts("starts")), (Vec::new(), 2));
    assert_eq!(state(&gateway, "fake"), "idle");
    let hello = gateway.wire().request("initialize", introduction());
    let instructions = hello.unwrap()["instructions"].to_string();
    assert!(instructions.contains("Use the fake tools."), "{instructions}");

    assert_eq!(client.gets("fake__mine", json!({}))["name"], "mine");
    assert_eq!(gateway.starts("starts"), 3);
    assert_eq!(state(&gateway, "other"), "idle");
    assert_eq!(all_lists(&client), before);
}

#[test]
fn what_is_eager_or_watched_starts_with_the_broker() {
    let plan = on_disk();
    let files = ["lazy", "eager", "watched"].map(|name| (name, plan.file(name)));
    let watch = format!("watch = [{:?}]", plan.file("source.py"));
    let plan = files.iter().fold(plan, |plan, (name, starts)| {
        let lines = match *name {
            "eager" => "start = \"eager\"",
            "watched" => watch.as_str(),
            _ => "start = \"lazy\"",
        };
        plan.backend_with(name, &["--starts", starts], lines)
    });
    let mut gateway = plan.start();
    for (name, _) in &files {
        keeps_lists(&gateway, name, 1);
    }
    gateway.restarts(|_| ());
    for name in ["eager", "watched"] {
        eventually("it runs without a call", || {
            (state(&gateway, name) == "ready").then_some(())
        });
    }
    assert_eq!((state(&gateway, "lazy"), gateway.starts("lazy")), (json!("idle"), 1));
    assert!(tools_of(&gateway.legacy(), "lazy").contains(&"echo".to_owned()));
}

#[test]
fn a_backend_whose_program_no_longer_starts_is_still_listed() {
    let plan = on_disk();
    let present = plan.file("present");
    let mut gateway = plan.backend("fake", &["--exit-while", &present]).start();
    let client = gateway.legacy();
    let before = tool_names(&client);
    keeps_lists(&gateway, "fake", 1);
    gateway.restarts(|_| fs::write(&present, "").unwrap());
    let client = gateway.legacy();
    assert_eq!(tool_names(&client), before);
    let error = client.fails_as("backend_unavailable", "fake__echo", json!({}));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("exited with code 9: the file is there"), "{message}");
    assert_eq!(tool_names(&client), before);
}

#[test]
fn a_changed_command_shows_nothing_of_the_one_before() {
    let plan = on_disk();
    let present = plan.file("present");
    let mut gateway = plan.backend("fake", &["--tool", "mine"]).start();
    assert!(tools_of(&gateway.legacy(), "fake").contains(&"mine".to_owned()));
    keeps_lists(&gateway, "fake", 1);
    gateway.restarts(|gateway| {
        fs::write(&present, "").unwrap();
        gateway.is_configured(|plan| plan.backend("fake", &["--tool", "theirs", "--exit-while", &present]));
    });
    let client = gateway.legacy();
    assert!(tools_of(&client, "fake").is_empty());
    gateway.removes("present");
    eventually("the other program is listed", || {
        let names = tools_of(&client, "fake");
        assert!(!names.contains(&"mine".to_owned()), "{names:?}");
        names.contains(&"theirs".to_owned()).then_some(())
    });
}

#[test]
fn lists_that_have_changed_meanwhile_are_told_once_and_their_old_names_are_unknown() {
    let plan = on_disk();
    let flags = plan.file("server.flags");
    fs::write(&flags, "--tool first").unwrap();
    let mut gateway = plan.backend("fake", &["--flags-of", &flags]).start();
    assert!(tools_of(&gateway.legacy(), "fake").contains(&"first".to_owned()));
    keeps_lists(&gateway, "fake", 1);
    gateway.restarts(|_| fs::write(&flags, "--tool second --only-tools").unwrap());
    // Once a list was answered, the catalog is the one of the kept lists.
    assert!(tools_of(&gateway.legacy(), "fake").contains(&"first".to_owned()));
    let client = gateway.legacy();
    let error = client.result_of("fake__first", json!({})).unwrap_err();
    assert_eq!(error["message"], "Unknown tool: fake__first");
    client.wire.next_notification("notifications/tools/list_changed");
    let names = tools_of(&client, "fake");
    assert!(!names.contains(&"first".to_owned()), "{names:?}");
    let prompts = client.request("prompts/list", json!({})).unwrap();
    assert!(
        !prompts.to_string().contains("fake__greet"),
        "it has none any longer: {prompts}"
    );
    client.gets("fake__second", json!({}));
    client.gets("fake__add_tool", json!({"name": "marker"}));
    client.wire.next_notification("notifications/tools/list_changed");
    assert_eq!(client.wire.notifications_so_far("notifications/tools/list_changed"), 0);
    // Those of the start, and those with the marker.
    keeps_lists(&gateway, "fake", 2);
}

#[test]
fn lists_that_could_not_be_read_are_not_kept() {
    let plan = on_disk();
    let flags = plan.file("server.flags");
    fs::write(&flags, "--no-lists").unwrap();
    let mut gateway = plan.backend("fake", &["--flags-of", &flags]).start();
    assert!(tools_of(&gateway.legacy(), "fake").is_empty());
    gateway.restarts(|_| fs::write(&flags, "").unwrap());
    assert!(tools_of(&gateway.legacy(), "fake").contains(&"echo".to_owned()));
    keeps_lists(&gateway, "fake", 1);
}

#[test]
fn a_subscription_to_a_resource_starts_its_backend() {
    let mut gateway = on_disk().backend("fake", &[]).start();
    tools_of(&gateway.legacy(), "fake");
    keeps_lists(&gateway, "fake", 1);
    gateway.restarts(|_| ());
    let client = gateway.legacy();
    let subscribed = client.request("resources/subscribe", json!({"uri": "fake+fake://one"}));
    subscribed.unwrap();
    eventually("it runs without a call", || {
        (state(&gateway, "fake") == "ready").then_some(())
    });
}

#[test]
fn a_removed_backend_leaves_nothing() {
    let plan = on_disk();
    let present = plan.file("present");
    let fake = |plan: Plan| plan.backend("fake", &["--exit-while", &present]);
    let mut gateway = fake(plan).start();
    tools_of(&gateway.legacy(), "fake");
    keeps_lists(&gateway, "fake", 1);
    // While the broker runs.
    gateway.is_configured(|plan| plan);
    eventually("it is removed", || {
        (gateway.get("/api/v1/backends/fake").status == 404).then_some(())
    });
    gateway.awaits_no_processes();
    fs::write(&present, "").unwrap();
    gateway.is_configured(fake);
    let client = gateway.legacy();
    let refused = || client.result_of("fake__echo", json!({})).ok();
    let refused = eventually("it is there again", refused);
    assert_eq!(refused["structuredContent"]["code"], "backend_unavailable", "{refused}");
    assert!(tools_of(&client, "fake").is_empty());
    // While no broker runs.
    gateway.removes("present");
    keeps_lists(&gateway, "fake", 2);
    gateway.restarts(|gateway| gateway.is_configured(|plan| plan));
    assert!(tools_of(&gateway.legacy(), "fake").is_empty());
    gateway.restarts(|gateway| {
        fs::write(&present, "").unwrap();
        gateway.is_configured(fake);
    });
    assert!(tools_of(&gateway.legacy(), "fake").is_empty());
}

/// A small disk, where the system allows mounting one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: &str) -> Option<Self> {
        fs::create_dir(folder).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=96m", "tmpfs", folder]);
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        is_mounted.then(|| Self(folder.into()))
    }

    /// Leaves less than the half that the broker wants to be free.
    fn fill(&self) {
        fs::write(self.0.join("filling"), vec![1; 60 << 20]).unwrap();
    }

    fn data(&self) -> PathBuf {
        Path::new(&self.0).join("data")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_costs_nothing_but_the_memory_of_the_lists() {
    let plan = on_disk();
    let Some(disk) = SmallDisk::mount(&plan.file("disk")) else {
        eprintln!(
            "nothing may be mounted here: refused writes are in the tests of `gateway::kept_lists` of the actors"
        );
        return;
    };
    let mut gateway = plan.flag(&format!("--data-dir={}", disk.data().display())).start();
    disk.fill();
    eventually("the storage refuses what is new", || {
        (gateway.get("/health").json()["status"] == "degraded").then_some(())
    });
    let add = |plan: Plan| plan.backend("fake", &[]);
    gateway.is_configured(add);
    keeps_lists(&gateway, "fake", 1);
    let client = gateway.legacy();
    client.gets("fake__echo", json!({}));
    client.gets("fake__add_tool", json!({"name": "fresh"}));
    keeps_lists(&gateway, "fake", 2);
    assert!(tools_of(&client, "fake").contains(&"fresh".to_owned()));
    let log = gateway.log();
    let told = log.matches("the lists of backends are only in memory").count();
    assert_eq!(told, 1, "{log}");
    drop(client);
    gateway.restarts(|_| ());
    let client = gateway.legacy();
    assert!(tools_of(&client, "fake").contains(&"echo".to_owned()));
    client.gets("fake__echo", json!({}));
    // Its log must not outlive the disk.
    drop((client, gateway));
    drop(disk);
}

#[test]
fn what_is_offered_to_callers_that_can_be_asked_is_kept_too() {
    let flags = ["--list-by-capability"];
    let mut gateway = on_disk().backend_with("old", &flags, "asks = true").start();
    keeps_lists(&gateway, "old", 1);
    let before = tools_of(&gateway.legacy(), "old");
    assert!(before.contains(&"for_sampling".to_owned()), "{before:?}");
    gateway.restarts(|_| {});
    let capabilities = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
    let client = Agent::legacy(gateway.wire(), "2025-11-25", &capabilities);
    assert_eq!(tools_of(&client, "old"), before);
    // The main instance, which is not offered all of them, takes none away.
    client.gets("old__for_sampling", json!({}));
    gateway.legacy().gets("old__echo", json!({}));
    assert_eq!(tools_of(&client, "old"), before);
    assert_eq!(client.wire.notifications_so_far("notifications/tools/list_changed"), 0);
}
