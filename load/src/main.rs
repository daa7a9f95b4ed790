//! `mcp-broker-load` puts a broker under load, to size a deployment. It speaks MCP over WebSocket like any agent, and
//! verifies the order, content and number of the messages that it measures.

mod admin_api;
mod echo;
mod error;
mod event_loop;
#[cfg(test)]
mod fake;
mod fleet;
mod flood;
mod messages;
mod plan;
mod process;
mod relay;
mod report;
mod target;
mod tracker;
mod workloads;

use std::{process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand};

use error::{LoadError, Result};
use process::Servers;
use report::Report;
use target::Target;
use workloads::{
    Lenses, RunContext, broadcast, desk, direct, front, gateway, growth, idle, latency, neighbours, offline, storm,
};

/// Put an mcp-broker under load and measure it.
///
/// Every workload verifies what it measures: the content and order of all messages, and that none is lost. The exit
/// code is 0 when everything was right, 1 when it was not or the run failed, 2 for wrong arguments.
///
/// Use a separate broker, or at least a separate project: the sessions and protocols that a run registers stay there.
/// Run the tool on another machine than the broker, or leave it a core of its own: it uses one thread, and near one
/// core (generator cores) it measures itself.
#[derive(Parser)]
#[command(
    version,
    after_help = "Example: mcp-broker-load direct --pairs 50 --window 64 --pid $(pidof mcp-broker)"
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Workload(Workload),
    /// No workload: the MCP server behind the gateways that `gateway` compares, on stdin and stdout or over HTTP
    Echo(echo::Options),
    /// No workload: the size of a deployment for a number of agents, from measured costs. It needs no broker
    Plan(plan::Options),
    /// No workload: a process before a server on stdin and stdout that passes bytes on, the least that a gateway can do
    Relay(relay::Options),
}

#[derive(Args)]
#[command(next_help_heading = "Options of all workloads")]
struct Common {
    /// WebSocket of the broker. Given several times, connections are spread over its replicas
    #[arg(long, global = true, default_value = "ws://127.0.0.1:8000/ws")]
    url: Vec<String>,
    /// API key, sent as X-API-Key with each connection. Prefer the environment: other users of a machine see flags
    #[arg(long, global = true, env = "MCP_BROKER_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Project, sent as X-Project-ID with each connection
    #[arg(long, global = true)]
    project: Option<String>,
    /// Process of the broker on this machine: adds its processor time and memory (Linux). Several are added up
    #[arg(long, global = true)]
    pid: Vec<u32>,
    /// Process of the storage server on this machine, such as Redis: adds its processor time (Linux)
    #[arg(long, global = true)]
    store_pid: Vec<u32>,
    /// One line of JSON per workload instead of a table
    #[arg(long, global = true)]
    json: bool,
    /// Seconds that are measured
    #[arg(long, global = true, default_value = "5", value_parser = some_seconds)]
    seconds: Duration,
    /// Seconds under load before measuring begins
    #[arg(long, global = true, default_value = "1", value_parser = seconds)]
    warm_up: Duration,
    /// Bytes of a frame that sends a message; short ones grow to what the call needs
    #[arg(long, global = true, default_value_t = 400, value_parser = at_least_one)]
    size: usize,
    /// Beginning of the names of all sessions; two runs at once need different ones
    #[arg(long, global = true, default_value = "load")]
    names: String,
    /// Versions of the protocol of direct, broadcast and offline messages
    #[arg(long, global = true, value_enum, default_value_t = Lenses::None)]
    lenses: Lenses,
}

#[derive(Subcommand)]
enum Workload {
    /// Messages from senders to one recipient each: throughput and latency
    Direct(direct::Options),
    /// One publisher to many subscribers
    Broadcast(broadcast::Options),
    /// `mcp-broker connect`: its start, a call through it, and its rest. It starts a broker of its own
    Front(front::Options),
    /// Questions to people: an answer until its agent has it, lists, and yaps. It starts a broker of its own
    Desk(desk::Options),
    /// What the gateway adds to calls of backends, beside the backends alone. It starts brokers and backends of its own
    Gateway(gateway::Options),
    /// Connections without traffic: memory and connection rate
    Idle(idle::Options),
    /// Messages to recipients that are away, and their return
    Offline(offline::Options),
    /// One operation at a time, beside the times that the broker promises
    Latency(latency::Options),
    /// Throughput with more and more protocols and sessions: the cost must not grow
    Growth(growth::Options),
    /// All connections lost at once, and all clients reconnecting
    Storm(storm::Options),
    /// A project beside another one that floods the broker: the latency of the first
    Neighbours(neighbours::Options),
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("0 to 86400 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses a duration that is used as a divisor.
fn some_seconds(text: &str) -> std::result::Result<Duration, String> {
    seconds(text).and_then(|time| {
        if time < Duration::from_millis(10) {
            Err("at least 0.01".into())
        } else {
            Ok(time)
        }
    })
}

/// Parses a count that must not be zero.
fn at_least_one(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(1..=1_000_000_000) => text.parse().map_err(|_| String::new()),
        _ => Err("a number from 1 to 1000000000".into()),
    }
}

/// Runs a command to its end. Returns the faults that a workload has found.
fn run(cli: Cli) -> Result<Vec<String>> {
    let json = cli.common.json;
    let report = match cli.command {
        Command::Workload(workload) => measure(cli.common, workload)?,
        Command::Plan(options) => plan::run(&options, cli.common.size)?,
        Command::Echo(options) => return echo::run(&options).map(|()| vec![]),
        Command::Relay(options) => return relay::run(&options).map(|()| vec![]),
    };
    report.print(json)?;
    Ok(report.problems().to_vec())
}

fn measure(common: Common, workload: Workload) -> Result<Report> {
    let Common {
        url,
        api_key,
        project,
        pid,
        store_pid,
        seconds,
        warm_up,
        size,
        names,
        lenses,
        json: _,
    } = common;
    let key = api_key.as_deref().map(|key| ("X-API-Key", key));
    let project = project.as_deref().map(|project| ("X-Project-ID", project));
    let headers: Vec<_> = key.into_iter().chain(project).collect();
    let targets = url.iter().map(|url| Target::parse(url, &headers));
    let bench = RunContext {
        targets: targets.collect::<Result<_>>()?,
        server: Servers::new(&pid)?,
        store: Servers::new(&store_pid)?,
        seconds,
        warm_up,
        size,
        names,
        lenses,
        stall: fleet::STALL_TIMEOUT,
    };
    match workload {
        Workload::Direct(options) => direct::run(&bench, &options),
        Workload::Broadcast(options) => broadcast::run(&bench, &options),
        Workload::Front(options) => front::run(&bench, &options),
        Workload::Desk(options) => desk::run(&options),
        Workload::Gateway(options) => gateway::run(&bench, &options),
        Workload::Idle(options) => idle::run(&bench, &options),
        Workload::Offline(options) => offline::run(&bench, &options),
        Workload::Latency(options) => latency::run(&bench, &options),
        Workload::Growth(options) => growth::run(&bench, &options),
        Workload::Storm(options) => storm::run(&bench, &options),
        Workload::Neighbours(options) => neighbours::run(&bench, &options),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            for problem in problems {
                eprintln!("mcp-broker-load: {problem}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("mcp-broker-load: {error}");
            ExitCode::from(if matches!(error, LoadError::Url { .. } | LoadError::Arguments(_)) {
                2
            } else {
                1
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn shared_options_are_accepted_after_the_workload() {
        let cli = Cli::try_parse_from(["load", "direct", "--pairs", "2", "--seconds", "0.3", "--json"]).unwrap();
        assert_eq!(
            (cli.common.seconds, cli.common.json),
            (Duration::from_millis(300), true)
        );
        assert!(Cli::try_parse_from(["load", "direct", "--pairs", "0"]).is_err());
        assert!(Cli::try_parse_from(["load", "direct", "--seconds", "-1"]).is_err());
        assert!(Cli::try_parse_from(["load", "direct", "--seconds", "0"]).is_err());
    }
}
