//! `local` and `dev`: the brokers of a user on this machine. `start`, `stop`, `restart`, `status` and `logs` are those of `local`.
//!
//! `control` starts and ends, `report` looks, `logs` shows the log, `serve` is the broker itself, `options` what a broker
//! for development was started with.

mod control;
mod dev;
mod logs;
mod options;
mod report;
mod serve;

use std::{process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{
    call::{Call, Run, done},
    error::CliError,
    flags::{seconds, whole},
    output::{Output, print},
};
use common::{
    exit,
    user_broker::{Instance, LocalPaths},
};
use control::{end, ended_text, paths_of, reports, start};
pub use dev::{Aliases, Dev};
use logs::{Form, Logs};
use report::{OtherBroker, Report};
use serve::LocalServe;
pub use serve::sources as user_sources;

/// Exit codes of the commands that look.
const STATUS_CODES: &str = "\
Exit codes: 0 it runs, 3 it does not run, 4 it does not run and has left files, 1 its state is unknown, 2 wrong
command line, or a folder or a key that cannot be used.";
/// Exit codes of the commands that change something.
const CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong command line, or a setting, a folder or a key that cannot be used.";

const LOCAL_ABOUT: &str = "\
Start, stop and show the broker of this user on this machine.

mcp-broker connect starts it, and it stops when no agent has used it for idle_shutdown (30 min).
Its settings come from MCP_BROKER_* variables and from the file that MCP_BROKER_CONFIG names.";

/// Start, stop and show the broker of this user on this machine.
#[derive(Debug, Args)]
#[command(long_about = LOCAL_ABOUT, after_help = CODES)]
pub struct Local {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Start(Start),
    Stop(Stop),
    Restart(Restart),
    Status(Status),
    Logs(ShowLogs),
    /// Run the broker of this user; mcp-broker connect and mcp-broker start do so.
    #[command(hide = true)]
    Serve(OfUser),
}

impl Run for Local {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        match self.task {
            Task::Start(start) => start.run(call),
            Task::Stop(stop) => stop.run(call),
            Task::Restart(restart) => restart.run(call),
            Task::Status(status) => status.run(call),
            Task::Logs(logs) => logs.run(call),
            Task::Serve(of) => Ok(serve_here(of.instance, false, call)),
        }
    }
}

// Which broker of the user. A doc comment would be the help of the command.
#[derive(Debug, Args)]
struct OfUser {
    /// Which broker of this user: each name is a broker of its own.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = Instance::parse)]
    instance: Instance,
}

// How a result is printed.
#[derive(Debug, Args)]
struct AsJson {
    /// Print the result as one line of JSON.
    #[arg(long)]
    json: bool,
}

// How long a broker may take to stop.
#[derive(Debug, Args)]
struct Grace {
    /// Time that the broker has to stop before it is killed, from 0s to 1h.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = seconds(0..=3600))]
    grace: u64,
}

/// Start the broker of this user unless it runs, and wait until it serves, at most 30 s.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct Start {
    #[command(flatten)]
    of: OfUser,
    #[command(flatten)]
    output: AsJson,
}

impl Run for Start {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        done(started(&self.of.instance, start, &self.output.output(call)))
    }
}

/// Stop the broker of this user once the requests in progress are finished.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct Stop {
    #[command(flatten)]
    of: OfUser,
    #[command(flatten)]
    grace: Grace,
}

impl Run for Stop {
    fn run(self, _: &Call<'_>) -> Result<ExitCode, CliError> {
        done(self.grace.stop(&[self.of.instance]))
    }
}

/// Stop the broker of this user and start it again; agents reconnect automatically.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct Restart {
    #[command(flatten)]
    of: OfUser,
    #[command(flatten)]
    grace: Grace,
    #[command(flatten)]
    output: AsJson,
}

impl Run for Restart {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        done(self.grace.restart(&self.of.instance, &self.output, call))
    }
}

/// Show whether the broker of this user runs, and its agents.
#[derive(Debug, Args)]
#[command(after_help = STATUS_CODES)]
pub struct Status {
    #[command(flatten)]
    output: ReportFlags,
    #[command(flatten)]
    of: OfUser,
}

impl Run for Status {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        self.output.status(&[self.of.instance], false, call)
    }
}

/// Show the last lines of the log of the broker.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct ShowLogs {
    #[command(flatten)]
    logs: LogFlags,
    #[command(flatten)]
    of: OfUser,
}

impl Run for ShowLogs {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        done(self.logs.show(&self.of.instance, call))
    }
}

// What is shown of a log.
#[derive(Debug, Args)]
struct LogFlags {
    /// Print each new line until Ctrl-C.
    #[arg(long, short)]
    follow: bool,
    /// How many of the last lines are shown.
    #[arg(long, short = 'n', value_name = "N", default_value = "100", value_parser = whole(0..=u32::MAX))]
    lines: u32,
    /// Print each line as a JSON object.
    #[arg(long)]
    json: bool,
    /// Show times in UTC, and not in the zone of this machine.
    #[arg(long)]
    utc: bool,
}

impl LogFlags {
    fn show(&self, instance: &Instance, call: &Call<'_>) -> Result<(), CliError> {
        let output = Output::new(self.json, false, call.env);
        let logs = Logs {
            lines_max: self.lines as usize,
            follows: self.follow,
            form: Form::wanted(&output, self.utc),
        };
        logs.show(&LocalPaths::look_up(instance)?)
    }
}

// How reports are printed.
#[derive(Debug, Args)]
struct ReportFlags {
    #[command(flatten)]
    json: AsJson,
    /// Do not cut tables to the width of the terminal.
    #[arg(long)]
    wide: bool,
}

impl AsJson {
    fn output(&self, call: &Call<'_>) -> Output {
        Output::new(self.json, false, call.env)
    }
}

impl Grace {
    fn stop(&self, instances: &[Instance]) -> Result<(), CliError> {
        for instance in instances {
            let stopped = end(instance, Duration::from_secs(self.grace))?;
            print(&ended_text(instance, stopped))?;
        }
        Ok(())
    }

    fn restart(&self, instance: &Instance, json: &AsJson, call: &Call<'_>) -> Result<(), CliError> {
        // What cannot start again is not stopped.
        serve::check_settings(instance, call.env.to_vec()).map_err(|line| {
            CliError::Usage(format!(
                "{line}; nothing was restarted, and a running broker keeps running"
            ))
        })?;
        end(instance, Duration::from_secs(self.grace))?;
        started(instance, start, &json.output(call))
    }
}

/// Runs a broker in this process.
fn serve_here(instance: Instance, is_foreground: bool, call: &Call<'_>) -> ExitCode {
    let serve = LocalServe {
        instance,
        is_foreground,
        env: call.env.to_vec(),
    };
    serve::run(serve, call.broker)
}

/// Starts a broker and prints its report.
fn started(
    instance: &Instance,
    start: impl FnOnce(&LocalPaths) -> Result<bool, CliError>,
    output: &Output,
) -> Result<(), CliError> {
    let paths = paths_of(instance)?;
    let ran = start(&paths)?;
    let report = Report::of(&paths);
    if output.json {
        return print(&format!("{}\n", json_of(&report)));
    }
    let first = if ran {
        format!("{instance} runs already\n")
    } else {
        format!("{instance} has started\n")
    };
    print(&format!("{first}{}", report.text(output)))
}

impl ReportFlags {
    fn status(&self, instances: &[Instance], has_many: bool, call: &Call<'_>) -> Result<ExitCode, CliError> {
        let output = Output::new(self.json.json, self.wide, call.env);
        let mut reports = reports(instances)?;
        if let ([report], false) = (&mut *reports, has_many) {
            report.others = OtherBroker::than(&report.socket);
        }
        let refusal = reports.first().and_then(|report| report.key_refusal.clone());
        if let (false, Some(line)) = (has_many, refusal) {
            return Err(CliError::Usage(line));
        }
        let code = reports.iter().map(Report::exit_code).max().unwrap_or(exit::NOT_RUNNING);
        if output.json {
            let values: Vec<Value> = reports.iter().map(json_of).collect();
            let value = if has_many {
                Value::Array(values)
            } else {
                values.into_iter().next().unwrap_or_default()
            };
            print(&format!("{value}\n"))?;
        } else if reports.is_empty() {
            print("no broker for development runs or has left files\n")?;
        } else {
            let texts: Vec<String> = reports.iter().map(|report| report.text(&output)).collect();
            print(&texts.join("\n"))?;
        }
        Ok(ExitCode::from(code))
    }
}

fn json_of(report: &Report) -> Value {
    serde_json::to_value(report).unwrap_or_default()
}
