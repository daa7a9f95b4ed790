//! Runs the load tool against a real broker and checks its reports.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::Value;

const ADMIN_KEY: &str = "only-for-the-tests-of-the-load-tool";

struct Broker {
    process: Child,
    url: String,
}

impl Broker {
    fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a broker on a free port and waits until it prints its address.
    fn with(settings: &[&str]) -> Self {
        let mut process = Command::new(broker_path())
            .args(["serve", "--port", "0"])
            .args(settings)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (told, url) = mpsc::channel();
        // Reads the log to its end: a full pipe would block the broker.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(at) = line.find("ws://") {
                    let end = |c: char| c.is_whitespace() || c == '"' || c == '\u{1b}';
                    drop(told.send(line[at..].split(end).next().unwrap_or_default().to_owned()));
                }
            }
        });
        let url = url.recv_timeout(Duration::from_secs(20));
        let broker = Self {
            process,
            url: url.clone().unwrap_or_default(),
        };
        url.expect("the broker prints its address");
        broker
    }

    fn run_tool(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_mcp-broker-load"))
            .args(line.split_whitespace())
            .args(["--url", &self.url, "--seconds", "0.3", "--warm-up", "0.1", "--json"])
            .env("MCP_BROKER_ADMIN_KEY", ADMIN_KEY)
            .output()
            .unwrap()
    }

    /// Runs a workload that must succeed, and returns its report.
    fn measure(&self, line: &str) -> Value {
        let output = self.run_tool(line);
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{line}: {}\n{out}\n{err}", output.status);
        assert_eq!(out.lines().count(), 1, "one line of JSON: {out}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["workload"], line.split_whitespace().next().unwrap());
        report
    }

    fn assert_delivers(&self, line: &str) {
        let report = self.measure(line);
        assert_eq!(report["lost"], 0, "{report}");
        assert_eq!(report["out_of_order"], 0, "{report}");
        assert!(report["messages"].as_u64() > Some(0), "{report}");
    }
}

/// The broker's binary. Cargo puts it beside the load tool.
fn broker_path() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_mcp-broker-load")).with_file_name("mcp-broker");
    assert!(path.exists(), "{} does not exist: run `cargo build`", path.display());
    path
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn messages_arrive_once_in_order_and_unchanged() {
    let broker = Broker::start();
    broker.assert_delivers("direct --pairs 2");
    broker.assert_delivers("direct --pairs 2 --window 8 --ack manual --push-window 4");
    broker.assert_delivers("direct --pairs 2 --rate 200");
    broker.assert_delivers("direct --pairs 1 --window 4 --size 70000");
    broker.assert_delivers("broadcast --subscribers 5");
    broker.assert_delivers("broadcast --subscribers 5 --window 4 --ack manual");
}

#[test]
fn recipients_that_were_away_receive_their_messages() {
    let broker = Broker::start();
    broker.assert_delivers("offline --recipients 3 --each 50 --senders 2");
    broker.assert_delivers("offline --recipients 3 --each 50 --senders 2 --ack manual --push-window 8");
    broker.assert_delivers("storm --connections 20");
}

#[test]
fn idle_connections_are_counted() {
    let report = Broker::start().measure("idle --connections 20");
    assert_eq!(report["connections"], 20);
}

#[cfg(target_os = "linux")]
#[test]
fn the_pid_of_the_broker_adds_its_costs_to_the_report() {
    let broker = Broker::start();
    let report = broker.measure(&format!("idle --connections 20 --pid {}", broker.process.id()));
    assert!(report["server_resident_kib"].as_u64() > Some(0), "{report}");
}

#[test]
fn latency_and_growth_report_a_row_for_each_promise_and_step() {
    let broker = Broker::start();
    let rows = |report: Value| report["rows"].as_array().map(Vec::len);
    assert_eq!(rows(broker.measure("latency --count 20 --subscribers 5")), Some(5));
    assert_eq!(rows(broker.measure("growth --steps 1,20 --rounds 1")), Some(4));
}

#[test]
fn neighbours_reports_a_row_for_each_flood() {
    let broker = Broker::with(&["--enable-auth", "--admin-key", ADMIN_KEY]);
    let line = "neighbours --rounds 1 --connections 2 --window 4 --large 70000 --pairs 2 --rate 100 --rate-limit 200";
    let report = broker.measure(line);
    assert_eq!(
        (&report["lost"], &report["corrupt"]),
        (&Value::from(0), &Value::from(0)),
        "{report}"
    );
    let rows = report["rows"].as_array().unwrap();
    let floods: Vec<_> = rows.iter().filter_map(|row| row["flood"].as_str()).collect();
    assert_eq!(
        floods,
        [
            "nothing",
            "messages",
            "large",
            "garbage",
            "notifications",
            "http",
            "schemas",
            "answers",
            "largest",
            "unfinished"
        ]
    );
    for row in rows {
        assert!(row["p99_ratio"].as_f64() > Some(0.0), "{row}");
        // An unfinished message is not a request, so it is never refused.
        let floods = !matches!(row["flood"].as_str(), Some("nothing" | "unfinished"));
        assert_eq!(row["refused_in_all"].as_u64() > Some(0), floods, "{row}");
    }
}

#[test]
fn the_tool_sends_its_key_to_a_broker_with_authentication() {
    let broker = Broker::with(&["--enable-auth", "--admin-key", ADMIN_KEY]);
    let idle = broker.run_tool("idle --connections 2");
    let told = String::from_utf8_lossy(&idle.stderr);
    assert!(told.contains(" 401 "), "{told}");
    let line = format!("idle --connections 2 --project default --api-key {ADMIN_KEY}");
    assert_eq!(broker.measure(&line)["connections"], 2);
    let line = format!("idle --project nobodys --api-key {ADMIN_KEY}");
    let told = String::from_utf8_lossy(&broker.run_tool(&line).stderr).into_owned();
    assert!(told.contains(" 404 ") && !told.contains(ADMIN_KEY), "{told}");
}

#[test]
fn an_unreachable_broker_is_exit_code_1_and_a_wrong_argument_is_2() {
    let code = |args: &[&str]| {
        let tool = Command::new(env!("CARGO_BIN_EXE_mcp-broker-load"))
            .args(args)
            .output()
            .unwrap();
        assert!(tool.stdout.is_empty() && !tool.stderr.is_empty());
        tool.status.code()
    };
    assert_eq!(code(&["idle", "--url", "ws://127.0.0.1:1/ws"]), Some(1));
    assert_eq!(code(&["idle", "--url", "http://127.0.0.1:1"]), Some(2));
    assert_eq!(code(&["direct", "--pairs", "none"]), Some(2));
}
