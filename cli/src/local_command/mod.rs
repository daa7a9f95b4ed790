//! `local` and `dev`: the brokers of a user on this machine. `start`, `stop`, `restart`, `status` and `logs` are those of `local`.
//!
//! `control` starts and ends, `report` looks, `logs` shows the log, `serve` is the broker itself, `options` what a broker
//! for development was started with.

mod control;
mod logs;
mod options;
mod report;
mod serve;

use std::{process::ExitCode, time::Duration};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use serde_json::{Value, json};

use super::{
    call::Call,
    error::CliError,
    flags::{choice, duration, number, switch, text},
    output::{Output, print},
    tool_calls::{self, Target},
};
use common::{
    exit,
    user_broker::{Instance, LocalPaths},
};
use control::{clean_up, dev_instances, end, ended_text, paths_of, reports, start, start_dev};
use logs::{Form, Logs};
use options::{DevOptions, STORAGES, TRANSPORTS, parse_http};
use report::{OtherBroker, Report};
use serve::LocalServe;
pub use serve::sources as user_sources;

/// Lines of a log, unless the user asks for others.
const LINES: u32 = 100;
/// Longest time between a request to end and SIGKILL, unless the user sets it.
const GRACE: Duration = Duration::from_secs(10);
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

const DEV_ABOUT: &str = "\
Start, stop and show brokers for development on this machine, as many as you like.

Such a broker keeps its messages in memory, listens on a free port, and runs until you stop it. Agents find it
only with mcp-broker connect --instance dev/NAME.

  mcp-broker dev start --name try
  mcp-broker call --dev=try register_session name=alice
  mcp-broker repl --dev=try
  mcp-broker dev stop --name try";

/// The command whose subcommands are aliases of those of `dev`.
pub const ALIASES: &str = "mcp";
/// What an alias has before the word of `dev`.
const ALIAS_PREFIX: &str = "dev-";
/// Another name of the transport `fifo`.
const PIPE: &str = "pipe";

/// The words of an earlier tool for the commands of `dev`, hidden from the help: `mcp dev-start` and so on.
pub fn aliases() -> Command {
    let of_dev = dev_command();
    let aliases = of_dev.get_subcommands().map(|command| {
        let transports = TRANSPORTS.iter().copied().chain([PIPE]);
        let command = if command.get_name() == "start" {
            command.clone().mut_arg("transport", |arg| {
                arg.value_parser(PossibleValuesParser::new(transports))
            })
        } else {
            command.clone()
        };
        let name = format!("{ALIAS_PREFIX}{}", command.get_name());
        // The flag of the earlier tool is accepted and has no effect.
        command.name(name).arg(switch("experimental", "").hide(true))
    });
    Command::new(ALIASES)
        .hide(true)
        .about("The commands of dev under other names")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(aliases)
}

/// `local` with its subcommands.
pub fn command() -> Command {
    let serve = Command::new("serve")
        .hide(true)
        .about("Run the broker of this user; mcp-broker connect and mcp-broker start do so")
        .arg(instance());
    Command::new("local")
        .about("Start, stop and show the broker of this user on this machine")
        .long_about(LOCAL_ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands_of_user())
        .subcommand(serve)
        .after_help(CODES)
}

/// A command for the broker of the user.
pub fn of_user(name: &str) -> Command {
    let mut commands = commands_of_user().into_iter();
    commands.find(|command| command.get_name() == name).unwrap_or_default()
}

fn commands_of_user() -> [Command; 5] {
    [
        subcommand(
            "start",
            "Start the broker of this user unless it runs, and wait until it serves, at most 30 s",
        )
        .args([instance(), json_flag()]),
        subcommand(
            "stop",
            "Stop the broker of this user once the requests in progress are finished",
        )
        .args([instance(), grace()]),
        subcommand(
            "restart",
            "Stop the broker of this user and start it again; agents reconnect automatically",
        )
        .args([instance(), grace(), json_flag()]),
        status_command("status", "Show whether the broker of this user runs, and its agents").arg(instance()),
        logs_command().arg(instance()),
    ]
}

/// `dev` with its subcommands.
pub fn dev_command() -> Command {
    Command::new("dev")
        .about("Start, stop and show brokers for development on this machine, as many as you like")
        .long_about(DEV_ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            subcommand("start", "Start a broker for development and wait until it serves").args([
                name(),
                choice(
                    "transport",
                    "WORD",
                    TRANSPORTS,
                    "fifo: also a pair of FIFOs, for one client at a time",
                )
                .default_value(TRANSPORTS[0]),
                text(
                    "http",
                    "PORT",
                    "Port of the HTTP server on 127.0.0.1; 0 takes a free one, off opens none",
                )
                .default_value("0")
                .value_parser(parse_http),
                choice(
                    "storage",
                    "WORD",
                    STORAGES,
                    "Where the broker keeps messages; memory loses them when the broker stops",
                )
                .default_value(STORAGES[0]),
                switch(
                    "foreground",
                    "Run in this process until Ctrl-C, log to stderr, and print one line of JSON when it serves",
                ),
                json_flag(),
            ]),
        )
        .subcommand(subcommand("stop", "Stop a broker for development").args([
            name(),
            all("Stop all of them"),
            grace(),
        ]))
        .subcommand(
            subcommand(
                "restart",
                "Stop a broker for development and start it with the same options",
            )
            .args([name(), grace(), json_flag()]),
        )
        .subcommand(
            status_command("status", "Show whether a broker for development runs, and its agents")
                .args([name(), all("Show all of them")]),
        )
        .subcommand(logs_command().arg(name()))
        .subcommand(
            subcommand(
                "cleanup",
                "Remove the runtime folders of brokers for development that do not run; stop none",
            )
            .args([switch("dry-run", "Only print what would be removed"), json_flag()]),
        )
        // The former names of `mcp-broker call --dev` and `mcp-broker repl --dev`.
        .subcommand(
            tool_calls::call_command()
                .args([name(), switch("json", "").hide(true)])
                .hide(true),
        )
        .subcommand(tool_calls::repl_command().arg(name()).hide(true))
        .after_help(CODES)
}

fn subcommand(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).after_help(CODES)
}

fn status_command(name: &'static str, about: &'static str) -> Command {
    Command::new(name)
        .about(about)
        .args([
            json_flag(),
            switch("wide", "Do not cut tables to the width of the terminal"),
        ])
        .after_help(STATUS_CODES)
}

fn logs_command() -> Command {
    subcommand("logs", "Show the last lines of the log of the broker").args([
        switch("follow", "Print each new line until Ctrl-C").short('f'),
        number("lines", 0, "How many of the last lines are shown")
            .short('n')
            .default_value("100"),
        switch("json", "Print each line as a JSON object"),
        switch("utc", "Show times in UTC, and not in the zone of this machine"),
    ])
}

fn instance() -> Arg {
    text(
        "instance",
        "NAME",
        "Which broker of this user: each name is a broker of its own",
    )
    .default_value("default")
    .value_parser(Instance::parse)
}

fn name() -> Arg {
    text("name", "NAME", "Name of the broker for development")
        .default_value("default")
        .value_parser(Instance::dev)
}

fn all(help: &'static str) -> Arg {
    switch("all", help).conflicts_with("name")
}

fn grace() -> Arg {
    duration(
        "grace",
        0..=3600,
        "Time that the broker has to stop before it is killed, from 0s to 1h",
    )
    .default_value("10s")
}

fn json_flag() -> Arg {
    switch("json", "Print the result as one line of JSON")
}

/// Runs the command of a name and returns the exit code of the process.
///
/// # Errors
/// What went wrong, for the user.
pub fn run(name: &str, call: Call<'_>) -> Result<ExitCode, CliError> {
    let (word, below) = call.matches.subcommand().unwrap_or((name, &call.matches));
    let (name, word) = match word.strip_prefix(ALIAS_PREFIX) {
        Some(word) if name == ALIASES => ("dev", word),
        _ => (name, word),
    };
    let output = Output::new(has(below, "json"), has(below, "wide"), call.env);
    let key = if name == "dev" { "name" } else { "instance" };
    let instance = below.try_get_one::<Instance>(key).ok().flatten();
    let instance = instance.cloned().unwrap_or_default();
    let grace = || Duration::from_secs(below.get_one::<u64>("grace").copied().unwrap_or(GRACE.as_secs()));
    match (name, word) {
        (_, "serve") => return Ok(serve_here(instance, false, &call)),
        ("dev", "start") => return start_for_development(instance, below, &output, &call),
        (_, "start") => started(&instance, start, &output)?,
        (_, "stop") => {
            for instance in chosen(instance, below)? {
                let stopped = end(&instance, grace())?;
                print(&ended_text(&instance, stopped))?;
            }
        }
        (_, "restart") => {
            // What cannot start again is not stopped.
            serve::check_settings(&instance, call.env.to_vec()).map_err(|line| {
                CliError::Usage(format!(
                    "{line}; nothing was restarted, and a running broker keeps running"
                ))
            })?;
            end(&instance, grace())?;
            started(&instance, start, &output)?;
        }
        (_, "logs") => {
            let logs = Logs {
                lines_max: below.get_one::<u32>("lines").copied().unwrap_or(LINES) as usize,
                follows: has(below, "follow"),
                form: Form::wanted(&output, has(below, "utc")),
            };
            logs.show(&LocalPaths::look_up(&instance)?)?;
        }
        (_, tool_calls::CALL) => return tool_calls::run_call(below, Target::Instance(instance)),
        (_, tool_calls::REPL) => return tool_calls::read_repl(Target::Instance(instance)).run(),
        (_, "cleanup") => clean_up_and_say(has(below, "dry-run"), &output)?,
        _ => return status(&chosen(instance, below)?, has(below, "all"), &output),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a command has a switch and it is given.
fn has(matches: &ArgMatches, switch: &str) -> bool {
    matches
        .try_get_one::<bool>(switch)
        .ok()
        .flatten()
        .copied()
        .unwrap_or(false)
}

/// One broker, or all for development.
fn chosen(instance: Instance, matches: &ArgMatches) -> Result<Vec<Instance>, CliError> {
    if has(matches, "all") {
        dev_instances()
    } else {
        Ok(vec![instance])
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

fn start_for_development(
    instance: Instance,
    matches: &ArgMatches,
    output: &Output,
    call: &Call<'_>,
) -> Result<ExitCode, CliError> {
    let option = |flag: &str| matches.get_one::<String>(flag).cloned().unwrap_or_default();
    let transport = match option("transport") {
        word if word == PIPE => "fifo".to_owned(),
        word => word,
    };
    let options = DevOptions {
        transport,
        http: option("http"),
        storage: option("storage"),
    };
    if has(matches, "foreground") {
        options.write(&paths_of(&instance)?)?;
        return Ok(serve_here(instance, true, call));
    }
    started(&instance, |paths| start_dev(paths, &options), output)?;
    Ok(ExitCode::SUCCESS)
}

/// Removes what brokers for development have left, and says what.
fn clean_up_and_say(is_dry: bool, output: &Output) -> Result<(), CliError> {
    let removed = clean_up(is_dry)?;
    if output.json {
        return print(&format!("{}\n", json!({ "removed": removed })));
    }
    let verb = if is_dry { "would remove" } else { "removed" };
    for file in &removed {
        print(&format!("{verb} {file}\n"))?;
    }
    if removed.is_empty() {
        print("nothing to remove\n")?;
    }
    Ok(())
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

fn status(instances: &[Instance], has_many: bool, output: &Output) -> Result<ExitCode, CliError> {
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
        let texts: Vec<String> = reports.iter().map(|report| report.text(output)).collect();
        print(&texts.join("\n"))?;
    }
    Ok(ExitCode::from(code))
}

fn json_of(report: &Report) -> Value {
    serde_json::to_value(report).unwrap_or_default()
}
