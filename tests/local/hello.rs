//! The methods of local clients: hello with names by conversation, status, retire, and the key that `local_auth` asks for.

use serde_json::{Value, json};
use test_client::folder::Folder;

use super::{
    places::{LocalBroker, start_in},
    support::{Agent, Broker, Wire, eventually},
};

fn hello(agent: &Value) -> Value {
    json!({"protocol": 1, "version": env!("CARGO_PKG_VERSION"), "build": "test", "pid": 4711, "kind": "connect", "agent": agent})
}

fn agent(conversation: &str, name: &str) -> Value {
    json!({"product": "claude-code", "conversation": conversation, "directory": "/home/me/shop", "auto_name": name})
}

/// Says hello, and registers the name that the broker gave.
fn join(local: &LocalBroker, conversation: &str, name: &str) -> Agent {
    let wire = local.wire();
    let agent = agent(conversation, name);
    let result = wire.request("dev.mcp-broker/hello", hello(&agent)).unwrap();
    let given = result["name"].as_str().unwrap();
    let metadata = json!({"product": agent["product"], "conversation": conversation});
    Agent::legacy(wire, "2025-11-25", &json!({})).registered_with(&json!({"name": given, "metadata": metadata}))
}

fn status(wire: &Wire) -> Value {
    wire.request("dev.mcp-broker/status", Value::Null).unwrap()
}

#[test]
fn a_hello_is_answered_with_what_the_broker_is() {
    let local = LocalBroker::start();
    let wire = local.wire();
    for (params, code) in [
        (json!({}), -32602),
        (
            json!({"protocol": 1, "version": "9", "build": "", "pid": 1, "kind": "x".repeat(70_000)}),
            -32602,
        ),
        (
            json!({"protocol": 99, "version": "9", "build": "", "pid": 1, "kind": "connect"}),
            -32600,
        ),
    ] {
        let error = wire.request("dev.mcp-broker/hello", params).unwrap_err();
        assert_eq!(error["code"], code, "{error}");
        if code == -32600 {
            assert_eq!(error["data"]["protocols"], json!([1, 1]), "{error}");
        }
    }
    let result = wire.request("dev.mcp-broker/hello", hello(&Value::Null)).unwrap();
    assert_eq!(result["protocol"], 1);
    assert_eq!(result["protocols"], json!([1, 1]));
    assert_eq!(result["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(result["http"], format!("http://{}", local.broker.address));
    assert_eq!((&result["retiring"], &result["name"]), (&json!(false), &Value::Null));
    assert!(result["connections"].as_u64().unwrap() >= 1);
    assert_eq!(result["pid"], status(&wire)["pid"]);
    assert_eq!(
        wire.error_of("dev.mcp-broker/hello", hello(&Value::Null)),
        -32600,
        "once"
    );
    wire.syncs();
    let over_network = local.broker.client();
    assert_eq!(over_network.error_of("dev.mcp-broker/status", json!({})), -32601);
    assert_eq!(wire.error_of("dev.mcp-broker/other", json!({})), -32601);
}

#[test]
fn conversations_in_one_folder_get_names_of_their_own_and_keep_them() {
    let local = LocalBroker::start();
    let first = join(&local, "a", "shop");
    let second = join(&local, "b", "shop");
    assert_eq!((first.name.as_str(), second.name.as_str()), ("shop", "shop-2"));
    // A name that was given is not given again before it is registered.
    let given = |conversation: &str| {
        let wire = local.wire();
        let result = wire
            .request("dev.mcp-broker/hello", hello(&agent(conversation, "shop")))
            .unwrap();
        (result["name"].clone(), wire)
    };
    let (third, keeps_third) = given("c");
    let (fourth, keeps_fourth) = given("d");
    assert_eq!((third, fourth), (json!("shop-3"), json!("shop-4")));
    drop((keeps_third, keeps_fourth));
    first.sends("hi").to(&second);
    drop((first, second));
    let watcher = local.wire();
    eventually("all have gone", || {
        (status(&watcher)["connections"].as_array().unwrap().len() == 1).then_some(())
    });
    let resumed = join(&local, "b", "shop");
    assert_eq!(resumed.name, "shop-2");
    resumed.sees(["hi"]);
    // The name of a conversation that has gone is free for another one.
    let other = join(&local, "e", "shop");
    assert_eq!(other.name, "shop");
    // A name that an agent over HTTP uses is not free, although no connection has it.
    let _desk = local.broker.http_modern("desk");
    assert_eq!(given("f").0, "shop-3");
    let wire = local.wire();
    let result = wire
        .request("dev.mcp-broker/hello", hello(&agent("g", "desk")))
        .unwrap();
    assert_eq!(result["name"], "desk-2");
}

#[test]
fn the_status_of_many_clients_is_bounded_for_one_that_asks_without_reading() {
    let local = LocalBroker::start();
    let long = |len: usize| "x".repeat(len);
    let agent =
        json!({"product": long(256), "conversation": long(256), "directory": long(4096), "wake": vec![long(256); 8]});
    let clients: Vec<_> = (0..255)
        .map(|_| {
            let wire = local.wire();
            wire.request("dev.mcp-broker/hello", hello(&agent)).unwrap();
            wire
        })
        .collect();
    let before = local.broker.peak_kib();
    let mut asks = local.stream();
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "dev.mcp-broker/status"}).to_string() + "\n";
    asks.set_write_timeout(Some(std::time::Duration::from_millis(200)))
        .unwrap();
    while std::io::Write::write_all(&mut asks, request.repeat(1000).as_bytes()).is_ok() {}
    clients[0].syncs();
    let grown = local.broker.peak_kib() - before;
    assert!(grown < 32 * 1024, "{grown} KiB");
}

#[test]
fn the_status_names_the_clients() {
    let local = LocalBroker::start();
    let alice = join(&local, "a", "alice");
    let plain = local.wire();
    plain.syncs();
    let status = status(&plain);
    let connections = status["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 2, "{status}");
    let (front, other) = (&connections[0], &connections[1]);
    assert_eq!((&front["pid"], &front["kind"]), (&json!(4711), &json!("connect")));
    assert_eq!(front["agent"]["directory"], "/home/me/shop");
    assert_eq!(
        (&front["name"], &front["session_id"]),
        (&json!("alice"), &json!(alice.session)),
        "the id of lists, which does not act"
    );
    assert_eq!(
        (&other["pid"], &other["kind"]),
        (&json!(std::process::id()), &Value::Null)
    );
    assert!(!status["storage"].as_str().unwrap().is_empty());
}

#[test]
fn a_client_can_end_the_broker_and_gets_its_answer_first() {
    let mut local = LocalBroker::start();
    let other = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("other");
    let wire = local.wire();
    assert_eq!(
        wire.request("dev.mcp-broker/retire", Value::Null),
        Ok(json!({"retiring": true}))
    );
    wire.closes_with(1012);
    other.wire.closes_with(1012);
    assert!(local.broker.wait_for_exit().success());
    assert_eq!(local.folder.names(), [""; 0]);
}

#[test]
fn with_local_auth_a_client_brings_a_key_in_its_hello() {
    let folder = Folder::of_broker().unwrap();
    let socket = format!("--local-socket={}", folder.socket().display());
    let broker = Broker::secured_with(&[&socket, "--local-auth"]);
    let team = broker.project("team", &json!({}));
    let key = team.key.clone();
    let without = Wire::open_local(&folder.socket());
    without.asks("ping", Value::Null);
    let refused = without.awaits_frame("the refusal", |frame| frame["id"].is_null());
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("api_key"),
        "{refused}"
    );
    without.awaits_close();
    let mut params = hello(&Value::Null);
    params["api_key"] = json!("team_0000_wrong");
    let wrong = Wire::open_local(&folder.socket());
    wrong.asks("dev.mcp-broker/hello", params.clone());
    let refused = wrong.awaits_frame("the refusal", |frame| frame["id"].is_null());
    assert_eq!(refused["error"]["data"]["code"], "authentication_failed", "{refused}");
    wrong.awaits_close();
    params["api_key"] = json!(key);
    let wire = Wire::open_local(&folder.socket());
    wire.request("dev.mcp-broker/hello", params).unwrap();
    let alice = Agent::legacy(wire, "2025-11-25", &json!({}));
    let session = alice.calls("register_session", json!({"name": "alice"}));
    assert_eq!(session["project_id"], "team");
}

#[test]
fn without_local_auth_no_key_is_asked_even_where_the_network_needs_one() {
    let folder = Folder::of_broker().unwrap();
    let socket = format!("--local-socket={}", folder.socket().display());
    let broker = Broker::secured_with(&[&socket]);
    let alice = Agent::legacy(Wire::open_local(&folder.socket()), "2025-11-25", &json!({}));
    let session = alice.calls("register_session", json!({"name": "alice"}));
    assert_eq!(session["project_id"], "default");
    let refused = alice.is_refused("create_project", json!({"project_id": "mine", "name": "Mine"}));
    assert_eq!(
        refused["code"], "forbidden",
        "{refused}: a local client is a member and no operator"
    );
    assert_eq!(broker.get("/sessions").status, 401);
}

#[test]
fn a_broker_in_the_place_of_a_dead_one_serves() {
    let folder = Folder::of_broker().unwrap();
    let mut dead = start_in(&folder, &[]);
    dead.kill();
    let broker = start_in(&folder, &[]);
    Wire::open_local(&folder.socket()).syncs();
    drop(broker);
}
