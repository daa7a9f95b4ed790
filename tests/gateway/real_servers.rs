//! Official MCP servers behind the gateway: what they answer through it is what they answer directly.
//!
//! `scripts/test` installs them.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use test_client::wait::free_port;

use super::{
    harness::{Calls, Gateway, Plan, tools_of},
    running::with_pipes,
    support::{Agent, Wire, eventually},
};

/// The program and the arguments of an official server.
fn server(name: &str) -> (String, Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (program, file) = match name {
        "time" => {
            let program = root.join("target/clients/gateway-servers/bin/mcp-server-time");
            (program.clone(), program)
        }
        name => {
            let file = root.join(format!(
                "tests/gateway/servers/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"
            ));
            (PathBuf::from("node"), file)
        }
    };
    assert!(file.exists(), "{} is missing: run scripts/test", file.display());
    let args = if file == program {
        Vec::new()
    } else {
        vec![file.display().to_string()]
    };
    (program.display().to_string(), args)
}

/// The table of a server, with these further lines.
fn with_server(plan: Plan, name: &str, (program, args): &(String, Vec<String>), lines: &str) -> Plan {
    // The broker of the tests has a PATH of its own.
    let path = std::env::var("PATH").unwrap();
    plan.program(name, program, args, &format!("env = {{ PATH = {path:?} }}\n{lines}"))
}

/// A server that the test speaks to itself.
struct Direct {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl Direct {
    fn start((program, args): &(String, Vec<String>)) -> Self {
        let mut program = Command::new(program);
        program.args(args);
        let (child, input, output) = with_pipes(program);
        let mut direct = Self {
            child,
            input,
            output: BufReader::new(output),
            last_id: 0,
        };
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"},
        });
        direct.request("initialize", hello).unwrap();
        writeln!(
            direct.input,
            r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#
        )
        .unwrap();
        direct
    }

    fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.input, "{request}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server has ended");
            let mut frame: Value = serde_json::from_str(&line).unwrap();
            if frame["id"] == id && frame.get("method").is_none() {
                return match frame.get("error") {
                    Some(_) => Err(frame["error"].take()),
                    None => Ok(frame["result"].take()),
                };
            }
        }
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests to server-everything that have the same answer each time.
fn requests() -> Vec<(&'static str, Value)> {
    let call = |tool: &str, arguments: Value| ("tools/call", json!({"name": tool, "arguments": arguments}));
    vec![
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        call("echo", json!({"message": "ä \"b\" \n c"})),
        call("echo", json!({})),
        call("get-sum", json!({"a": 1.5, "b": 2})),
        call("get-tiny-image", json!({})),
        call("get-structured-content", json!({"location": "Chicago"})),
        call(
            "get-annotated-message",
            json!({"messageType": "error", "includeImage": true}),
        ),
        call("get-resource-links", json!({"count": 3})),
        call("trigger-long-running-operation", json!({"duration": 0.1, "steps": 2})),
        call("no-such-tool", json!({})),
        ("prompts/get", json!({"name": "simple-prompt"})),
        (
            "prompts/get",
            json!({"name": "args-prompt", "arguments": {"city": "Berlin", "state": "BE"}}),
        ),
        ("prompts/get", json!({"name": "args-prompt"})),
        (
            "completion/complete",
            json!({
                "ref": {"type": "ref/prompt", "name": "completable-prompt"},
                "argument": {"name": "department", "value": "E"},
            }),
        ),
        (
            "resources/read",
            json!({"uri": "demo://resource/static/document/architecture.md"}),
        ),
        ("resources/read", json!({"uri": "demo://resource/no-such-thing"})),
    ]
}

#[test]
#[ignore = "needs official servers: scripts/test installs them"]
fn server_everything_answers_through_the_gateway_as_it_does_directly() {
    let everything = server("everything");
    let gateway = with_server(Plan::new(), "everything", &everything, "").start();
    tools_of(&gateway.legacy(), "everything");
    let mut direct = Direct::start(&everything);
    answers_alike(&gateway, "everything", &mut direct);
    let with_prefix = gateway.legacy();
    let (method, params) = (
        "tools/call",
        json!({"name": "everything__get-sum", "arguments": {"a": 1, "b": 2}}),
    );
    let directly = direct.request(method, json!({"name": "get-sum", "arguments": {"a": 1, "b": 2}}));
    assert_eq!(with_prefix.request(method, params), directly);
}

/// Asserts that a backend of server-everything answers as the server does that is asked directly.
fn answers_alike(gateway: &Gateway, backend: &str, direct: &mut Direct) {
    let wire = Wire::open_at(gateway.address, &format!("/ws/{backend}"));
    let alone = Agent::legacy(wire, "2025-11-25", &json!({}));
    for (method, params) in requests() {
        let directly = direct.request(method, params.clone());
        let mut through = alone.request(method, params.clone());
        // The gateway says how long its lists may be cached, and knows unknown tools itself.
        if let Ok(list) = &mut through {
            let list = list.as_object_mut().unwrap();
            list.remove("ttlMs");
            list.remove("cacheScope");
        }
        if params["name"] == "no-such-tool" {
            assert_eq!(through.unwrap_err()["code"], -32602);
            continue;
        }
        assert_eq!(through, directly, "{backend}: {method} {params}");
    }
}

/// A server that listens on a port until it is dropped.
struct Listening {
    child: Child,
    port: u16,
}

impl Listening {
    fn start((program, args): &(String, Vec<String>), transport: &str, port: u16) -> Self {
        let child = Command::new(program)
            .args(args)
            .arg(transport)
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        eventually("the server listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        Self { child, port }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Where `node` is a script, the server is a child of the program.
        let group = Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        eventually("the port is free", || {
            TcpStream::connect(("127.0.0.1", self.port)).err()
        });
    }
}

#[test]
#[ignore = "needs official servers: scripts/test installs them"]
fn server_everything_answers_over_http_as_it_does_over_pipes() {
    let everything = server("everything");
    let (http, sse) = (free_port(), free_port());
    let _servers = [
        Listening::start(&everything, "streamableHttp", http),
        Listening::start(&everything, "sse", sse),
    ];
    let gateway = Plan::new()
        .url("http", &format!("http://127.0.0.1:{http}/mcp"), "")
        .url("sse", &format!("http://127.0.0.1:{sse}/sse"), "")
        .start();
    let client = gateway.legacy();
    let mut direct = Direct::start(&everything);
    for backend in ["http", "sse"] {
        tools_of(&client, backend);
        answers_alike(&gateway, backend, &mut direct);
    }
}

#[test]
#[ignore = "needs official servers: scripts/test installs them"]
fn server_everything_that_was_started_again_gives_another_session() {
    let everything = server("everything");
    let port = free_port();
    let server = Listening::start(&everything, "streamableHttp", port);
    let gateway = Plan::new()
        .url("http", &format!("http://127.0.0.1:{port}/mcp"), "")
        .start();
    let client = gateway.legacy();
    let sum = |client: &Agent| client.result_of("http__get-sum", json!({"a": 1, "b": 2})).unwrap();
    let before = sum(&client);
    drop(server);
    let _server = Listening::start(&everything, "streamableHttp", port);
    assert_eq!(sum(&client), before);
}

#[test]
#[ignore = "needs official servers: scripts/test installs them"]
fn ten_agents_of_both_eras_share_one_memory() {
    let memory = server("memory");
    let plan = Plan::new();
    let file = plan.file("memory.json");
    let path = std::env::var("PATH").unwrap();
    let env = format!("env = {{ PATH = {path:?}, MEMORY_FILE_PATH = {file:?} }}");
    let gateway = plan.program("memory", &memory.0, &memory.1, &env).start();
    let legacy: Vec<_> = (0..5).map(|_| gateway.legacy()).collect();
    let modern: Vec<_> = (0..5).map(|_| gateway.modern_http()).collect();
    let clients: Vec<&dyn Calls> = legacy
        .iter()
        .map(|client| client as &dyn Calls)
        .chain(modern.iter().map(|client| client as &dyn Calls))
        .collect();
    for (at, client) in clients.iter().enumerate() {
        let entity = json!({"name": format!("agent {at}"), "entityType": "agent", "observations": ["here"]});
        client.gets("memory__create_entities", json!({"entities": [entity]}));
    }
    for client in &clients {
        let graph = client.gets("memory__read_graph", json!({}));
        assert_eq!(graph["entities"].as_array().unwrap().len(), 10, "{graph}");
    }
    // Where `node` is a script, the server is a child of the program.
    assert_eq!(gateway.keepers().len(), 1, "one program for all");
}

#[test]
#[ignore = "needs official servers: scripts/test installs them"]
fn a_server_of_the_modern_era_serves_clients_of_both() {
    let time = server("time");
    let gateway = with_server(Plan::new(), "time", &time, "").start();
    let arguments = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let of = |client: &dyn Calls| {
        let result = client.result_of("time__convert_time", arguments.clone()).unwrap();
        (
            result["structuredContent"]["time_difference"].clone(),
            result.get("resultType").cloned(),
        )
    };
    assert_eq!(of(&gateway.legacy()), (json!("+9.0h"), None));
    assert_eq!(of(&gateway.modern_http()), (json!("+9.0h"), Some(json!("complete"))));
    assert_eq!(era_of(&gateway, "time"), "modern");
}

fn era_of(gateway: &Gateway, backend: &str) -> String {
    let shown = gateway.get(&format!("/api/v1/backends/{backend}")).json();
    shown["era"].as_str().unwrap().to_owned()
}

/// A client that works in this folder, and is asked for it.
fn in_folder(gateway: &Gateway, folder: &Path) -> (Agent, Value) {
    let roots = json!({"roots": [{"uri": format!("file://{}", folder.display()), "name": "here"}]});
    (
        Agent::legacy(gateway.wire(), "2025-11-25", &json!({"roots": {}})),
        roots,
    )
}

#[test]
#[ignore = "needs official servers: scripts/test installs them"]
fn the_filesystem_server_works_for_each_client_in_its_own_folder() {
    let filesystem = server("filesystem");
    let plan = Plan::new();
    let folders: Vec<PathBuf> = ["first", "second"].map(|name| PathBuf::from(plan.file(name))).into();
    for folder in &folders {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("name.txt"), folder.display().to_string()).unwrap();
    }
    let gateway = with_server(plan, "files", &filesystem, "asks = true").start();
    let clients: Vec<_> = folders.iter().map(|folder| in_folder(&gateway, folder)).collect();
    for _ in 0..2 {
        for (at, (client, roots)) in clients.iter().enumerate() {
            let (own, other) = (&folders[at], &folders[1 - at]);
            let read = |folder: &Path| {
                let arguments = json!({"path": folder.join("name.txt")});
                let call = client.begins_call("files__read_text_file", &arguments);
                // It is asked once, before its first call.
                eventually("the call is answered", || {
                    if let Some(question) = client.wire.question_so_far("roots/list") {
                        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": roots});
                        client.wire.sends(&answer);
                    }
                    client.wire.answer_so_far(&call)
                })
            };
            let text = read(own)["result"]["content"][0]["text"].clone();
            assert_eq!(text, own.display().to_string(), "client {at} reads in its own folder");
            let refused = read(other);
            assert_eq!(
                refused["result"]["isError"], true,
                "client {at} in the folder of another: {refused}"
            );
        }
    }
}
