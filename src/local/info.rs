//! `broker.json`: what a broker says of itself to people and programs that do not connect to it.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The content of `broker.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    pub pid: u32,
    pub version: String,
    pub build: String,
    /// RFC 3339.
    pub started_at: String,
    pub socket: PathBuf,
    /// The address of the HTTP server, such as `http://127.0.0.1:8000`.
    pub http: Option<String>,
    /// `memory`, `disk` or `redis`.
    pub storage: String,
    /// The folder of the disk storage.
    pub data: PathBuf,
    pub log: PathBuf,
}

impl Info {
    /// Writes the file.
    ///
    /// # Errors
    /// Those of [`write_private`].
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        write_private(path, &text)
    }
}

/// Writes a file of mode 0600. A reader sees the old content or the new one.
///
/// # Errors
/// The disk is full, or the folder cannot be written to.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(name);
    let mut options = OpenOptions::new();
    let written = options
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
