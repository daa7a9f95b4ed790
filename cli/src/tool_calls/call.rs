//! `call`: one call of a tool, for scripts.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use super::arguments;
use super::caller::{Caller, Target};
use crate::error::CliError;
use crate::flags::seconds;
use crate::output::{json_line, print};

const ABOUT: &str = "\
Call a tool of a broker, its own or one of a backend, and print the answer as JSON.

The arguments are one JSON object, or words of the form key=value. A value is text where the schema of the tool wants a
string; elsewhere it is JSON if it can be read as JSON, and text otherwise. Each call has a connection of its own: to act
as the session of an earlier call, pass its session_id.

  mcp-broker call list_sessions '{\"status\": \"all\", \"limit\": 5}'
  mcp-broker call register_session name=alice metadata.team=red
  mcp-broker call github__search_code query=main";

/// Call a tool of a broker and print its answer as JSON.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = super::CODES)]
pub struct CallArguments {
    /// Name of the tool.
    #[arg(value_name = "TOOL")]
    tool: String,
    /// All arguments as one JSON object, or each as key=value; dots in the key make objects.
    #[arg(value_name = "JSON|KEY=VALUE")]
    arguments: Vec<String>,
    /// Longest wait for the answer, from 1s to 1h.
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=3600), default_value = "130s")]
    timeout: u64,
}

/// What the broker says of a call that it refuses.
#[derive(Deserialize)]
struct Refusal {
    code: String,
    message: String,
}

impl CallArguments {
    /// Calls the tool and prints its answer, also that of a refusal.
    ///
    /// # Errors
    /// The broker does not run, the arguments cannot be read, the tool refuses, or there is no answer.
    pub fn run(self, target: Target) -> Result<ExitCode, CliError> {
        let mut caller = Caller::connect(&target)?;
        let arguments = arguments::object(&self.arguments, caller.schema_of(&self.tool)).map_err(CliError::Usage)?;
        let answer = caller.call(&self.tool, arguments, Duration::from_secs(self.timeout));
        let answer = answer.map_err(|error| caller.failure(&self.tool, &error))?;
        print(&json_line(&answer.value))?;
        if !answer.is_error {
            return Ok(ExitCode::SUCCESS);
        }
        let line = match serde_json::from_str(answer.value.get()) {
            Ok(Refusal { code, message }) => format!("{code}: {message}"),
            Err(_) => format!("{}: the tool answered with an error", self.tool),
        };
        Err(CliError::Failed(common::config::one_line(&line)))
    }
}
