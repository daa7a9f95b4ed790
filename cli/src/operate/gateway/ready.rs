//! `gateway ready`: whether tools can be called, for scripts.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use clap::{ArgGroup, Args};
use rest::backends::{Backend, Backends, ReadinessLevel, ToolReadiness, ToolsReadiness};
use serde_json::json;
use ureq::http::StatusCode;

use super::backend;
use crate::{
    client::{ApiRequest, parameter, parsed, with_query},
    error::CliError,
    flags::seconds,
    operate::job::{Context, Job},
    output::print,
    table::{Table, escaped},
};
use common::exit;

/// The pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The longest wait, in seconds.
const WAIT_SECONDS_MAX: u64 = 3600;

const ABOUT: &str = "\
Report whether the tools of backends can be called now: all of them are offered, and their backends take calls or start at
the first call. With --all, whether all backends take calls, except those that are switched off.

  mcp-broker gateway ready --all --wait 30s && run-the-agent
  mcp-broker gateway ready github__search_code docs__read --wait 30s && run-the-agent";

const EXIT_CODES: &str = "\
Exit codes: 0 all are ready, 1 the broker refused or did not answer, 2 wrong command line, 10 not yet: a backend is starting
or waits for its next start, 11 a person has to act: a backend has failed or is switched off, 12 no backend offers a tool.";

/// Report whether the tools of backends can be called now.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES,
    group(ArgGroup::new("which").args(["tools", "all"]).required(true)))]
pub struct Ready {
    /// Names of tools, as gateway tools shows them.
    #[arg(value_name = "TOOL")]
    tools: Vec<String>,
    /// All backends, except those that are switched off.
    #[arg(long)]
    all: bool,
    #[arg(long, value_name = "TIME", value_parser = seconds(0..=WAIT_SECONDS_MAX),
        help = "Longest wait until all are ready, unless a person has to act\n[default: do not wait]")]
    wait: Option<u64>,
}

/// How ready all backends are that are not switched off, as if each were a tool.
fn of_backends(backends: Vec<Backend>) -> ToolsReadiness {
    let is_on = |backend: &Backend| backend.state != "disabled";
    let tool = |backend: Backend| ToolReadiness {
        readiness: match backend.state.as_str() {
            "ready" | "handover" | "idle" => ReadinessLevel::Ready,
            "failed" => ReadinessLevel::NeedsPerson,
            _ => ReadinessLevel::Transient,
        },
        tool: backend.name,
        backend: None,
        state: Some(backend.state),
        reason: backend.reason,
    };
    let tools: Vec<_> = backends.into_iter().filter(is_on).map(tool).collect();
    let worst = tools.iter().map(|tool| tool.readiness).max();
    ToolsReadiness {
        readiness: worst.unwrap_or(ReadinessLevel::Ready),
        tools,
    }
}

impl Job for Ready {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let deadline = Instant::now() + Duration::from_secs(self.wait.unwrap_or_default());
        loop {
            let (body, answer) = self.look(context)?;
            let (code, what) = match answer.readiness {
                ReadinessLevel::Ready => (0, "ready"),
                ReadinessLevel::Transient => (exit::NOT_YET, "not ready yet"),
                ReadinessLevel::NeedsPerson => (exit::NEEDS_PERSON, "not ready until a person acts"),
                ReadinessLevel::Unknown => (exit::UNKNOWN, "not offered by a backend"),
            };
            let may_change = [exit::NOT_YET, exit::UNKNOWN].contains(&code);
            if may_change && Instant::now() < deadline {
                sleep(LOOK_INTERVAL.min(deadline.saturating_duration_since(Instant::now())));
                continue;
            }
            if context.output.json {
                print(&format!("{body}\n"))?;
            } else {
                print(&context.output.table(&table(&answer, self.tools.is_empty())))?;
            }
            if code == 0 {
                return Ok(());
            }
            let least = answer.tools.iter().filter(|tool| tool.readiness == answer.readiness);
            let names: Vec<_> = least.map(|tool| escaped(&tool.tool)).collect();
            return Err(CliError::NotReady(format!("{}: {what}", names.join(", ")), code));
        }
    }
}

impl Ready {
    fn look(&self, context: &Context) -> Result<(String, ToolsReadiness), CliError> {
        if self.tools.is_empty() {
            let Backends { backends } = context.client.get(backend::PATH)?;
            let answer = of_backends(backends);
            let backends = answer.tools.iter().map(
                |of| json!({"backend": of.tool, "readiness": of.readiness, "state": of.state, "reason": of.reason}),
            );
            let backends: Vec<_> = backends.collect();
            let body = json!({"readiness": answer.readiness, "backends": backends});
            return Ok((body.to_string(), answer));
        }
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

fn table(answer: &ToolsReadiness, is_of_backends: bool) -> Table {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let words = |tool: &ToolReadiness| rest::word(tool.readiness).replace('_', " ");
    if is_of_backends {
        let mut table = Table::new(&["BACKEND", "READINESS", "STATE", "REASON"]);
        for tool in &answer.tools {
            let (readiness, state) = (words(tool), text(&tool.state));
            table.row([tool.tool.as_str(), &readiness, &state, &text(&tool.reason)]);
        }
        return table;
    }
    let mut table = Table::new(&["TOOL", "READINESS", "BACKEND", "STATE", "REASON"]);
    for tool in &answer.tools {
        table.row([
            tool.tool.as_str(),
            &words(tool),
            &text(&tool.backend),
            &text(&tool.state),
            &text(&tool.reason),
        ]);
    }
    table
}
