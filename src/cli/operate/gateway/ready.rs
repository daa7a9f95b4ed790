//! `gateway ready`: whether tools can be called, for scripts.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Deserialize;
use ureq::http::StatusCode;

use crate::{
    cli::{
        client::{ApiRequest, parameter, with_query},
        error::CliError,
        flags::duration,
        operate::{
            job::{Context, Job},
            lists::parsed,
        },
        output::print,
        table::{Table, escaped},
    },
    exit,
};

/// The name of the command.
pub const NAME: &str = "ready";

/// The pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The longest wait, in seconds.
const WAIT_SECONDS_MAX: u64 = 3600;

const ABOUT: &str = "\
Say whether tools of backends can be called now: all of them are offered, and their backends take calls or are started by
the first one.

  mcp-broker gateway ready github__search_code docs__read --wait 30s && run-the-agent";

const EXIT_CODES: &str = "\
Exit codes: 0 all are ready, 1 the broker refused or did not answer, 2 wrong command line, 10 not yet: a backend is starting
or waits for its next start, 11 a person has to act: a backend has failed or is switched off, 12 no backend offers a tool.";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("Say whether tools of backends can be called now")
        .long_about(ABOUT)
        .arg(
            Arg::new("tool")
                .value_name("TOOL")
                .required(true)
                .action(ArgAction::Append)
                .num_args(1..)
                .help("Names of tools, as gateway tools shows them"),
        )
        .arg(duration(
            "wait",
            0..=WAIT_SECONDS_MAX,
            "Wait so long at most until all are ready, unless a person has to act\n[default: do not wait]",
        ))
        .after_help(EXIT_CODES)
}

#[derive(Debug)]
struct Ready {
    tools: Vec<String>,
    wait: Duration,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    Box::new(Ready {
        tools: matches.get_many("tool").into_iter().flatten().cloned().collect(),
        wait: Duration::from_secs(matches.get_one::<u64>("wait").copied().unwrap_or_default()),
    })
}

#[derive(Deserialize)]
struct Answer {
    readiness: String,
    tools: Vec<Tool>,
}

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "tool")]
    name: String,
    readiness: String,
    backend: Option<String>,
    state: Option<String>,
    reason: Option<String>,
}

impl Job for Ready {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let deadline = Instant::now() + self.wait;
        loop {
            let (body, answer) = self.look(context)?;
            let (code, what) = match answer.readiness.as_str() {
                "ready" => (0, "ready"),
                "transient" => (exit::NOT_YET, "not ready yet"),
                "needs_person" => (exit::NEEDS_PERSON, "not ready until a person acts"),
                _ => (exit::UNKNOWN, "not offered by a backend"),
            };
            let may_change = [exit::NOT_YET, exit::UNKNOWN].contains(&code);
            if may_change && Instant::now() < deadline {
                sleep(LOOK_INTERVAL.min(deadline.saturating_duration_since(Instant::now())));
                continue;
            }
            if context.output.json {
                print(&format!("{body}\n"))?;
            } else {
                print(&context.output.table(&table(&answer)))?;
            }
            if code == 0 {
                return Ok(());
            }
            let least = answer.tools.iter().filter(|tool| tool.readiness == answer.readiness);
            let names: Vec<_> = least.map(|tool| escaped(&tool.name)).collect();
            return Err(CliError::NotReady(format!("{}: {what}", names.join(", ")), code));
        }
    }
}

impl Ready {
    fn look(&self, context: &Context) -> Result<(String, Answer), CliError> {
        let path = with_query(
            "/api/v1/gateway/ready",
            [parameter("tools", Some(self.tools.join(",")))],
        );
        let ask = ApiRequest::get(path);
        let body = context.client.send_for(
            &ask,
            &[
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::CONFLICT,
                StatusCode::NOT_FOUND,
            ],
        )?;
        let answer = parsed(&body)?;
        Ok((body, answer))
    }
}

fn table(answer: &Answer) -> Table {
    let mut table = Table::new(&["TOOL", "READINESS", "BACKEND", "STATE", "REASON"]);
    for tool in &answer.tools {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        table.row([
            tool.name.as_str(),
            &tool.readiness.replace('_', " "),
            &text(&tool.backend),
            &text(&tool.state),
            &text(&tool.reason),
        ]);
    }
    table
}
