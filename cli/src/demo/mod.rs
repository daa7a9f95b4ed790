//! `demo`: starts a broker that keeps nothing, and plays a team of agents that work on a feature.
//!
//! `stage` is the broker with the agents and the narration, `agent` one agent on the wire, `story` what the agents do,
//! `script` what they say, and `staging` the MCP server that they share.

mod agent;
mod script;
mod stage;
mod staging;
mod story;

use std::{process::ExitCode, time::Duration};

use clap::Args;

use super::{
    call::{Call, Run, done},
    embedded::EmbeddedBroker,
    error::CliError,
    output::{EXIT_CODES, print},
};
use common::config::{Integer, Rule, Span};
use stage::{Stage, Stop};

/// Shortest and longest time of a demo, in seconds.
const DURATION_SECONDS: [u64; 2] = [1, 24 * 3600];

/// Settings of the broker. Presence changes within seconds, two failed deliveries are enough for a dead letter, and an agent
/// may add a program as a backend.
const SETTINGS: [(&str, &str); 5] = [
    ("heartbeat_interval", "500ms"),
    ("stale_threshold", "3s"),
    ("disconnect_threshold", "60s"),
    ("delivery_limit", "2"),
    ("gateway_commands", "admin"),
];

const ABOUT: &str = "\
Start a broker that keeps nothing, and play a team of agents for a few minutes.

The broker listens on 127.0.0.1, asks for no key, and stops with the demo or with Ctrl-C. The agents talk
to it over WebSocket and HTTP like any other client: they register, negotiate, work in threads,
broadcast, fall silent and come back, and redrive dead letters. They share an MCP server
behind the gateway, and ask you a question. Watch them on the dashboard and answer at the desk, whose
addresses are printed first.";

/// Start a broker that keeps nothing, and play a team of agents for a few minutes.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES)]
pub struct Demo {
    /// How long to play, at least ten seconds. The story always plays to its end.
    #[arg(long, value_name = "TIME", default_value = "3m", value_parser = duration)]
    duration: Duration,
    /// Port of the broker; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value = "0", value_parser = port)]
    port: u16,
    // Be the MCP server of another demo instead.
    #[arg(long = staging::FLAG, hide = true)]
    is_staging_server: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let [least, most] = DURATION_SECONDS.map(Duration::from_secs);
    let rule = Span(least..=most);
    rule.parse(text).map_err(|_| rule.allowed())
}

fn port(text: &str) -> Result<u16, String> {
    let rule = Integer(0..=u16::MAX);
    rule.parse(text).map_err(|_| rule.allowed())
}

impl Run for Demo {
    /// Plays the demo to its end, or until the process is asked to stop.
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        if self.is_staging_server {
            staging::serve();
            return Ok(ExitCode::SUCCESS);
        }
        let port = self.port.to_string();
        let settings: Vec<_> = SETTINGS.iter().copied().chain([("port", port.as_str())]).collect();
        let broker = EmbeddedBroker::start(call.broker, &settings, true).map_err(CliError::Failed)?;
        let address = broker.address;
        print(&format!(
            "A broker of its own runs until the end of the demo; Ctrl-C stops it earlier.\n\n\
             dashboard  http://{address}/dashboard\n\
             desk       http://{address}/desk\n\
             REST       http://{address}/api/v1/sessions (described at http://{address}/docs)\n\
             agents     http://{address}/mcp or ws://{address}/ws\n\n"
        ))?;
        let mut stage = Stage::new(&broker, self.duration).map_err(CliError::Failed)?;
        match story::play(&mut stage) {
            Ok(()) | Err(Stop::Ended) => {}
            // What fails while the broker stops is no failure.
            Err(Stop::Failed(_)) if broker.is_interrupted() => {}
            Err(Stop::Failed(reason)) => return Err(CliError::Failed(format!("the demo cannot continue: {reason}"))),
        }
        drop(stage);
        drop(broker);
        done(print(
            "\nThe demo has ended; it leaves nothing behind. Start your own broker: mcp-broker serve\n",
        ))
    }
}
