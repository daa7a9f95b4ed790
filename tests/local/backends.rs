//! Backends behind the broker of a user, as an agent sees them through its front.

use std::{fs, net::TcpListener, path::PathBuf};

use serde_json::{Value, json};
use test_client::mcp;

use super::{
    front::Front,
    home::{Home, is_alive},
    support::{Broker, Proxy, Request, TIMEOUTS_OFF, broker_program, eventually},
};

fn fake_backend() -> String {
    let fake = PathBuf::from(env!("CARGO_BIN_EXE_mcp-broker")).with_file_name("fake-backend");
    fake.display().to_string()
}

fn configuration() -> String {
    format!("[backends.fake]\ncommand = {:?}\n", fake_backend())
}

fn with_backend() -> Home {
    let user = Home::new();
    user.has_configuration(&configuration());
    user
}

fn initialize(front: &mut Front) {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"},
    });
    front.request("initialize", &params);
    front.notifies("notifications/initialized", &json!({}));
}

fn tool_names(front: &mut Front) -> Vec<String> {
    let listed = front.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_first_list_has_the_backends_and_their_tools_are_called() {
    let user = with_backend();
    let (mut first, mut second) = (user.front().start(), user.front().start());
    let mut pids = Vec::new();
    for front in [&mut first, &mut second] {
        initialize(front);
        let names = tool_names(front);
        assert!(
            names.contains(&"register_session".to_owned()) && names.contains(&"fake__echo".to_owned()),
            "{names:?}"
        );
        let called = front.request("tools/call", &json!({"name": "fake__pid", "arguments": {}}));
        pids.push(called["result"]["structuredContent"]["pid"].clone());
    }
    assert!(pids[0].is_u64() && pids[0] == pids[1], "both use one process: {pids:?}");
    user.kill_broker();
    let pid = i32::try_from(pids[0].as_i64().unwrap()).unwrap();
    eventually("the backend ends with its broker", || (!is_alive(pid)).then_some(()));
}

#[test]
fn a_wrong_configuration_file_is_told_to_the_agent() {
    let user = Home::new();
    user.has_configuration("[backends.fake]\ncomand = \"x\"\n");
    let mut front = user.front().start();
    initialize(&mut front);
    let called: Value = front.request("tools/call", &json!({"name": "list_sessions", "arguments": {}}));
    let text = called.to_string();
    assert!(text.contains("backends.fake") && text.contains("comand"), "{text}");
}

#[test]
fn a_backend_that_is_added_later_is_in_the_lists_of_a_front_that_runs() {
    let user = Home::new();
    let mut front = user.front().env("MCP_BROKER_GATEWAY_COMMANDS", "admin").start();
    initialize(&mut front);
    front.calls("register_session", &json!({"name": "alice"}));
    assert!(!tool_names(&mut front).contains(&"list_backends".to_owned()));
    let info: Value = serde_json::from_slice(&fs::read(user.runtime().join("broker.json")).unwrap()).unwrap();
    let address = info["http"].as_str().unwrap().replace("http://", "");
    let table = json!({"name": "fake", "command": fake_backend()}).to_string();
    let request = Request::post(address.parse().unwrap(), table).with_path("/api/v1/backends");
    let added = request.with("Connection", "close").answered();
    assert_eq!(added.status, 201, "{added:?}");
    front.notification("notifications/tools/list_changed");
    let names = tool_names(&mut front);
    assert!(names.contains(&"fake__echo".to_owned()), "{names:?}");
    let called = front.request("tools/call", &json!({"name": "fake__echo", "arguments": {}}));
    assert!(
        called["result"].is_object() && called["result"]["isError"] != true,
        "{called}"
    );
}

#[test]
fn the_handshake_has_the_instructions_of_the_backends() {
    let user = with_backend();
    let mut first = user.front().start();
    initialize(&mut first);
    first.request("tools/call", &json!({"name": "fake__echo", "arguments": {}}));
    // A broker that runs has told the front before the front answers its client.
    has_instructions(user.front().start().initialize("a test"));
    has_instructions(discovered(user.front().start()));
}

fn discovered(mut front: Front) -> Value {
    let meta = mcp::meta("a test", &json!({}));
    front.request("server/discover", &json!({"_meta": meta}))
}

/// The answer to a handshake has the instructions of the broker, after the name of the agent if it has one, and those of
/// its backend.
fn has_instructions(answer: Value) {
    let text = answer["result"]["instructions"].as_str().unwrap();
    assert!(text.contains("This broker connects you"), "{text}");
    assert!(text.ends_with("\n\n# fake\n\nUse the fake tools."), "{text}");
}

/// The answer to a handshake has the instructions of the broker alone.
fn has_own_instructions(answer: Value) {
    let text = answer["result"]["instructions"].as_str().unwrap();
    assert!(
        text.starts_with("This broker connects you") && !text.contains("# fake"),
        "{text}"
    );
}

/// A broker with a backend that is not the user's own.
fn shared_broker(user: &Home) -> Broker {
    let file = user.path.join("shared.toml");
    fs::write(&file, configuration()).unwrap();
    let mut program = broker_program();
    program.env("MCP_BROKER_CONFIG", &file);
    Broker::with_program(program, &TIMEOUTS_OFF)
}

#[test]
fn the_first_list_waits_for_the_broker_at_a_url() {
    let user = Home::new();
    let broker = shared_broker(&user);
    let proxy = Proxy::to(broker.address);
    proxy.cut();
    let url = format!("http://{}", proxy.address);
    let front = user.front().args(&["--url", &url]);
    let mut front = front.env("MCP_BROKER_GATEWAY_LIST_WAIT", "60s").start();
    initialize(&mut front);
    let id = front.asks("tools/list", &json!({}));
    eventually("the broker could not be reached", || {
        user.connect_log().contains("not attached").then_some(())
    });
    proxy.restore();
    let listed = front.answer(id);
    assert!(listed.to_string().contains("\"fake__echo\""), "{listed}");
}

#[test]
fn lists_without_the_broker_at_a_url_are_named_and_replaced_once_it_is_reached() {
    let user = Home::new();
    let broker = shared_broker(&user);
    let proxy = Proxy::to(broker.address);
    proxy.cut();
    let url = format!("http://{}", proxy.address);
    let front = user.front().args(&["--url", &url]);
    let mut front = front.env("MCP_BROKER_GATEWAY_LIST_WAIT", "100ms").start();
    let hello = front.initialize("a test");
    for list in ["tools", "prompts", "resources"] {
        assert_eq!(hello["result"]["capabilities"][list]["listChanged"], true, "{list}");
    }
    let listed = front.request("tools/list", &json!({}));
    assert!(listed.to_string().contains("\"register_session\""), "{listed}");
    assert_eq!(listed["result"]["ttlMs"], 0, "not to be kept");
    assert!(
        user.connect_log().contains("the first lists are without the tools"),
        "{}",
        user.connect_log()
    );
    proxy.restore();
    for list in ["tools", "prompts", "resources"] {
        front.notification(&format!("notifications/{list}/list_changed"));
    }
    assert!(tool_names(&mut front).contains(&"fake__echo".to_owned()));
}

#[test]
fn the_handshake_has_the_instructions_of_the_backends_of_a_broker_at_a_url() {
    let user = Home::new();
    let broker = shared_broker(&user);
    let url = format!("http://{}", broker.address);
    let front = || user.front().args(&["--url", &url]);
    // The backend has introduced itself when it has answered a call.
    let mut first = front().start();
    initialize(&mut first);
    first.request("tools/call", &json!({"name": "fake__echo", "arguments": {}}));

    let mut legacy = front().start();
    has_instructions(legacy.initialize("a test"));
    has_instructions(discovered(front().start()));
    let mut late = front().env("MCP_BROKER_NAME", "late").start();
    late.request("ping", &json!({}));
    eventually("the front is connected before the handshake", || {
        user.connect_log().contains("registered as late").then_some(())
    });
    has_instructions(late.initialize("a test"));
    // The broker knows the clients as initialized.
    for mut front in [legacy, late] {
        let called = front.request("tools/call", &json!({"name": "fake__echo", "arguments": {}}));
        assert!(called["result"].is_object(), "{called}");
    }
}

#[test]
fn a_client_is_greeted_although_the_broker_at_a_url_cannot_be_reached() {
    let user = Home::new();
    // It takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    for url in ["http://127.0.0.1:1", &silent] {
        let front = || user.front().args(&["--url", url]).start();
        has_own_instructions(front().initialize("a test"));
        has_own_instructions(discovered(front()));
    }
}

#[test]
fn a_client_is_greeted_although_no_broker_can_be_started() {
    let user = Home::new();
    user.has_configuration("[backends.fake]\ncomand = \"x\"\n");
    has_own_instructions(user.front().start().initialize("a test"));
}
