//! A load balancer (`HAProxy`) in front of replicas, whose endpoints a test sets as Kubernetes would: a pod that is being
//! removed gets no new connections and keeps those that it has.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::support::eventually;

/// A running `HAProxy` with a fixed number of places for replicas, all of them empty at first.
pub struct Balancer {
    process: Child,
    pub address: SocketAddr,
    control: PathBuf,
}

impl Balancer {
    /// Starts with this many places.
    pub fn start(places: usize) -> Self {
        // HAProxy inherits the socket: no other process can take the port meanwhile.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        fcntl_setfd(&listener, FdFlags::empty()).unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("balancer-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        let control = folder.join("control");
        let servers: Vec<_> = (0..places)
            .map(|at| format!("  server place{at} 127.0.0.1:1 disabled\n"))
            .collect();
        let config = format!(
            "global\n  stats socket {} mode 600 level admin\n\
             defaults\n  mode http\n  timeout connect 2s\n  timeout client 1h\n  timeout server 1h\n  timeout tunnel 1h\n  \
             option redispatch\n  retries 3\n\
             frontend broker\n  bind fd@{}\n  default_backend replicas\n\
             backend replicas\n  balance roundrobin\n{}",
            control.display(),
            listener.as_raw_fd(),
            servers.concat(),
        );
        let file = folder.join("haproxy.cfg");
        std::fs::write(&file, config).unwrap();
        let process = Command::new("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let balancer = Self {
            process,
            address: listener.local_addr().unwrap(),
            control,
        };
        eventually("HAProxy takes commands", || UnixStream::connect(&balancer.control).ok());
        balancer
    }

    /// Sends new connections to this address too.
    pub fn add_endpoint(&self, place: usize, address: SocketAddr) {
        let (ip, port) = (address.ip(), address.port());
        self.command(&format!("set server replicas/place{place} addr {ip} port {port}"));
        self.command(&format!("set server replicas/place{place} state ready"));
    }

    /// Sends no new connection to this place.
    pub fn remove_endpoint(&self, place: usize) {
        self.command(&format!("set server replicas/place{place} state drain"));
    }

    fn command(&self, line: &str) {
        let mut socket = UnixStream::connect(&self.control).unwrap();
        writeln!(socket, "{line}").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let is_done =
            answer.trim().is_empty() || answer.contains("changed from") || answer.contains("no need to change");
        assert!(is_done, "{line}: {answer}");
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(folder) = self.control.parent() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
