//! Lenses that one replica registers, replaces and removes are those of all.

use serde_json::{Value, json};

use crate::support::{Agent, Redis, eventually};

use super::cluster::BrokerCluster;

fn task(version: &str, member: &str) -> Value {
    let schema = json!({
        "type": "object", "properties": {member: {"type": "string"}}, "required": [member], "additionalProperties": false,
    });
    json!({"name": "task", "version": version, "schema": schema})
}

/// The lens from 1.0.0 to 2.0.0 as a replica shows it.
fn shown(agent: &Agent) -> Value {
    let query = json!({"name": "task", "version": "=2.0.0"});
    agent.calls("discover_protocols", query)["protocols"][0]["lenses"][0].clone()
}

#[test]
fn a_lens_is_changed_at_any_replica() {
    let redis = Redis::start();
    let mut cluster = BrokerCluster::start(2, &redis);
    let [here, there] = [0, 1].map(|at| cluster.replicas[at].agent(&format!("agent{at}")));
    let mut wanted = task("2.0.0", "title");
    wanted["from"] = json!("1.0.0");
    wanted["lens"] = json!([{"op": "rename", "path": "/what", "to": "title"}]);
    here.calls("register_protocol", task("1.0.0", "what"));
    let made = there.calls("register_protocol", wanted.clone());
    assert_eq!(
        (&made["existed"], &made["lens"]["revision"]),
        (&json!(false), &json!(1))
    );

    wanted["direction"] = json!("forward");
    here.is_refused_as("protocol_exists", "register_protocol", wanted.clone());
    wanted["replace_lens"] = json!(true);
    let replaced = here.calls("register_protocol", wanted.clone());
    assert_eq!(
        (&replaced["existed"], &replaced["lens"]["revision"]),
        (&json!(true), &json!(2))
    );
    let again = there.calls("register_protocol", wanted.clone());
    assert_eq!(
        (&again["lens"]["existed"], &again["lens"]["revision"]),
        (&json!(true), &json!(2))
    );
    eventually("the other replica uses the newer one", || {
        (shown(&there)["revision"] == 2).then_some(())
    });

    cluster.restart(1);
    let there = cluster.replicas[1].agent("agent2");
    assert_eq!(shown(&there)["direction"], "forward", "it is loaded at the start");
    let path = "/api/v1/protocols/task/2.0.0/lenses/1.0.0";
    assert_eq!(
        cluster.replicas[1].rest_with(&[], "DELETE", path, &Value::Null).status,
        204
    );
    eventually("the other replica has none", || shown(&here).is_null().then_some(()));
    assert_eq!(here.calls("register_protocol", wanted)["lens"]["revision"], 1);
}

/// A version of `task` that calls its text by another name, with the lens from the version before.
fn renamed(agent: &Agent, at: usize) {
    let mut wanted = task(&version(at), &member(at));
    if at > 1 {
        wanted["from"] = json!(version(at - 1));
        wanted["lens"] = json!([{"op": "rename", "path": format!("/{}", member(at - 1)), "to": member(at)}]);
    }
    agent.calls("register_protocol", wanted);
}

fn version(at: usize) -> String {
    format!("{at}.0.0")
}

fn member(at: usize) -> String {
    format!("text{at}")
}

fn sends(agent: &Agent, at: usize, text: &str, to: &str) -> String {
    let arguments = json!({
        "recipient_id": to, "protocol_name": "task", "protocol_version": version(at), "payload": {member(at): text},
    });
    agent.calls("send_message", arguments)["message_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn speaks(agent: &Agent, at: usize) {
    let capabilities = json!({"supported_protocols": {"task": [version(at)]}});
    agent.calls(
        "register_session",
        json!({"name": agent.name, "capabilities": capabilities}),
    );
}

#[test]
fn a_lens_that_was_answered_is_used_by_the_next_delivery_at_another_replica() {
    let redis = Redis::start();
    let cluster = BrokerCluster::start(2, &redis);
    let here = cluster.replicas[0].agent("here");
    let there = cluster.replicas[1].push_agent("there", &json!({"ack": "auto"}));
    renamed(&here, 1);
    speaks(&there, 1);
    there.syncs();
    for at in 2..=9 {
        renamed(&here, at);
        for count in 0..3 {
            let text = format!("{at} {count}");
            let sent = sends(&here, at, &text, "there");
            let pushed = there.next_push();
            assert_eq!(
                (&pushed["message_id"], &pushed["payload"]),
                (&json!(sent), &json!({member(1): text}))
            );
            here.awaits_status(&sent, "acknowledged");
        }
    }
}
