//! A cluster started by `scripts/cluster`: replicas, the Redis that they share, and a load balancer in front of them.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running cluster. Dropping it stops the script.
pub struct ClusterScript {
    script: Child,
    pub balancer: SocketAddr,
    /// The description of the parts that the script printed.
    pub parts: Value,
}

impl ClusterScript {
    /// Starts three replicas with these flags.
    pub fn start(flags: &[&str]) -> Self {
        let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/cluster"))
            .args(["--json", "--replicas", "3", "--"])
            .args(flags)
            .env("BROKER_BIN", env!("CARGO_BIN_EXE_mcp-broker"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(script.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let parts: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Self {
            script,
            balancer: parts["balancer"].as_str().unwrap().parse().unwrap(),
            parts,
        }
    }
}

impl Drop for ClusterScript {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.script), Signal::TERM);
        let _ = self.script.wait();
    }
}
