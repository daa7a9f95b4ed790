//! A broker process for tests in which other programs are the clients.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
};

/// A running broker. Dropping it kills the process.
pub struct BrokerProcess {
    process: Child,
    pub address: SocketAddr,
    /// What it printed until it served requests.
    pub announced: String,
    log: Option<JoinHandle<String>>,
}

impl BrokerProcess {
    /// Starts the binary with these settings on a free port and waits until it prints its address.
    pub fn start(settings: &[&str]) -> Self {
        Self::launch(0, settings, None)
    }

    /// Starts the binary with these settings and with this variable.
    pub fn start_with_variable(variable: &str, settings: &[&str]) -> Self {
        Self::launch(0, settings, Some(variable))
    }

    /// Starts the binary with these settings on the port of a broker that has ended.
    pub fn start_at_port(port: u16, settings: &[&str]) -> Self {
        Self::launch(port, settings, None)
    }

    fn launch(port: u16, settings: &[&str], variable: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-broker"));
        command
            .env_clear()
            .envs(variable.map(|variable| (variable, "1")))
            .args(["serve", "--port", &port.to_string()])
            .args(settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let start = said.len();
            let is_over = stderr.read_line(&mut said).unwrap() == 0;
            if let Some(address) = loopback_address(&said[start..]) {
                break address;
            }
            assert!(!is_over, "the broker printed no address\n{said}");
        };
        let announced = said.clone();
        let log = thread::spawn(move || {
            stderr.read_to_string(&mut said).ok();
            said
        });
        Self {
            process,
            address,
            announced,
            log: Some(log),
        }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the process; returns its output on stderr.
    pub fn stop(mut self) -> String {
        self.kill();
        self.log.take().unwrap().join().unwrap()
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn loopback_address(line: &str) -> Option<SocketAddr> {
    // The HTTP server prints earlier that it listens, before it serves requests.
    let (_, rest) = line.split_once("http://127.0.0.1:")?;
    let (port, _) = rest.split_once('/')?;
    Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
}
