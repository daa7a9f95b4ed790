//! `gateway add` and `gateway remove`: one backend in the configuration file of a broker.

use std::{fmt::Write, path::PathBuf};

use actors::model::BackendName;
use clap::{Arg, ArgAction, ArgMatches, Command, builder::ValueParser};
use serde_json::{Map, Value, json};

use super::configuration_file::{self, names_in, unusable, with_table, without_table};
use crate::{
    edited_file::Edit,
    error::CliError,
    operate::gateway::imported::{References, is_relative, table_of, toml_string},
    output::print,
};
use common::config::{self, check_backends};

/// The names of the commands.
pub const ADD: &str = "add";
pub const REMOVE: &str = "remove";

const ADD_ABOUT: &str = "\
Add a backend to the configuration file of a broker: a program on stdin and stdout, or a server at a URL.

A broker that runs with the file starts the backend at once. Values may name variables of the broker, which are replaced
when the backend starts: quote them, so that the shell does not replace them.

Relative paths start at the folder in which this command runs, which becomes the working directory of the program.

  mcp-broker gateway add notes -- python server.py
  mcp-broker gateway add github --env 'GITHUB_TOKEN=${GITHUB_TOKEN}' -- npx -y @modelcontextprotocol/server-github
  mcp-broker gateway add docs --url https://docs.example.com/mcp --header 'Authorization: Bearer ${DOCS_TOKEN}'";

const REMOVE_ABOUT: &str = "\
Remove a backend from the configuration file of a broker. A broker that runs with the file stops it at once.

All other lines of the file stay, including comments.";

/// `add` with its help.
pub fn add() -> Command {
    let repeated = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .action(ArgAction::Append)
            .help(help)
    };
    Command::new(ADD)
        .about("Add a backend to the configuration file of a broker")
        .long_about(ADD_ABOUT)
        .arg(
            Arg::new("backend")
                .value_name("NAME")
                .required(true)
                .value_parser(|text: &str| BackendName::parse(text).map_err(|error| error.to_string()))
                .help("Name of the backend; the names of its tools begin with it"),
        )
        .arg(
            Arg::new("url")
                .long("url")
                .value_name("URL")
                .value_parser(ValueParser::os_string())
                .conflicts_with("command")
                .help("Address of the server, instead of a command"),
        )
        .arg(repeated("env", "NAME=VALUE", "Variable of the environment of the program").conflicts_with("url"))
        .arg(repeated("header", "NAME:VALUE", "Header of every request to the URL").conflicts_with("command"))
        .arg(
            repeated(
                "watch",
                "PATTERN",
                "Files of which the program is made, relative to its working directory: src/**/*.py",
            )
            .conflicts_with("url"),
        )
        .arg(
            Arg::new("cwd")
                .long("cwd")
                .value_name("FOLDER")
                .conflicts_with("url")
                .help("Working directory of the program [default: the current one, if relative paths are given]"),
        )
        .arg(
            Arg::new("sharing")
                .long("sharing")
                .value_name("WHOSE")
                .value_parser(["project", "key", "session"])
                .help("Who shares one process; without it all callers of the project share one"),
        )
        .arg(configuration_file::to())
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .num_args(1..)
                .last(true)
                .required_unless_present("url")
                .help("The program and its arguments"),
        )
}

/// `remove` with its help.
pub fn remove() -> Command {
    Command::new(REMOVE)
        .about("Remove a backend from the configuration file of a broker")
        .long_about(REMOVE_ABOUT)
        .arg(
            Arg::new("backend")
                .value_name("NAME")
                .required(true)
                .help("Name of the backend"),
        )
        .arg(configuration_file::to())
}

/// A backend to be added.
#[derive(Debug)]
pub struct Add {
    name: BackendName,
    /// Its table in the file.
    table: String,
    to: Option<PathBuf>,
}

/// A backend to be removed.
#[derive(Debug)]
pub struct Remove {
    name: String,
    to: Option<PathBuf>,
}

/// Reads the arguments of `add`.
///
/// # Errors
/// [`CliError::Usage`] with one line for the user.
pub fn read_add(matches: &ArgMatches) -> Result<Add, CliError> {
    let name = matches.get_one::<BackendName>("backend").cloned();
    let name = name.ok_or_else(|| CliError::Usage("a backend needs a name".to_owned()))?;
    let table = table(&name, matches).map_err(|reason| CliError::Usage(config::one_line(&reason)))?;
    Ok(Add {
        name,
        table,
        to: matches.get_one("to").cloned(),
    })
}

/// Reads the arguments of `remove`.
pub fn read_remove(matches: &ArgMatches) -> Remove {
    Remove {
        name: matches.get_one::<String>("backend").cloned().unwrap_or_default(),
        to: matches.get_one("to").cloned(),
    }
}

/// The table that the arguments describe, if a broker would take it.
fn table(name: &BackendName, matches: &ArgMatches) -> Result<String, String> {
    let words = |name: &str| matches.get_many::<String>(name).into_iter().flatten();
    let mut server = Map::new();
    if let Some(url) = matches.get_one::<std::ffi::OsString>("url") {
        server.insert("url".to_owned(), url.to_string_lossy().into());
    }
    let mut command = words("command");
    if let Some(program) = command.next() {
        let args: Vec<_> = command.collect();
        server.insert("command".to_owned(), program.as_str().into());
        server.extend((!args.is_empty()).then(|| ("args".to_owned(), json!(args))));
    }
    for (flag, member, separator) in [("env", "env", '='), ("header", "headers", ':')] {
        let values = words(flag).map(|given| {
            let split = given.split_once(separator).filter(|(name, _)| !name.trim().is_empty());
            let (name, value) = split.ok_or_else(|| format!("--{flag}: NAME{separator}VALUE is expected"))?;
            let value = if separator == ':' { value.trim() } else { value };
            Ok((name.trim().to_owned(), value.into()))
        });
        let values = values.collect::<Result<Map<String, Value>, String>>()?;
        server.extend((!values.is_empty()).then(|| (member.to_owned(), values.into())));
    }
    let patterns: Vec<_> = words("watch").collect();
    let is_watched_here = patterns.iter().any(|pattern| is_relative(pattern));
    let cwd = words("cwd").next().map(String::as_str);
    // The broker works in another folder than this command.
    server.extend(
        cwd.or(is_watched_here.then_some("."))
            .map(|cwd| ("cwd".to_owned(), cwd.into())),
    );
    let folder = std::env::current_dir().unwrap_or_default();
    let references = References {
        folder: folder.display().to_string(),
        ..References::default()
    };
    let (mut table, _) = table_of(name, &server, &references).map_err(|reason| format!("{name}: {reason}"))?;
    let patterns: Vec<String> = patterns.into_iter().map(|pattern| toml_string(pattern)).collect();
    if !patterns.is_empty() {
        let _ = writeln!(table, "watch = [{}]", patterns.join(", "));
    }
    for sharing in words("sharing") {
        let _ = writeln!(table, "sharing = {}", toml_string(sharing));
    }
    check_backends(&table)?;
    Ok(table)
}

impl Add {
    /// Writes the table.
    ///
    /// # Errors
    /// The file cannot be changed, or has a backend of this name.
    pub fn run(&self) -> Result<(), CliError> {
        let file = configuration_file::path(self.to.as_ref())?;
        let name = &self.name;
        let is_new = configuration_file::edit(&file, |before| {
            let failed = |reason: String| unusable(&file, &reason);
            if names_in(before).map_err(failed)?.contains(name.as_str()) {
                return Err(format!(
                    "{} already has a backend {name}: gateway remove {name} removes it",
                    file.display()
                ));
            }
            let text = with_table(before, name, &self.table).map_err(failed)?;
            // A broker refuses the file as a whole.
            check_backends(&text).map_err(failed)?;
            Ok(Edit {
                text: Some(text),
                result: before.is_empty(),
            })
        })?;
        let note = configuration_file::note_on_brokers(is_new);
        print(&format!("{name} is in {}\n{note}\n", file.display()))
    }
}

impl Remove {
    /// Takes the tables out.
    ///
    /// # Errors
    /// The file cannot be changed, or has no backend of this name.
    pub fn run(&self) -> Result<(), CliError> {
        let file = configuration_file::path(self.to.as_ref())?;
        let is_removed = configuration_file::edit(&file, |before| {
            let text = without_table(before, &self.name).map_err(|reason| unusable(&file, &reason))?;
            let result = text.is_some();
            Ok(Edit { text, result })
        })?;
        let name = config::one_line(&self.name);
        if !is_removed {
            let line = format!("{} has no backend {name}", file.display());
            return Err(CliError::Nothing(Some(line)));
        }
        print(&format!(
            "{name} is no longer in {}; a broker that runs with this file stops it\n",
            file.display()
        ))
    }
}
