//! Servers in processes of their own.

use std::{
    io::{self, BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A running server. Dropping it ends the process.
pub struct ServerProcess {
    child: Child,
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<u8>>>,
}

impl ServerProcess {
    /// Starts the broker on a free port.
    ///
    /// # Errors
    /// When it does not start.
    pub fn broker(program: &Path, flags: &[&str]) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.env_clear().args(["serve", "--port=0"]).args(flags);
        // The broker writes its address to stderr, among its log.
        Self::start(command.stdout(Stdio::null()).stderr(Stdio::piped()), |line| {
            let (_, rest) = line.split_once("://")?;
            rest.split_once('/')?.0.parse().ok()
        })
    }

    /// Starts a peer, whose first line on stdout is its address.
    ///
    /// # Errors
    /// When it does not start.
    pub fn peer(program: &Path, flags: &[&str]) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(flags);
        Self::start(command.stdout(Stdio::piped()).stderr(Stdio::inherit()), |line| {
            line.trim().parse().ok()
        })
    }

    fn start(command: &mut Command, address: impl Fn(&str) -> Option<SocketAddr>) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).spawn()?;
        let output: Box<dyn Read + Send> = match (child.stdout.take(), child.stderr.take()) {
            (Some(stdout), _) => Box::new(stdout),
            (None, Some(stderr)) => Box::new(stderr),
            (None, None) => unreachable!("one of the two is a pipe"),
        };
        let mut output = BufReader::new(output);
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            if output.read_line(&mut line)? == 0 {
                let status = child.wait()?;
                return Err(io::Error::other(format!(
                    "the server ended before it listened, {status}: {said}"
                )));
            }
            said.push_str(&line);
            if let Some(address) = address(&line) {
                break address;
            }
        };
        let log = Arc::new(Mutex::new(said.into_bytes()));
        std::thread::spawn({
            let log = Arc::clone(&log);
            move || {
                let mut chunk = [0; 4096];
                while let Ok(len @ 1..) = output.read(&mut chunk) {
                    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                    log.extend_from_slice(&chunk[..len]);
                }
            }
        });
        Ok(Self { child, address, log })
    }

    /// What the server has written so far to the stream that has its address.
    pub fn log(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Processor time that the process has used so far, in user space and in the kernel.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // After the name, which may hold any character: the state and 10 more fields, then utime and stime.
        let ticks: Vec<u64> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(11)
            .take(2)
            .map_while(|field| field.parse().ok())
            .collect();
        let &[user, system] = ticks.as_slice() else {
            return Err(io::Error::other(format!("not the state of a process: {stat}")));
        };
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_nanos((user + system) * 1_000_000_000 / per_second))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
