//! Redis servers for a test, on free ports. Dropping one removes its files.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use test_client::wait::WAIT_TIMEOUT;

/// The configuration file of a server that needs one.
const CONFIG_FILE: &str = "redis.conf";

/// A server process and its folder.
pub struct Redis {
    pub address: SocketAddr,
    child: Child,
    folder: PathBuf,
    flags: Vec<String>,
}

impl Redis {
    /// A server without persistence.
    pub fn start() -> Self {
        Self::start_with(&["--save", "", "--appendonly", "no"])
    }

    /// A server that syncs every write before it answers: a kill loses nothing.
    pub fn durable() -> Self {
        Self::start_with(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
    }

    pub fn start_with(flags: &[&str]) -> Self {
        Self::start_configured(flags, None)
    }

    /// A server that begins with the data of this file, a snapshot in the format of Redis, and keeps changes in memory.
    pub fn with_snapshot(file: &Path) -> Self {
        Self::start_prepared(&["--save", "", "--appendonly", "no"], |folder| {
            std::fs::copy(file, folder.join("dump.rdb")).unwrap();
        })
    }

    /// A sentinel that watches this server and its Redis replicas under the name `main`.
    pub fn sentinel(of: &Self) -> Self {
        let port = of.address.port();
        let settings = format!(
            "sentinel monitor main 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds main 300\n\
             sentinel failover-timeout main 2000\n"
        );
        Self::start_configured(&["--sentinel"], Some(&settings))
    }

    fn start_configured(flags: &[&str], settings: Option<&str>) -> Self {
        Self::start_prepared(flags, |folder| {
            if let Some(settings) = settings {
                std::fs::write(folder.join(CONFIG_FILE), settings).unwrap();
            }
        })
    }

    /// A server in a new folder, into which `prepare` has put files.
    fn start_prepared(flags: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let folder = std::env::temp_dir().join(format!("mcp-broker-redis-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&folder).unwrap();
        prepare(&folder);
        let flags: Vec<_> = flags.iter().map(ToString::to_string).collect();
        // Another program may take the port between the search and its use.
        for _ in 0..20 {
            let address = free_address();
            let mut child = spawn(address, &folder, &flags);
            if wait_until_ready(address, &mut child) {
                return Self {
                    address,
                    child,
                    folder,
                    flags,
                };
            }
            let _ = child.wait();
        }
        panic!("redis-server does not start (Debian: apt-get install redis-server)");
    }

    /// A Redis replica of this server, connected to it.
    pub fn redis_replica(&self) -> Self {
        let port = self.address.port().to_string();
        let mut flags: Vec<_> = self.flags.iter().map(String::as_str).collect();
        flags.extend(["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"]);
        let replica = Self::start_with(&flags);
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while !replica
            .command(&["INFO", "replication"])
            .contains("master_link_status:up")
        {
            assert!(Instant::now() < deadline, "the Redis replica does not connect");
            std::thread::sleep(Duration::from_millis(10));
        }
        replica
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the server again at the same address, with its persisted data.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.address, &self.folder, &self.flags);
        assert!(
            wait_until_ready(self.address, &mut self.child),
            "Redis does not restart"
        );
    }

    /// Sends one command and returns the answer: a text, an integer, or the elements of an array, one per line; the
    /// text of an error.
    pub fn command(&self, command: &[&str]) -> String {
        send_command(self.address, command).unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Three servers in cluster mode, each with a third of the slots.
pub struct RedisCluster {
    pub nodes: [Redis; 3],
}

impl RedisCluster {
    pub fn start() -> Self {
        let nodes = [(); 3].map(|()| {
            let bus = free_address().port().to_string();
            let flags = ["--save", "", "--cluster-enabled", "yes", "--cluster-port", &bus];
            (Redis::start_with(&flags), bus)
        });
        let slots = [(0, 5460), (5461, 10922), (10923, 16383)];
        for ((node, _), (first, last)) in nodes.iter().zip(slots) {
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        for (node, bus) in &nodes[1..] {
            let port = node.address.port().to_string();
            nodes[0].0.command(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]);
        }
        let cluster = Self {
            nodes: nodes.map(|(node, _)| node),
        };
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while !cluster.nodes.iter().all(knows_all_slots) {
            assert!(Instant::now() < deadline, "the cluster is not complete");
            std::thread::sleep(Duration::from_millis(10));
        }
        cluster
    }

    pub fn url(&self) -> String {
        let addresses = self.nodes.iter().map(|node| node.address.to_string());
        format!("redis+cluster://{}", addresses.collect::<Vec<_>>().join(","))
    }
}

fn knows_all_slots(node: &Redis) -> bool {
    let info = node.command(&["CLUSTER", "INFO"]);
    ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3"]
        .iter()
        .all(|sign| info.contains(sign))
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn spawn(address: SocketAddr, folder: &PathBuf, flags: &[String]) -> Child {
    let settings = folder.join(CONFIG_FILE);
    Command::new("redis-server")
        .args(settings.exists().then_some(settings))
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
        .args(flags)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server starts (Debian: apt-get install redis-server)")
}

/// Waits until the server has loaded its data; false if it has ended.
fn wait_until_ready(address: SocketAddr, child: &mut Child) -> bool {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while Instant::now() < deadline {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if send_command(address, &["PING"]).is_ok_and(|answer| answer == "PONG" || answer.starts_with("NOAUTH")) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn send_command(address: SocketAddr, command: &[&str]) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(WAIT_TIMEOUT))?;
    let mut text = format!("*{}\r\n", command.len());
    for part in command {
        text.extend(["$", &part.len().to_string(), "\r\n", part, "\r\n"]);
    }
    socket.write_all(text.as_bytes())?;
    read_answer(&mut BufReader::new(socket))
}

fn read_answer(socket: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    if socket.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let (kind, rest) = line.trim_end().split_at(1);
    match kind {
        "$" => {
            let Ok(len) = rest.parse::<usize>() else {
                return Ok(String::new());
            };
            let mut text = vec![0; len + 2];
            socket.read_exact(&mut text)?;
            text.truncate(len);
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        "*" => {
            let parts = (0..rest.parse().unwrap_or(0)).map(|_| read_answer(socket));
            Ok(parts.collect::<std::io::Result<Vec<_>>>()?.join("\n"))
        }
        _ => Ok(rest.to_owned()),
    }
}
