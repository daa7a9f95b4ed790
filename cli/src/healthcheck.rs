//! `healthcheck`: asks a broker for one of its probes. Container runtimes run it in images that have no shell and no curl.

use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, ValueParser};
use clap::{Arg, ArgMatches, Command};

use super::access::{self, BrokerUrl, EnvVars, Place};
use super::client;
use super::error::CliError;
use super::output::EXIT_CODES;
use common::config::{self, URL_ENV};

/// The variable of the setting `port`: in a container it names the port of the broker next to which this command runs.
const PORT_ENV: &str = "MCP_BROKER_PORT";

/// Longest wait for the whole answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The probes, the default first.
const PROBES: [&str; 3] = ["readyz", "livez", "startupz"];

/// The command with its help.
pub fn command() -> Command {
    let url = format!(
        "Address of the broker\n[default: http://127.0.0.1:PORT] [env: {URL_ENV}; PORT: {PORT_ENV}, else 8000]"
    );
    Command::new("healthcheck")
        .about("Ask a broker whether it is ready, for the health check of a container")
        .long_about(ABOUT)
        .arg(
            Arg::new("url")
                .long("url")
                .value_name("URL")
                .value_parser(ValueParser::os_string())
                .help(url),
        )
        .arg(access::context_flag())
        .arg(
            Arg::new("probe")
                .long("probe")
                .value_name("PROBE")
                .value_parser(PossibleValuesParser::new(PROBES))
                .default_value(PROBES[0])
                .help("Which probe to ask for"),
        )
        .after_help(EXIT_CODES)
}

const ABOUT: &str = "\
Ask a broker whether it is ready, for the health check of a container.

Sends GET /readyz, or another probe, and succeeds if the broker answers 200 within 3 s. It sends no key:
probes are public.";

/// The probe to ask for, and the broker to ask.
#[derive(Debug)]
pub struct HealthCheck {
    url: BrokerUrl,
    probe: String,
}

/// Reads the arguments. A flag beats the environment.
///
/// # Errors
/// [`CliError::Usage`] when the URL or the port cannot be used.
pub fn read(matches: &ArgMatches, env: &EnvVars) -> Result<HealthCheck, CliError> {
    let place = access::place(matches, env, false).map_err(CliError::Usage)?;
    let probe = matches.get_one::<String>("probe");
    let url = match place {
        Place::Url(url, source) => BrokerUrl::parse(&url, source),
        Place::Context(context) => BrokerUrl::parse(&context.url, "the context"),
        Place::Default => url_of_port(env),
    };
    Ok(HealthCheck {
        url: url.map_err(CliError::Usage)?,
        probe: probe.map_or(PROBES[0], String::as_str).to_owned(),
    })
}

fn url_of_port(env: &EnvVars) -> Result<BrokerUrl, String> {
    let port = access::variable(env, PORT_ENV)
        .unwrap_or(OsStr::new("8000"))
        .to_string_lossy();
    match port.trim().parse::<u16>() {
        Ok(port) if port > 0 => BrokerUrl::parse(&format!("http://127.0.0.1:{port}"), PORT_ENV),
        _ => Err(format!(
            "port = {} ({PORT_ENV}) names no port to ask; allowed: 1 to 65535, or --url",
            config::quoted_value("", &port)
        )),
    }
}

/// Asks for the probe. Prints nothing when the broker answers 200.
///
/// # Errors
/// [`CliError::Failed`] when the broker cannot be reached or its probe says no.
pub fn run(check: &HealthCheck) -> Result<(), CliError> {
    client::probe(&check.url, &format!("/{}", check.probe), TIMEOUT).map_err(CliError::Failed)
}
