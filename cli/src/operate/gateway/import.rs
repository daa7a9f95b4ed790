//! `gateway import`: writes the servers of an MCP client into the configuration file of the broker.

use std::{fmt::Write as _, path::PathBuf};

use super::{
    configuration_file::{self, To, names_in, unusable},
    servers_file::{self, Inputs},
};
use crate::{edited_file::Edit, error::CliError, operate::gateway::imported::Imported, output::print};

const ABOUT: &str = "\
Write the servers of an MCP client into the configuration file of the broker.

It reads files with mcpServers (Claude Code, Claude Desktop, Cursor, Windsurf), the mcp.json of VS Code, and .mcpmon.yaml.
It does not change them: remove the servers from them, or the client starts its own as well.";

/// Write the servers of an MCP client into the configuration file of the broker.
#[derive(Debug, clap::Args)]
#[command(long_about = ABOUT)]
pub struct Import {
    /// Files with servers.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    to: To,
    #[command(flatten)]
    inputs: Inputs,
    /// Print the tables, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Import {
    /// Writes the tables.
    ///
    /// # Errors
    /// A file cannot be used, or there is nothing to import.
    pub fn run(&self) -> Result<(), CliError> {
        let inputs = self.inputs.by_name()?;
        let to = self.to.path()?;
        let edit = |before: &str| {
            let mut taken = names_in(before).map_err(|reason| unusable(&to, &reason))?;
            let mut done = Done {
                is_new: before.is_empty(),
                ..Done::default()
            };
            for file in &self.files {
                let Imported {
                    backends,
                    notes,
                    has_unusable,
                } = servers_file::read(file, &inputs, &taken).map_err(|reason| unusable(file, &reason))?;
                let notes = notes.into_iter().map(|note| format!("{}: {note}", file.display()));
                done.notes.extend(notes);
                done.has_unusable |= has_unusable;
                for backend in backends {
                    let _ = write!(done.tables, "\n{}", backend.table);
                    taken.insert(backend.name.to_string());
                    done.names.push(backend.name.to_string());
                }
            }
            let is_changed = !self.dry_run && !done.names.is_empty();
            Ok(Edit {
                text: is_changed.then(|| format!("{before}{}", done.tables)),
                result: done,
            })
        };
        let Done {
            tables,
            names,
            notes,
            is_new,
            has_unusable,
        } = configuration_file::edit(&to, edit)?;
        for note in notes {
            eprintln!("{note}");
        }
        if self.dry_run {
            return print(tables.trim_start());
        }
        if names.is_empty() && has_unusable {
            return Err(CliError::Failed("no server of the file can be used".to_owned()));
        }
        if names.is_empty() {
            return Err(CliError::Nothing(Some("there is nothing to import".to_owned())));
        }
        print(&format!(
            "{} in {}: {}\n{}\nremove them from the client's own file, or the client starts its own as well\n",
            if names.len() == 1 { "one backend" } else { "backends" },
            to.display(),
            names.join(", "),
            configuration_file::note_on_brokers(is_new)
        ))
    }
}

/// What is imported.
#[derive(Default)]
struct Done {
    tables: String,
    names: Vec<String>,
    notes: Vec<String>,
    /// There was no such file.
    is_new: bool,
    /// A server cannot be used.
    has_unusable: bool,
}
