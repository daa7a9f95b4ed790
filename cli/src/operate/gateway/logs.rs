//! `gateway logs`: what a backend has written to stderr.

use std::{fmt::Write as _, thread::sleep, time::Duration};

use clap::{ArgMatches, Command};
use rest::backends::BackendLines;

use super::backend::{self, backend_name};
use crate::{
    client::{ApiRequest, with_query},
    error::CliError,
    flags::switch,
    operate::{
        job::{Context, Job},
        lists::parsed,
    },
    output::{Written, json_value_line, write},
    table::escaped,
};

/// The name of the command.
pub const NAME: &str = "logs";

/// The pause between two looks for new lines.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("Show the last lines that a backend has written to stderr")
        .arg(backend_name())
        .arg(switch("follow", "Print new lines as they come").short('f'))
}

#[derive(Debug)]
struct Logs {
    path: String,
    follows: bool,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    let name = matches.get_one::<String>("backend").cloned().unwrap_or_default();
    Box::new(Logs {
        path: format!("{}/log", backend::path_of(&name)),
        follows: matches.get_flag("follow"),
    })
}

impl Job for Logs {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let mut next = 0;
        loop {
            let path = with_query(&self.path, [Some(format!("from={next}"))]);
            let answer: BackendLines = parsed(&context.client.send(&ApiRequest::get(path))?)?;
            next = answer.next;
            let mut text = String::new();
            for line in &answer.lines {
                if context.output.json {
                    text.push_str(&json_value_line(&serde_json::json!(line)));
                } else {
                    let _ = writeln!(text, "{} {}", context.output.time(&line.at), escaped(&line.text));
                }
            }
            if write(&text)? == Written::Closed || !self.follows {
                return Ok(());
            }
            sleep(LOOK_INTERVAL);
        }
    }
}
