//! Without keys, the agents at the socket, the command line, the dashboard and agents over HTTP are one owner.

use serde_json::{Value, json};

use super::{
    front::Front,
    home::{Done, Home},
    support::{HttpAgent, eventually},
};

/// An agent over `connect` under this name, which knows the protocol `note` 1.0.0.
fn agent(home: &Home, name: &str) -> Front {
    let mut front = home.front().start();
    front.initialize("x");
    front.calls("register_session", &json!({"name": name}));
    let note = json!({"name": "note", "version": "1.0.0", "schema": {"type": "object"}});
    front.calls("register_protocol", &note);
    front
}

fn send(from: &str, to: &str) -> String {
    format!("send --from {from} --to {to} --protocol note --version 1.0.0 --json {{}}")
}

/// The names of all sessions, those that are away included.
fn names(home: &Home) -> Vec<String> {
    let listed = home.does("sessions --status all --json");
    let sessions = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let name = |session: Value| session["name"].as_str().unwrap_or_default().to_owned();
    sessions.map(name).collect()
}

/// An agent that has the URL of the broker.
fn agent_over_http(home: &Home) -> HttpAgent {
    let info = std::fs::read(home.runtime().join("broker.json")).unwrap();
    let info: Value = serde_json::from_slice(&info).unwrap();
    let address = info["http"].as_str().unwrap().strip_prefix("http://").unwrap();
    HttpAgent::modern(address.parse().unwrap(), json!({}))
}

#[test]
fn a_command_speaks_as_an_agent_of_the_socket() {
    let home = Home::new();
    let (mut shop, mut api) = (agent(&home, "shop"), agent(&home, "api"));
    let sent = home.json(&send("shop", "api"));
    let received = api.calls("receive_messages", &json!({}));
    assert_eq!(received["messages"][0]["message_id"], sent["message_id"]);
    assert_eq!(received["messages"][0]["sender_name"], "shop");
    shop.calls("heartbeat", &json!({}));

    home.does(&send("shop", "api"));
    assert!(home.does("inbox api --take --force").contains("shop"));
    assert_eq!(
        api.is_refused("receive_messages", &json!({}))["code"],
        "session_taken_over"
    );
    api.calls("register_session", &json!({"name": "api"}));
    assert_eq!(api.calls("receive_messages", &json!({}))["messages"], json!([]));
}

#[test]
fn a_command_that_has_sent_as_a_name_does_not_lock_its_agent_out() {
    let home = Home::new();
    let mut bob = agent(&home, "bob");
    home.does(&send("alice", "bob"));
    let mut alice = agent(&home, "alice");
    bob.calls(
        "send_message",
        &json!({"recipient_id": "alice", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {}}),
    );
    assert_eq!(
        alice.calls("receive_messages", &json!({}))["messages"][0]["sender_name"],
        "bob"
    );
    assert!(names(&home).contains(&"alice".to_owned()));
}

#[test]
fn an_agent_over_http_resumes_the_session_of_one_at_the_socket() {
    let home = Home::new();
    let mut alice = agent(&home, "alice");
    home.does(&send("ops", "alice"));
    let over_http = agent_over_http(&home);
    let registered = over_http.calls("register_session", json!({"name": "alice"}));
    assert_eq!(
        (&registered["resumed"], &registered["queue_size"]),
        (&json!(true), &json!(1))
    );
    assert_eq!(alice.is_refused("heartbeat", &json!({}))["code"], "session_taken_over");
    // Its id in lists does not act.
    let listed = over_http.calls("list_sessions", json!({}));
    let arguments = json!({"session_id": listed["sessions"][0]["session_id"]});
    over_http.is_refused_as("invalid_argument", "receive_messages", arguments);
}

#[test]
fn a_command_that_sends_leaves_no_session_behind() {
    let home = Home::new()
        .with("MCP_BROKER_HEARTBEAT_INTERVAL", "200ms")
        .with("MCP_BROKER_STALE_THRESHOLD", "500ms")
        .with("MCP_BROKER_DISCONNECT_THRESHOLD", "1s");
    let mut bob = agent(&home, "bob");
    home.does(&send("ops", "bob"));
    let once = send("deploy", "bob") + " --idempotency-key once";
    let sent = home.does(&once);
    assert_eq!(names(&home), ["bob"]);

    // A name that an answer waits for is kept as every session.
    let answer = json!({"recipient_id": "ops", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {}});
    bob.calls("send_message", &answer);
    assert_eq!(names(&home).len(), 2);
    eventually("the name without an answer has ended", || {
        (home.runs("sessions deploy").code != 0).then_some(())
    });
    assert!(home.does("inbox ops --take").contains("bob"));
    assert_eq!(home.does(&once), sent, "a repeat is recognized all the same");
}

#[test]
fn a_name_that_a_command_has_sent_in_gets_no_broadcast_and_nor_does_a_person() {
    let home = Home::new();
    let mut alice = agent(&home, "alice");
    let _bob = agent(&home, "bob");
    home.does(&send("ops", "alice"));
    let asked = alice.calls("clarify", &json!({"question": "which?", "wait_seconds": 0}));
    let id = asked["question_id"].as_str().unwrap();
    home.does(&format!("desk answer {id} left --human mara"));
    let broadcast = json!({"protocol_name": "note", "protocol_version": "1.0.0", "payload": {}});
    let sent = alice.calls("broadcast_message", &broadcast);
    assert_eq!(
        (&sent["recipients"], &sent["skipped"]),
        (&json!(1), &json!(2)),
        "{sent}"
    );
    assert!(names(&home).contains(&"mara".to_owned()));

    let refused = alice.is_refused("register_session", &json!({"name": "mara"}));
    assert_eq!(refused["code"], "forbidden");
    assert!(refused["message"].as_str().unwrap().contains("a person"), "{refused}");
}

#[test]
fn with_keys_the_agents_of_the_socket_stay_apart() {
    const KEY: &str = "0123456789abcdef0123456789abcdef";
    let home = Home::new()
        .with("MCP_BROKER_ENABLE_AUTH", "true")
        .with("MCP_BROKER_ADMIN_KEY", KEY);
    let (_shop, _api) = (agent(&home, "shop"), agent(&home, "api"));
    let mut command = home.command(&send("shop", "api"));
    let refused = Done::of(command.env("MCP_BROKER_API_KEY", KEY).output().unwrap());
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("a session of another key"), "{refused:?}");
}
