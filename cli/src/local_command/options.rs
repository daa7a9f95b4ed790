//! With which options a broker for development was started: a restart keeps them.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
};

use serde::{Deserialize, Serialize};

use crate::error::CliError;
use common::{
    config::Flag,
    user_broker::{LocalPaths, write_private},
};

/// The words for a transport.
pub const TRANSPORTS: &[&str] = &["socket", FIFO];
/// The transport with a pair of FIFOs.
pub const FIFO: &str = "fifo";
/// The words for a storage.
pub const STORAGES: &[&str] = &["memory", "disk"];

/// There is no HTTP server.
pub const HTTP_OFF: &str = "off";

/// Reads where the HTTP server listens.
///
/// # Errors
/// What is allowed, for the text "allowed: ...".
pub fn parse_http(text: &str) -> Result<String, String> {
    if text == HTTP_OFF || text.parse::<u16>().is_ok() {
        Ok(text.to_owned())
    } else {
        Err(format!("a port from 0 to {}, or {HTTP_OFF}", u16::MAX))
    }
}

/// How a broker for development is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevOptions {
    /// One of [`TRANSPORTS`].
    pub transport: String,
    /// A port, 0 for a free one, or [`HTTP_OFF`].
    pub http: String,
    /// One of [`STORAGES`].
    pub storage: String,
}

impl Default for DevOptions {
    fn default() -> Self {
        Self {
            transport: TRANSPORTS[0].to_owned(),
            http: "0".to_owned(),
            storage: STORAGES[0].to_owned(),
        }
    }
}

impl DevOptions {
    /// The options of the last start of an instance; the defaults where they cannot be read.
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
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let written = made.and_then(|()| write_private(&folder.join(FILE), &text));
        written.map_err(|error| CliError::Usage(format!("the folder {} cannot be written: {error}", folder.display())))
    }

    /// Whether there is no HTTP server.
    pub fn has_no_http(&self) -> bool {
        self.http == HTTP_OFF
    }

    /// The options as flags of `serve`.
    pub fn flags(&self, paths: &LocalPaths) -> Vec<Flag> {
        let mut flags: Vec<Flag> = vec![("storage", (&self.storage).into())];
        if self.has_no_http() {
            // No port is opened; the environment may name one.
            flags.extend([("host", "127.0.0.1".into()), ("port", "0".into())]);
        } else {
            flags.push(("port", (&self.http).into()));
        }
        if self.transport == FIFO {
            flags.push(("local_fifo", paths.fifo_prefix().into()));
        }
        flags
    }
}

const FILE: &str = "options.json";
