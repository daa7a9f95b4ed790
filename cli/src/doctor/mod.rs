//! `doctor`: checks what the broker needs on this machine and says what to do about what it finds.
//!
//! A check is a function from [`Setup`] to its findings. All checks run at the same time, each on a thread of its own, so
//! that none waits for another or fails with it. The checks change nothing on this machine and in the storage.

mod certificates;
mod client_files;
mod clients;
mod configuration;
mod disk;
mod findings;
mod machine;
mod ports;
mod redis;
mod round_trip;
mod setup;
mod storage;

use std::{
    process::ExitCode,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use clap::{ArgMatches, Command};

use super::{
    access::{self, BrokerAccess, EnvVars},
    error::CliError,
    output::print,
    serve,
};
use crate::broker::Broker;
use common::exit;
use findings::{Finding, json_text, table_text, worst};
pub use setup::Setup;

/// Longest time of a check. Its parts have shorter limits.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// A check, by the name that its findings have.
type Check = (&'static str, fn(&Setup) -> Vec<Finding>);

const CHECKS: &[Check] = &[
    (configuration::NAME, configuration::check),
    (ports::NAME, ports::check),
    (storage::NAME, storage::check),
    (machine::FILES, machine::check_files),
    (machine::CLOCK, machine::check_clock),
    (machine::BROKERS, machine::check_brokers),
    (certificates::NAME, certificates::check),
    (round_trip::NAME, round_trip::check),
    (clients::NAME, clients::check),
];

/// The command with its help.
pub fn command() -> Command {
    let settings = serve::setting_args().map(|arg| arg.hide_short_help(true).help_heading("Settings of the broker"));
    Command::new("doctor")
        .about("Check this machine, the configuration, the storage and the clients, and say what to fix")
        .long_about(ABOUT)
        .args(access::flags())
        .args(settings)
        .after_help(EXIT_CODES)
}

const ABOUT: &str = "\
Check this machine, the configuration, the storage and the clients, and say what to fix.

Without a setting and without --url it checks your own broker, which agents start. With a setting it
checks what mcp-broker serve would need at its start: ports, Redis or the data folder, open files,
clocks, certificates. It shows the warnings of the running broker, and sends it requests over HTTP
and WebSocket, in both eras of MCP; if none runs, it starts one that keeps nothing. It reads the
configuration files of MCP clients.
It changes nothing, and prints no secret.";

const EXIT_CODES: &str = "\
Exit codes: 0 nothing to fix, 1 a warning or an error was found, 2 wrong command line.";

/// What to check, and how to print the findings.
#[derive(Debug)]
pub struct Doctor {
    setup: Setup,
    is_json: bool,
}

/// Reads the arguments. A configuration that cannot be used is a finding and no error.
///
/// # Errors
/// [`CliError::Usage`] when the URL or the key cannot be used.
pub fn read(mut matches: ArgMatches, env: &EnvVars) -> Result<Doctor, CliError> {
    let access = BrokerAccess::read(&matches, env).map_err(CliError::Usage)?;
    let is_url_given = access::names_broker(&matches, env, true).map_err(CliError::Usage)?;
    let is_json = matches.get_flag("json");
    let (file, flags) = serve::given_settings(&mut matches);
    let setup = Setup::read(file, flags, env.to_vec(), access, is_url_given).map_err(CliError::Usage)?;
    Ok(Doctor { setup, is_json })
}

/// Runs all checks and prints what they find. The exit code says whether something needs fixing.
///
/// # Errors
/// [`CliError::Failed`] when stdout cannot be written.
pub fn run(mut doctor: Doctor, broker: &'static dyn Broker) -> Result<ExitCode, CliError> {
    doctor.setup.broker = Some(broker);
    let findings = run_checks(CHECKS, &Arc::new(doctor.setup), CHECK_TIMEOUT);
    let code = if worst(&findings).needs_fix() { exit::FAILED } else { 0 };
    let text = if doctor.is_json {
        json_text(&findings)
    } else {
        table_text(&findings)
    };
    print(&text)?;
    Ok(ExitCode::from(code))
}

/// Runs the checks at the same time. A check that panics or does not end in time is a finding.
fn run_checks(checks: &[Check], setup: &Arc<Setup>, timeout: Duration) -> Vec<Finding> {
    let until = Instant::now() + timeout;
    let running: Vec<_> = checks.iter().map(|&check| (check.0, start(check, setup))).collect();
    let finish = |(name, findings): (&'static str, mpsc::Receiver<Vec<Finding>>)| {
        let left = until.saturating_duration_since(Instant::now());
        findings.recv_timeout(left).unwrap_or_else(|error| {
            let found = match error {
                RecvTimeoutError::Timeout => format!("the check did not end within {} s", timeout.as_secs()),
                RecvTimeoutError::Disconnected => "the check failed: this is a bug of mcp-broker".to_owned(),
            };
            vec![Finding::warning(name, found)]
        })
    };
    running.into_iter().flat_map(finish).collect()
}

fn start((name, check): Check, setup: &Arc<Setup>) -> mpsc::Receiver<Vec<Finding>> {
    let (found, findings) = mpsc::channel();
    let setup = Arc::clone(setup);
    // A thread that cannot be started leaves a closed channel.
    let _ = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _ = found.send(check(&setup));
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_fails_or_hangs_does_not_keep_the_others_from_reporting() {
        let setup = Arc::new(Setup::for_test());
        let checks: &[Check] = &[
            ("well", |_| vec![Finding::ok("well", "fine")]),
            // Without the output of a panic, which takes longer than a check may.
            ("panics", |_| std::panic::resume_unwind(Box::new(()))),
            ("hangs", |_| {
                thread::park_timeout(Duration::from_secs(60));
                Vec::new()
            }),
        ];
        let findings = run_checks(checks, &setup, Duration::from_secs(2));
        let names: Vec<_> = findings.iter().map(|finding| finding.check).collect();
        assert_eq!(names, ["well", "panics", "hangs"]);
        assert!(findings[1].found.contains("bug") && findings[2].found.contains("within 2 s"));
    }
}
