//! A round trip through a broker: over HTTP and WebSocket, in both eras of MCP. It reads and changes nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{findings::Finding, ports::health, setup::Setup};
use crate::{
    access::BrokerAccess,
    broker::Broker,
    embedded::EmbeddedBroker,
    mcp_client::{CallError, Era, HttpClient, McpClient, WebSocketClient},
};

/// The name of what the broker itself finds.
const WARNINGS: &str = "broker";

/// Longest time for one answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Calls the broker that runs, or one inside this process if none runs and the user named none.
pub fn check(setup: &Setup) -> Vec<Finding> {
    let url = &setup.access.url.text;
    match health(&setup.access.url) {
        Ok(health) => {
            let mut findings = vec![health_finding(url, &health)];
            findings.extend(version_finding(&health));
            findings.extend(warnings(&health));
            findings.extend(trips(&setup.access));
            findings
        }
        Err(reason) if setup.is_url_given => {
            let cure = "start it there (mcp-broker serve), or correct --url or MCP_BROKER_URL";
            vec![Finding::error(format!("no broker answers at {url}: {reason}")).cure(cure)]
        }
        Err(_) => setup.broker.map_or_else(Vec::new, |broker| own_trips(broker, url)),
    }
}

fn health_finding(url: &str, health: &Value) -> Finding {
    let status = health["status"].as_str().unwrap_or("unknown");
    let storage = health["storage_backend"].as_str().unwrap_or("none yet");
    let found = format!(
        "the broker at {url} is {status} (version {}, storage {storage})",
        text(health, "version")
    );
    let problem = health["storage_problem"].as_str().unwrap_or("see its log");
    match status {
        "healthy" => Finding::ok(found),
        "degraded" => Finding::warning(format!("{found}: {problem}")).cure("see GET /health and its log"),
        _ => Finding::error(format!("{found}: {problem}")).cure("see GET /health and its log"),
    }
}

/// What the broker itself says needs attention.
fn warnings(health: &Value) -> Vec<Finding> {
    let list = health["warnings"].as_array().into_iter().flatten();
    let finding = |warning| {
        Finding::warning(text(warning, "text"))
            .of(WARNINGS)
            .cure(text(warning, "cure"))
    };
    list.map(finding).collect()
}

fn version_finding(health: &Value) -> Option<Finding> {
    let (theirs, ours) = (text(health, "version"), env!("CARGO_PKG_VERSION"));
    let found = format!("the running broker has version {theirs}, and this program {ours}");
    (theirs != ours).then(|| Finding::note(found).cure("restart the broker if it was updated"))
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or("unknown")
}

/// Calls a broker inside this process.
fn own_trips(broker: &'static dyn Broker, url: &str) -> Vec<Finding> {
    let mut findings = vec![Finding::note(format!(
        "no broker runs at {url}: this check starts one of its own"
    ))];
    let broker = EmbeddedBroker::start(broker, &[("port", "0")], false);
    let access = broker.as_ref().map_err(Clone::clone).and_then(EmbeddedBroker::access);
    match access {
        Ok(access) => findings.extend(trips(&access)),
        Err(reason) => findings.push(Finding::error(format!("a broker cannot start here: {reason}"))),
    }
    findings
}

/// The round trips over both transports in both eras.
fn trips(access: &BrokerAccess) -> Vec<Finding> {
    let mut findings = Vec::new();
    for era in [Era::Modern, Era::Legacy] {
        for transport in ["HTTP", "WebSocket"] {
            let started = Instant::now();
            let done = match transport {
                "HTTP" => HttpClient::connect(access, era, TIMEOUT).and_then(|mut client| ask(&mut client)),
                _ => WebSocketClient::connect(access, era, TIMEOUT).and_then(|mut client| ask(&mut client)),
            };
            let what = format!("{transport}, MCP {}", era.version());
            findings.push(trip_finding(access, &what, done, started.elapsed()));
            if findings.iter().any(|finding| finding.found.contains(NO_KEY)) {
                return findings;
            }
        }
    }
    findings
}

const NO_KEY: &str = "the broker asks for a key";

fn trip_finding(access: &BrokerAccess, what: &str, done: Result<(), CallError>, took: Duration) -> Finding {
    match (done, &access.key) {
        (Ok(()), _) => Finding::ok(format!("{what}: answered in {:.1} ms", took.as_secs_f64() * 1000.0)),
        (Err(CallError::KeyNeeded), None) => Finding::note(format!("not checked: {NO_KEY}, and none was given"))
            .cure("set MCP_BROKER_API_KEY, or use --key-file"),
        (Err(CallError::KeyNeeded), Some(key)) => {
            Finding::error(format!("{what}: {NO_KEY}, and refuses the one from {}", key.source))
                .cure("give a key of this broker: mcp-broker project keys PROJECT --create")
        }
        (Err(error), key) => {
            let reason = error.to_string();
            let reason = key.as_ref().map_or_else(|| reason.clone(), |key| key.redact(&reason));
            Finding::error(format!("{what}: {reason}"))
                .cure("see whether a proxy between here and the broker passes POST /mcp and the upgrade of /ws")
        }
    }
}

/// Lists the tools, and calls one that reads.
fn ask(client: &mut impl McpClient) -> Result<(), CallError> {
    let tools = client.request("tools/list", json!({}))?;
    let has_tools = tools["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    client.call("list_sessions", json!({"limit": 1}))?;
    if has_tools {
        Ok(())
    } else {
        Err(CallError::Failed("the broker lists no tools".to_owned()))
    }
}
