//! A broker of the workload's own, in a folder of its own, and programs that speak MCP on their stdin and stdout.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    os::unix::{fs::DirBuilderExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
};

use super::way::{Exchange, Way};
use crate::{
    error::{LoadError, Result},
    process::ServerProcess,
};

/// The client that the workloads say they are.
pub const CLIENT: &str = "mcp-broker-load";

/// A way over the local socket of a broker.
pub type SocketWay = Way<UnixStream, UnixStream>;

/// A broker on memory, on a free port and a local socket, which `mcp-broker connect` finds. It ends when dropped.
pub struct OwnBroker {
    process: Child,
    folder: PathBuf,
    binary: PathBuf,
    /// What it has written until it served.
    said: String,
    pub address: SocketAddr,
}

impl OwnBroker {
    /// Starts a broker with this configuration file and these flags, and waits until it serves. The name is that of its
    /// folder.
    pub fn start(binary: &Path, name: &str, config: &str, flags: &[&str]) -> Result<Self> {
        let folder = env::temp_dir().join(format!("mb-{name}-{}", std::process::id()));
        for folder in [&folder, &folder.join("mcp-broker")] {
            fs::DirBuilder::new().mode(0o700).create(folder)?;
        }
        let file = folder.join("broker.toml");
        fs::write(&file, config)?;
        let mut process = Command::new(binary)
            .env_clear()
            .args(["serve", "--port", "0", "--log-format", "pretty", "--config"])
            .arg(file)
            .arg("--local-socket")
            .arg(socket(&folder))
            .args(flags)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(process.stderr.take().unwrap_or_else(|| unreachable!())).lines();
        let mut broker = Self {
            process,
            folder,
            binary: binary.to_owned(),
            said: String::new(),
            address: SocketAddr::from(([0; 4], 0)),
        };
        broker.wait_until_it_serves(lines)?;
        broker.address = broker.address_after("is listening: http://")?;
        Ok(broker)
    }

    fn wait_until_it_serves(
        &mut self,
        mut lines: impl Iterator<Item = std::io::Result<String>> + Send + 'static,
    ) -> Result<()> {
        while !self.said.contains("/health") {
            let Some(line) = lines.next().transpose()? else {
                return Err(LoadError::refused("the start of the broker", self.said.as_bytes()));
            };
            self.said.push_str(&line);
            self.said.push('\n');
        }
        // A full pipe would block the broker.
        thread::spawn(move || lines.map_while(std::result::Result::ok).for_each(drop));
        Ok(())
    }

    /// The address that follows these words in what the broker has written.
    pub fn address_after(&self, words: &str) -> Result<SocketAddr> {
        let rest = self.said.split_once(words).map_or("", |(_, rest)| rest);
        let word = rest.split(|c: char| c.is_whitespace() || c == '/').next();
        let address = word.and_then(|word| word.parse().ok());
        address.ok_or_else(|| LoadError::refused("the start of the broker", self.said.as_bytes()))
    }

    pub fn process(&self) -> Result<ServerProcess> {
        ServerProcess::new(Some(self.process.id()))
    }

    /// A client of its local socket.
    pub fn client(&self) -> Result<SocketWay> {
        let stream = UnixStream::connect(socket(&self.folder))?;
        let mut client = Way::new(stream.try_clone()?, stream);
        client.initialize(CLIENT)?;
        Ok(client)
    }

    /// A client of a front.
    pub fn front(&self) -> Result<Program> {
        let mut command = Command::new(&self.binary);
        command.args(["connect", "--no-start"]).env_clear();
        for folder in ["HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"] {
            command.env(folder, &self.folder);
        }
        Program::start(&mut command, CLIENT)
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("mcp-broker/broker.sock")
}

impl Drop for OwnBroker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A program that speaks MCP on its stdin and stdout. It ends when dropped.
pub struct Program {
    process: Child,
    pub way: Way<ChildStdin, ChildStdout>,
}

impl Program {
    /// Starts a program and begins a session of MCP with it, as this client.
    pub fn start(command: &mut Command, client: &str) -> Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (to, from) = pipes.unwrap_or_else(|| unreachable!());
        let mut program = Self {
            process,
            way: Way::new(to, from),
        };
        program.way.initialize(client)?;
        Ok(program)
    }

    pub fn process(&self) -> Result<ServerProcess> {
        ServerProcess::new(Some(self.process.id()))
    }
}

impl Exchange for Program {
    fn exchange(&mut self, id: u64, request: &[u8]) -> Result<&[u8]> {
        self.way.exchange(id, request)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
