//! Backends whose instances belong to one key or one session (row 40 of the faults of the gateway).

use std::thread;

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, is_alive, listens_to},
    support::{Agent, HttpAgent, Wire, eventually},
};

/// A project with a backend that is not shared by all its callers.
struct Team {
    gateway: Gateway,
    keys: [String; 2],
}

impl Team {
    fn new(flags: &[&str], lines: &str) -> Self {
        let gateway = Plan::new()
            .table("projects.team.backends.own", flags, lines)
            .start_secured();
        let team = gateway.project("team", &json!({}));
        let keys = [(); 2].map(|()| team.new_key_with_scope("member"));
        Self { gateway, keys }
    }

    fn http(&self, key: &str) -> HttpAgent {
        HttpAgent::modern_with(self.gateway.address, json!({}), &[("X-API-Key", key)])
    }

    fn socket(&self, key: &str, capabilities: &Value) -> Agent {
        let wire = Wire::open_with(self.gateway.address, &[("X-API-Key", key)]);
        Agent::legacy(wire, "2025-11-25", capabilities)
    }
}

/// The process that serves a client.
fn pid(client: &impl Calls) -> u64 {
    client.gets("own__pid", json!({}))["pid"].as_u64().unwrap()
}

#[test]
fn each_key_has_a_process_of_its_own() {
    for era in ["legacy", "modern"] {
        let team = Team::new(&["--era", era], "sharing = \"key\"");
        let [mine, other] = &team.keys;
        let (http, socket) = (team.http(mine), team.socket(mine, &json!({})));
        let stranger = team.http(other);
        http.gets("own__echo", json!({"secret": "of mine"}));
        // Calls of one key share its process at the same time.
        let waiting = socket.begins_call("own__sleep", &json!({"ms": 600_000}));
        assert_eq!(pid(&http), pid(&socket));
        assert_ne!(pid(&http), pid(&stranger));
        let seen = |client: &HttpAgent| client.gets("own__received", json!({}))["lines"].to_string();
        assert!(seen(&http).contains("of mine"));
        assert!(!seen(&stranger).contains("of mine"));
        // The main one serves no caller.
        assert_eq!(team.gateway.programs().len(), 3);
        socket.wire.cancels(&waiting);
    }
}

#[test]
fn each_connection_has_a_process_of_its_own_and_requests_without_one_share_that_of_their_key() {
    let team = Team::new(&[], "sharing = \"session\"");
    let [key, _] = &team.keys;
    let sockets = [(); 2].map(|()| team.socket(key, &json!({})));
    let [first, second] = sockets.each_ref().map(pid);
    let by_http = [(); 2].map(|()| pid(&team.http(key)));
    assert_ne!(first, second);
    assert_eq!(by_http[0], by_http[1]);
    assert!(![first, second].contains(&by_http[0]));
    assert_eq!(sockets.each_ref().map(pid), [first, second]);
}

#[test]
fn a_session_keeps_its_process_on_another_connection() {
    let team = Team::new(&[], "sharing = \"session\"");
    let [key, _] = &team.keys;
    let first = team.socket(key, &json!({})).registered("mara");
    let before = pid(&first);
    first.wire.disconnects();
    let again = team.socket(key, &json!({})).registered("mara");
    assert_eq!(pid(&again), before);
    assert_ne!(pid(&team.socket(key, &json!({})).registered("theo")), before);
}

#[test]
fn a_process_that_is_not_used_makes_room_for_another_key() {
    let team = Team::new(&[], "sharing = \"key\"\ninstances_max = 2");
    let [first, second] = team.keys.each_ref().map(|key| team.socket(key, &json!({})));
    let before = pid(&first);
    let waiting = first.begins_call("own__never", &json!({}));
    eventually("the call has reached the process", || {
        let lines = first.gets("own__received", json!({}))["lines"].to_string();
        lines.contains("never").then_some(())
    });
    let also_waiting = second.begins_call("own__pid", &json!({}));
    second.wire.syncs();
    assert!(
        !second.wire.has_received(&also_waiting),
        "the process of the first has a call"
    );
    first.wire.cancels(&waiting);
    second.wire.answer_to(&also_waiting).unwrap();
    eventually("the process of the first has ended", || {
        (!is_alive(before)).then_some(())
    });
}

#[test]
fn keys_take_turns_with_one_process() {
    let team = Team::new(&[], "sharing = \"key\"\ninstances_max = 2");
    let keys = &team.keys;
    thread::scope(|scope| {
        for key in keys.iter().chain(keys) {
            let client = team.socket(key, &json!({}));
            scope.spawn(move || {
                for at in 0..15 {
                    let echoed = client.gets("own__echo", json!({"key": key, "at": at}));
                    assert_eq!(echoed["arguments"], json!({"key": key, "at": at}));
                    let seen = client.gets("own__received", json!({}))["lines"].to_string();
                    let other = keys.iter().find(|other| *other != key).unwrap();
                    assert!(!seen.contains(other), "{seen}");
                }
            });
        }
    });
}

#[test]
fn a_backend_that_asks_has_a_process_for_each_key_and_set_of_capabilities() {
    let team = Team::new(&[], "sharing = \"key\"\nasks = true");
    let [mine, other] = &team.keys;
    let told = |key: &str, capabilities: Value| {
        let told = team.socket(key, &capabilities).gets("own__told", json!({}));
        assert_eq!(told["capabilities"], capabilities);
        told["pid"].as_u64().unwrap()
    };
    let roots = || json!({"roots": {}});
    let (with_roots, plain) = (told(mine, roots()), told(mine, json!({})));
    assert_ne!(with_roots, plain);
    assert_ne!(told(other, roots()), with_roots);
    assert_ne!(told(other, json!({})), plain);
    assert_eq!(told(mine, roots()), with_roots);
}

#[test]
fn a_task_is_found_in_the_process_of_its_owner() {
    let team = Team::new(&["--era", "modern", "--tasks"], "sharing = \"key\"");
    let [mine, other] = &team.keys;
    let takes_tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let client = |key: &str| HttpAgent::modern_with(team.gateway.address, takes_tasks.clone(), &[("X-API-Key", key)]);
    let (owner, stranger) = (client(mine), client(other));
    pid(&stranger);
    let task = owner.result_of("own__task", json!({})).unwrap();
    let id = &task["taskId"];
    assert!(id.is_string(), "{task}");
    let get = |client: &HttpAgent| client.request("tasks/get", json!({"taskId": id}));
    assert_eq!(get(&owner).unwrap()["status"], "working");
    assert_eq!(get(&stranger).unwrap_err()["code"], -32602);
}

const UPDATED: &str = "notifications/resources/updated";
const URI: &str = "fake://one";

/// Subscribes to a resource of the backend.
fn subscribes(client: &Agent) {
    let uri = format!("own+{URI}");
    client.request("resources/subscribe", json!({"uri": uri})).unwrap();
}

/// Waits until the process that serves a client was asked to tell of the resource.
fn is_asked(client: &Agent, member: &str) {
    eventually("the process of the client was asked", || {
        let subscribed = client.gets("own__subscribed", json!({}));
        (subscribed[member] == json!([URI])).then_some(())
    });
}

#[test]
fn a_changed_resource_is_told_to_the_owner_of_the_process_alone() {
    for (era, member) in [("legacy", "subscribed"), ("modern", "listened")] {
        let team = Team::new(&["--era", era], "sharing = \"key\"");
        let [mine, also_mine, other] = [0, 0, 1].map(|at: usize| team.socket(&team.keys[at], &json!({})));
        // The processes run: what is subscribed to before that counts as changed at their start.
        assert_ne!(pid(&mine), pid(&other));
        for client in [&mine, &also_mine, &other] {
            subscribes(client);
        }
        for client in [&mine, &other] {
            is_asked(client, member);
        }
        mine.gets("own__touch", json!({"uri": URI}));
        for client in [&mine, &also_mine] {
            let told = client.wire.next_notification(UPDATED);
            assert_eq!(told, json!({"uri": format!("own+{URI}")}));
        }
        assert_eq!(other.wire.notifications_so_far(UPDATED), 0);
        other.gets("own__touch", json!({"uri": URI}));
        other.wire.next_notification(UPDATED);
        assert_eq!(mine.wire.notifications_so_far(UPDATED), 0);
    }
}

#[test]
fn a_subscription_starts_the_process_of_its_owner() {
    for lines in ["", "asks = true"] {
        let team = Team::new(&[], &format!("sharing = \"key\"\n{lines}"));
        let roots = json!({"roots": {}});
        let client = team.socket(&team.keys[0], &roots);
        client.request("resources/list", json!({})).unwrap();
        subscribes(&client);
        // Whether it has changed before that is not known.
        client.wire.next_notification(UPDATED);
        is_asked(&client, "subscribed");
        eventually("only the main one and that of the owner run", || {
            (team.gateway.programs().len() == 2).then_some(())
        });
        client.fails_as("backend_died", "own__die", json!({}));
        is_asked(&client, "subscribed");
    }
}

#[test]
fn a_subscription_goes_over_to_the_process_of_the_session_that_a_connection_registers() {
    let team = Team::new(&[], "sharing = \"session\"");
    let client = team.socket(&team.keys[0], &json!({}));
    let before = pid(&client);
    subscribes(&client);
    is_asked(&client, "subscribed");
    let client = client.registered("mara");
    assert_ne!(pid(&client), before);
    is_asked(&client, "subscribed");
    eventually("the process of the session tells of changes", || {
        client.gets("own__touch", json!({"uri": URI}));
        (client.wire.notifications_so_far(UPDATED) > 2).then_some(())
    });
}

#[test]
fn a_task_is_told_of_by_the_process_of_its_owner() {
    const CHANGED: &str = "notifications/tasks";
    let team = Team::new(&["--era", "modern", "--tasks"], "sharing = \"key\"");
    let takes_tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let clients = [0, 1].map(|at: usize| {
        let wire = Wire::open_with(team.gateway.address, &[("X-API-Key", &team.keys[at])]);
        Agent::modern(wire, takes_tasks.clone())
    });
    let tasks = clients.each_ref().map(|client| {
        let task = client
            .request("tools/call", json!({"name": "own__task", "arguments": {}}))
            .unwrap();
        let id = task["taskId"].as_str().unwrap().to_owned();
        assert_eq!(listens_to(client, "taskIds", &[&id]).1, json!([id]));
        // Both processes know it by the same id.
        eventually("the process of the client was asked", || {
            let subscribed = client.gets("own__subscribed", json!({}));
            (subscribed["tasks"] == json!(["task-1"])).then_some(())
        });
        id
    });
    clients[0].gets("own__finish", json!({"task": "task-1"}));
    let told = clients[0].wire.next_notification(CHANGED);
    assert_eq!(
        (&told["taskId"], &told["status"]),
        (&json!(tasks[0]), &json!("completed"))
    );
    assert_eq!(clients[1].wire.notifications_so_far(CHANGED), 0);
}
