//! The servers of `storage = redis`.

use std::time::Duration;

use super::findings::Finding;
use common::config::Config;
use storage::redis::{ConnectError, Persistence, ServerReport, VERSION_MIN, endpoint_text, inspect};

/// Longest time for one server.
const TIMEOUT: Duration = Duration::from_secs(4);
/// The difference of clocks from which on it is a fault, in ms.
const CLOCK_OFF_MAX_MS: u64 = 2000;

/// Checks the servers that a start would use. Nothing is written to them.
pub fn check(config: &Config) -> Vec<Finding> {
    let url = match config.redis_address() {
        Ok(url) => url,
        Err(reason) => {
            let cure = "put the URL or the password of Redis into the first line of its file";
            return vec![Finding::error(format!("the address of Redis cannot be read: {reason}")).cure(cure)];
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let reports = match runtime {
        Ok(runtime) => runtime.block_on(inspect(url.as_str(), TIMEOUT)),
        Err(error) => return vec![Finding::warning(format!("not checked: {error}"))],
    };
    match reports {
        Ok(reports) => reports.iter().flat_map(server_findings).collect(),
        Err(error) => vec![connect_finding(url.as_str(), &error)],
    }
}

fn connect_finding(url: &str, error: &ConnectError) -> Finding {
    let servers = endpoint_text(url).unwrap_or_default();
    let cure = match error {
        ConnectError::Refused { .. } => {
            "put the right user and password into MCP_BROKER_REDIS_URL: redis://USER:PASSWORD@HOST:PORT".to_owned()
        }
        ConnectError::Unreachable { .. } => {
            format!("start Redis at {servers}, or name another server with MCP_BROKER_REDIS_URL")
        }
        ConnectError::Url(_) | ConnectError::Schema { .. } => "correct redis_url".to_owned(),
    };
    Finding::error(error.to_string()).cure(cure)
}

fn server_findings(report: &ServerReport) -> Vec<Finding> {
    let at = &report.address;
    let mut findings = vec![Finding::ok(format!(
        "Redis at {at} answers (version {})",
        report.version
    ))];
    findings.extend(ability(report));
    findings.extend(eviction(report));
    findings.extend(
        report
            .persistence
            .map(|persistence| persistence_finding(at, persistence)),
    );
    findings.extend(report.clock_ahead_ms.map(|ahead_ms| clock(at, ahead_ms)));
    findings
}

/// What makes a start impossible.
fn ability(report: &ServerReport) -> Vec<Finding> {
    let at = &report.address;
    let mut findings = Vec::new();
    if !report.has_functions {
        let found = format!(
            "Redis at {at} has version {}, and functions need {VERSION_MIN}.0",
            report.version
        );
        findings.push(Finding::error(found).cure("install Redis 7 or newer, or Valkey"));
    }
    if !report.is_writable {
        let found = format!("Redis at {at} is a Redis replica and takes no writes");
        let cure = "name its master in redis_url, or the sentinels: redis+sentinel://HOST:26379/MASTER";
        findings.push(Finding::error(found).cure(cure));
    }
    if let Some(state) = report.cluster_state.as_ref().filter(|state| *state != "ok") {
        let found = format!("the cluster of {at} is in the state {state}: some projects cannot be served");
        findings.push(Finding::error(found).cure(format!("see redis-cli --cluster check {at}")));
    }
    if report.has_foreign_schema() {
        let version = report.schema.as_deref().unwrap_or_default();
        let found = format!("the data in Redis at {at} have schema version {version}, which this build does not read");
        let cure = "run the mcp-broker that wrote them, or use another database: redis://HOST:PORT/1";
        findings.push(Finding::error(found).cure(cure));
    }
    findings
}

fn eviction(report: &ServerReport) -> Option<Finding> {
    let (at, policy) = (&report.address, report.eviction_policy.as_deref()?);
    if policy == "noeviction" {
        return Some(Finding::ok(format!("Redis at {at} evicts nothing")));
    }
    let cure = set_cure(at, "maxmemory-policy noeviction");
    let found = match report.memory_bytes_max {
        Some(0) => format!("Redis at {at} has maxmemory-policy {policy}: it removes messages once maxmemory is set"),
        _ => format!("Redis at {at} has maxmemory-policy {policy}: it removes accepted messages when it is full"),
    };
    let has_limit = report.memory_bytes_max != Some(0);
    let finding = if has_limit {
        Finding::error(found)
    } else {
        Finding::warning(found)
    };
    Some(finding.cure(cure))
}

/// How to change a setting of a server.
fn set_cure(at: &str, setting: &str) -> String {
    // The text about sentinels is no address.
    let server = if at.contains(' ') {
        String::new()
    } else {
        format!(" -u redis://{at}")
    };
    format!("run redis-cli{server} CONFIG SET {setting}, and set it in redis.conf too")
}

fn persistence_finding(at: &str, persistence: Persistence) -> Finding {
    let cure = set_cure(at, "appendonly yes");
    match persistence {
        Persistence::AppendOnly => Finding::ok(format!("Redis at {at} keeps its data across a restart (appendonly)")),
        Persistence::Snapshots => {
            let found = format!("Redis at {at} has only snapshots: a restart loses everything after the last one");
            Finding::note(found).cure(cure)
        }
        Persistence::None => {
            let found = format!("Redis at {at} loses its data at a restart: no appendonly, no save");
            Finding::warning(found).cure(cure)
        }
    }
}

fn clock(at: &str, ahead_ms: i64) -> Finding {
    let off = ahead_ms.unsigned_abs();
    if off <= CLOCK_OFF_MAX_MS {
        return Finding::ok(format!("the clock of Redis at {at} agrees with this machine"));
    }
    let word = if ahead_ms > 0 { "ahead of" } else { "behind" };
    Finding::warning(format!(
        "the clock of Redis at {at} is {} s {word} this machine",
        off / 1000
    ))
    .cure("synchronise the clocks of both machines: timedatectl set-ntp true")
}
