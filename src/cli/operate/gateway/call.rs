//! `gateway call`: one call of a tool of a backend, for scripts.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use serde_json::{Map, Value};

use crate::cli::{
    error::CliError,
    flags::duration,
    operate::{
        job::{Context, Job},
        tools,
    },
    output::{json_line, print},
};

/// The name of the command.
pub const NAME: &str = "call";

/// The longest call that the user may ask for, in seconds.
const TIMEOUT_SECONDS_MAX: u64 = 3600;
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

const ABOUT: &str = "\
Call a tool of a backend through the broker, and print its result as JSON: the object of the result, or else its content.

  mcp-broker gateway call github__search_code '{\"query\": \"repo:me/x main\"}'";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("Call a tool of a backend through the broker, and print its result as JSON")
        .long_about(ABOUT)
        .arg(
            Arg::new("tool")
                .value_name("NAME__TOOL")
                .required(true)
                .help("Name of the tool, as gateway tools shows it"),
        )
        .arg(
            Arg::new("arguments")
                .value_name("OBJECT")
                .value_parser(|text: &str| {
                    let object = serde_json::from_str::<Map<String, Value>>(text);
                    object.map(Value::Object).map_err(|_| "one JSON object".to_owned())
                })
                .help("The arguments as one JSON object\n[default: {}]"),
        )
        .arg(
            duration(
                "timeout",
                1..=TIMEOUT_SECONDS_MAX,
                "Longest wait for the answer, from 1s to 1h",
            )
            .default_value("130s"),
        )
}

#[derive(Debug)]
struct Call {
    tool: String,
    arguments: Value,
    timeout: Duration,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    let arguments = matches.get_one::<Value>("arguments").cloned();
    Box::new(Call {
        tool: matches.get_one::<String>("tool").cloned().unwrap_or_default(),
        arguments: arguments.unwrap_or_else(|| Value::Object(Map::new())),
        timeout: Duration::from_secs(matches.get_one::<u64>("timeout").copied().unwrap_or_default()),
    })
}

impl Job for Call {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let mut ask = tools::request(&self.tool, &self.arguments);
        ask.timeout = self.timeout;
        ask.bytes_max = ANSWER_BYTES_MAX;
        let result = tools::result_of(&context.client, &self.tool, &ask)?;
        // What the gateway refuses has an object of the broker's own form.
        if result.is_error
            && let Some(object) = &result.structured_content
            && let Ok(refusal) = tools::refusal(&context.client, object)
        {
            return Err(refusal.into());
        }
        if let Some(value) = result.structured_content.or(result.content) {
            print(&json_line(&value))?;
        }
        if result.is_error {
            let line = format!("{}: the tool answered with an error", self.tool);
            return Err(CliError::Failed(crate::config::one_line(&line)));
        }
        Ok(())
    }
}
