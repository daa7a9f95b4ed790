//! The command line: parses the arguments and runs the command.

mod access;
mod agent_clients;
pub mod broker;
mod call;
mod client;
mod client_file;
mod commands;
mod completions;
mod config_entry;
mod connect;
mod console;
mod context;
mod contexts;
mod demo;
mod doctor;
mod early_flags;
mod edited_file;
mod embedded;
mod error;
mod flags;
mod healthcheck;
mod hook;
mod keygen;
mod local_command;
mod man;
mod mcp_client;
mod operate;
mod output;
mod partial_file;
mod project;
mod question;
mod refusals;
mod screen;
mod serve;
mod setup;
mod short;
mod table;
mod tool_calls;
mod top;
mod usage_errors;

use std::ffi::OsString;
use std::process::ExitCode;

pub use commands::all as command;
pub use error::CliError;

use broker::Broker;
use common::{exit, telemetry};

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
    carry_out(args, &env, broker).unwrap_or_else(|stop| match stop {
        // A client takes the code of a wrong command line as a refusal of its turn.
        CliError::Usage(line) if is_hook => report(CliError::Failed(line), speaks_json),
        stop => report(stop, speaks_json),
    })
}

/// Carries out a command line, whose first argument is the name of the program.
fn carry_out(
    mut args: Vec<OsString>,
    env: &access::EnvVars,
    broker: &'static dyn Broker,
) -> Result<ExitCode, CliError> {
    let moved = early_flags::move_behind_command(&mut args)?;
    if let Some(matches) = connect::matches_alone(&args) {
        let call = call::Call {
            matches,
            env,
            broker,
            all: command,
        };
        return call.run::<connect::ConnectFlags>();
    }
    let mut program = command();
    program.build();
    early_flags::check(&program, &args, moved)?;
    let matches = program.try_get_matches_from_mut(&args);
    let matches = matches.map_err(|error| usage_errors::usage_error(error, &program, &args))?;
    commands::run(matches, env, broker)
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
