//! The commands that ask a broker over HTTP find that of the user, and never start one.

use std::{fs, io::ErrorKind, net::TcpListener};

use serde_json::{Value, json};

use super::{
    front::Front,
    home::{Done, Home},
    screen::Screen,
    support::eventually,
};

/// A front whose session has this name, with the protocol `note` 1.0.0.
fn agent(home: &Home, name: &str) -> Front {
    let mut front = home.front().start();
    front.initialize("x");
    front.calls("register_session", &json!({"name": name}));
    let note = json!({"name": "note", "version": "1.0.0", "schema": {"type": "object"}});
    front.calls("register_protocol", &note);
    front
}

/// What the broker says of itself.
fn info(home: &Home) -> Value {
    serde_json::from_slice(&fs::read(home.runtime().join("broker.json")).unwrap()).unwrap()
}

#[test]
fn a_message_goes_to_an_agent_of_the_broker_of_the_user() {
    let home = Home::new();
    let mut alice = agent(&home, "alice");
    let send =
        "send --from ops --to alice --protocol note --version 1.0.0 --thread deploy-7 --subject Deploy --json {}";
    let sent = home.json(send);
    let waits = home.json("wait alice --timeout 30s --json");
    assert_eq!((&waits["name"], &waits["queue_size"]), (&json!("alice"), &json!(1)));
    let shown = home.json("inbox alice --json");
    assert_eq!(shown["message_id"], sent["message_id"]);
    assert_eq!(
        (&shown["headers"]["thread_id"], &shown["headers"]["subject"]),
        (&json!("deploy-7"), &json!("Deploy"))
    );
    let received = alice.calls("receive_messages", &json!({}));
    assert_eq!(received["messages"][0]["message_id"], sent["message_id"]);
    assert!(home.does("messages --thread deploy-7").contains("alice"));
    for words in ["sessions", "protocols", "dead-letters"] {
        home.does(words);
    }
    assert!(home.does("project list").contains("default"));
}

#[test]
fn what_was_said_can_be_read_after_the_acknowledgement() {
    let home = Home::new();
    let (mut alice, mut bob) = (agent(&home, "alice"), agent(&home, "bob"));
    let message = json!({"recipient_id": "bob", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "a walrus"}});
    let sent = alice.calls("send_message", &message);
    bob.calls("receive_messages", &json!({"acknowledge": "immediate"}));
    let id = sent["message_id"].as_str().unwrap();
    let wanted = json!({"thread_id": id, "include_payloads": true});
    eventually("the history has it", || {
        let thread = alice.calls("get_thread", &wanted);
        (thread["messages"][0]["payload"]["text"] == "a walrus" && thread["payloads_kept"] == true).then_some(())
    });
    let found = bob.calls("search_messages", &json!({"query": "walrus"}));
    assert_eq!(
        (&found["messages"][0]["message_id"], &found["payloads_kept"]),
        (&json!(id), &json!(true))
    );
    assert!(home.does("messages --payload").contains("a walrus"));
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn top_shows_the_broker_of_the_user() {
    let home = Home::new();
    let _alice = agent(&home, "alice");
    let environment = format!(
        "HOME={path} XDG_RUNTIME_DIR={path}/run XDG_STATE_HOME={path}/state",
        path = home.path.display()
    );
    let screen = Screen::start((100, 24), &environment, "top");
    let address = info(&home)["http"].as_str().unwrap().to_owned();
    screen.shows_that("alice of that broker", |text| {
        text.contains("alice") && text.contains(&address)
    });
    screen.presses(&["q"]);
    assert_eq!(screen.ends(), 0);
}

#[test]
fn an_address_that_is_given_beats_the_broker_of_the_user() {
    let home = Home::new();
    home.start_broker();
    home.does("sessions");
    let flag = home.runs("sessions --url http://127.0.0.1:1");
    assert!(
        flag.refusal(1).contains("cannot reach http://127.0.0.1:1"),
        "the flag: {flag:?}"
    );
    let mut command = home.command("sessions");
    command.env("MCP_BROKER_URL", "http://127.0.0.1:1");
    let variable = Done::of(command.output().unwrap());
    assert!(
        variable.refusal(1).contains("cannot reach http://127.0.0.1:1"),
        "the variable: {variable:?}"
    );
}

#[test]
fn the_address_of_a_dead_broker_is_not_asked_and_none_is_started() {
    let home = Home::new();
    // While this port is taken, by this test or another program, the broker takes one that no other program asks for.
    let default_port = TcpListener::bind("127.0.0.1:8000");
    home.start_broker();
    drop(default_port);
    let address = info(&home)["http"].as_str().unwrap().replace("http://", "");
    home.kill_broker();
    assert_eq!(info(&home)["http"], format!("http://{address}"), "the file remains");
    // The first thread of a process is gone before the last one, which closes the port.
    let listener = eventually("the port is free", || TcpListener::bind(&address).ok());
    listener.set_nonblocking(true).unwrap();
    // Which program has the port of the default is not known here: only who is asked counts.
    home.runs("sessions");
    let asked = listener.accept().map(|(_, peer)| peer);
    assert_eq!(asked.unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(home.brokers(), [0; 0]);
}

#[test]
fn a_broker_that_has_not_yet_described_itself_is_not_mistaken_for_another() {
    let home = Home::new();
    home.start_broker();
    let file = home.runtime().join("broker.json");
    let mut of_another = info(&home);
    of_another["pid"] = json!(1);
    fs::write(&file, of_another.to_string()).unwrap();
    let what = "the broker of this user is starting or stopping; try again, or name a broker with --url";
    let other = home.runs("inbox alice");
    assert!(other.refusal(1).contains(what), "{other:?}");
    fs::remove_file(file).unwrap();
    let missing = home.runs("inbox alice");
    assert!(missing.refusal(1).contains(what), "{missing:?}");
}

#[test]
fn the_key_of_the_environment_is_sent_to_the_broker_of_the_user() {
    const KEY: &str = "0123456789abcdef0123456789abcdef";
    let home = Home::new()
        .with("MCP_BROKER_ENABLE_AUTH", "true")
        .with("MCP_BROKER_ADMIN_KEY", KEY);
    home.start_broker();
    home.does("sessions");
    let mut command = home.command("sessions");
    command.env("MCP_BROKER_API_KEY", "wrong");
    let wrong = Done::of(command.output().unwrap());
    assert!(wrong.refusal(1).contains("authentication_failed"), "{wrong:?}");
}
