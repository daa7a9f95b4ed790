//! `demo`: starts a broker that keeps nothing, and plays a team of agents that work on a feature.
//!
//! `stage` is the broker with the agents and the narration, `agent` one agent on the wire, `story` what the agents do,
//! `script` what they say, and `staging` the MCP server that they share.

mod agent;
mod script;
mod stage;
mod staging;
mod story;

use crate::broker::Broker;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{
    embedded::EmbeddedBroker,
    error::CliError,
    output::{EXIT_CODES, print},
};
use common::config::{Integer, Rule, Span};
use stage::{Stage, Stop};

const DURATION_DEFAULT: &str = "3m";
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

/// The command with its help.
pub fn command() -> Command {
    let duration = |text: &str| {
        let [least, most] = DURATION_SECONDS.map(Duration::from_secs);
        let rule = Span(least..=most);
        rule.parse(text).map_err(|_| rule.allowed())
    };
    let port = |text: &str| {
        let rule = Integer(0..=u16::MAX);
        rule.parse(text).map_err(|_| rule.allowed())
    };
    Command::new("demo")
        .about("Start a broker that keeps nothing, and play a team of agents for a few minutes")
        .long_about(ABOUT)
        .arg(
            Arg::new("duration")
                .long("duration")
                .value_name("TIME")
                .default_value(DURATION_DEFAULT)
                .value_parser(duration)
                .help("How long to play, at least ten seconds. The story always plays to its end"),
        )
        .arg(
            Arg::new("port")
                .long("port")
                .value_name("PORT")
                .default_value("0")
                .value_parser(port)
                .help("Port of the broker; 0 takes a free one"),
        )
        .arg(
            Arg::new(staging::FLAG)
                .long(staging::FLAG)
                .hide(true)
                .action(ArgAction::SetTrue),
        )
        .after_help(EXIT_CODES)
}

const ABOUT: &str = "\
Start a broker that keeps nothing, and play a team of agents for a few minutes.

The broker listens on 127.0.0.1, asks for no key, and stops with the demo or with Ctrl-C. The agents talk
to it over WebSocket and HTTP like any other client: they register, negotiate, work in threads,
broadcast, fall silent and come back, and redrive dead letters. They share an MCP server
behind the gateway, and ask you a question. Watch them on the dashboard and answer at the desk, whose
addresses are printed first.";

/// What to play.
#[derive(Debug)]
pub struct Demo {
    duration: Duration,
    port: u16,
    /// Be the MCP server of another demo instead.
    is_staging_server: bool,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Demo {
    Demo {
        duration: matches.get_one("duration").copied().unwrap_or(Duration::from_secs(180)),
        port: matches.get_one("port").copied().unwrap_or(0),
        is_staging_server: matches.get_flag(staging::FLAG),
    }
}

/// Plays the demo to its end, or until the process is asked to stop.
///
/// # Errors
/// [`CliError::Failed`] when the broker cannot start, or a step of the story fails.
pub fn run(demo: &Demo, broker: &'static dyn Broker) -> Result<(), CliError> {
    if demo.is_staging_server {
        staging::serve();
        return Ok(());
    }
    let port = demo.port.to_string();
    let settings: Vec<_> = SETTINGS.iter().copied().chain([("port", port.as_str())]).collect();
    let broker = EmbeddedBroker::start_until_signal(broker, &settings).map_err(CliError::Failed)?;
    let address = broker.address;
    print(&format!(
        "A broker of its own runs until the end of the demo; Ctrl-C stops it earlier.\n\n\
         dashboard  http://{address}/dashboard\n\
         desk       http://{address}/desk\n\
         REST       http://{address}/api/v1/sessions (described at http://{address}/docs)\n\
         agents     http://{address}/mcp or ws://{address}/ws\n\n"
    ))?;
    let mut stage = Stage::new(&broker, demo.duration).map_err(CliError::Failed)?;
    match story::play(&mut stage) {
        Ok(()) | Err(Stop::Ended) => {}
        // What fails while the broker stops is no failure.
        Err(Stop::Failed(_)) if broker.is_interrupted() => {}
        Err(Stop::Failed(reason)) => return Err(CliError::Failed(format!("the demo cannot continue: {reason}"))),
    }
    drop(stage);
    drop(broker);
    print("\nThe demo has ended; it leaves nothing behind. Start your own broker: mcp-broker serve\n")
}
