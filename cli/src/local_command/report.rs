//! What `status` says of a broker: asked over its socket, and what its files show where it does not answer.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use actors::clock;
use chrono::DateTime;
use rest::sessions::Session;
use serde::Serialize;
use serde_json::{Value, json};

use super::options::DevOptions;
use crate::{
    output::Output,
    short::{self, counted},
    table::{Table, escaped},
};
use common::{
    exit,
    user_broker::{
        self, AttachError, LineClient, Living, LocalPaths, StartPolicy, attach,
        hello::{self, COMMAND, Hello, Status},
        living_brokers,
    },
};

/// Longest wait for each answer of a broker.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Sessions that are shown.
const SESSIONS_MAX: usize = 1000;
/// Files of a data folder whose sizes are added.
const DATA_FILES_MAX: usize = 10_000;

/// What is known of the broker of an instance.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    pub name: String,
    pub running: bool,
    /// Why the state is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// A newer version that waits until the last client has left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<String>,
    /// `socket` or `fifo`.
    pub transport: &'static str,
    pub socket: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fifo_in: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fifo_out: Option<PathBuf>,
    /// The mode of the socket, such as `0600`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_bytes: Option<u64>,
    /// Connections of the socket besides the one that asks.
    pub clients: usize,
    /// What needs attention, most urgent first.
    pub warnings: Vec<String>,
    pub agents: Vec<Agent>,
    pub log: PathBuf,
    pub log_bytes: u64,
    /// What a dead broker has left.
    pub stale: Vec<PathBuf>,
    /// The other brokers of this user that live.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherBroker>,
    /// Why the broker does not answer this user without another key.
    #[serde(skip)]
    pub key_refusal: Option<String>,
}

/// Another broker of this user that lives.
#[derive(Debug, Clone, Serialize)]
pub struct OtherBroker {
    pub name: String,
    pub socket: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
}

impl OtherBroker {
    /// All that live but the one with this socket.
    pub fn than(socket: &Path) -> Vec<Self> {
        let others = living_brokers().into_iter().filter(|(paths, _)| paths.socket != socket);
        let of = |(paths, living): (LocalPaths, Living)| {
            let info = match living {
                Living::Yes(info) => Some(info),
                Living::Changing | Living::No => None,
            };
            Self {
                name: paths.instance.to_string(),
                socket: paths.socket,
                pid: info.as_ref().map(|info| info.pid),
                http: info.and_then(|info| info.http),
            }
        };
        others.map(of).collect()
    }

    /// One line about it.
    pub fn line(&self) -> String {
        let pid = self.pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
        let http = self.http.as_ref().map_or_else(String::new, |http| format!(", {http}"));
        format!("{}{pid}{http}, socket {}", self.name, self.socket.display())
    }
}

/// A session of the broker.
#[derive(Debug, Clone, Serialize)]
pub struct Agent {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    pub status: String,
    /// Since its last sign of life.
    pub idle_s: u64,
    /// Messages that wait for it.
    pub unread: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wake: Vec<String>,
}

impl Report {
    /// Asks a broker, and looks at its files.
    pub fn of(paths: &LocalPaths) -> Self {
        let mut report = Self::of_files(paths);
        let hello = Hello::of_this_process(COMMAND);
        match attach(paths, &hello, StartPolicy::NoStart, Instant::now() + TIMEOUT) {
            Ok(attached) => {
                report.running = true;
                // Also one that this program brings.
                report.upgrade = attached.hello.upgrade;
                let mut client = LineClient::new(attached.stream);
                match client.request(hello::STATUS, &json!({}), TIMEOUT) {
                    Ok(status) => report.add_status(&mut client, status),
                    Err(error) => report.unknown = Some(error.to_string()),
                }
            }
            Err(AttachError::NotRunning { .. }) => match user_broker::is_alive(paths) {
                Ok(false) => report.stale = user_broker::files(paths),
                Ok(true) => {
                    report.unknown = Some("a broker runs and has no socket: it is starting or stopping".to_owned());
                }
                Err(error) => report.unknown = Some(format!("{}: {error}", paths.life_lock.display())),
            },
            Err(AttachError::NewerRuns { running, .. } | AttachError::OlderRuns { running, .. }) => {
                report.running = true;
                report.version = Some(running);
            }
            Err(error) => {
                let is_key_refusal = matches!(error, AttachError::KeyMissing | AttachError::KeyRefused(_));
                report.key_refusal = is_key_refusal.then(|| error.to_string());
                report.unknown = Some(error.to_string());
            }
        }
        if paths.instance.dev_name().is_some() && DevOptions::read(paths).has_no_http() {
            report.http = None;
        }
        report
    }

    /// What the files show.
    fn of_files(paths: &LocalPaths) -> Self {
        let mode = fs::symlink_metadata(&paths.socket).ok();
        let fifo = |path: &PathBuf| path.symlink_metadata().is_ok().then(|| path.clone());
        let (fifo_in, fifo_out) = (fifo(&paths.fifo_in), fifo(&paths.fifo_out));
        Self {
            name: paths.instance.to_string(),
            transport: if fifo_in.is_some() { "fifo" } else { "socket" },
            socket: paths.socket.clone(),
            fifo_in,
            fifo_out,
            mode: mode.map(|file| format!("{:04o}", file.permissions().mode() & 0o7777)),
            log: paths.log.clone(),
            log_bytes: fs::metadata(&paths.log).map_or(0, |log| log.len()),
            ..Self::default()
        }
    }

    fn add_status(&mut self, client: &mut LineClient, status: Value) {
        let Ok(status) = serde_json::from_value::<Status>(status) else {
            self.unknown =
                Some("the broker describes itself in a way that this version does not understand".to_owned());
            return;
        };
        self.agents = agents(client, &status);
        let own = std::process::id();
        let of_socket = status.connections.iter().filter_map(|connection| connection.pid);
        self.clients = of_socket.filter(|pid| *pid != own).count();
        if status.storage == "disk" {
            let info = fs::read(self.socket.with_file_name("broker.json")).unwrap_or_default();
            let info = serde_json::from_slice::<user_broker::Info>(&info).ok();
            self.data_bytes = info.map(|info| folder_bytes(&info.data));
        }
        self.pid = Some(status.pid);
        self.started_at = Some(status.started_at);
        self.version = Some(status.version);
        self.build = Some(status.build);
        self.http = status.http;
        self.storage = Some(status.storage);
        self.warnings = status.warnings;
    }

    /// The exit code of `status`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self { running: true, .. } => 0,
            Self { unknown: Some(_), .. } => exit::FAILED,
            Self { stale, .. } if stale.is_empty() => exit::NOT_RUNNING,
            _ => exit::REMAINS,
        }
    }

    /// The report for people.
    pub fn text(&self, output: &Output) -> String {
        let mut facts = Table::without_headings();
        facts.row(["broker", &self.state()]);
        // The line ends with the path, for programs that take it from there.
        facts.row(["socket", &self.socket.display().to_string()]);
        if let Some(mode) = &self.mode {
            facts.row(["socket mode", mode]);
        }
        if let (Some(fifo_in), Some(fifo_out)) = (&self.fifo_in, &self.fifo_out) {
            facts.row([
                "fifo",
                &format!("write to {}, read from {}", fifo_in.display(), fifo_out.display()),
            ]);
        }
        if let Some(http) = &self.http {
            facts.row(["http", http]);
            facts.row(["dashboard", &format!("{http}/dashboard")]);
            facts.row(["desk", &format!("{http}/desk")]);
        }
        if let Some(storage) = &self.storage {
            let waiting: u64 = self.agents.iter().map(|agent| agent.unread).sum();
            let size = self
                .data_bytes
                .map_or_else(String::new, |bytes| format!(", {}", size(bytes)));
            let verb = if waiting == 1 { "waits" } else { "wait" };
            let waiting = counted(waiting, "message");
            facts.row(["storage", &format!("{storage}{size}, {waiting} {verb}")]);
        }
        facts.row(["log", &format!("{} ({})", self.log.display(), size(self.log_bytes))]);
        if self.running {
            facts.row(["clients", &self.clients.to_string()]);
            facts.row(["try", &self.try_line()]);
        }
        for warning in &self.warnings {
            facts.row(["warning", &escaped(warning)]);
        }
        for file in &self.stale {
            facts.row(["stale", &file.display().to_string()]);
        }
        for other in &self.others {
            facts.row(["also runs", &other.line()]);
        }
        let mut text = output.table(&facts);
        if !self.agents.is_empty() {
            let mut agents = Table::new(&["agent", "product", "state", "unread", "wakes by"]);
            for agent in &self.agents {
                agents.row([
                    agent.name.as_str(),
                    agent.product.as_deref().unwrap_or("-"),
                    &format!("{}, idle {}", agent.status, short::span(agent.idle_s)),
                    &agent.unread.to_string(),
                    &if agent.wake.is_empty() {
                        "-".to_owned()
                    } else {
                        agent.wake.join(", ")
                    },
                ]);
            }
            text.push('\n');
            text.push_str(&output.table(&agents));
        }
        text
    }

    /// A command that asks this broker something.
    fn try_line(&self) -> String {
        match (self.name.strip_prefix("dev/"), self.name.as_str()) {
            (Some(name), _) => format!("mcp-broker call --dev={name} list_sessions"),
            (None, "default") => "mcp-broker call list_sessions".to_owned(),
            (None, name) => format!("mcp-broker call --instance {name} list_sessions"),
        }
    }

    fn state(&self) -> String {
        let name = &self.name;
        if let Some(why) = &self.unknown {
            return format!("the state of {name} is unknown: {}", escaped(why));
        }
        if !self.running {
            return match self.stale.len() {
                0 => format!("{name} does not run"),
                files => {
                    let files = counted(files as u64, "file");
                    format!("{name} does not run; a dead broker left {files}, which the next start replaces")
                }
            };
        }
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        let upgrade = self.upgrade.as_ref().map_or_else(String::new, |version| {
            format!(" ({version} is installed: it restarts when the last agent leaves, or at mcp-broker restart)")
        });
        let pid = self.pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
        format!(
            "{name} runs, {}{upgrade}{pid}, since {}",
            text(&self.version),
            short::time(&text(&self.started_at), false)
        )
    }
}

/// The sessions of the project that local clients use. None where the broker does not tell.
fn agents(client: &mut LineClient, status: &Status) -> Vec<Agent> {
    let call = json!({"name": "list_sessions", "arguments": {"status": "all", "limit": SESSIONS_MAX}});
    let mut result = client.request("tools/call", &call, TIMEOUT).unwrap_or_default();
    let sessions: Result<Vec<Session>, _> = serde_json::from_value(result["structuredContent"]["sessions"].take());
    let agent = |session: Session| {
        let id = session.session_id;
        let connection = status
            .connections
            .iter()
            .find(|other| other.session_id.as_deref() == Some(&id));
        let told = connection.and_then(|connection| connection.agent.as_ref());
        let product = || Some(session.metadata?.get("product")?.as_str()?.to_owned());
        Agent {
            product: told.and_then(|agent| agent.product.clone()).or_else(product),
            name: session.name.unwrap_or(id),
            status: session.status,
            idle_s: seconds_since(&session.last_heartbeat),
            unread: session.queue_size,
            wake: told.map(|agent| agent.wake.clone()).unwrap_or_default(),
        }
    };
    sessions.unwrap_or_default().into_iter().map(agent).collect()
}

fn seconds_since(time: &str) -> u64 {
    let then = DateTime::parse_from_rfc3339(time).map_or(0, |time| time.timestamp_millis());
    clock::now().unix_ms.saturating_sub(u64::try_from(then).unwrap_or(0)) / 1000
}

/// The bytes of the files of a folder and its folders.
fn folder_bytes(folder: &Path) -> u64 {
    let (mut bytes, mut open, mut files) = (0, vec![folder.to_owned()], 0);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                open.push(entry.path());
            } else {
                bytes += metadata.len();
            }
            files += 1;
            if files == DATA_FILES_MAX {
                return bytes;
            }
        }
    }
    bytes
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{}.{} MiB", bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20),
    }
}
