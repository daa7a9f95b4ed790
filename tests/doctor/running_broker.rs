//! The doctor and a broker that runs.

use test_client::{process::RunningServer, wait::free_port};

use super::User;

const ADMIN_KEY: &str = "admin_tests_0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn a_broker_that_runs_is_called_and_its_port_is_no_fault() {
    let broker = RunningServer::broker(&[]);
    let report = User::new().examines_port(broker.address.port(), &[]);
    report.finds_nothing();
    report.finds("ok", "ports", &["belongs to a running broker"]);
    report.finds("ok", "round trip", &["is healthy"]);
    report.finds("ok", "round trip", &["WebSocket, MCP 2026-07-28", "answered in"]);
}

#[test]
fn a_broker_that_the_user_names_and_that_does_not_run_is_found() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let report = User::new().examines(&["--url", &url]);
    report.finds("error", "round trip", &["no broker answers at", &url]);
    let report = User::new().sets("MCP_BROKER_URL", &url).examines(&[]);
    report.finds("error", "round trip", &["no broker answers at", &url]);
}

#[test]
fn a_broker_that_asks_for_a_key_is_called_with_one() {
    let user = User::new();
    let file = user.writes("key", ADMIN_KEY);
    let broker = RunningServer::broker(&["--enable-auth", &format!("--admin-key-file={}", file.display())]);
    let url = format!("http://{}", broker.address);
    let report = user.examines(&["--url", &url]);
    report.finds("note", "round trip", &["asks for a key, and none was given"]);
    report.finds_nothing();
    let report = user.examines(&["--url", &url, "--key-file", file.to_str().unwrap()]);
    report.finds("ok", "round trip", &["WebSocket, MCP 2025-11-25", "answered in"]);
    report.finds_nothing();
    let wrong = user.writes("wrong", "admin_tests_ffffffffffffffffffffffffffffffffffffffffffffffff");
    let report = user.examines(&["--url", &url, "--key-file", wrong.to_str().unwrap()]);
    report.finds("error", "round trip", &["refuses the one from --key-file"]);
    assert!(!report.text.contains("ffffffff"), "{}", report.text);
}

#[test]
fn no_session_and_no_protocol_is_left_at_a_broker_that_runs() {
    let broker = RunningServer::broker(&[]);
    let user = User::new();
    user.examines_port(broker.address.port(), &[]).finds_nothing();
    for (path, member) in [("sessions?status=all", "sessions"), ("protocols", "protocols")] {
        let output = user
            .command("curl")
            .args(["-fsS", &format!("http://{}/api/v1/{path}", broker.address)])
            .output()
            .unwrap();
        let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(listed[member].as_array().unwrap().len(), 0, "{listed}");
    }
}
