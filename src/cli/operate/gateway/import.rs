//! `gateway import`: writes the servers of an MCP client into the configuration file of the broker.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command, builder::ValueParser};

use super::servers_file;
use crate::{
    cli::{error::CliError, flags::switch, output::print, partial_file::PartialFile},
    gateway::import::Imported,
    local,
};

/// The name of the command.
pub const NAME: &str = "import";

const ABOUT: &str = "\
Write the servers of an MCP client into the configuration file of the broker.

Known are files with mcpServers (Claude Code, Claude Desktop, Cursor, Windsurf), the mcp.json of VS Code, and .mcpmon.yaml.
The files are not changed: take the servers out of them, or the client starts its own as well.";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("Write the servers of an MCP client into the configuration file of the broker")
        .long_about(ABOUT)
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .action(ArgAction::Append)
                .num_args(1..)
                .value_parser(ValueParser::path_buf())
                .help("Files with servers"),
        )
        .arg(
            Arg::new("to")
                .long("to")
                .value_name("FILE")
                .value_parser(ValueParser::path_buf())
                .help("Configuration file to write [default: the one of the broker of this user]"),
        )
        .arg(servers_file::input())
        .arg(switch("dry-run", "Print the tables, and write nothing"))
}

/// Which files are imported, and where to.
#[derive(Debug)]
pub struct Import {
    files: Vec<PathBuf>,
    to: Option<PathBuf>,
    inputs: Vec<String>,
    is_dry_run: bool,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Import {
    Import {
        files: matches.get_many("file").into_iter().flatten().cloned().collect(),
        to: matches.get_one("to").cloned(),
        inputs: servers_file::given_inputs(matches),
        is_dry_run: matches.get_flag("dry-run"),
    }
}

impl Import {
    /// Writes the tables.
    ///
    /// # Errors
    /// A file cannot be used, or there is nothing to import.
    pub fn run(&self) -> Result<(), CliError> {
        let to = match &self.to {
            Some(to) => to.clone(),
            None => local::config_file_of_user().ok_or_else(|| {
                CliError::Failed("neither HOME nor XDG_CONFIG_HOME names a folder: name the file with --to".to_owned())
            })?,
        };
        let before = match fs::read_to_string(&to) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(&to, &error)),
        };
        let inputs = servers_file::inputs(&self.inputs).map_err(CliError::Usage)?;
        let mut taken = names_in(&before).map_err(|reason| failed(&to, &reason))?;
        let (mut tables, mut notes, mut names) = (String::new(), Vec::new(), Vec::new());
        for file in &self.files {
            let Imported {
                backends,
                notes: of_file,
            } = servers_file::read(file, &inputs, &taken).map_err(|reason| failed(file, &reason))?;
            notes.extend(of_file.into_iter().map(|note| format!("{}: {note}", file.display())));
            for backend in backends {
                let _ = write!(tables, "\n{}", backend.table);
                taken.insert(backend.name.to_string());
                names.push(backend.name.to_string());
            }
        }
        for note in notes {
            eprintln!("{note}");
        }
        if self.is_dry_run {
            return print(tables.trim_start());
        }
        if names.is_empty() {
            return Err(CliError::Nothing(Some("there is nothing to import".to_owned())));
        }
        write_file(&to, &format!("{before}{tables}")).map_err(|error| failed(&to, &error))?;
        print(&format!(
            "{} in {}: {}\na broker that runs with this file has them now; take them out of the client's own file\n",
            if names.len() == 1 { "one backend" } else { "backends" },
            to.display(),
            names.join(", ")
        ))
    }
}

fn failed(file: &Path, reason: &dyn std::fmt::Display) -> CliError {
    CliError::Failed(format!("{} cannot be used: {reason}", file.display()))
}

/// The names of the backends that a configuration file has.
fn names_in(text: &str) -> Result<BTreeSet<String>, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let backends = table.get("backends").and_then(toml::Value::as_table);
    Ok(backends.into_iter().flatten().map(|(name, _)| name.clone()).collect())
}

/// Writes the file as a whole, readable for its user alone: it may have secrets.
fn write_file(to: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut partial = PartialFile::create(to, 0o600)?;
    partial.file.write_all(text.as_bytes())?;
    partial.file.sync_all()?;
    partial.rename_to(to)
}
