//! Agents written with the official MCP SDKs in TypeScript and Python, and with other popular clients, talk to each
//! other through the real binary.
//!
//! `scripts/test` installs them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use test_client::{
    folder::{Folder, Home},
    process::RunningServer,
};

use crate::support::cluster_script::ClusterScript;

/// A scenario ends itself after 30 seconds; this limit is for one that hangs.
const SCENARIO_SECONDS_MAX: u64 = 60;
/// The interval of progress notifications. Over HTTP a scenario waits for one to know that a long poll has begun.
const HEARTBEAT_INTERVAL: &str = "100ms";

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v1_talk_over_websocket() {
    Client::TypeScript.run("typescript-v1.js WS");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v1_talk_over_http() {
    Client::TypeScript.run("typescript-v1.js HTTP");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v1_talk_over_the_http_of_2024_11_05() {
    Client::TypeScript.run("typescript-v1.js HTTP sse");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v2_pinned_talk_over_websocket() {
    Client::TypeScript.run("typescript-v2.js WS pin");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v2_pinned_talk_over_http() {
    Client::TypeScript.run("typescript-v2.js HTTP pin");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v2_negotiating_talk_over_websocket() {
    Client::TypeScript.run("typescript-v2.js WS auto");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v2_negotiating_talk_over_http() {
    Client::TypeScript.run("typescript-v2.js HTTP auto");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v2_as_legacy_talk_over_websocket() {
    Client::TypeScript.run("typescript-v2.js WS legacy");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v2_as_legacy_talk_over_http() {
    Client::TypeScript.run("typescript-v2.js HTTP legacy");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v1_talk_over_websocket() {
    Client::PythonV1.run("python_v1.py WS");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v1_talk_over_http() {
    Client::PythonV1.run("python_v1.py HTTP");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v1_talk_over_the_http_of_2024_11_05() {
    Client::PythonV1.run("python_v1.py HTTP sse");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v2_pinned_talk_over_websocket() {
    Client::PythonV2.run("python_v2.py WS pin");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v2_pinned_talk_over_http() {
    Client::PythonV2.run("python_v2.py HTTP pin");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v2_negotiating_talk_over_websocket() {
    Client::PythonV2.run("python_v2.py WS auto");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v2_negotiating_talk_over_http() {
    Client::PythonV2.run("python_v2.py HTTP auto");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v2_as_legacy_talk_over_websocket() {
    Client::PythonV2.run("python_v2.py WS legacy");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v2_as_legacy_talk_over_http() {
    Client::PythonV2.run("python_v2.py HTTP legacy");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_of_two_eras_talk_over_websocket() {
    Client::TypeScript.run("mixed.js WS WS");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_of_two_eras_talk_across_websocket_and_http() {
    Client::TypeScript.run("mixed.js WS HTTP");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v1_talk_over_stdio() {
    Client::TypeScript.run_over_stdio("typescript-v1.js STDIO");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v2_pinned_talk_over_stdio() {
    Client::TypeScript.run_over_stdio("typescript-v2.js STDIO pin");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v2_negotiating_talk_over_stdio() {
    Client::TypeScript.run_over_stdio("typescript-v2.js STDIO auto");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v2_as_legacy_talk_over_stdio() {
    Client::TypeScript.run_over_stdio("typescript-v2.js STDIO legacy");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v1_talk_over_stdio() {
    Client::PythonV1.run_over_stdio("python_v1.py STDIO");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v2_pinned_talk_over_stdio() {
    Client::PythonV2.run_over_stdio("python_v2.py STDIO pin");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v2_negotiating_talk_over_stdio() {
    Client::PythonV2.run_over_stdio("python_v2.py STDIO auto");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_python_v2_as_legacy_talk_over_stdio() {
    Client::PythonV2.run_over_stdio("python_v2.py STDIO legacy");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_of_two_eras_talk_over_stdio() {
    Client::TypeScript.run_over_stdio("mixed.js STDIO STDIO");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_the_ai_sdk_talk_over_stdio() {
    Client::TypeScript.run_over_stdio("ai-sdk.js STDIO stdio");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_fastmcp_talk_over_stdio() {
    Client::PythonV2.run_over_stdio("fastmcp_client.py STDIO auto");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_langchain_talk_over_stdio_with_a_process_for_each_call() {
    Client::PythonV1.run_over_stdio("langchain_tools.py STDIO stdio each");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v1_bring_keys_over_http() {
    Client::TypeScript.run_with_key("typescript-v1.js HTTP");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v1_bring_keys_over_the_http_of_2024_11_05() {
    Client::TypeScript.run_with_key("typescript-v1.js HTTP sse");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v2_bring_keys_over_http() {
    Client::TypeScript.run_with_key("typescript-v2.js HTTP auto");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_typescript_v2_bring_keys_over_websocket() {
    Client::TypeScript.run_with_key("typescript-v2.js WS pin");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_the_ai_sdk_talk_over_http() {
    Client::TypeScript.run("ai-sdk.js HTTP http");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_the_ai_sdk_talk_over_the_http_of_2024_11_05() {
    Client::TypeScript.run("ai-sdk.js HTTP sse");
    Client::TypeScript.run("ai-sdk.js SSE sse");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_the_ai_sdk_bring_keys() {
    Client::TypeScript.run_with_key("ai-sdk.js HTTP http");
    Client::TypeScript.run_with_key("ai-sdk.js SSE sse");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_behind_mcp_remote_talk_over_http() {
    Client::TypeScript.run("mcp-remote.js HTTP http-first");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_behind_mcp_remote_talk_over_the_http_of_2024_11_05() {
    Client::TypeScript.run("mcp-remote.js SSE sse-only");
}

/// Without a key mcp-remote fails: it does not wait for a login.
#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_behind_mcp_remote_bring_keys() {
    Client::TypeScript.run_with_key("mcp-remote.js HTTP http-first");
    Client::TypeScript.run_with_key("mcp-remote.js SSE sse-only");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_fastmcp_talk_over_http() {
    Client::PythonV2.run("fastmcp_client.py HTTP auto");
    Client::PythonV2.run("fastmcp_client.py HTTP legacy");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_fastmcp_talk_over_the_http_of_2024_11_05() {
    Client::PythonV2.run("fastmcp_client.py SSE sse");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_fastmcp_bring_keys() {
    Client::PythonV2.run_with_key("fastmcp_client.py HTTP auto");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_langchain_talk_with_a_connection_for_each_call() {
    Client::PythonV1.run("langchain_tools.py HTTP http each");
    Client::PythonV1.run("langchain_tools.py SSE sse each");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_langchain_talk_with_one_connection() {
    Client::PythonV1.run("langchain_tools.py HTTP http one");
    Client::PythonV1.run("langchain_tools.py SSE sse one");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_langchain_bring_keys() {
    Client::PythonV1.run_with_key("langchain_tools.py HTTP http one");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn legacy_agents_with_typescript_talk_through_a_balancer() {
    Client::TypeScript.run_behind_balancer("typescript-v1.js HTTP http exchange");
    Client::TypeScript.run_behind_balancer("typescript-v1.js SSE sse exchange");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn legacy_agents_with_python_talk_through_a_balancer() {
    Client::PythonV1.run_behind_balancer("python_v1.py HTTP http exchange");
    Client::PythonV1.run_behind_balancer("python_v1.py SSE sse exchange");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn agents_with_the_ai_sdk_talk_through_a_balancer() {
    Client::TypeScript.run_behind_balancer("ai-sdk.js HTTP http");
    Client::TypeScript.run_behind_balancer("ai-sdk.js SSE sse");
}

#[test]
#[ignore = "needs the official SDKs: scripts/test installs them"]
fn an_event_source_follows_the_events_of_a_broker_through_its_restart() {
    let scenario = "event-source.js";
    let folder = Folder::new();
    let mut command = Command::new("node");
    command.arg(root().join("tests/clients/js").join(scenario));
    command.arg(env!("CARGO_BIN_EXE_mcp-broker")).arg(&*folder);
    let (succeeded, said) = RunningClient::start(&mut command).finish();
    assert!(succeeded, "{said}");
}

/// The admin key of a broker with authentication.
const ADMIN_KEY: &str = "admin_scenario_0123456789abcdef0123456789abcdef";

#[derive(Clone, Copy)]
enum Client {
    TypeScript,
    PythonV1,
    PythonV2,
}

impl Client {
    /// Runs a scenario, with its arguments, against a broker of its own. `WS`, `HTTP` and `SSE` stand for its
    /// addresses.
    fn run(self, scenario: &str) {
        self.run_scenario(scenario, None);
    }

    /// Runs a scenario against a broker with authentication.
    fn run_with_key(self, scenario: &str) {
        self.run_scenario(scenario, Some(ADMIN_KEY));
    }

    fn run_scenario(self, scenario: &str, key: Option<&str>) {
        let keys: Vec<_> = key
            .iter()
            .flat_map(|key| ["--enable-auth", "--admin-key", key])
            .collect();
        // Clients check results against the schemas that this list has.
        let settings = ["--tools=full", "--heartbeat-interval", HEARTBEAT_INTERVAL];
        let broker = RunningServer::broker(&[&settings, &keys[..]].concat());
        let (succeeded, said) = self.run_client(scenario, broker.address, key);
        let log = broker.stop();
        assert!(succeeded, "{scenario} failed\n{said}\nthe broker said\n{log}");
    }

    /// Runs a scenario against three replicas behind a balancer, each of which gets every third connection.
    fn run_behind_balancer(self, scenario: &str) {
        let cluster = ClusterScript::start(&["--tools=full", "--heartbeat-interval", HEARTBEAT_INTERVAL]);
        let (succeeded, said) = self.run_client(scenario, cluster.balancer, None);
        assert!(succeeded, "{scenario} failed\n{said}");
        let served = sessions_of_replicas(cluster.balancer);
        assert!(
            served.len() == 3 && served.iter().all(|sessions| *sessions > 0),
            "{served:?}"
        );
    }

    /// Runs a scenario whose agents start `mcp-broker connect`, and with it a broker of a user of their own.
    fn run_over_stdio(self, scenario: &str) {
        let user = LocalUser::new();
        let mut command = self.command(scenario, |word| match word {
            "STDIO" => format!("stdio:{}", env!("CARGO_BIN_EXE_mcp-broker")),
            mode => mode.to_owned(),
        });
        command.envs(user.environment());
        let (succeeded, said) = RunningClient::start(&mut command).finish();
        let log = user.stop_broker();
        assert!(succeeded, "{scenario} failed\n{said}\nthe broker said\n{log}");
    }

    /// Runs a scenario against the broker at an address; returns whether it succeeded, and its output.
    fn run_client(self, scenario: &str, address: SocketAddr, key: Option<&str>) -> (bool, String) {
        let mut command = self.command(scenario, |word| match word {
            "WS" => format!("ws://{address}/ws"),
            "HTTP" => format!("http://{address}/mcp"),
            "SSE" => format!("http://{address}/sse"),
            mode => mode.to_owned(),
        });
        command.envs(key.map(|key| ("BROKER_KEY", key)));
        RunningClient::start(&mut command).finish()
    }

    /// The command that runs a scenario. `translate` replaces each of its arguments.
    fn command(self, scenario: &str, translate: impl Fn(&str) -> String) -> Command {
        let (program, folder) = match self {
            Client::TypeScript => (PathBuf::from("node"), "js"),
            Client::PythonV1 | Client::PythonV2 => (self.environment().join("bin/python"), "py"),
        };
        let mut command = Command::new(program);
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUTF8", "1");
        let mut words = scenario.split(' ');
        let scripts = root().join("tests/clients").join(folder);
        command.args(words.next().map(|script| scripts.join(script)));
        command.args(words.map(translate));
        command
    }

    /// The Python environment that `scripts/test` creates.
    fn environment(self) -> PathBuf {
        let name = match self {
            Client::PythonV2 => "python-v2",
            Client::TypeScript | Client::PythonV1 => "python-v1",
        };
        root().join("target/clients").join(name)
    }
}

/// A user whose broker is its own.
struct LocalUser(Home);

impl LocalUser {
    fn new() -> Self {
        Self(Home::new().unwrap())
    }

    fn environment(&self) -> [(&'static str, PathBuf); 6] {
        let [home, runtime, state] = self.0.environment();
        [
            home,
            runtime,
            state,
            ("MCP_BROKER_PORT", "0".into()),
            // Where a scenario waits for a progress notification.
            ("MCP_BROKER_HEARTBEAT_INTERVAL", HEARTBEAT_INTERVAL.into()),
            // Scenarios look at every tool.
            ("MCP_BROKER_TOOLS", "full".into()),
        ]
    }

    /// Stops the broker and returns its log.
    fn stop_broker(&self) -> String {
        let mut stop = Command::new(env!("CARGO_BIN_EXE_mcp-broker"));
        let stopped = stop.args(["local", "stop"]).envs(self.environment()).output().unwrap();
        assert!(stopped.status.success(), "{stopped:?}");
        std::fs::read_to_string(self.0.join("state/mcp-broker/broker.log")).unwrap_or_default()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The number of connections that the balancer gave to each replica, from its page of statistics.
fn sessions_of_replicas(balancer: SocketAddr) -> Vec<u64> {
    let mut socket = TcpStream::connect(balancer).unwrap();
    socket.write_all(b"GET /balancer;csv HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    socket.read_to_string(&mut page).unwrap();
    let rows = page.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let rows: Vec<_> = rows.filter(|row| row.len() > 1).collect();
    let total = rows[0].iter().position(|name| *name == "stot").unwrap();
    let replicas = rows.iter().filter(|row| row[1].starts_with("replica-"));
    replicas.map(|row| row[total].parse().unwrap()).collect()
}

struct RunningClient {
    child: Child,
    outputs: [JoinHandle<String>; 2],
}

impl RunningClient {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let outputs = [drain(child.stdout.take().unwrap()), drain(child.stderr.take().unwrap())];
        Self { child, outputs }
    }

    /// Whether the client succeeded, and its output.
    fn finish(mut self) -> (bool, String) {
        let deadline = Instant::now() + Duration::from_secs(SCENARIO_SECONDS_MAX);
        let succeeded = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status.success(),
                None if Instant::now() > deadline => {
                    end(&mut self.child);
                    break false;
                }
                None => sleep(Duration::from_millis(10)),
            }
        };
        (succeeded, self.outputs.map(|output| output.join().unwrap()).concat())
    }
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).ok();
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
