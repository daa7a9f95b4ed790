//! `gateway list` and `gateway show`.

use clap::{ArgMatches, Command};
use rest::backends::Backend;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::backend::{self, PATH, backend_name};
use crate::{
    client::ApiRequest,
    error::CliError,
    operate::{
        job::{Context, Job},
        lists::{self, parsed},
    },
    output::{json_line, print},
};

/// The name of the command that shows one backend.
pub const SHOW: &str = "show";

/// `list` with its help.
pub fn command() -> Command {
    Command::new("list").about("List the backends with their states")
}

/// `show` with its help.
pub fn show() -> Command {
    Command::new(SHOW)
        .about("Show all details of a backend")
        .arg(backend_name())
}

#[derive(Debug)]
enum List {
    All,
    One(String),
}

/// Reads the arguments of `list`.
pub fn read() -> Box<dyn Job> {
    Box::new(List::All)
}

/// Reads the arguments of `show`.
pub fn read_show(matches: &ArgMatches) -> Box<dyn Job> {
    let name = matches.get_one::<String>("backend").cloned().unwrap_or_default();
    Box::new(List::One(backend::path_of(&name)))
}

#[derive(Deserialize)]
struct Answer {
    backends: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Health {
    #[serde(default)]
    config_error: Option<String>,
}

impl Job for List {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let Self::One(path) = self else {
            return list(context);
        };
        let body = context.client.send(&ApiRequest::get(path.clone()))?;
        lists::show_one(context, &body, |backend: &Backend| {
            context.output.table(&backend::details(&context.output, backend))
        })
    }
}

fn list(context: &Context) -> Result<(), CliError> {
    let body = context.client.send(&ApiRequest::get(PATH))?;
    let Answer { backends } = parsed(&body)?;
    let health = context.client.send(&ApiRequest::get("/health"))?;
    if let Health {
        config_error: Some(error),
    } = parsed(&health)?
    {
        let error = common::config::one_line(&error);
        eprintln!(
            "the configuration file cannot be used, so the broker keeps the backends that it read before: {error}"
        );
    }
    if context.output.json {
        let lines: String = backends.iter().map(|backend| json_line(backend)).collect();
        return print(&lines);
    }
    if backends.is_empty() {
        return print("no backends: add one with gateway add, or those of a client with gateway import\n");
    }
    let backends: Vec<Backend> = backends
        .iter()
        .map(|backend| parsed(backend.get()))
        .collect::<Result<_, _>>()?;
    print(&context.output.table(&backend::table(&context.output, &backends)))
}
