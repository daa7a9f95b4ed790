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
