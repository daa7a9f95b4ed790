//! What the process of a backend sees: its environment, its files, its folder.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::json;

use super::{
    harness::{Calls, Gateway, Plan},
    support::eventually,
};

#[test]
fn a_backend_gets_a_small_environment_and_what_its_entry_names() {
    let lines = "env = { TOKEN = \"a-${SECRET_OF_THE_BROKER}\", WITH_DEFAULT = \"${NOT_SET:-b}\" }\n\
                 pass_env = [\"PASSED\", \"HTTPS_PROXY\", \"MCP_BROKER_LOG_LEVEL\"]";
    let gateway = Plan::new().backend_with("fake", &[], lines).start();
    let mut seen = gateway.legacy().gets("fake__env", json!({}));
    seen.as_object_mut().unwrap().remove("FAKE_BACKEND_OF");
    assert_eq!(
        seen,
        json!({
            "PATH": "/usr/bin:/bin",
            "HOME": "/home/of-the-test",
            "LC_TEST": "C",
            "TOKEN": "a-secret",
            "WITH_DEFAULT": "b",
            "PASSED": "passed",
            "HTTPS_PROXY": "http://proxy:3128",
        })
    );
}

#[test]
fn a_keeper_is_shown_under_its_name() {
    let gateway = Gateway::with_fake(&[]);
    gateway.legacy().gets("fake__echo", json!({}));
    let names: Vec<_> = gateway
        .keepers()
        .iter()
        .map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap())
        .collect();
    assert_eq!(names, ["mcp-keeper\n"]);
}

#[test]
fn a_backend_inherits_no_open_files() {
    let gateway = Gateway::with_fake(&[]);
    let files = gateway.legacy().gets("fake__fds", json!({}));
    let leaked: Vec<_> = files["fds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file.as_str().unwrap())
        .filter(|file| !["0 ", "1 ", "2 "].iter().any(|own| file.starts_with(own)) && !file.contains("/proc/"))
        .collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}

#[test]
fn a_backend_runs_in_its_folder_and_within_its_limits() {
    let gateway = Plan::new()
        .backend_with(
            "fake",
            &[],
            "cwd = \"/usr\"\nlimits = { open_files = 20, memory = \"2GiB\" }",
        )
        .start();
    let client = gateway.legacy();
    assert_eq!(client.gets("fake__cwd", json!({}))["cwd"], "/usr");
    let pid = client.gets("fake__pid", json!({}))["pid"].as_u64().unwrap();
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let of = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(of("Max open files").contains(" 20 "), "{limits}");
    assert!(of("Max data size").contains(&(2_u64 << 30).to_string()), "{limits}");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
}

#[test]
fn an_idle_backend_is_stopped_and_started_by_the_next_call() {
    let gateway = Plan::new().backend_with("fake", &[], "stop_when_idle = \"1s\"").start();
    let client = gateway.legacy();
    let first = client.gets("fake__pid", json!({}))["pid"].clone();
    gateway.awaits_no_processes();
    assert!(
        crate::gateway::harness::tools_of(&client, "fake").contains(&"echo".to_owned()),
        "its tools are still listed"
    );
    assert_ne!(client.gets("fake__pid", json!({}))["pid"], first);
}

#[test]
fn a_backend_reads_neither_the_environment_of_the_broker_nor_that_of_its_keeper() {
    let plan = Plan::new();
    let seen = plan.file("seen");
    // The superuser reads everything, so the broker has another user here.
    let folder = Path::new(&seen).parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "keeper=$PPID; broker=$(awk '/^PPid:/ {{ print $2 }}' /proc/$keeper/status); for pid in $$ $keeper $broker; do if cat \
         /proc/$pid/environ > /dev/null 2>&1; then echo read; else echo refused; fi; done >> {seen}; cat > /dev/null"
    );
    let gateway = plan
        .program("curious", "/bin/sh", &["-c".to_owned(), script], "start = \"eager\"")
        .start_as_nobody();
    let seen = eventually("it has looked", || {
        let text = fs::read_to_string(&seen).ok()?;
        (text.lines().count() == 3).then_some(text)
    });
    assert_eq!(seen, "read\nrefused\nrefused\n");
    drop(gateway);
}
