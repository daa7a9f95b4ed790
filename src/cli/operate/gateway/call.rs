//! `gateway call`: one call of a tool of a backend, for scripts.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use serde_json::{Map, Value};

use crate::cli::{
    error::CliError,
    flags::{call_timeout, given_call_timeout, json_object},
    operate::{
        job::{Context, Job},
        tools,
    },
    output::{json_line, print},
};

/// The name of the command.
pub const NAME: &str = "call";

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
                .value_parser(json_object)
                .help("The arguments as one JSON object\n[default: {}]"),
        )
        .arg(call_timeout())
}

#[derive(Debug)]
struct Call {
    tool: String,
    arguments: Value,
    timeout: Duration,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    let arguments = matches.get_one::<Map<String, Value>>("arguments").cloned();
    Box::new(Call {
        tool: matches.get_one::<String>("tool").cloned().unwrap_or_default(),
        arguments: Value::Object(arguments.unwrap_or_default()),
        timeout: given_call_timeout(matches),
    })
}

impl Job for Call {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let mut ask = tools::request(&self.tool, &self.arguments);
        ask.timeout = self.timeout;
        ask.bytes_max = ANSWER_BYTES_MAX;
        let result = tools::result_of(&context.client, &self.tool, &ask).map_err(|mut error| {
            if error.line.contains("Unknown tool") {
                error.line += "; gateway list shows the backends, and gateway tools BACKEND the names of their tools";
            }
            error
        })?;
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
