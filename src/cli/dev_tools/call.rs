//! `dev call`: one call of a tool, for scripts.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgMatches};
use serde_json::{Map, Value};

use super::arguments;
use super::caller::{Caller, failed};
use crate::cli::error::CliError;
use crate::cli::flags::{call_timeout, given_call_timeout, json_object};
use crate::cli::output::{json_value_line, print};
use crate::exit;
use crate::local::Instance;

/// The arguments, besides the name of the broker.
pub fn args() -> [Arg; 4] {
    [
        Arg::new("tool")
            .value_name("TOOL")
            .required(true)
            .help("Name of the tool"),
        Arg::new("arguments")
            .value_name("KEY=VALUE")
            .num_args(0..)
            .help("An argument of the tool; dots in the key make objects"),
        Arg::new("json")
            .long("json")
            .value_name("OBJECT")
            .conflicts_with("arguments")
            .value_parser(json_object)
            .help("All arguments as one JSON object"),
        call_timeout(),
    ]
}

/// A call.
#[derive(Debug)]
pub struct Call {
    instance: Instance,
    tool: String,
    words: Vec<String>,
    object: Option<Map<String, Value>>,
    timeout: Duration,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches, instance: Instance) -> Call {
    let words = matches.get_many::<String>("arguments").into_iter().flatten();
    Call {
        instance,
        tool: matches.get_one::<String>("tool").cloned().unwrap_or_default(),
        words: words.cloned().collect(),
        object: matches.get_one::<Map<String, Value>>("json").cloned(),
        timeout: given_call_timeout(matches),
    }
}

impl Call {
    /// Calls the tool and prints its answer. The exit code says whether the tool refused.
    ///
    /// # Errors
    /// The broker does not run, the arguments cannot be read, or there is no answer.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let mut caller = Caller::connect(&self.instance)?;
        let tool = caller.tool(&self.tool).map_err(CliError::Usage)?;
        let arguments = match self.object {
            Some(object) => object,
            None => arguments::object(&self.words, &tool.input_schema).map_err(CliError::Usage)?,
        };
        let answer = caller.call(&self.tool, arguments, self.timeout);
        let answer = answer.map_err(|error| failed(&self.tool, &error))?;
        print(&json_value_line(&answer.value))?;
        Ok(ExitCode::from(if answer.is_error { exit::FAILED } else { 0 }))
    }
}
