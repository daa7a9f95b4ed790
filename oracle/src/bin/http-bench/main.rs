//! Measures the broker over HTTP beside the official SDK's server and a bare actix-web server.

mod authentication;
mod client;
mod report;
mod rounds;

use std::{io, path::PathBuf, time::Duration};

use mcp_broker_oracle::args::Args;
use report::Report;
use rounds::{Bench, Era};
use test_client::process::{RunningServer, program};

const USAGE: &str = "\
Measures the broker over HTTP, one worker each: processor time per tools/call against the official SDK's server, with
many connections that each wait for their answer, and latency against actix-web that gives back what it gets.

http-bench --ours PATH [--authentication] [--rounds N] [--seconds N] [--connections N] [--calls N] [--json]

  --ours PATH       the program mcp-broker
  --authentication  instead of all that: the broker with authentication, and with limits, against itself without
  --rounds N        how often everything is measured (5); the medians are what counts
  --seconds N       how long each server is kept busy in a round (3)
  --connections N   connections that keep it busy (32)
  --calls N         calls of a round, one after the other, whose latency is measured (5000)
  --json            all of it as JSON, for programs";

/// Runs before the measurement, so that caches are warm and every connection is in use.
const WARM_UP: Duration = Duration::from_millis(300);

fn main() -> io::Result<()> {
    let mut args = Args::new(USAGE);
    let ours: Option<PathBuf> = args.value("--ours");
    let rounds: usize = args.value("--rounds").unwrap_or(5);
    let bench = Bench {
        warm_up: WARM_UP,
        time: Duration::from_secs(args.value("--seconds").unwrap_or(3)),
        connections: args.value("--connections").unwrap_or(32),
        calls: args.value("--calls").unwrap_or(5000),
    };
    let (json, authentication) = (args.has("--json"), args.has("--authentication"));
    let Some(ours) = ours else {
        args.fail("--ours is missing");
    };
    args.finish();

    if authentication {
        let comparison = authentication::compare(&ours, &bench, rounds)?;
        if json {
            println!("{}", comparison.json());
        } else {
            print!("{comparison}");
        }
        return Ok(());
    }

    let workers = ["--workers=1"];
    let ours = RunningServer::broker_of(&ours, &["--workers=1", "--log-level=warn"])?;
    let sdk = RunningServer::peer(&program("mcp-broker-oracle"), &workers)?;
    let bare = RunningServer::peer(&program("bare-actix"), &workers)?;

    let mut report = Report::default();
    for round in 0..rounds {
        for era in [Era::Modern, Era::Legacy] {
            // The servers take turns, so that a busy period of the machine affects all of them.
            let mut servers = [(&ours, "ours"), (&sdk, "sdk"), (&bare, "bare")];
            servers.rotate_left(round % 3);
            for (server, name) in servers {
                report.loads.push((era, name, bench.load(server, name, era, &[])?));
            }
        }
        for era in [Era::Modern, Era::Legacy] {
            let mut servers = [(&ours, "ours"), (&bare, "bare")];
            servers.rotate_left(round % 2);
            for (server, name) in servers {
                report.latencies.push((era, name, bench.latency(server, name, era)?));
            }
        }
    }
    if json {
        println!("{}", report.json());
    } else {
        print!("{report}");
    }
    Ok(())
}
