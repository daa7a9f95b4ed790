//! `gateway add` and `gateway remove`: one backend in the configuration file of a broker.

use std::{ffi::OsString, fmt::Write};

use actors::model::BackendName;
use serde_json::{Map, Value, json};

use super::configuration_file::{self, To, names_in, unusable, with_table, without_table};
use crate::{
    edited_file::Edit,
    error::CliError,
    operate::gateway::imported::{References, is_relative, table_of, toml_string},
    output::print,
};
use common::config::{self, check_backends};

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

/// Add a backend to the configuration file of a broker.
#[derive(Debug, clap::Args)]
#[command(long_about = ADD_ABOUT)]
pub struct Add {
    /// Name of the backend; the names of its tools begin with it.
    #[arg(value_name = "NAME", value_parser = |text: &str| BackendName::parse(text).map_err(|error| error.to_string()))]
    backend: BackendName,
    /// Address of the server, instead of a command.
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    url: Option<OsString>,
    /// Variable of the environment of the program.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "url")]
    env: Vec<String>,
    /// Header of every request to the URL.
    #[arg(long, value_name = "NAME:VALUE", conflicts_with = "command")]
    header: Vec<String>,
    /// Files of which the program is made, relative to its working directory: src/**/*.py.
    #[arg(long, value_name = "PATTERN", conflicts_with = "url")]
    watch: Vec<String>,
    /// Working directory of the program [default: the current one, if relative paths are given].
    #[arg(long, value_name = "FOLDER", conflicts_with = "url")]
    cwd: Option<String>,
    /// Who shares one process; without it all callers of the project share one.
    #[arg(long, value_name = "WHOSE", value_parser = ["project", "key", "session"])]
    sharing: Option<String>,
    #[command(flatten)]
    to: To,
    /// The program and its arguments.
    #[arg(value_name = "COMMAND", num_args = 1.., last = true, required_unless_present = "url")]
    command: Vec<String>,
}

/// Remove a backend from the configuration file of a broker.
#[derive(Debug, clap::Args)]
#[command(long_about = REMOVE_ABOUT)]
pub struct Remove {
    /// Name of the backend.
    #[arg(value_name = "NAME")]
    backend: String,
    #[command(flatten)]
    to: To,
}

/// The table that the arguments describe, if a broker would take it.
fn table(add: &Add) -> Result<String, String> {
    let name = &add.backend;
    let mut server = Map::new();
    if let Some(url) = &add.url {
        server.insert("url".to_owned(), url.to_string_lossy().into());
    }
    if let Some((program, args)) = add.command.split_first() {
        server.insert("command".to_owned(), program.as_str().into());
        server.extend((!args.is_empty()).then(|| ("args".to_owned(), json!(args))));
    }
    for (flag, given, member, separator) in [("env", &add.env, "env", '='), ("header", &add.header, "headers", ':')] {
        let values = given.iter().map(|given| {
            let split = given.split_once(separator).filter(|(name, _)| !name.trim().is_empty());
            let (name, value) = split.ok_or_else(|| format!("--{flag}: NAME{separator}VALUE is expected"))?;
            let value = if separator == ':' { value.trim() } else { value };
            Ok((name.trim().to_owned(), value.into()))
        });
        let values = values.collect::<Result<Map<String, Value>, String>>()?;
        server.extend((!values.is_empty()).then(|| (member.to_owned(), values.into())));
    }
    let is_watched_here = add.watch.iter().any(|pattern| is_relative(pattern));
    let cwd = add.cwd.as_deref();
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
    let patterns: Vec<String> = add.watch.iter().map(|pattern| toml_string(pattern)).collect();
    if !patterns.is_empty() {
        let _ = writeln!(table, "watch = [{}]", patterns.join(", "));
    }
    if let Some(sharing) = &add.sharing {
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
        let table = table(self).map_err(|reason| CliError::Usage(config::one_line(&reason)))?;
        let file = self.to.path()?;
        let name = &self.backend;
        let is_new = configuration_file::edit(&file, |before| {
            let failed = |reason: String| unusable(&file, &reason);
            if names_in(before).map_err(failed)?.contains(name.as_str()) {
                return Err(format!(
                    "{} already has a backend {name}: gateway remove {name} removes it",
                    file.display()
                ));
            }
            let text = with_table(before, name, &table).map_err(failed)?;
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
        let file = self.to.path()?;
        let is_removed = configuration_file::edit(&file, |before| {
            let text = without_table(before, &self.backend).map_err(|reason| unusable(&file, &reason))?;
            let result = text.is_some();
            Ok(Edit { text, result })
        })?;
        let name = config::one_line(&self.backend);
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
