//! What the gateway of a broker adds to a call of a backend, beside the same call without it. Both sides take turns in many
//! short rounds, so that both see the same machine.
//!
//! Everything runs with brokers and backends of its own; the options for the address of a broker do not apply.

mod comparison;
mod flight;
mod http_tool;
mod http_way;
mod hung;
mod idle;
mod lanes;
mod lists;
mod peers;
mod sequential;
mod setup;

use std::path::PathBuf;

use clap::ValueEnum;

use super::RunContext;
use crate::{error::Result, report::Report};
use comparison::Comparison;
use peers::Peer;

#[derive(clap::Args)]
pub struct Options {
    /// The binary of the broker
    #[arg(long, default_value = "mcp-broker")]
    binary: PathBuf,
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Row::value_variants().iter().copied())]
    rows: Vec<Row>,
    /// Calls of one round on one way. Rows whose calls are long or short make fewer or more of them
    #[arg(long, default_value_t = 1_000, value_parser = crate::at_least_one)]
    calls: usize,
    /// Rounds, in each of which all ways take their turn
    #[arg(long, default_value_t = 20, value_parser = crate::at_least_one)]
    rounds: usize,
    /// Backends of the row idle, which lasts three times --seconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=200))]
    backends: u8,
    /// Measure another gateway beside this one, in the row run, stdio, http-stdio or http-http. The target is a command that
    /// speaks MCP on stdin and stdout, or the URL of a server (http://HOST:PORT/PATH) that runs. Behind it has to be
    /// `mcp-broker-load echo`, for http-http `mcp-broker-load echo --http ADDRESS`
    #[arg(long = "peer", value_name = "ROW:NAME=TARGET", value_parser = Peer::parse)]
    peers: Vec<Peer>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Row {
    /// `mcp-broker gateway run` with a backend on stdio, beside the backend alone
    Run,
    /// `mcp-broker connect` to a backend on stdio, beside the backend alone
    Stdio,
    /// Streamable HTTP to a backend on stdio, beside a tool of the broker and the backend alone
    HttpStdio,
    /// Streamable HTTP to a backend over Streamable HTTP, beside the backend alone
    HttpHttp,
    /// 64 calls in flight to one backend on stdio
    Flight,
    /// Results of 1 MB
    Large,
    /// `tools/list` with 1,000 tools, beside a plain answer of the same size
    List,
    /// Many backends and no call
    Idle,
    /// Nine backends beside one that hangs
    Hung,
}

impl Row {
    fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Stdio => "stdio",
            Self::HttpStdio => "http-stdio",
            Self::HttpHttp => "http-http",
            Self::Flight => "flight",
            Self::Large => "large",
            Self::List => "list",
            Self::Idle => "idle",
            Self::Hung => "hung",
        }
    }
}

/// What the rows share.
struct Bench<'a> {
    options: &'a Options,
    context: &'a RunContext,
}

/// What one row has found.
#[derive(Default)]
struct Findings {
    comparisons: Vec<Comparison>,
    wrong_answers: u64,
    changed_lists: u64,
}

pub fn run(context: &RunContext, options: &Options) -> Result<Report> {
    let bench = Bench { options, context };
    let mut report = Report::new("gateway");
    report.add("rounds", options.rounds);
    report.add("calls_of_a_round", options.calls);
    report.add("payload_bytes", context.size);
    let mut all = Findings::default();
    for row in &options.rows {
        let mut found = match row {
            Row::Run => sequential::run(&bench)?,
            Row::Stdio => sequential::stdio(&bench)?,
            Row::HttpStdio => sequential::http_to_stdio(&bench)?,
            Row::HttpHttp => sequential::http_to_http(&bench)?,
            Row::Flight => flight::run(&bench)?,
            Row::Large => sequential::large(&bench)?,
            Row::List => lists::run(&bench)?,
            Row::Idle => idle::run(&bench)?,
            Row::Hung => hung::run(&bench)?,
        };
        all.comparisons.append(&mut found.comparisons);
        all.wrong_answers += found.wrong_answers;
        all.changed_lists += found.changed_lists;
    }
    all.comparisons.iter().for_each(|found| report.row(found.fields()));
    report.add_fault("wrong_answers", all.wrong_answers);
    report.add_fault("changed_lists", all.changed_lists);
    Ok(report)
}
