//! A broker of the workload's own, in a folder of its own, and programs that speak MCP on their stdin and stdout.

use std::{
    fs,
    net::SocketAddr,
    os::unix::{fs::DirBuilderExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Command, Stdio},
};

use test_client::{
    folder::Folder,
    process::{Running, RunningServer},
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
    server: RunningServer,
    folder: Folder,
    binary: PathBuf,
    pub address: SocketAddr,
}

impl OwnBroker {
    /// Starts a broker with this configuration file and these flags, and waits until it serves.
    pub fn start(binary: &Path, config: &str, flags: &[&str]) -> Result<Self> {
        let folder = Folder::of_broker()?;
        fs::DirBuilder::new().mode(0o700).create(folder.join("mcp-broker"))?;
        let file = folder.join("broker.toml");
        fs::write(&file, config)?;
        let own = [
            "--log-format=pretty",
            &format!("--config={}", file.display()),
            &format!("--local-socket={}", socket(&folder).display()),
        ];
        let server = RunningServer::broker_of(binary, &[&own, flags].concat())?;
        Ok(Self {
            address: server.address,
            server,
            folder,
            binary: binary.to_owned(),
        })
    }

    /// The address that follows these words in what the broker has written.
    pub fn address_after(&self, words: &str) -> Result<SocketAddr> {
        let announced = &self.server.announced;
        let rest = announced.split_once(words).map_or("", |(_, rest)| rest);
        let word = rest.split(|c: char| c.is_whitespace() || c == '/').next();
        let address = word.and_then(|word| word.parse().ok());
        address.ok_or_else(|| LoadError::refused("the start of the broker", announced.as_bytes()))
    }

    pub fn process(&self) -> Result<ServerProcess> {
        ServerProcess::new(Some(self.server.id()))
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
            command.env(folder, &*self.folder);
        }
        Program::start(&mut command, CLIENT)
    }
}

impl Drop for OwnBroker {
    fn drop(&mut self) {
        self.server.process.terminate();
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("mcp-broker/broker.sock")
}

/// A program that speaks MCP on its stdin and stdout. It ends when dropped.
pub struct Program {
    process: Running,
    pub way: Way<ChildStdin, ChildStdout>,
}

impl Program {
    /// Starts a program and begins a session of MCP with it, as this client.
    pub fn start(command: &mut Command, client: &str) -> Result<Self> {
        let mut process = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let pipes = process.0.stdin.take().zip(process.0.stdout.take());
        let (to, from) = pipes.unwrap_or_else(|| unreachable!());
        let mut program = Self {
            process,
            way: Way::new(to, from),
        };
        program.way.initialize(client)?;
        Ok(program)
    }

    pub fn process(&self) -> Result<ServerProcess> {
        ServerProcess::new(Some(self.process.0.id()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.process.terminate();
    }
}

impl Exchange for Program {
    fn exchange(&mut self, id: u64, request: &[u8]) -> Result<&[u8]> {
        self.way.exchange(id, request)
    }
}
