//! How backends start, and what callers see until they have.

use std::time::Instant;

use serde_json::json;

use super::{
    harness::{Calls, Gateway, Plan, tools_of},
    support::eventually,
};

#[test]
fn a_command_that_does_not_exist_fails_alone() {
    let plan = Plan::new();
    let text = plan.file("text");
    std::fs::write(&text, "no program").unwrap();
    let gateway = plan
        .backend("fake", &[])
        .lines("[backends.nope]\ncommand = \"no-such-program\"")
        .lines(&format!("[backends.text]\ncommand = {text:?}"))
        .lines("[backends.unset]\ncommand = \"sh\"\nenv = { TOKEN = \"${NOT_SET_ANYWHERE}\" }")
        .start();
    let client = gateway.legacy();
    assert!(tools_of(&client, "fake").contains(&"echo".to_owned()));
    for (tool, reason) in [
        ("nope__x", "no program \"no-such-program\" in PATH"),
        ("text__x", "/text is not executable"),
        (
            "unset__x",
            "the variable NOT_SET_ANYWHERE is not set in the broker's environment",
        ),
    ] {
        let error = client.fails_as("backend_unavailable", tool, json!({}));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(reason), "{message}");
        assert_eq!(error["detail"]["state"], "failed");
        let retry_ms = error["retry_after_ms"].as_u64().unwrap();
        assert!((200_000..=300_000).contains(&retry_ms), "{error}");
    }
    assert_eq!(gateway.get("/readyz").status, 200);
}

#[test]
fn a_backend_that_hangs_at_its_start_holds_up_no_other() {
    let gateway = Plan::new()
        .backend("fake", &[])
        .backend_with("silent", &["--silent"], "call_timeout = \"1s\"\nstart_timeout = \"1h\"")
        .flag("--gateway-list-wait=100ms")
        .start();
    let client = gateway.legacy();
    let waiting = client.begins_call("silent__anything", &json!({}));
    eventually("the other backend is listed", || {
        tools_of(&client, "fake").contains(&"echo".to_owned()).then_some(())
    });
    let called = Instant::now();
    client.gets("fake__echo", json!({}));
    assert!(!client.wire.has_received(&waiting) || called.elapsed().as_secs() < 20);
    let result = client.wire.answer_to(&waiting).unwrap();
    assert_eq!(result["structuredContent"]["code"], "backend_unavailable", "{result}");
    assert_eq!(result["structuredContent"]["detail"]["state"], "starting");
}

#[test]
fn a_start_that_takes_too_long_is_ended_and_tried_again() {
    let plan = Plan::new();
    let starts = plan.file("starts");
    let gateway = plan
        .backend_with(
            "silent",
            &["--silent", "--starts", &starts],
            "start_timeout = \"200ms\"",
        )
        .start();
    eventually("it is started again", || (gateway.starts("starts") >= 4).then_some(()));
    let error = gateway.legacy().fails_as("backend_unavailable", "silent__x", json!({}));
    assert!(
        error["message"].as_str().unwrap().contains("did not answer within"),
        "{error}"
    );
}

#[test]
fn a_server_that_ends_at_the_modern_handshake_is_started_with_the_other_one() {
    let plan = Plan::new();
    let starts = plan.file("starts");
    let gateway = plan
        .backend("old", &["--exit-on-discover", "--starts", &starts])
        .start();
    let client = gateway.legacy();
    client.gets("old__echo", json!({}));
    assert_eq!(gateway.starts("starts"), 2, "one start more, and no error is seen");
    // The era is remembered.
    client.fails_as("backend_died", "old__die", json!({"code": 1}));
    client.gets("old__echo", json!({}));
    assert_eq!(gateway.starts("starts"), 3);
}

#[test]
fn a_first_call_waits_for_a_backend_that_is_still_starting() {
    let gateway = Gateway::with_fake(&["--start-delay", "1000"]);
    let client = gateway.legacy();
    let calls: Vec<_> = (0..20)
        .map(|at| client.begins_call("fake__echo", &json!({"at": at})))
        .collect();
    for (at, call) in calls.iter().enumerate() {
        let result = client.wire.answer_to(call).unwrap();
        assert_eq!(result["structuredContent"]["arguments"]["at"], at);
    }
    assert_eq!(client.code_of("fake__no_such_tool", json!({})), -32602);
    assert_eq!(gateway.programs().len(), 1, "all calls share one process");
}

#[test]
fn an_unknown_tool_of_a_backend_that_is_still_starting_is_unknown_in_the_end() {
    let gateway = Gateway::with_fake(&["--start-delay", "500"]);
    let error = gateway.legacy().result_of("fake__no_such_tool", json!({})).unwrap_err();
    assert_eq!(error["code"], -32602);
    assert_eq!(error["message"], "Unknown tool: fake__no_such_tool");
}

#[test]
fn a_backend_whose_environment_is_corrected_comes_up_again() {
    let plan = Plan::new();
    let (starts, present) = (plan.file("starts"), plan.file("present"));
    std::fs::write(&present, "").unwrap();
    let gateway = plan
        .backend("fake", &["--exit-while", &present, "--starts", &starts])
        .start();
    let client = gateway.legacy();
    let error = client.fails_as("backend_unavailable", "fake__echo", json!({}));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("exited with code 9: the file is there"), "{message}");
    gateway.removes("present");
    eventually("it is started again", || {
        client
            .result_of("fake__echo", json!({}))
            .ok()
            .filter(|result| result["isError"] != true)
    });
}

#[test]
fn settings_of_backends_are_refused_with_their_key() {
    let file = std::env::temp_dir().join(format!("gateway-wrong-{}.toml", uuid::Uuid::new_v4().simple()));
    std::fs::write(&file, "[backends.github]\ncomand = \"x\"\n").unwrap();
    let refused = crate::support::broker_program()
        .arg("serve")
        .arg(format!("--config={}", file.display()))
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let line = String::from_utf8(refused.stderr).unwrap();
    assert!(line.contains("backends.github") && line.contains("comand"), "{line}");
}

#[test]
fn offered_names_are_known_also_before_the_backend_has_told_its_tools() {
    let long = "y".repeat(90);
    let gateway = Plan::new()
        .backend_with(
            "fake",
            &["--start-delay", "500", "--tool", &long],
            "[backends.fake.tools]\nrename = { echo = \"say\" }",
        )
        .flag("--gateway-separator=-")
        .start();
    let client = gateway.legacy();
    let calls = [
        ("fake-say", true),
        ("fake__say", true),
        ("fake-echo", false),
        (&*format!("fake-{long}"), true),
    ]
    .map(|(name, is_known)| (name.to_owned(), client.begins_call(name, &json!({})), is_known));
    for (name, call, is_known) in calls {
        assert_eq!(client.wire.answer_to(&call).is_ok(), is_known, "{name}");
    }
}
