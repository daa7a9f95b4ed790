//! What operators see and do: REST, the command line, and the import of a client's servers.

use std::{fs, path::PathBuf, process::Output};

use serde_json::{Value, json};
use test_client::folder::Folder;

use super::{
    harness::{Calls, Gateway, Plan, tools_of},
    support::{ADMIN_KEY, broker_program, eventually, promtool::promtool},
};

pub fn cli(gateway: &Gateway, arguments: &[&str]) -> Output {
    broker_program()
        .args(["gateway", "--url", &format!("http://{}", gateway.address)])
        .args(arguments)
        .output()
        .unwrap()
}

pub fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn json_of(output: &Output) -> Vec<Value> {
    text(output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn backends_are_shown_over_rest_and_on_the_command_line() {
    let gateway = Plan::new()
        .backend("fake", &["--era", "modern"])
        .lines("[backends.nope]\ncommand = \"no-such-program\"\nenv = { TOKEN = \"very-secret\" }")
        .start();
    gateway.legacy().gets("fake__echo", json!({}));
    let shown = gateway.get("/api/v1/backends").json();
    let [fake, nope] = shown["backends"].as_array().unwrap().as_slice() else {
        panic!("{shown}");
    };
    assert_eq!(
        (&fake["name"], &fake["state"], &fake["era"]),
        (&json!("fake"), &json!("ready"), &json!("modern"))
    );
    assert_eq!(
        (&fake["server"], &fake["calls"]),
        (&json!("fake-backend 1.0"), &json!(1))
    );
    assert_eq!(nope["state"], "failed");
    assert!(nope["reason"].as_str().unwrap().contains("no-such-program"));
    assert!(!shown.to_string().contains("very-secret"), "{shown}");
    assert_eq!(gateway.get("/api/v1/backends/fake").json()["name"], "fake");
    assert_eq!(
        gateway.get("/api/v1/backends/none").problem(),
        (404, "backend_not_found".to_owned())
    );

    let table = text(&cli(&gateway, &["list"]));
    assert!(
        table.contains("fake") && table.contains("ready") && table.contains("no program"),
        "{table}"
    );
    let lines = json_of(&cli(&gateway, &["list", "--json"]));
    assert_eq!(lines.len(), 2);
    let details = text(&cli(&gateway, &["show", "fake"]));
    assert!(details.contains("modern, 2026-07-28"), "{details}");
    let missing = cli(&gateway, &["show", "none"]);
    assert!(!missing.status.success());
    let line = String::from_utf8(missing.stderr).unwrap();
    assert!(line.contains("no backend \"none\""), "{line}");
}

#[test]
fn the_tools_of_a_backend_are_shown_with_the_names_that_clients_see() {
    let gateway = Plan::new()
        .backend_with(
            "fake",
            &[],
            "[backends.fake.tools]\ndeny = [\"die\"]\nrename = { echo = \"say\" }",
        )
        .start();
    tools_of(&gateway.legacy(), "fake");
    let tools = gateway.get("/api/v1/backends/fake/tools").json();
    let tool = |name: &str| {
        let tools = tools["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["tool"] == name).unwrap().clone()
    };
    assert_eq!(tool("echo")["name"], "fake__say");
    assert!(tool("die").get("name").is_none());
    let table = text(&cli(&gateway, &["tools", "fake"]));
    assert!(
        table.contains("fake__say") && table.contains("(not offered)"),
        "{table}"
    );
}

#[test]
fn an_operator_stops_starts_and_restarts_a_backend() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.legacy();
    let first = client.gets("fake__pid", json!({}))["pid"].clone();
    text(&cli(&gateway, &["restart", "fake"]));
    eventually("it has a new process", || {
        let result = client.result_of("fake__pid", json!({})).unwrap();
        let pid = result["structuredContent"]["pid"].clone();
        (pid.is_u64() && pid != first).then_some(())
    });
    text(&cli(&gateway, &["stop", "fake"]));
    gateway.awaits_no_processes();
    eventually("it is switched off", || {
        let shown = gateway.get("/api/v1/backends/fake").json();
        (shown["state"] == "disabled").then_some(())
    });
    assert!(tools_of(&client, "fake").is_empty());
    text(&cli(&gateway, &["start", "fake"]));
    eventually("its tools are listed again", || {
        (!tools_of(&client, "fake").is_empty()).then_some(())
    });
    client.gets("fake__echo", json!({}));
}

#[test]
fn only_administrators_restart_backends_and_read_their_logs_and_it_is_audited() {
    let gateway = Plan::new()
        .table("projects.team.backends.fake", &["--stderr-at-start", "500"], "")
        .start_secured();
    let team = gateway.project("team", &json!({}));
    team.client().gets("fake__echo", json!({}));
    let [member, admin] = ["member", "admin"].map(|scope| team.new_key_with_scope(scope));
    let ask = |key: &str, method: &str, path: &str| gateway.rest(key, method, path, &Value::Null);
    let address = |key: &str| ask(key, "GET", "/api/v1/backends/fake").json()["address"].to_string();
    assert!(
        !address(&member).contains("--stderr-at-start"),
        "arguments may hold secrets"
    );
    assert!(address(&admin).contains("--stderr-at-start"));
    assert_eq!(
        ask(&member, "GET", "/api/v1/backends/fake/log").problem(),
        (403, "forbidden".to_owned())
    );
    assert_eq!(
        ask(&member, "POST", "/api/v1/backends/fake/restart").problem(),
        (403, "forbidden".to_owned())
    );
    assert_eq!(ask(&admin, "POST", "/api/v1/backends/fake/restart").status, 200);
    let log = ask(&admin, "GET", "/api/v1/backends/fake/log").json();
    let lines = log["lines"].as_array().unwrap();
    assert!(
        lines
            .iter()
            .any(|line| line["text"].as_str().unwrap().starts_with("eee")),
        "{log}"
    );
    let next = format!("/api/v1/backends/fake/log?from={}", log["next"]);
    // The process that was started again writes more.
    let later = ask(&admin, "GET", &next).json();
    let mut numbers = later["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["number"].as_u64());
    assert!(numbers.all(|number| number >= log["next"].as_u64()), "{later}");
    let audit = gateway
        .rest(ADMIN_KEY, "GET", "/api/v1/audit?project=team", &Value::Null)
        .json();
    let outcomes: Vec<_> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["action"] == "backend.restart")
        .map(|entry| (entry["target"].clone(), entry["outcome"].clone()))
        .collect();
    assert_eq!(outcomes.len(), 2, "{audit}");
    assert!(outcomes.iter().all(|(target, _)| target == "fake"), "{outcomes:?}");
}

#[test]
#[ignore = "needs promtool: scripts/test installs it"]
fn metrics_have_the_states_and_calls_of_backends() {
    let gateway = Plan::new()
        .backend("fake", &["--garbage-at-start", "2"])
        .lines("[backends.nope]\ncommand = \"no-such-program\"")
        .start();
    let client = gateway.legacy();
    client.gets("fake__echo", json!({}));
    client.result_of("fake__tool_error", json!({})).unwrap();
    client.code_of("fake__error", json!({"code": -32000, "message": "no disk"}));
    client.fails_as("backend_unavailable", "nope__x", json!({}));
    let endless = client.begins_call("fake__never", &json!({}));
    client.wire.cancels(&endless);
    client.fails_as("backend_died", "fake__die", json!({}));
    client.gets("fake__echo", json!({}));
    text(&cli(&gateway, &["restart", "fake"]));
    client.gets("fake__echo", json!({}));
    let metrics = gateway.get("/metrics").body;
    promtool(&["check", "metrics"], &metrics);
    for line in [
        "mcp_broker_backends{project=\"default\",backend=\"fake\",state=\"ready\"} 1",
        "mcp_broker_backends{project=\"default\",backend=\"nope\",state=\"failed\"} 1",
        "mcp_broker_backend_calls_total{project=\"default\",backend=\"fake\",outcome=\"ok\"} 3",
        "mcp_broker_backend_calls_total{project=\"default\",backend=\"fake\",outcome=\"tool_error\"} 1",
        "mcp_broker_backend_calls_total{project=\"default\",backend=\"fake\",outcome=\"error\"} 1",
        "mcp_broker_backend_calls_total{project=\"default\",backend=\"fake\",outcome=\"timeout\"} 0",
        "mcp_broker_backend_calls_total{project=\"default\",backend=\"fake\",outcome=\"cancelled\"} 1",
        "mcp_broker_backend_calls_total{project=\"default\",backend=\"fake\",outcome=\"died\"} 1",
        "mcp_broker_backend_calls_total{project=\"default\",backend=\"nope\",outcome=\"refused\"} 1",
        "mcp_broker_backend_call_seconds_count{project=\"default\",backend=\"fake\"} 7",
        "mcp_broker_backend_calls_open{project=\"default\",backend=\"fake\"} 0",
        "mcp_broker_backend_calls_waiting{project=\"default\",backend=\"fake\"} 0",
        "mcp_broker_backend_calls_parked{project=\"default\",backend=\"fake\"} 0",
        "mcp_broker_backend_processes{project=\"default\",backend=\"fake\"} 1",
        "mcp_broker_backend_starts_total{project=\"default\",backend=\"fake\",reason=\"wanted\"} 1",
        "mcp_broker_backend_starts_total{project=\"default\",backend=\"fake\",reason=\"crash\"} 1",
        "mcp_broker_backend_starts_total{project=\"default\",backend=\"fake\",reason=\"operator\"} 1",
        "mcp_broker_backend_list_changes_total{project=\"default\",backend=\"fake\"} 0",
    ] {
        assert!(
            metrics.lines().any(|known| known == line),
            "{line} is missing in {metrics}"
        );
    }
    let number = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("{name} is missing in {metrics}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    for name in [
        "mcp_broker_backend_bytes_total{project=\"default\",backend=\"fake\",direction=\"sent\"}",
        "mcp_broker_backend_bytes_total{project=\"default\",backend=\"fake\",direction=\"received\"}",
        "mcp_broker_backend_dropped_total{project=\"default\",backend=\"fake\",reason=\"no message\"}",
        "mcp_broker_gateway_tools{project=\"default\"}",
    ] {
        assert!(number(name) > 0.0, "{name}");
    }
}

#[test]
fn the_log_of_a_backend_is_shown_and_escaped() {
    let gateway = Gateway::with_fake(&["--garbage-at-start", "3"]);
    gateway.legacy().gets("fake__stderr", json!({"bytes": 300}));
    let log = eventually("the lines are there", || {
        let log = text(&cli(&gateway, &["logs", "fake"]));
        (log.contains("eeee") && log.contains("starting up, step 2")).then_some(log)
    });
    assert!(log.contains("stdout, not a message of MCP"), "{log}");
    let lines = json_of(&cli(&gateway, &["logs", "fake", "--json"]));
    assert!(
        lines
            .iter()
            .all(|line| line["number"].is_u64() && line["at"].is_string())
    );
}

/// The home folder of a user.
struct Home(Folder);

impl Home {
    fn write(&self, name: &str, text: &str) -> String {
        let file = self.0.join(name);
        fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn import(&self, arguments: &[&str]) -> Output {
        broker_program()
            .env("HOME", &*self.0)
            .args(["gateway", "import"])
            .args(arguments)
            .output()
            .unwrap()
    }
}

#[test]
fn the_servers_of_a_client_are_imported_and_served() {
    let folder = Home(Folder::new());
    let fake = PathBuf::from(broker_program().get_program()).with_file_name("fake-backend");
    let servers = folder.write(
        ".mcp.json",
        &format!(
            "{{\n  // servers of this project\n  \"mcpServers\": {{\n    \"My Fake\": {{\"command\": {fake:?}, \"args\": [\"--era\", \
             \"modern\"], \"env\": {{\"A\": \"1\"}}}},\n    \"broker\": {{\"command\": \"mcp-broker\", \"args\": [\"connect\"]}},\n  }},\n}}\n"
        ),
    );
    let dry = folder.import(&[&servers, "--dry-run"]);
    assert!(text(&dry).starts_with("[backends.my-fake]\n"), "{dry:?}");
    assert!(!folder.0.join(".config").exists(), "nothing was written");
    let done = folder.import(&[&servers]);
    let notes = String::from_utf8(done.stderr.clone()).unwrap();
    assert!(notes.contains("My Fake: its name becomes my-fake"), "{notes}");
    assert!(
        notes.contains("broker: left out, because it is this broker itself"),
        "{notes}"
    );
    assert!(text(&done).contains("my-fake"));
    let again = folder.import(&[&servers]);
    assert!(
        String::from_utf8(again.stderr.clone()).unwrap().contains("already") || !again.status.success(),
        "{again:?}"
    );

    let file = folder.0.join(".config/mcp-broker/broker.toml");
    let gateway = Plan::new().lines(&fs::read_to_string(file).unwrap()).start();
    assert_eq!(gateway.legacy().gets("my-fake__echo", json!({}))["name"], "echo");
}

#[test]
fn an_import_keeps_the_file_and_refuses_what_it_cannot_read() {
    let folder = Home(Folder::new());
    let config = folder.write("broker.toml", "# kept\nport = 9000\n\n[backends.a]\ncommand = \"x\"\n");
    let servers = folder.write(
        "servers.json",
        r#"{"mcpServers": {"a": {"command": "y"}, "b": {"command": "z"}}}"#,
    );
    text(&folder.import(&[&servers, "--to", &config]));
    let written = fs::read_to_string(&config).unwrap();
    assert_eq!(
        written,
        "# kept\nport = 9000\n\n[backends.a]\ncommand = \"x\"\n\n[backends.b]\ncommand = \"z\"\n"
    );
    let yaml = folder.write(
        "mcpmon.yaml",
        "servers:\n  c: \"python server.py --x\"\n  d:\n    cmd: node\n    args: [d.js]\n",
    );
    text(&folder.import(&[&yaml, "--to", &config]));
    assert!(
        fs::read_to_string(&config)
            .unwrap()
            .contains("[backends.d]\ncommand = \"node\"\nargs = [\"d.js\"]")
    );
    for (name, text, reason) in [
        ("broken.json", "{", "not valid JSON at line"),
        ("empty.json", "{}", "neither mcpServers nor servers"),
        (
            "input.json",
            r#"{"servers": {"e": {"command": "${input:tool}"}}}"#,
            "--input tool=VALUE",
        ),
    ] {
        let file = folder.write(name, text);
        let refused = folder.import(&[&file, "--to", &config]);
        assert_eq!(refused.status.code(), Some(1), "{name}");
        let line = String::from_utf8(refused.stderr).unwrap();
        assert!(line.contains(reason), "{name}: {line}");
    }
    let file = folder.write("input.json", r#"{"servers": {"e": {"command": "${input:tool}"}}}"#);
    text(&folder.import(&[&file, "--to", &config, "--input", "tool=sleep"]));
    assert!(fs::read_to_string(&config).unwrap().contains("command = \"sleep\""));
}
