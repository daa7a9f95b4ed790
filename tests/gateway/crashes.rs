//! Backends that end: in the middle of calls, again and again, and when they are killed.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, is_alive},
    support::eventually,
};

#[test]
fn a_backend_that_dies_in_mid_call_answers_each_open_call_at_once() {
    let gateway = Plan::new().backend("fake", &[]).backend("other", &[]).start();
    let client = gateway.legacy();
    let open: Vec<_> = (0..10).map(|_| client.begins_call("fake__never", &json!({}))).collect();
    // The error has the last line that the program has written.
    eventually("all calls have reached the backend", || {
        let log = gateway.asks_backends("GET", "/fake/log", &Value::Null).body;
        (log.matches("never answers").count() == open.len()).then_some(())
    });
    let error = client.fails_as("backend_died", "fake__die", json!({"code": 5}));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("exited with code 5: dying on request"), "{message}");
    assert_eq!(error["detail"]["retryable"], false);
    for call in open {
        let result = client.wire.answer_to(&call).unwrap();
        assert_eq!(result["structuredContent"]["code"], "backend_died", "{result}");
    }
    client.gets("other__echo", json!({}));
    client.gets("fake__echo", json!({}));
}

#[test]
fn a_killed_backend_is_started_again_and_says_how_it_ended() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.legacy();
    let error = client.fails_as("backend_died", "fake__kill", json!({}));
    assert!(
        error["message"].as_str().unwrap().contains("killed by signal 9"),
        "{error}"
    );
    client.gets("fake__echo", json!({}));
}

#[test]
fn every_call_has_one_answer_while_the_backend_crashes_under_load() {
    let gateway = Gateway::with_fake(&["--exit-after", "40"]);
    let clients: Vec<_> = (0..4).map(|_| gateway.legacy()).collect();
    let (mut done, mut died, mut unavailable) = (0, 0, 0);
    for _ in 0..5 {
        let calls: Vec<_> = clients
            .iter()
            .flat_map(|client| (0..10).map(move |at| (client, client.begins_call("fake__echo", &json!({"at": at})))))
            .collect();
        for (client, call) in calls {
            let result = client.wire.answer_to(&call).unwrap();
            match result["structuredContent"]["code"].as_str() {
                None => done += 1,
                Some("backend_died") => died += 1,
                Some("backend_unavailable") => unavailable += 1,
                Some(other) => panic!("{other}: {result}"),
            }
        }
    }
    assert_eq!(done + died + unavailable, 200);
    assert!(done >= 40, "{done} done, {died} died, {unavailable} refused");
}

#[test]
fn a_backend_that_crashes_again_and_again_is_paused_and_calls_fail_fast() {
    let plan = Plan::new();
    let starts = plan.file("starts");
    let gateway = plan
        .backend("fake", &["--exit-at-start", "1", "--starts", &starts])
        .start();
    let client = gateway.legacy();
    let error = eventually("the pause is long enough to be seen", || {
        let error = client.fails_as("backend_unavailable", "fake__echo", json!({}));
        (error["detail"]["state"] == "backoff").then_some(error)
    });
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("exited with code 1: missing FAKE_TOKEN"), "{message}");
    assert!(error["retry_after_ms"].is_u64(), "{error}");
    assert!(gateway.starts("starts") < 10);
}

#[test]
fn all_programs_end_when_the_broker_is_killed() {
    for round in 0..3 {
        let mut gateway = Plan::new()
            .backend("fake", &[])
            .backend("stubborn", &["--ignore-eof", "--ignore-term"])
            .start();
        let client = gateway.legacy();
        let child = client.gets("fake__child", json!({}))["pid"].as_u64().unwrap();
        let daemon = client.gets("fake__daemon", json!({}))["pid"].as_u64().unwrap();
        client.gets("stubborn__echo", json!({}));
        let _waiting = client.begins_call("fake__never", &json!({}));
        gateway.broker().kill();
        gateway.awaits_no_processes();
        assert!(!is_alive(child) && !is_alive(daemon), "round {round}");
    }
}

#[test]
fn a_program_that_holds_its_own_input_open_ends_with_the_broker() {
    for is_killed in [true, false] {
        let mut gateway = Gateway::with_fake(&[]);
        let client = gateway.legacy();
        client.gets("fake__hold_input", json!({}));
        let daemon = client.gets("fake__daemon", json!({}))["pid"].as_u64().unwrap();
        if is_killed {
            gateway.broker().kill();
        } else {
            gateway.broker().terminate();
            assert!(gateway.broker().wait_for_exit().success());
        }
        gateway.awaits_no_processes();
        assert!(!is_alive(daemon));
    }
}

#[test]
fn a_program_that_crashes_again_and_again_is_started_once_an_attempt() {
    /// Attempts that are counted.
    const ATTEMPTS: usize = 3;
    // One that reads its opening may have ended because of that, once.
    for (script, besides) in [("exit 3", 0), ("read -r opening; exit 3", 1)] {
        let plan = Plan::new();
        let starts = plan.file("starts");
        let script = format!("echo $$ >> {starts}; {script}");
        let gateway = plan
            .program("crashing", "/bin/sh", &["-c".to_owned(), script], "")
            .start();
        let attempts = || {
            let metrics = gateway.get("/metrics").body;
            let of_backend = metrics
                .lines()
                .filter(|line| line.starts_with("mcp_broker_backend_starts_total"));
            of_backend
                .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
                .sum::<usize>()
        };
        eventually("it was tried several times", || (attempts() >= ATTEMPTS).then_some(()));
        eventually("each attempt has started it once", || {
            let before = attempts();
            let started = gateway.starts("starts");
            (before == attempts() && started == before + besides).then_some(())
        });
    }
}

#[test]
fn the_pid_of_a_backend_is_that_of_its_program() {
    let gateway = Gateway::with_fake(&[]);
    let pid = gateway.legacy().gets("fake__pid", json!({}))["pid"].clone();
    assert_eq!(gateway.get("/api/v1/backends/fake").json()["pid"], pid);
}

#[test]
fn grandchildren_end_with_their_server() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.legacy();
    let child = client.gets("fake__child", json!({}))["pid"].as_u64().unwrap();
    let daemon = client.gets("fake__daemon", json!({}))["pid"].as_u64().unwrap();
    assert!(is_alive(child) && is_alive(daemon));
    client.fails_as("backend_died", "fake__die", json!({"code": 0}));
    eventually("its descendants have ended", || {
        (!is_alive(child) && !is_alive(daemon)).then_some(())
    });
    client.gets("fake__echo", json!({}));
}

#[test]
fn a_killed_keeper_leaves_no_program_and_the_backend_is_started_again() {
    let gateway = Gateway::with_fake(&["--ignore-eof"]);
    let client = gateway.legacy();
    let program = client.gets("fake__pid", json!({}))["pid"].as_u64().unwrap();
    let waiting = client.begins_call("fake__never", &json!({}));
    // A call that the backend has not got would go to the next instance.
    gateway.awaits_line("fake", "never answers");
    for keeper in gateway.keepers() {
        let killed = std::process::Command::new("kill")
            .args(["-9", &keeper.to_string()])
            .status();
        assert!(killed.unwrap().success());
    }
    let result = client.wire.answer_to(&waiting).unwrap();
    assert_eq!(result["structuredContent"]["code"], "backend_died", "{result}");
    eventually("its program has ended", || (!is_alive(program)).then_some(()));
    let second = eventually("it runs again", || {
        let result = client.result_of("fake__pid", json!({})).ok()?;
        result["structuredContent"]["pid"].as_u64()
    });
    assert_ne!(program, second);
}
