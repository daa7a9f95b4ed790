//! The entries of MCP clients for a broker, and `config CLIENT`, which prints one. It calls no broker and writes no file;
//! `setup` writes the same entry.

pub mod edit;
mod entries;
mod wanted;

use std::process::ExitCode;

use clap::Args;

use super::{
    agent_clients::FileFormat,
    call::{Call, Run, done},
    error::CliError,
    output::{EXIT_CODES, print},
};

pub use edit::Members;
pub use entries::{as_written, command_of, entry_text, is_front, is_program, key_advice, members, shell_word};
use entries::{command_line, places};
pub use wanted::{Connection, EntryFlags, Wanted};

const ABOUT: &str = "\
Print how an MCP client connects to a broker: its entry, and where to put it.

Without --url the entry starts `mcp-broker connect`, which finds or starts the broker of this user; with it
the client calls a shared broker over HTTP. It calls no broker and changes no file: mcp-broker setup
writes the entry into the file. A key is never part of the entry: with --key-env the entry refers to an
environment variable, or the client asks for the key.";

/// Print how an MCP client connects to a broker: its entry, and where to put it.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES)]
pub struct Config {
    #[command(flatten)]
    entry: EntryFlags,
    /// Print the text for the client's file alone, for a client whose file is JSON.
    #[arg(long)]
    json: bool,
    /// Print the text for the client's file alone, for a client whose file is TOML.
    #[arg(long, conflicts_with = "json")]
    toml: bool,
}

impl Run for Config {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        let wanted = self.entry.wanted(call.env, false)?;
        if let Some(reason) = wanted.impossible() {
            return Err(CliError::Usage(reason));
        }
        let label = wanted.client.label;
        let other = match wanted.client.format {
            FileFormat::Json => self.toml.then_some("--json"),
            FileFormat::Toml => self.json.then_some("--toml"),
        };
        if let Some(other) = other {
            let line = format!("the file of {label} has another format: use {other}");
            return Err(CliError::Usage(line));
        }
        let text = entry_text(&wanted).map_err(|error| CliError::Failed(error.to_string()))?;
        if self.json || self.toml {
            return done(print(&text));
        }
        let first = match command_line(&wanted) {
            Some(command) => format!("Run this, and {label} connects:\n\n  {command}\n\nOr put"),
            None => "Put".to_owned(),
        };
        let (places, advice) = (places(wanted.client), key_advice(&wanted));
        let advice = if advice.is_empty() {
            advice
        } else {
            format!("\n{advice}")
        };
        done(print(&format!("{first} this into {places}:\n\n{text}{advice}")))
    }
}
