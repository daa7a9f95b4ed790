//! `scripts/cluster`, as people use it.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Agent, Broker, Wire, eventually};

/// A cluster that the script has started; it is told to stop when this is dropped.
struct Script(Child);

impl Drop for Script {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn the_script_starts_a_cluster_behind_a_balancer_and_leaves_nothing_behind() {
    let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/cluster"));
    script
        .args(["--json", "--replicas", "3"])
        .env("BROKER_BIN", env!("CARGO_BIN_EXE_mcp-broker"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut script = Script(script.spawn().unwrap());
    let mut line = String::new();
    let mut stdout = BufReader::new(script.0.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let started: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let balancer: SocketAddr = started["balancer"].as_str().unwrap().parse().unwrap();
    // The balancer gives each to another replica.
    let agent = |name: &str| {
        let agent = Agent::legacy(Wire::open(balancer), "2025-11-25", &json!({}));
        Broker::teaches_note(&agent);
        agent.registered(name)
    };
    let agents: Vec<_> = (0..3).map(|at| agent(&format!("agent{at}"))).collect();
    for (sender, recipient) in [(0, 1), (1, 2), (2, 0)] {
        agents[sender].sends("hi").to(&agents[recipient]);
        agents[recipient].sees(["hi"]);
    }
    let replicas = started["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 3);
    let parts = replicas.iter().chain([&started["redis"]]);
    let pids: Vec<_> = parts.map(|part| part["pid"].as_i64().unwrap()).collect();
    // One may go, and the balancer finds the others.
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
