//! The command line: parses the arguments and runs the command.

mod access;
mod agent_clients;
pub mod broker;
mod client;
mod client_file;
mod completions;
mod config_entry;
mod connect;
mod console;
mod context;
mod contexts;
mod demo;
mod doctor;
mod edited_file;
mod embedded;
mod error;
mod flags;
mod healthcheck;
mod hook;
mod keygen;
mod local;
mod man;
mod mcp_client;
mod operate;
mod output;
mod partial_file;
mod project;
mod question;
mod refusals;
mod root_help;
mod screen;
mod serve;
mod setup;
mod short;
mod table;
mod tool_calls;
mod top;
mod usage_errors;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;

pub use error::CliError;

use broker::Broker;
use common::{exit, telemetry};
use serve::Serve;

/// Runs the command line and returns the exit code of the process.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    broker: &'static dyn Broker,
) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let env: Vec<(OsString, OsString)> = env.into_iter().collect();
    let speaks_json = serve::wants_json_errors(&args, &env);
    let is_hook = hook::is_asked(&args);
    let done = match parse(args, env) {
        Ok(Action::Serve(config)) => return serve::run(*config, broker),
        Ok(Action::Project(command)) => project::run(&command),
        Ok(Action::Operate(operation)) => operation.run(),
        Ok(Action::Gateway(alone)) => match alone.run(broker) {
            Ok(code) => return code,
            Err(stop) => Err(stop),
        },
        Ok(Action::ToolCalls(calls)) => match calls.run() {
            Ok(code) => return code,
            Err(stop) => Err(stop),
        },
        Ok(Action::Top(top)) => top::run(*top),
        Ok(Action::Console(console)) => console::run(*console),
        Ok(Action::Completions(shell)) => completions::run(shell, command()),
        Ok(Action::Man(folder)) => man::run(&folder, command()),
        Ok(Action::Context(command)) => context::run(*command),
        Ok(Action::Keygen) => keygen::run(),
        Ok(Action::HealthCheck(check)) => healthcheck::run(&check),
        Ok(Action::ConfigEntry(entry)) => config_entry::run(&entry),
        Ok(Action::Setup(setup)) => setup::run(&setup),
        Ok(Action::Connect(front)) => connect::run(*front),
        Ok(Action::Demo(demo)) => demo::run(&demo, broker),
        Ok(Action::Hook(hook)) => match hook.run() {
            Ok(code) => return code,
            Err(stop) => Err(stop),
        },
        Ok(Action::Local(command)) => match command.run(broker) {
            Ok(code) => return code,
            Err(stop) => Err(stop),
        },
        Ok(Action::Doctor(doctor)) => match doctor::run(*doctor, broker) {
            Ok(code) => return code,
            Err(stop) => Err(stop),
        },
        // A client takes the code of a wrong command line as a refusal of its turn.
        Err(CliError::Usage(line)) if is_hook => Err(CliError::Failed(line)),
        Err(stop) => Err(stop),
    };
    done.map_or_else(|stop| report(stop, speaks_json), |()| ExitCode::SUCCESS)
}

/// The command that a command line asks for.
#[derive(Debug)]
pub enum Action {
    Serve(Box<Serve>),
    Project(Box<project::ProjectCommand>),
    Operate(Box<operate::Operation>),
    Gateway(Box<operate::gateway::Alone>),
    Top(Box<top::Top>),
    Console(Box<console::Console>),
    Completions(clap_complete::Shell),
    Man(PathBuf),
    Context(Box<context::ContextCommand>),
    Keygen,
    HealthCheck(healthcheck::HealthCheck),
    Doctor(Box<doctor::Doctor>),
    Connect(Box<connect::Connect>),
    Demo(demo::Demo),
    ConfigEntry(Box<config_entry::ConfigEntry>),
    Hook(hook::Hook),
    Local(Box<local::LocalCommand>),
    Setup(Box<setup::Setup>),
    ToolCalls(Box<tool_calls::ToolCalls>),
}

/// Parses a command line, whose first argument is the program name, with its environment.
///
/// # Errors
/// [`CliError::Help`] when only help is to be printed, [`CliError::Usage`] when the command line is wrong.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Action, CliError> {
    let args: Vec<OsString> = args.into_iter().collect();
    let env: Vec<(OsString, OsString)> = env.into_iter().collect();
    if let Some(matches) = connect::matches_alone(&args) {
        return connect::read(&matches, &matches, &env)
            .map(Box::new)
            .map(Action::Connect);
    }
    let mut command = command();
    command.build();
    let matches = command.try_get_matches_from_mut(&args);
    let mut matches = matches.map_err(|error| usage_errors::usage_error(error, &command, &args))?;
    match matches.remove_subcommand() {
        Some((name, below)) if name == "project" => {
            project::read(below, &matches, env).map(Box::new).map(Action::Project)
        }
        Some((name, below)) if name == "healthcheck" => {
            healthcheck::read(&below, &matches, &env).map(Action::HealthCheck)
        }
        Some((name, below)) if name == connect::NAME => {
            connect::read(&below, &matches, &env).map(Box::new).map(Action::Connect)
        }
        Some((name, below)) if name == "config" => config_entry::read(&below, &matches, &env)
            .map(Box::new)
            .map(Action::ConfigEntry),
        Some((name, below)) if name == "setup" => setup::read(&below, &matches, &env).map(Box::new).map(Action::Setup),
        Some((name, below)) if name == "doctor" => doctor::read(below, &matches, env).map(Box::new).map(Action::Doctor),
        Some((name, below)) if operate::is_known(&name) => {
            if name == operate::gateway::NAME
                && let Some((tool_calls::CALL, below)) = below.subcommand()
            {
                return tool_calls::read(tool_calls::CALL, below, &matches, &env)
                    .map(Box::new)
                    .map(Action::ToolCalls);
            }
            if name == operate::gateway::NAME
                && let Some(alone) = operate::gateway::read_alone(&below, &env)?
            {
                return Ok(Action::Gateway(Box::new(alone)));
            }
            operate::read(&name, &below, &matches, &env)
                .map(Box::new)
                .map(Action::Operate)
        }
        Some((name, below)) if tool_calls::is_known(&name) => tool_calls::read(&name, &below, &matches, &env)
            .map(Box::new)
            .map(Action::ToolCalls),
        Some((name, below)) if name == "top" => top::read(&below, &matches, &env).map(Box::new).map(Action::Top),
        Some((name, below)) if name == console::NAME => {
            console::read(&below, &matches, &env).map(Box::new).map(Action::Console)
        }
        Some((name, _)) if let Some(flag) = access::first_broker_flag(&matches) => Err(CliError::Usage(format!(
            "--{flag} is not known before {name}; it belongs to commands that ask a broker, such as project"
        ))),
        Some((name, below)) if local::is_known(&name) => {
            local::read(&name, &below, env).map(Box::new).map(Action::Local)
        }
        Some((name, below)) if name == hook::NAME => hook::read(&below).map(Action::Hook),
        Some((name, below)) if name == context::NAME => context::read(&below).map(Box::new).map(Action::Context),
        Some((name, below)) if name == "demo" => Ok(Action::Demo(demo::read(&below))),
        Some((name, below)) if name == "serve" => serve::read(below, env).map(Box::new).map(Action::Serve),
        Some((name, _)) if name == "keygen" => Ok(Action::Keygen),
        Some((name, below)) if name == "completions" => Ok(Action::Completions(completions::read(&below))),
        Some((name, below)) if name == "man" => Ok(Action::Man(man::read(&below))),
        _ => Err(CliError::Usage(usage_errors::no_command(&command))),
    }
}

/// Builds all commands, flags and help texts.
pub fn command() -> Command {
    let program = Command::new("mcp-broker")
        .about("A message broker for AI agents that speak MCP")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(access::with_broker_of_user(access::flags()).map(|flag| flag.global(false)))
        .after_help(format!(
            "mcp-broker COMMAND --help describes a command.\n\n{}",
            serve::EXIT_CODES
        ));
    let alone = [
        serve::command(),
        local::aliases(),
        connect::command(),
        hook::command(),
        console::command(),
        top::command(),
        project::command(),
        context::command(),
        keygen::command(),
        healthcheck::command(),
        doctor::command(),
        demo::command(),
        setup::command(),
        config_entry::command(),
        completions::command(),
        man::command(),
    ];
    let commands = alone.into_iter().chain(local::commands()).chain(operate::commands());
    root_help::grouped(program, commands.chain(tool_calls::commands()))
}

fn report(stop: CliError, speaks_json: bool) -> ExitCode {
    let (line, code) = match stop {
        CliError::Help(help) => {
            // An error means that the reader closed the pipe.
            let _ = help.print();
            return ExitCode::from(u8::try_from(help.exit_code()).unwrap_or(exit::USAGE));
        }
        CliError::Usage(line) => (line, exit::USAGE),
        CliError::Failed(line) => (line, exit::FAILED),
        CliError::TimedOut(line) => (line, exit::TIMED_OUT),
        CliError::Nothing(Some(line)) => (line, exit::NOTHING),
        CliError::Nothing(None) => return ExitCode::from(exit::NOTHING),
        CliError::NotRunning(line) => (line, exit::NOT_RUNNING),
        CliError::NotReady(line, code) => (line, code),
        CliError::Signalled(signal) => {
            return ExitCode::from(exit::SIGNALLED | u8::try_from(signal).unwrap_or(0));
        }
    };
    telemetry::print_error(speaks_json, &line);
    ExitCode::from(code)
}
