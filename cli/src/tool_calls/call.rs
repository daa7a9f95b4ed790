//! `call`: one call of a tool, for scripts.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgMatches};
use serde::Deserialize;

use super::arguments;
use super::caller::{Caller, Target};
use crate::error::CliError;
use crate::flags::{call_timeout, given_call_timeout};
use crate::output::{json_line, print};

/// The arguments, besides the flags that say which broker.
pub fn args() -> [Arg; 3] {
    [
        Arg::new("tool")
            .value_name("TOOL")
            .required(true)
            .help("Name of the tool"),
        Arg::new("arguments")
            .value_name("JSON|KEY=VALUE")
            .num_args(0..)
            .help("All arguments as one JSON object, or each as key=value; dots in the key make objects"),
        call_timeout(),
    ]
}

/// A call.
#[derive(Debug)]
pub struct Call {
    target: Target,
    tool: String,
    words: Vec<String>,
    timeout: Duration,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches, target: Target) -> Call {
    let words = matches.get_many::<String>("arguments").into_iter().flatten();
    Call {
        target,
        tool: matches.get_one::<String>("tool").cloned().unwrap_or_default(),
        words: words.cloned().collect(),
        timeout: given_call_timeout(matches),
    }
}

/// What the broker says of a call that it refuses.
#[derive(Deserialize)]
struct Refusal {
    code: String,
    message: String,
}

impl Call {
    /// Calls the tool and prints its answer, also that of a refusal.
    ///
    /// # Errors
    /// The broker does not run, the arguments cannot be read, the tool refuses, or there is no answer.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let mut caller = Caller::connect(&self.target)?;
        let arguments = arguments::object(&self.words, caller.schema_of(&self.tool)).map_err(CliError::Usage)?;
        let answer = caller.call(&self.tool, arguments, self.timeout);
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
