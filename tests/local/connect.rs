//! `mcp-broker connect` as its client sees it: handshakes, answers without a broker, names, limits, and its end.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use test_client::mcp;

use super::{
    front::Front,
    home::Home,
    support::{eventually, listed_id},
};

/// The end of a front takes less than this: a second by its rules, and a margin for a slow machine.
const END_MAX: Duration = Duration::from_secs(5);

/// A way in which a client ends.
type End = fn(&mut Front);

/// A recorded conversation, one frame a line.
pub fn recorded(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/local/recorded/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn register_echo(front: &mut Front) {
    let schema = json!({"type": "object"});
    front.calls(
        "register_protocol",
        &json!({"name": "chat", "version": "1.0.0", "schema": schema}),
    );
}

fn message(to: &str, text: &str) -> Value {
    json!({"recipient_id": to, "protocol_name": "chat", "protocol_version": "1.0.0", "payload": {"text": text}})
}

fn status_of(front: &mut Front, name: &str) -> Option<String> {
    let sessions = front.calls("list_sessions", &json!({"status": "all"}));
    let sessions = sessions["sessions"].as_array().unwrap();
    let found = sessions.iter().find(|session| session["name"] == name)?;
    Some(found["status"].as_str().unwrap().to_owned())
}

#[test]
fn claude_code_is_answered_in_the_legacy_era_and_gets_the_name_of_its_project() {
    let user = Home::new();
    let project = user.project("shop");
    let mut front = user
        .front()
        .args(&["--auto-name"])
        .of_claude_code(&project, "c-1")
        .start();
    let frames = recorded("claude-code-2.1.330");
    for frame in &frames {
        front.sends(frame);
    }
    assert_eq!(front.answer("server-discover-probe-1")["error"]["code"], -32601);
    assert_eq!(front.answer(0)["result"]["protocolVersion"], "2025-11-25");
    assert!(front.answer(1)["result"]["tools"].as_array().unwrap().len() > 10);
    let heartbeat = front.asks_tool("heartbeat", &json!({}));
    // The ids of the recorded frames are taken.
    front.answer(heartbeat);
    assert_eq!(status_of(&mut front, "shop").as_deref(), Some("active"));
}

#[test]
fn codex_gets_its_name_with_the_first_call_that_tells_the_conversation() {
    let user = Home::new();
    let project = user.project("mill");
    let mut front = user.front().args(&["--auto-name"]).in_folder(&project).start();
    let frames = recorded("codex-0.169.0");
    for frame in &frames {
        front.sends(frame);
    }
    assert_eq!(front.answer(0)["result"]["protocolVersion"], "2025-06-18");
    assert!(front.answer(1)["result"]["tools"].as_array().unwrap().len() > 10);
    let listed = front.answer(2);
    assert_eq!(listed["result"]["isError"], false, "{listed}");
    let sessions = &listed["result"]["structuredContent"]["sessions"];
    assert_eq!(sessions[0]["name"], "mill", "{listed}");
    assert!(front.others().is_empty());
}

#[test]
fn a_modern_client_is_served_without_a_handshake() {
    let user = Home::new();
    let mut front = user.front().start();
    let meta = mcp::meta("cursor", &json!({}));
    let discovered = front.request("server/discover", &json!({"_meta": meta}));
    assert_eq!(discovered["result"]["supportedVersions"], json!(["2026-07-28"]));
    let tools = front.request("tools/list", &json!({"_meta": meta}));
    assert_eq!(tools["result"]["resultType"], "complete");
    let call = json!({"_meta": meta, "name": "register_session", "arguments": {"name": "alice"}});
    // On a busy machine the start of the broker takes longer than a call waits.
    let registered = eventually("the broker serves", || {
        let registered = front.request("tools/call", &call);
        (registered["result"]["structuredContent"]["code"] != "unavailable").then_some(registered)
    });
    assert_eq!(
        registered["result"]["structuredContent"]["name"], "alice",
        "{registered}"
    );
    let refused = front.request("initialize", &json!({"_meta": meta}));
    assert_eq!(refused["error"]["code"], -32601);
}

#[test]
fn the_client_is_answered_although_no_broker_can_be_reached() {
    let user = Home::new();
    let mut front = user.front().args(&["--no-start"]).start();
    assert_eq!(
        front.initialize("x")["result"]["capabilities"]["tools"]["listChanged"],
        true
    );
    assert_eq!(front.request("ping", &json!({}))["result"], json!({}));
    for (method, key) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let list = front.request(method, &json!({}));
        assert!(!list["result"][key].as_array().unwrap().is_empty(), "{list}");
    }
    let error = front.is_refused("heartbeat", &json!({}));
    assert_eq!(error["code"], "unavailable");
    assert!(
        error["retry_after_ms"].as_u64().unwrap() > 0
            && error["message"].as_str().unwrap().contains("mcp-broker start")
    );
    let read = front.request("resources/read", &json!({"uri": "broker://sessions"}));
    assert_eq!(read["error"]["data"]["code"], "unavailable", "{read}");
    front.closes();
    let (status, errors) = front.ends();
    assert!(status.success());
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn requests_from_before_the_broker_are_answered_in_their_order() {
    let user = Home::new();
    let mut front = user.front().args(&["--no-start"]).start();
    front.initialize("x");
    let asked: Vec<u64> = (0..100).map(|_| front.asks_tool("heartbeat", &json!({}))).collect();
    let cancelled = asked[50];
    front.notifies("notifications/cancelled", &json!({"requestId": cancelled}));
    user.start_broker();
    let mut answered = Vec::new();
    while answered.len() < 99 {
        let answer = front.awaits("an answer", |frame| frame.get("result").is_some());
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answered.push(answer["id"].as_u64().unwrap());
    }
    let expected: Vec<u64> = asked.into_iter().filter(|id| *id != cancelled).collect();
    assert_eq!(answered, expected);
    assert!(front.others().is_empty());
}

#[test]
fn two_conversations_in_one_folder_get_two_names_and_a_resumed_one_its_own() {
    let user = Home::new();
    let project = user.project("shop");
    let start = |conversation: &str| {
        let mut front = user
            .front()
            .args(&["--auto-name"])
            .of_claude_code(&project, conversation)
            .start();
        front.initialize("claude-code");
        front
    };
    let mut one = start("c-1");
    register_echo(&mut one);
    let mut other = start("c-2");
    other.calls("heartbeat", &json!({}));
    for name in ["shop", "shop-2"] {
        assert_eq!(status_of(&mut one, name).as_deref(), Some("active"), "{name}");
    }
    other.closes();
    assert!(other.ends().0.success());
    eventually("the session is disconnected", || {
        (status_of(&mut one, "shop-2")? == "disconnected").then_some(())
    });
    one.calls("send_message", &message("shop-2", "for later"));
    let mut resumed = start("c-2");
    let received = resumed.calls("receive_messages", &json!({}));
    assert_eq!(received["messages"][0]["payload"]["text"], "for later", "{received}");
    let mut third = start("c-3");
    assert_eq!(third.calls("receive_messages", &json!({}))["messages"], json!([]));
    assert_eq!(status_of(&mut third, "shop-3").as_deref(), Some("active"));
}

#[test]
fn a_given_name_is_registered_and_that_of_the_agent_wins() {
    let user = Home::new();
    let mut front = user
        .front()
        .args(&["--auto-name"])
        .env("MCP_BROKER_NAME", "anna")
        .start();
    front.initialize("x");
    front.calls("heartbeat", &json!({}));
    assert_eq!(status_of(&mut front, "anna").as_deref(), Some("active"));
    let registered = front.calls("register_session", &json!({"name": "berta"}));
    assert_eq!(registered["name"], "berta");
    user.kill_broker();
    front.calls("heartbeat", &json!({}));
    assert_eq!(status_of(&mut front, "berta").as_deref(), Some("active"));
    let again = front.calls("register_session", &json!({}));
    let [before, after] = [&registered, &again].map(|answer| listed_id(answer["session_id"].as_str().unwrap()));
    assert_eq!(after, before);
}

#[test]
fn a_front_does_not_take_back_a_name_that_another_has_taken_over() {
    let user = Home::new();
    let mut one = user.front().args(&["--name=alice"]).start();
    one.initialize("x");
    one.calls("heartbeat", &json!({}));
    let mut other = user.front().args(&["--name=alice"]).start();
    other.initialize("x");
    other.calls("heartbeat", &json!({}));
    eventually("the first front is told", || {
        let id = one.asks_tool("heartbeat", &json!({}));
        let answer = one.answer(id);
        (answer["result"]["structuredContent"]["code"] == "session_taken_over").then_some(())
    });
    other.calls("heartbeat", &json!({}));
    assert_eq!(
        one.calls("register_session", &json!({"name": "alice"}))["resumed"],
        true
    );
    one.calls("heartbeat", &json!({}));
}

#[test]
fn the_first_list_of_tools_is_that_of_the_setting() {
    let user = Home::new();
    user.has_configuration("tools = \"core\"\n");
    for _ in 0..2 {
        let mut front = user.front().start();
        front.initialize("x");
        let listed = front.request("tools/list", &json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 8, "{listed}");
        assert!(tools.iter().all(|tool| tool["name"] != "yap"), "{listed}");
        // What is not listed is called all the same.
        front.calls("heartbeat", &json!({}));
    }
}

#[test]
fn messages_progress_and_subscriptions_reach_the_client() {
    let user = Home::new();
    let mut alice = user.front().args(&["--name=alice"]).start();
    alice.initialize_with("x", &json!({"experimental": {"dev.mcp-broker/push": {"ack": "auto"}}}));
    register_echo(&mut alice);
    alice.request("resources/subscribe", &json!({"uri": "broker://inbox"}));
    let mut bob = user
        .front()
        .args(&["--name=bob"])
        .env("MCP_BROKER_HEARTBEAT_INTERVAL", "100ms")
        .start();
    bob.initialize("x");
    bob.calls("send_message", &message("alice", "hi"));
    let pushed = alice.notification("notifications/dev.mcp-broker/message");
    assert_eq!(pushed["params"]["message"]["payload"]["text"], "hi");
    let receive = json!({
        "name": "receive_messages", "arguments": {"wait_seconds": 60}, "_meta": {"progressToken": "p1"},
    });
    let id = bob.asks("tools/call", &receive);
    alice.calls("send_message", &message("bob", "yo"));
    let received = bob.answer(id);
    assert_eq!(
        received["result"]["structuredContent"]["messages"][0]["payload"]["text"],
        "yo"
    );
    // Some clients cancel each call that they have the answer of.
    bob.notifies("notifications/cancelled", &json!({"requestId": id}));
    let again = bob.calls("receive_messages", &json!({}));
    assert_eq!(again["messages"], json!([]));
    let waiting = bob.asks("tools/call", &receive);
    bob.notifies("notifications/cancelled", &json!({"requestId": waiting}));
    bob.calls("heartbeat", &json!({}));
    assert!(bob.others().iter().all(|frame| frame["id"] != waiting));
}

#[test]
fn a_call_that_is_not_answered_before_the_client_ends_is_refused() {
    let user = Home::new();
    let mut front = user.front().args(&["--no-start"]).start();
    front.initialize("x");
    let id = front.asks_tool("heartbeat", &json!({}));
    front.closes();
    assert_eq!(front.answer(id)["result"]["structuredContent"]["code"], "unavailable");
    assert!(front.ends().0.success());
}

#[test]
fn a_runtime_folder_that_was_removed_is_made_again() {
    let user = Home::new();
    let mut front = user.front().start();
    let log = user.state().join("connect.log");
    eventually("the front has looked at the folder", || log.exists().then_some(()));
    fs::remove_dir_all(user.runtime()).unwrap();
    front.initialize("x");
    front.calls("heartbeat", &json!({}));
}

#[test]
fn lines_that_are_no_frames_are_refused_and_the_next_frame_is_served() {
    let user = Home::new();
    let mut front = user.front().env("MCP_BROKER_MAX_PAYLOAD_MB", "1").start();
    front.sends_line("no json");
    assert_eq!(front.answer(Value::Null)["error"]["code"], -32700);
    front.sends_line(
        r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"heartbeat","arguments":{"a":tru}}}"#,
    );
    assert_eq!(front.answer(Value::Null)["error"]["code"], -32700);
    front.sends_line(r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#);
    assert_eq!(front.answer(7)["error"]["code"], -32600);
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":8,"method":"ping","params":{{"x":"{}"}}}}"#,
        "x".repeat(3 << 20)
    );
    front.sends_line(&long);
    assert_eq!(front.answer(8)["error"]["code"], -32600);
    front.sends_line(r#"[{"jsonrpc":"2.0","id":10,"method":"ping"}]"#);
    assert_eq!(front.answer(Value::Null)["error"]["code"], -32600);
    assert_eq!(front.request("ping", &json!({}))["result"], json!({}));
    front.calls("heartbeat", &json!({}));
    assert!(front.others().is_empty());
}

#[test]
fn a_batch_of_its_revision_is_answered_as_one() {
    let user = Home::new();
    let mut front = user.front().start();
    let initialize =
        json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    front.request("initialize", &initialize);
    let call = |id: u32| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "heartbeat", "arguments": {}}});
    front.sends(&json!([call(101), call(102)]));
    let answers = front.awaits("a batch of answers", Value::is_array);
    assert_eq!(answers.as_array().unwrap().len(), 2);
    front.calls("heartbeat", &json!({}));
}

#[test]
fn a_client_that_ends_leaves_its_session_with_its_inbox() {
    let user = Home::new();
    let mut watcher = user.front().args(&["--name=watcher"]).start();
    watcher.initialize("x");
    register_echo(&mut watcher);
    let ends: [(&str, End); 3] = [
        ("closes stdin", Front::closes),
        ("SIGTERM", |front| front.receives(Signal::TERM)),
        ("SIGINT", |front| front.receives(Signal::INT)),
    ];
    for (how, end) in ends {
        let mut front = user.front().args(&["--name=alice"]).start();
        front.initialize("x");
        front.calls("heartbeat", &json!({}));
        end(&mut front);
        let (status, errors, took) = front.ends_within();
        assert!(status.success() && errors.is_empty(), "{how}: {status} {errors}");
        assert!(took < END_MAX, "{how}: {took:?}");
        eventually("the session is disconnected", || {
            (status_of(&mut watcher, "alice")? == "disconnected").then_some(())
        });
        watcher.calls("send_message", &message("alice", how));
    }
    let mut back = user.front().args(&["--name=alice"]).start();
    back.initialize("x");
    let received = back.calls("receive_messages", &json!({}));
    assert_eq!(received["messages"].as_array().unwrap().len(), 3, "{received}");
}

#[test]
fn the_last_answers_are_given_after_the_client_has_closed_stdin() {
    let user = Home::new();
    user.start_broker();
    let mut front = user.front().start();
    let id = front.asks_tool("list_sessions", &json!({}));
    front.closes();
    assert_eq!(front.answer(id)["result"]["isError"], false);
    assert!(front.ends().0.success());
}

#[test]
fn a_front_ends_with_the_process_that_has_started_it() {
    let user = Home::new();
    let mut client = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut front = user.front().with_stdin(client.stdout.take().unwrap().into());
    let initialize = &recorded("claude-code-2.1.330")[1];
    std::io::Write::write_all(client.stdin.as_mut().unwrap(), format!("{initialize}\n").as_bytes()).unwrap();
    front.answer(0);
    client.kill().unwrap();
    client.wait().unwrap();
    let (status, _, took) = front.ends_within();
    assert!(status.success() && took < END_MAX, "{status} {took:?}");
}

#[test]
fn a_library_that_prints_does_not_reach_the_client() {
    let user = Home::new();
    let mut front = user.front().env("FAULT_PRINT", "a line of a library").start();
    front.initialize("x");
    front.calls("heartbeat", &json!({}));
    front.closes();
    let (status, errors) = front.ends();
    assert!(status.success() && errors.contains("a line of a library"), "{errors}");
}

#[test]
fn a_command_line_that_cannot_be_used_ends_with_one_line() {
    let user = Home::new();
    for (args, word) in [
        (vec!["--era=old"], "era"),
        (vec!["--name=a@b"], "name"),
        (vec!["--instance=A"], "instance"),
        (vec!["--url=http://127.0.0.1:1", "--no-start"], "--no-start"),
        (vec!["--nonsense"], "--nonsense"),
    ] {
        let output = user.command("connect").args(&args).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
        assert!(text.contains(word) && output.stdout.is_empty(), "{text}");
    }
    let file = user.project("x").join("file");
    fs::write(&file, "").unwrap();
    let mut program = user.command("connect");
    let output = program.env("XDG_RUNTIME_DIR", &file).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    assert!(output.stdout.is_empty());
    let help = user.command("connect --help").output().unwrap();
    assert!(help.status.success() && String::from_utf8(help.stdout).unwrap().contains("mcpServers"));
}

#[test]
fn a_client_that_says_nothing_starts_no_broker() {
    let user = Home::new();
    let mut front = user.front().start();
    front.closes();
    assert!(front.ends().0.success());
    assert!(!user.runtime().join("broker.json").exists());
}
