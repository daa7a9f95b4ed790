//! One call at a time: through the gateway and without it.

use serde_json::json;

use super::{
    Bench, Findings, Row,
    comparison::{Comparison, Goal},
    http_tool::HttpTool,
    lanes::{Lane, take_turns},
    peers,
    setup::{Backends, Template, echo, echo_calls, http_echo},
};
use crate::{error::Result, report::float, workloads::way::Exchange};

/// Bytes of a large result.
const LARGE: usize = 1_000_000;
/// Of the calls of a round, one in this many has a large result.
const LARGE_PART: usize = 50;
/// Connections that call at once.
const CONNECTIONS: usize = 32;

/// A figure of a lane in each round.
type FigureOfLane = fn(&Lane<'static>) -> Vec<f64>;

/// Compared ways of one row.
struct Ways {
    row: Row,
    /// What a call through the gateway is compared with. The times of more than one are added up.
    without: Vec<Lane<'static>>,
    through: Lane<'static>,
    /// Of the p50, the p99 and the processor time.
    goals: [Goal; 3],
}

/// `mcp-broker gateway run` beside the backend itself.
pub fn run(bench: &Bench<'_>) -> Result<Findings> {
    let size = bench.context.size;
    let gateway = Backends::default().echo("echo", 0)?.behind_run(bench)?;
    let process = gateway.process()?;
    let ways = Ways {
        row: Row::Run,
        without: vec![Lane::new(echo_calls(echo()?, "echo", size))],
        through: Lane::new(echo_calls(gateway, "echo", size)).on(process),
        goals: [Goal::AddedAtMost(15.0), Goal::AddedAtMost(100.0), Goal::None],
    };
    ways.compare(bench)
}

/// `mcp-broker connect` beside the backend itself.
pub fn stdio(bench: &Bench<'_>) -> Result<Findings> {
    let broker = Backends::default().echo("echo", 0)?.behind(bench)?;
    let size = bench.context.size;
    let through = echo_calls(broker.front()?, "echo__echo", size);
    let ways = Ways {
        row: Row::Stdio,
        without: vec![Lane::new(echo_calls(echo()?, "echo", size))],
        through: Lane::new(through).on(broker.process()?),
        goals: [Goal::AddedAtMost(15.0), Goal::AddedAtMost(100.0), Goal::None],
    };
    ways.compare(bench)
}

/// HTTP to a backend over HTTP, beside the backend itself.
pub fn http_to_http(bench: &Bench<'_>) -> Result<Findings> {
    let (echo, size) = (http_echo()?, bench.context.size);
    let broker = Backends::default().at("echo", echo.address).behind(bench)?;
    let through = HttpTool::echo(broker.address, "/mcp/echo", size).calls()?;
    let ways = Ways {
        row: Row::HttpHttp,
        without: vec![Lane::new(HttpTool::echo(echo.address, "/mcp", size).calls()?)],
        through: Lane::new(through).on(broker.process()?),
        goals: [Goal::AddedAtMost(60.0), Goal::AddedAtMost(250.0), Goal::None],
    };
    ways.compare(bench)
}

/// HTTP to a backend on stdio, beside one of the broker's own tools over HTTP and the backend itself.
pub fn http_to_stdio(bench: &Bench<'_>) -> Result<Findings> {
    let broker = Backends::default().echo("echo", 0)?.behind(bench)?;
    let (process, size) = (broker.process()?, bench.context.size);
    let of_backend = || HttpTool::echo(broker.address, "/mcp/echo", size);
    let cpu_goal = Goal::AtMost(20.0);
    let ways = Ways {
        row: Row::HttpStdio,
        without: vec![
            Lane::new(echo_calls(echo()?, "echo", size)),
            Lane::new(HttpTool::heartbeat(&broker)?.calls()?).on(process),
        ],
        through: Lane::new(of_backend().calls()?).on(process),
        goals: [Goal::RatioAtMost(1.3), Goal::None, cpu_goal],
    };
    let mut found = ways.compare(bench)?;

    let at_once =
        |tool: HttpTool| Ok::<_, crate::error::LoadError>(Lane::new(tool.calls_at_once(CONNECTIONS)?).on(process));
    let (mut own, mut through) = (at_once(HttpTool::heartbeat(&broker)?)?, at_once(of_backend())?);
    let calls = (bench.options.calls / CONNECTIONS).max(1);
    found.wrong_answers += take_turns(bench, calls, &mut [&mut own, &mut through])?;
    let cpu = |lane: &Lane<'_>| lane.all(|round| round.cpu / float(CONNECTIONS as u64));
    let cpu = Comparison::new(Row::HttpStdio, "broker_cpu_us_of_32", cpu(&own), cpu(&through));
    found.comparisons.push(cpu.aims_at(cpu_goal));
    Ok(found)
}

/// Results of 1 MB over the local socket, beside the backend itself.
pub fn large(bench: &Bench<'_>) -> Result<Findings> {
    let broker = Backends::default().echo("echo", 0)?.behind(bench)?;
    let mut direct = Lane::new(large_calls(echo()?, "big"));
    let mut through = Lane::new(large_calls(broker.client()?, "echo__big")).on(broker.process()?);
    let calls = (bench.options.calls / LARGE_PART).max(2);
    let wrong_answers = take_turns(bench, calls, &mut [&mut direct, &mut through])?;
    let rate = |lane: &Lane<'_>| lane.all(|round| 1e6 / round.mean);
    let cpu = Comparison::new(Row::Large, "broker_cpu_us", vec![], through.cpu());
    Ok(Findings {
        comparisons: vec![
            Comparison::new(Row::Large, "mb_per_second", rate(&direct), rate(&through)),
            cpu.aims_at(Goal::AtMost(1_000.0)),
        ],
        wrong_answers,
        ..Findings::default()
    })
}

fn large_calls(mut way: impl Exchange + 'static, tool: &str) -> impl FnMut(u64) -> Result<bool> {
    let mut request = Template::call(tool, &json!({"bytes": LARGE}), false);
    move |id| Ok(request.exchange(id, &mut way)?.len() > LARGE)
}

impl Ways {
    /// Has the ways and the peers of the row take turns.
    fn compare(mut self, bench: &Bench<'_>) -> Result<Findings> {
        let mut peers = peers::lanes(bench, self.row)?;
        let mut lanes: Vec<_> = self.without.iter_mut().collect();
        lanes.push(&mut self.through);
        lanes.extend(peers.iter_mut().map(|(_, lane)| lane));
        let wrong_answers = take_turns(bench, bench.options.calls, &mut lanes)?;

        let figures: [(_, FigureOfLane); 3] = [
            ("p50_us", |lane| lane.all(|round| round.p50)),
            ("p99_us", |lane| lane.all(|round| round.p99)),
            ("broker_cpu_us", |lane| lane.cpu()),
        ];
        let mut comparisons = Vec::new();
        for ((figure, of), goal) in figures.into_iter().zip(self.goals) {
            let without = sums(self.without.iter().map(of));
            let compare = |through| Comparison::new(self.row, figure, without.clone(), through);
            comparisons.push(compare(of(&self.through)).aims_at(goal));
            let others = peers.iter().map(|(name, lane)| (name, of(lane)));
            let others = others.filter(|(_, rounds)| !rounds.is_empty());
            comparisons.extend(others.map(|(name, rounds)| compare(rounds).by(name)));
        }
        Ok(Findings {
            comparisons,
            wrong_answers,
            ..Findings::default()
        })
    }
}

/// The sums of a figure over several ways, in each round. Ways without the figure do not count.
fn sums(ways: impl Iterator<Item = Vec<f64>>) -> Vec<f64> {
    ways.filter(|rounds| !rounds.is_empty())
        .reduce(|sums, rounds| sums.iter().zip(rounds).map(|(sum, figure)| sum + figure).collect())
        .unwrap_or_default()
}
