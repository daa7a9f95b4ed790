//! A broker with scripted backends, and what tests ask of them.

use std::{
    fmt::Write as _,
    fs,
    ops::Deref,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::Once,
};

use serde_json::{Value, json};
use test_client::process;

use super::{
    running::Running,
    support::{Agent, Broker, HttpAgent, Response, Wire, broker_program, eventually},
};

/// The configuration file in the folder of a test, and the folder of one that is mounted.
const CONFIG: &str = "broker.toml";
const VOLUME: &str = "volume";

/// Marks the processes of the backends of one test.
pub const MARKER: &str = "FAKE_BACKEND_OF";

/// A broker with backends. Dropping it asserts that all their processes end.
pub struct Gateway {
    broker: Option<Broker>,
    flags: Vec<String>,
    folder: PathBuf,
    marker: String,
}

/// The configuration of a gateway.
pub struct Plan {
    text: String,
    flags: Vec<String>,
    folder: PathBuf,
    marker: String,
    is_mounted: bool,
}

impl Plan {
    /// Without backends.
    pub fn new() -> Self {
        let marker = uuid::Uuid::new_v4().simple().to_string();
        let folder = std::env::temp_dir().join(format!("gateway-{marker}"));
        fs::create_dir(&folder).unwrap();
        Self {
            text: String::new(),
            flags: vec!["--gateway-list-wait=20s".to_owned()],
            folder,
            marker,
            is_mounted: false,
        }
    }

    /// Its file is that of a `ConfigMap`.
    pub fn mounted(self) -> Self {
        Self {
            is_mounted: true,
            ..self
        }
    }

    /// A fake backend with these flags.
    pub fn backend(self, name: &str, flags: &[&str]) -> Self {
        self.backend_with(name, flags, "")
    }

    /// A fake backend with these flags, and these further lines in its table.
    pub fn backend_with(self, name: &str, flags: &[&str], lines: &str) -> Self {
        self.table(&format!("backends.{name}"), flags, lines)
    }

    /// A fake backend in this table.
    pub fn table(self, table: &str, flags: &[&str], lines: &str) -> Self {
        let program = fake_backend().display().to_string();
        let args: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        self.program_in(table, (&program, &args), lines)
    }

    /// A backend of another program.
    pub fn program(self, name: &str, program: &str, args: &[String], lines: &str) -> Self {
        self.program_in(&format!("backends.{name}"), (program, args), lines)
    }

    /// A backend behind a URL.
    pub fn url(self, name: &str, url: &str, lines: &str) -> Self {
        self.lines(&format!("[backends.{name}]\nurl = {url:?}\n{lines}"))
    }

    fn program_in(mut self, table: &str, (program, args): (&str, &[String]), lines: &str) -> Self {
        let (program, args) = (json!(program), json!(args));
        let marker = &self.marker;
        let has_env = lines.contains("env =");
        writeln!(self.text, "[{table}]\ncommand = {program}\nargs = {args}").unwrap();
        if !has_env {
            writeln!(self.text, "env = {{ {MARKER} = {marker:?} }}").unwrap();
        }
        writeln!(
            self.text,
            "{}",
            lines.replace("env = {", &format!("env = {{ {MARKER} = {marker:?}, "))
        )
        .unwrap();
        self
    }

    /// Further lines of the file.
    pub fn lines(mut self, lines: &str) -> Self {
        self.text.push_str(lines);
        self.text.push('\n');
        self
    }

    /// A further flag of the broker.
    pub fn flag(mut self, flag: &str) -> Self {
        let name = flag.split('=').next().unwrap();
        self.flags.retain(|known| !known.starts_with(name));
        self.flags.push(flag.to_owned());
        self
    }

    /// The marker of the processes of this test, for files that the test writes itself.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// A file in the folder of the test.
    pub fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Starts the broker.
    pub fn start(self) -> Gateway {
        let flags = self.flags_with_file();
        let broker = Broker::with_program(program(), &borrowed(&flags));
        self.gateway(broker, flags)
    }

    /// Starts the broker as a user that may not read the processes of others.
    pub fn start_as_nobody(self) -> Gateway {
        const NOBODY: &str = "65534";
        let flags = self.flags_with_file();
        let broker = if rustix::process::geteuid().is_root() {
            let own = program();
            let mut other = Command::new("setpriv");
            other.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
            other.arg(own.get_program()).args(own.get_args());
            for (name, value) in own.get_envs() {
                match value {
                    Some(value) => other.env(name, value),
                    None => other.env_remove(name),
                };
            }
            other
        } else {
            program()
        };
        let broker = Broker::with_program(broker, &borrowed(&flags));
        self.gateway(broker, flags)
    }

    /// Starts the broker with authentication and an admin key.
    pub fn start_secured(self) -> Gateway {
        let flags = self.flags_with_file();
        let broker = Broker::secured_with_program(program(), &borrowed(&flags));
        self.gateway(broker, flags)
    }

    /// Starts `gateway run` with this configuration, for the one client that the test is.
    pub fn run(self, args: &[&str]) -> Running {
        let (file, _) = self.written();
        self.run_with(&[args, &["--config", &file]].concat())
    }

    /// Starts `gateway run` with this configuration. Its stderr is not read yet.
    pub fn run_unread(self, args: &[&str]) -> Running {
        let (file, _) = self.written();
        Running::start_unread(self.folder, self.marker, "run", &[args, &["--config", &file]].concat())
    }

    /// Starts `gateway run` with these arguments, in the folder of the test.
    pub fn run_with(self, args: &[&str]) -> Running {
        Running::start(self.folder, self.marker, "run", args)
    }

    /// Starts `gateway watch` with these arguments and a fake backend with these flags, in the folder of the test.
    pub fn watch(self, args: &[&str], flags: &[&str]) -> Running {
        let (program, marker) = (
            fake_backend().display().to_string(),
            format!("{MARKER}={}", self.marker),
        );
        let command = [&["--", "/usr/bin/env", &marker, &program], flags].concat();
        Running::start(self.folder, self.marker, "watch", &[args, &command].concat())
    }

    /// Writes the configuration file; returns its path, and the flags of the broker.
    pub fn written(&self) -> (String, Vec<String>) {
        self.write_file();
        let file = if self.is_mounted {
            self.file(&format!("{VOLUME}/{CONFIG}"))
        } else {
            self.file(CONFIG)
        };
        (file, self.flags.clone())
    }

    /// Replaces the configuration file, as editors do, or as Kubernetes does in a volume: the file is a link below `..data`,
    /// which is a link to a folder that is replaced.
    fn write_file(&self) {
        if !self.is_mounted {
            return replace_file(&self.folder.join(CONFIG), &self.text);
        }
        let volume = self.folder.join(VOLUME);
        let version = format!("..{}", uuid::Uuid::new_v4().simple());
        fs::create_dir_all(volume.join(&version)).unwrap();
        fs::write(volume.join(&version).join(CONFIG), &self.text).unwrap();
        let before = fs::read_link(volume.join("..data"));
        symlink(version, volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
        match before {
            Ok(before) => fs::remove_dir_all(volume.join(before)).unwrap(),
            Err(_) => symlink(Path::new("..data").join(CONFIG), volume.join(CONFIG)).unwrap(),
        }
    }

    fn flags_with_file(&self) -> Vec<String> {
        let (file, mut flags) = self.written();
        flags.push(format!("--config={file}"));
        flags
    }

    fn gateway(self, broker: Broker, flags: Vec<String>) -> Gateway {
        Gateway {
            broker: Some(broker),
            flags,
            folder: self.folder,
            marker: self.marker,
        }
    }
}

impl Gateway {
    /// A broker with one fake backend named `fake`.
    pub fn with_fake(flags: &[&str]) -> Self {
        Plan::new().backend("fake", flags).start()
    }

    /// A legacy client over a WebSocket.
    pub fn legacy(&self) -> Agent {
        Agent::legacy(self.wire(), "2025-11-25", &json!({}))
    }

    /// A broker with authentication and a fake backend of the project `team`.
    pub fn of_team() -> Self {
        let plan = Plan::new().table("projects.team.backends.fake", &[], "");
        plan.start_secured()
    }

    /// A client of 2026-07-28 over HTTP.
    pub fn modern_http(&self) -> HttpAgent {
        HttpAgent::modern(self.address, json!({}))
    }

    /// A client of 2026-07-28 over a WebSocket.
    pub fn modern_socket(&self) -> Agent {
        Agent::modern(self.wire(), json!({}))
    }

    /// The table of a fake backend with these flags, as an administrator adds it.
    pub fn fake_table(&self, flags: &[&str]) -> Value {
        json!({"command": fake_backend().display().to_string(), "args": flags, "env": {MARKER: self.marker}})
    }

    /// Waits until a backend has written a line with this text, which shows that a call has reached it.
    pub fn awaits_line(&self, backend: &str, text: &str) {
        eventually("the call has reached the backend", || {
            let log = self
                .asks_backends("GET", &format!("/{backend}/log"), &Value::Null)
                .json();
            log.to_string().contains(text).then_some(())
        });
    }

    /// A request of an administrator of the project `default` about backends.
    pub fn asks_backends(&self, method: &str, path: &str, body: &Value) -> Response {
        self.rest_with(&[], method, &format!("/api/v1/backends{path}"), body)
    }

    /// Adds a backend.
    pub fn adds(&self, name: &str, mut table: Value) -> Value {
        table["name"] = json!(name);
        let added = self.asks_backends("POST", "", &table);
        assert_eq!(added.status, 201, "{added:?}");
        added.json()
    }

    /// The programs of its backends that are alive, without their keepers.
    pub fn programs(&self) -> Vec<u32> {
        self.processes_where(|arguments| !arguments.contains("__keep"))
    }

    /// The keepers that are alive.
    pub fn keepers(&self) -> Vec<u32> {
        self.processes_where(|arguments| arguments.contains("__keep"))
    }

    fn processes_where(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<u32> {
        marked(&self.marker)
            .into_iter()
            .filter(|pid| {
                // One that has ended meanwhile has no arguments.
                let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                !arguments.is_empty() && is_wanted(&String::from_utf8_lossy(&arguments))
            })
            .collect()
    }

    /// The pids that were written to a file of starts.
    pub fn starts(&self, name: &str) -> usize {
        let text = fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        text.lines().count()
    }

    /// Replaces the configuration file.
    pub fn is_configured(&self, plan: impl FnOnce(Plan) -> Plan) {
        replace_configuration(&self.folder, &self.marker, plan);
    }

    /// Removes a file of the test.
    pub fn removes(&self, name: &str) {
        fs::remove_file(self.folder.join(name)).unwrap();
    }

    /// The broker, to be stopped or killed.
    pub fn broker(&mut self) -> &mut Broker {
        self.broker.as_mut().unwrap()
    }

    /// Replaces a flag of the broker, from its next start on.
    pub fn has_flag(&mut self, flag: &str) {
        let name = flag.split('=').next().unwrap();
        self.flags.retain(|known| !known.starts_with(name));
        self.flags.push(flag.to_owned());
    }

    /// Ends the broker, and starts it again on the storage that its flags name. `meanwhile` runs between the two.
    pub fn restarts(&mut self, meanwhile: impl FnOnce(&Self)) {
        self.broker().terminate();
        assert!(self.broker().wait_for_exit().success());
        self.awaits_no_processes();
        meanwhile(self);
        self.broker = Some(Broker::on_existing_storage(&borrowed(&self.flags)));
    }

    /// Waits until no process of a backend is alive.
    pub fn awaits_no_processes(&self) {
        eventually("all processes of backends have ended", || {
            marked(&self.marker).is_empty().then_some(())
        });
    }
}

impl Deref for Gateway {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        self.broker.as_ref().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.broker.take());
        if !std::thread::panicking() {
            self.awaits_no_processes();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn borrowed(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// Replaces the configuration file in the folder of a test, as editors do.
pub fn replace_configuration(folder: &Path, marker: &str, plan: impl FnOnce(Plan) -> Plan) {
    let empty = Plan {
        text: String::new(),
        flags: Vec::new(),
        folder: folder.to_owned(),
        marker: marker.to_owned(),
        is_mounted: folder.join(VOLUME).exists(),
    };
    plan(empty).write_file();
}

/// Replaces a file, as editors do.
pub fn replace_file(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

/// The living processes with this marker in their environment.
pub fn marked(marker: &str) -> Vec<u32> {
    let wanted = format!("{MARKER}={marker}");
    let mut found: Vec<u32> = process::with_variable(&wanted)
        .into_iter()
        .map(i32::cast_unsigned)
        .collect();
    // Only the superuser reads the environment of a keeper.
    let keepers = found.iter().filter_map(|pid| parent_of(*pid)).filter(|pid| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains("__keep")
    });
    let keepers: Vec<u32> = keepers.filter(|pid| !found.contains(pid)).collect();
    found.extend(keepers);
    found
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = status.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// Whether a process is alive.
pub fn is_alive(pid: u64) -> bool {
    process::is_alive(pid.try_into().unwrap())
}

/// The broker with an environment of which backends see a part.
fn program() -> Command {
    let mut program = broker_program();
    program
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/home/of-the-test")
        .env("LC_TEST", "C")
        .env("SECRET_OF_THE_BROKER", "secret")
        .env("PASSED", "passed")
        .env("HTTPS_PROXY", "http://user:password@proxy:3128")
        .env("MCP_BROKER_LOG_LEVEL", "info");
    program
}

/// The fake backend, which is built beside the broker with `--workspace`.
pub fn fake_backend() -> PathBuf {
    static BUILT: Once = Once::new();
    let program = PathBuf::from(broker_program().get_program()).with_file_name("fake-backend");
    BUILT.call_once(|| {
        assert!(
            program.exists(),
            "{} is missing: cargo build -p mcp-broker-fake-backend makes it",
            program.display()
        );
    });
    program
}

/// Calls of backends' tools that read as sentences, for clients of every kind.
pub trait Calls {
    /// The result of a call, or its JSON-RPC error.
    fn result_of(&self, tool: &str, arguments: Value) -> Result<Value, Value>;

    /// The object of a call that succeeds.
    fn gets(&self, tool: &str, arguments: Value) -> Value {
        let mut result = self.result_of(tool, arguments).unwrap();
        assert_ne!(result["isError"], true, "{tool}: {result}");
        result["structuredContent"].take()
    }

    /// The error object of a call that the gateway refuses with this code.
    fn fails_as(&self, code: &str, tool: &str, arguments: Value) -> Value {
        let mut result = self.result_of(tool, arguments).unwrap();
        assert_eq!(result["isError"], true, "{tool}: {result}");
        let error = result["structuredContent"].take();
        assert_eq!(error["code"], code, "{error}");
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, error, "the text is the same object");
        error
    }

    /// The code of a JSON-RPC error.
    fn code_of(&self, tool: &str, arguments: Value) -> i64 {
        let error = self.result_of(tool, arguments).expect_err("an error");
        error["code"].as_i64().unwrap()
    }
}

fn call_params(tool: &str, arguments: Value) -> Value {
    json!({"name": tool, "arguments": arguments})
}

impl Calls for Agent {
    fn result_of(&self, tool: &str, arguments: Value) -> Result<Value, Value> {
        self.request("tools/call", call_params(tool, arguments))
    }
}

impl Calls for HttpAgent {
    fn result_of(&self, tool: &str, arguments: Value) -> Result<Value, Value> {
        self.request("tools/call", call_params(tool, arguments))
    }
}

impl Calls for Wire {
    fn result_of(&self, tool: &str, arguments: Value) -> Result<Value, Value> {
        self.request("tools/call", call_params(tool, arguments))
    }
}

/// The names of the tools that a client sees, page by page.
pub fn tool_names(client: &Agent) -> Vec<String> {
    let (mut names, mut params) = (Vec::new(), json!({}));
    loop {
        let page = client.request("tools/list", params).unwrap();
        let tools = page["tools"].as_array().unwrap();
        names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        match page.get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return names,
        }
    }
}

/// The names of the tools of one backend that a client sees.
pub fn tools_of(client: &Agent, backend: &str) -> Vec<String> {
    let prefix = format!("{backend}__");
    tool_names(client)
        .into_iter()
        .filter_map(|name| name.strip_prefix(&prefix).map(str::to_owned))
        .collect()
}

/// The params of `initialize`.
pub fn introduction() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
}

/// Opens a subscription of a modern client to what a member of its filter has. Returns its id and what is honored of that.
pub fn listens_to(client: &Agent, member: &str, wanted: &[&str]) -> (Value, Value) {
    let params = client.params(json!({"notifications": {member: wanted}}));
    let id = client.wire.asks("subscriptions/listen", params);
    let acknowledged = client
        .wire
        .next_notification("notifications/subscriptions/acknowledged");
    (id, acknowledged["notifications"][member].clone())
}

/// Waits until a backend has subscriptions to these and no others, in a member of what its tool `subscribed` says.
pub fn is_subscribed(gateway: &Gateway, backend: &str, member: &str, expected: &[&str]) {
    let client = gateway.legacy();
    eventually("the backend was asked", || {
        let subscribed = client.gets(&format!("{backend}__subscribed"), json!({}));
        let mut asked: Vec<&str> = subscribed[member]
            .as_array()?
            .iter()
            .filter_map(Value::as_str)
            .collect();
        asked.sort_unstable();
        (asked == expected).then_some(())
    });
}
