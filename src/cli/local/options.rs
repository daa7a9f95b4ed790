//! With which options a broker for development was started: a restart keeps them.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::{
    cli::error::CliError,
    config::Flag,
    local::{LocalPaths, write_private},
};

/// The words for a transport.
pub const TRANSPORTS: &[&str] = &["socket", "fifo"];
/// The words for a storage.
pub const STORAGES: &[&str] = &["memory", "disk"];

/// What the command line of a start says; `None` for what it leaves open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevOptions {
    /// One of [`TRANSPORTS`].
    pub transport: Option<String>,
    /// A port; 0 for a free one.
    pub http: Option<u16>,
    /// One of [`STORAGES`].
    pub storage: Option<String>,
}

impl DevOptions {
    /// The options of the last start of an instance. A file that cannot be read has none.
    pub fn read(paths: &LocalPaths) -> Self {
        let text = fs::read(paths.state_folder().join(FILE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Keeps the options for the next start.
    ///
    /// # Errors
    /// The state folder cannot be written to.
    pub fn write(&self, paths: &LocalPaths) -> Result<(), CliError> {
        let folder = paths.state_folder();
        let text = serde_json::to_vec(self).unwrap_or_default();
        let written = fs::create_dir_all(folder).and_then(|()| write_private(&folder.join(FILE), &text));
        written.map_err(|error| CliError::Usage(format!("the folder {} cannot be written: {error}", folder.display())))
    }

    /// The options as flags of `serve`.
    pub fn flags(&self, paths: &LocalPaths) -> Vec<Flag> {
        let mut flags: Vec<Flag> = Vec::new();
        if let Some(storage) = &self.storage {
            flags.push(("storage", storage.into()));
        }
        if let Some(port) = self.http {
            flags.push(("port", port.to_string().into()));
        }
        if self.transport.as_deref() == Some("fifo") {
            flags.push(("local_fifo", paths.fifo_prefix().into()));
        }
        flags
    }
}

const FILE: &str = "options.json";
