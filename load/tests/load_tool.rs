//! Runs the load tool against a real broker and checks its reports.

use std::process::{Command, Output};

use serde_json::Value;
use test_client::process::{RunningServer, program};

const ADMIN_KEY: &str = "only-for-the-tests-of-the-load-tool";

struct Broker {
    server: RunningServer,
    url: String,
}

impl Broker {
    fn start() -> Self {
        Self::with(&[])
    }

    fn with(settings: &[&str]) -> Self {
        let server = RunningServer::broker(settings);
        let url = format!("ws://{}/ws", server.address);
        Self { server, url }
    }

    fn tool(&self, line: &str) -> Command {
        let mut tool = tool(line);
        tool.args(["--url", &self.url]).env("MCP_BROKER_ADMIN_KEY", ADMIN_KEY);
        tool
    }

    fn run_tool(&self, line: &str) -> Output {
        self.tool(line).output().unwrap()
    }

    /// Runs a workload that must succeed, and returns its report.
    fn measure(&self, line: &str) -> Value {
        measure(&mut self.tool(line))
    }

    fn assert_delivers(&self, line: &str) {
        let report = self.measure(line);
        assert_eq!(report["lost"], 0, "{report}");
        assert_eq!(report["out_of_order"], 0, "{report}");
        assert!(report["messages"].as_u64() > Some(0), "{report}");
    }
}

/// The load tool with a command line, for a short run.
fn tool(line: &str) -> Command {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_mcp-broker-load"));
    tool.args(line.split_whitespace());
    tool.args(["--seconds", "0.3", "--warm-up", "0.1", "--json"]);
    tool
}

/// Runs a workload that must succeed, and returns its report.
fn measure(tool: &mut Command) -> Value {
    let output = tool.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{tool:?}: {}\n{out}\n{err}", output.status);
    assert_eq!(out.lines().count(), 1, "one line of JSON: {out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["workload"], tool.get_args().next().unwrap().to_str().unwrap());
    report
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
fn connections_are_spread_over_several_addresses() {
    let broker = Broker::start();
    broker.assert_delivers(&format!("direct --pairs 4 --url {}", broker.url));
}

#[test]
fn a_plan_needs_no_broker() {
    let plan = measure(&mut tool("plan --agents 2000 --redis 0"));
    assert_eq!((&plan["replicas"], &plan["fits"]), (&1.into(), &true.into()), "{plan}");
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
    let report = broker.measure(&format!("idle --connections 20 --pid {}", broker.server.id()));
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

#[cfg(target_os = "linux")]
#[test]
fn gateway_reports_each_figure_of_each_row_and_of_other_gateways() {
    let this = env!("CARGO_BIN_EXE_mcp-broker-load");
    let echo = RunningServer::peer(this.as_ref(), &["echo", "--http", "127.0.0.1:0"]).unwrap();
    let mut tool = tool("gateway --calls 20 --rounds 2 --backends 3 --size 400");
    tool.arg("--binary").arg(program("mcp-broker"));
    tool.arg("--peer").arg(format!("stdio:program=\"{this}\" echo"));
    tool.arg("--peer")
        .arg(format!("run:relay=\"{this}\" relay \"{this}\" echo"));
    tool.arg("--peer")
        .arg(format!("http-http:server={}", echo.announced.trim()));
    let report = measure(&mut tool);
    assert_eq!(
        (&report["wrong_answers"], &report["changed_lists"]),
        (&0.into(), &0.into())
    );

    let rows = report["rows"].as_array().unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let named = |row: &Value| format!("{} {} {}", text(row, "row"), text(row, "way"), text(row, "figure"));
    let found: Vec<String> = rows.iter().map(named).collect();
    let expected = "run mcp-broker p50_us, run relay p50_us, run mcp-broker p99_us, run relay p99_us, run mcp-broker broker_cpu_us, \
        stdio mcp-broker p50_us, stdio program p50_us, stdio mcp-broker p99_us, stdio program p99_us, \
        stdio mcp-broker broker_cpu_us, http-stdio mcp-broker p50_us, http-stdio mcp-broker p99_us, \
        http-stdio mcp-broker broker_cpu_us, http-stdio mcp-broker broker_cpu_us_of_32, \
        http-http mcp-broker p50_us, http-http server p50_us, http-http mcp-broker p99_us, http-http server p99_us, \
        http-http mcp-broker broker_cpu_us, \
        flight mcp-broker calls_per_second, flight mcp-broker broker_cpu_us, large mcp-broker mb_per_second, \
        large mcp-broker broker_cpu_us, list 10 x 100 mcp-broker p50_us, list 10 x 100 mcp-broker bytes, \
        list 2 x 500 mcp-broker p50_us, list 2 x 500 mcp-broker bytes, idle mcp-broker cpu_percent, \
        idle mcp-broker wakeups_per_second, idle mcp-broker kib_per_backend, idle mcp-broker keeper_private_kib, \
        idle mcp-broker keeper_resident_kib, hung mcp-broker p50_us, hung mcp-broker p99_us";
    assert_eq!(found, expected.split(", ").collect::<Vec<_>>());
    for row in rows {
        // An idle broker may use no measurable time, and few backends no page of memory.
        let may_be_zero = ["cpu_percent", "wakeups_per_second", "kib_per_backend"].contains(&&*text(row, "figure"));
        let (direct, through) = (&row["direct"], row["through"].as_f64().unwrap());
        assert!(may_be_zero || through > 0.0, "{row}");
        assert!(may_be_zero || direct.is_null() || direct.as_f64() > Some(0.0), "{row}");
        assert_eq!(direct.is_null(), row["added"].is_null(), "{row}");
        assert_eq!(row["goal"].is_null(), row["within"].is_null(), "{row}");
    }
}

#[test]
fn the_rows_of_gateway_can_be_chosen() {
    let mut tool = tool("gateway --rows large,flight --calls 10 --rounds 1");
    let report = measure(tool.arg("--binary").arg(program("mcp-broker")));
    let rows = report["rows"].as_array().unwrap();
    let found: Vec<_> = rows.iter().filter_map(|row| row["row"].as_str()).collect();
    assert_eq!(found, ["large", "large", "flight", "flight"]);
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
