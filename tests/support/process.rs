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
    #[allow(dead_code, reason = "tests of further ports look for them")]
    pub announced: String,
    log: Option<JoinHandle<String>>,
}

impl BrokerProcess {
    /// Starts the binary with these settings on a free port and waits until it prints its address.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_at_port(0, settings)
    }

    /// Starts the binary with these settings on the port of a broker that has ended.
    pub fn start_at_port(port: u16, settings: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-broker"));
        command
            .env_clear()
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

    #[allow(dead_code, reason = "only benches look at the process")]
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
