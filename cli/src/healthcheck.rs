//! `healthcheck`: asks a broker for one of its probes. Container runtimes run it in images that have no shell and no curl.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, builder::PossibleValuesParser};

use super::access::{self, BrokerUrl, EnvVars, context_help};
use super::call::{Call, Run, done};
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

const ABOUT: &str = "\
Ask a broker whether it is ready, for the health check of a container.

Sends GET /readyz, or another probe, and succeeds if the broker answers 200 within 3 s. It sends no key:
probes are public.";

/// Ask a broker whether it is ready, for the health check of a container.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES)]
pub struct HealthCheck {
    #[arg(long, value_name = "URL", help = format!("Address of the broker\n[default: http://127.0.0.1:PORT] \
        [env: {URL_ENV}; PORT: {PORT_ENV}, else 8000]"))]
    url: Option<OsString>,
    #[arg(long, value_name = "NAME", conflicts_with = "url", help = context_help())]
    context: Option<String>,
    /// Which probe to ask for.
    #[arg(long, value_name = "PROBE", value_parser = PossibleValuesParser::new(PROBES), default_value = PROBES[0])]
    probe: String,
}

impl Run for HealthCheck {
    /// Asks for the probe. Prints nothing when the broker answers 200.
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        let url = self.broker(call.env).map_err(CliError::Usage)?;
        let asked = client::probe(&url, &format!("/{}", self.probe), TIMEOUT);
        done(asked.map_err(CliError::Failed))
    }
}

impl HealthCheck {
    fn broker(&self, env: &EnvVars) -> Result<BrokerUrl, String> {
        let place = access::place(self.url.as_deref(), self.context.as_deref(), env, false)?;
        place.url()?.map_or_else(|| url_of_port(env), Ok)
    }
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
