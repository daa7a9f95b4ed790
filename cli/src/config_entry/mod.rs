//! The entries of MCP clients for a broker, and `config CLIENT`, which prints one. It calls no broker and writes no file;
//! `setup` writes the same entry.

pub mod edit;
mod entries;
mod wanted;

use clap::{ArgMatches, Command};

use super::{
    access::EnvVars,
    agent_clients::FileFormat,
    error::CliError,
    flags::switch,
    output::{EXIT_CODES, print},
};

pub use edit::Members;
pub use entries::{as_written, command_of, entry_text, is_front, is_program, key_advice, members, shell_word};
use entries::{command_line, places};
pub use wanted::{Connection, Wanted, args, read as read_wanted, variable};

/// The command with its help.
pub fn command() -> Command {
    Command::new("config")
        .about("Print how an MCP client connects to a broker: its entry, and where to put it")
        .long_about(ABOUT)
        .args(args())
        .arg(switch(
            "json",
            "Print the text for the client's file alone, for a client whose file is JSON",
        ))
        .arg(
            switch(
                "toml",
                "Print the text for the client's file alone, for a client whose file is TOML",
            )
            .conflicts_with("json"),
        )
        .after_help(EXIT_CODES)
}

const ABOUT: &str = "\
Print how an MCP client connects to a broker: its entry, and where to put it.

Without --url the entry starts `mcp-broker connect`, which finds or starts the broker of this user; with it
the client calls a shared broker over HTTP. It calls no broker and changes no file: mcp-broker setup
writes the entry into the file. A key is never part of the entry: with --key-env the entry refers to an
environment variable, or the client asks for the key.";

/// What to print.
#[derive(Debug)]
pub struct ConfigEntry {
    wanted: Wanted,
    /// Print the text for the file and nothing else.
    is_bare: bool,
}

/// Reads the arguments.
///
/// # Errors
/// [`CliError::Usage`] when the URL cannot be used, or the client's file has the other format.
pub fn read(matches: &ArgMatches, env: &EnvVars) -> Result<ConfigEntry, CliError> {
    let wanted = read_wanted(matches, env, false)?;
    if let Some(reason) = wanted.impossible() {
        return Err(CliError::Usage(reason));
    }
    let format = match (matches.get_flag("json"), matches.get_flag("toml")) {
        (true, _) => Some((FileFormat::Json, "--toml")),
        (_, true) => Some((FileFormat::Toml, "--json")),
        _ => None,
    };
    if let Some((_, other)) = format.filter(|(format, _)| *format != wanted.client.format) {
        return Err(CliError::Usage(format!(
            "the file of {} has another format: use {other}",
            wanted.client.label
        )));
    }
    Ok(ConfigEntry {
        wanted,
        is_bare: format.is_some(),
    })
}

/// Prints the entry.
///
/// # Errors
/// [`CliError::Failed`] when stdout cannot be written.
pub fn run(entry: &ConfigEntry) -> Result<(), CliError> {
    let wanted = &entry.wanted;
    let text = entry_text(wanted).map_err(|error| CliError::Failed(error.to_string()))?;
    if entry.is_bare {
        return print(&text);
    }
    let label = wanted.client.label;
    let first = match command_line(wanted) {
        Some(command) => format!("Run this, and {label} connects:\n\n  {command}\n\nOr put"),
        None => "Put".to_owned(),
    };
    let (places, advice) = (places(wanted.client), key_advice(wanted));
    let advice = if advice.is_empty() {
        advice
    } else {
        format!("\n{advice}")
    };
    print(&format!("{first} this into {places}:\n\n{text}{advice}"))
}
