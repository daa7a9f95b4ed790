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

use clap::{Args, Command};

use super::{
    access::{AskingFlags, BrokerAccess, URL_DEFAULT, with_default},
    call::Call,
    error::CliError,
    output::print,
    serve,
};
use common::exit;
use findings::{Finding, json_text, table_text, worst};
pub use setup::Setup;

/// Longest time of a check. Its parts have shorter limits.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// A check, by the name that its findings have.
type Check = (&'static str, fn(&Setup) -> Vec<Finding>);

const CHECKS: &[Check] = &[
    ("configuration", configuration::check),
    ("ports", ports::check),
    ("storage", storage::check),
    ("open files", machine::check_files),
    ("clock", machine::check_clock),
    ("brokers", machine::check_brokers),
    ("certificates", certificates::check),
    ("round trip", round_trip::check),
    ("clients", clients::check),
];

/// Adds the arguments with their help.
pub fn augment(command: Command) -> Command {
    let settings = serve::setting_args().map(|arg| arg.hide_short_help(true).help_heading("Settings of the broker"));
    AskingFlags::augment_args(command)
        .about("Check this machine, the configuration, the storage and the clients, and say what to fix")
        .long_about(ABOUT)
        .mut_args(with_default(URL_DEFAULT))
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

/// Runs all checks and prints what they find. The exit code says whether something needs fixing. A configuration that cannot be
/// used is a finding and no error.
///
/// # Errors
/// [`CliError::Usage`] when the URL or the key cannot be used, [`CliError::Failed`] when stdout cannot be written.
pub fn run(mut call: Call<'_>) -> Result<ExitCode, CliError> {
    let AskingFlags { broker, json } = call.read()?;
    let access = BrokerAccess::read(&broker, call.env).map_err(CliError::Usage)?;
    let is_url_given = broker.name_broker(call.env, true).map_err(CliError::Usage)?;
    let (file, flags) = serve::given_settings(&mut call.matches);
    let setup = Setup::read(file, flags, call.env.to_vec(), access, is_url_given);
    let mut setup = setup.map_err(CliError::Usage)?;
    setup.broker = Some(call.broker);
    let findings = run_checks(CHECKS, &Arc::new(setup), CHECK_TIMEOUT);
    let code = if worst(&findings).needs_fix() { exit::FAILED } else { 0 };
    print(&if json {
        json_text(&findings)
    } else {
        table_text(&findings)
    })?;
    Ok(ExitCode::from(code))
}

/// Runs the checks at the same time. A check that panics or does not end in time is a finding.
fn run_checks(checks: &[Check], setup: &Arc<Setup>, timeout: Duration) -> Vec<Finding> {
    let until = Instant::now() + timeout;
    let running: Vec<_> = checks.iter().map(|&check| (check.0, start(check, setup))).collect();
    let finish = |(name, findings): (&'static str, mpsc::Receiver<Vec<Finding>>)| {
        let left = until.saturating_duration_since(Instant::now());
        let findings = findings.recv_timeout(left).unwrap_or_else(|error| {
            let found = match error {
                RecvTimeoutError::Timeout => format!("the check did not end within {} s", timeout.as_secs()),
                RecvTimeoutError::Disconnected => "the check failed: this is a bug of mcp-broker".to_owned(),
            };
            vec![Finding::warning(found)]
        });
        findings.into_iter().map(move |finding| finding.of(name))
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
            ("well", |_| vec![Finding::ok("fine")]),
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
