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

/// A recipient and what it has seen.
struct Recipient {
    agent: Agent,
    speaks: usize,
    seen: Vec<String>,
}

impl Recipient {
    /// Reads some messages, all of which are in the version that it declares. Returns how many there were.
    fn reads_some(&mut self) -> usize {
        let read = self.agent.reads(json!({"limit": 7}));
        for message in &read {
            assert_eq!(message["protocol_version"], version(self.speaks), "{message}");
            let text = message["payload"][member(self.speaks)].as_str();
            self.seen.push(text.unwrap_or_else(|| panic!("{message}")).to_owned());
        }
        read.len()
    }
}

#[test]
fn a_fleet_upgrades_under_load_while_its_replica_is_killed() {
    let redis = Redis::start();
    let mut cluster = BrokerCluster::start(2, &redis);
    let sender = cluster.replicas[0].agent("sender");
    (1..=3).for_each(|at| renamed(&sender, at));
    let mut fleet: Vec<_> = (1..=3)
        .map(|at| Recipient {
            agent: cluster.replicas[1].agent(&format!("agent{at}")),
            speaks: at,
            seen: Vec::new(),
        })
        .collect();
    for recipient in &fleet {
        speaks(&recipient.agent, recipient.speaks);
    }
    let mut sent = vec![Vec::new(); fleet.len()];
    for round in 0..8 {
        for (recipient, sent) in fleet.iter().zip(&mut sent) {
            for at in 1..=3 {
                for count in 0..3 {
                    let text = format!("{round} {at} {count}");
                    sends(&sender, at, &text, &recipient.agent.name);
                    sent.push(text);
                }
            }
        }
        for recipient in &mut fleet {
            recipient.reads_some();
        }
        if round == 3 || round == 5 {
            cluster.kill(1);
            for recipient in &mut fleet {
                recipient.agent = cluster.replicas[1].agent(&recipient.agent.name);
                speaks(&recipient.agent, recipient.speaks);
            }
        }
        // One agent upgrades, and the newest goes back a version.
        let of_round = &mut fleet[round % 3];
        of_round.speaks = of_round.speaks % 3 + 1;
        speaks(&of_round.agent, of_round.speaks);
    }
    for (recipient, sent) in fleet.iter_mut().zip(&mut sent) {
        sent.sort();
        eventually("all messages have arrived", || {
            recipient.reads_some();
            recipient.seen.sort();
            recipient.seen.dedup();
            (recipient.seen == *sent).then_some(())
        });
        assert!(recipient.agent.dead_letters("transform_failed").is_empty());
    }
}
