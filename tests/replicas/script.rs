//! `scripts/cluster` as a user runs it.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{
    cluster_script::ClusterScript,
    support::{Agent, Broker, Wire, eventually},
};

#[test]
fn the_script_starts_a_cluster_behind_a_balancer_and_stops_all_of_it() {
    let script = ClusterScript::start(&[]);
    // The balancer gives each connection to another replica.
    let agent = |name: &str| {
        let agent = Agent::legacy(Wire::open(script.balancer), "2025-11-25", &json!({}));
        Broker::register_note_protocol(&agent);
        agent.registered(name)
    };
    let agents: Vec<_> = (0..3).map(|at| agent(&format!("agent{at}"))).collect();
    for (sender, recipient) in [(0, 1), (1, 2), (2, 0)] {
        agents[sender].sends("hi").to(&agents[recipient]);
        agents[recipient].sees(["hi"]);
    }
    let replicas = script.parts["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 3);
    let parts = replicas.iter().chain([&script.parts["redis"]]);
    let pids: Vec<_> = parts.map(|part| part["pid"].as_i64().unwrap()).collect();
    // After one replica has stopped, the balancer uses the others.
    kill_process(Pid::from_raw(pids[0] as i32).unwrap(), Signal::TERM).unwrap();
    has_ended(pids[0]);
    (3..6).for_each(|at| drop(agent(&format!("agent{at}"))));
    drop(script);
    pids.into_iter().for_each(has_ended);
}

fn has_ended(pid: i64) {
    eventually("the process has ended", || {
        (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
}
