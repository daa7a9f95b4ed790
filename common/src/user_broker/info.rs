//! `broker.json`: what a broker says of itself to people and programs that do not connect to it.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{life, paths::LocalPaths};

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

/// What the files of an instance say of its broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Living {
    /// No broker lives.
    No,
    /// A broker lives and has not yet described itself, or has ceased to.
    Changing,
    /// A broker lives and serves.
    Yes(Box<Info>),
}

impl Living {
    /// Looks at the files of an instance. A description that a dead broker has left does not count.
    ///
    /// # Errors
    /// The life lock cannot be opened.
    pub fn of(paths: &LocalPaths) -> io::Result<Self> {
        if !life::is_alive(paths)? {
            return Ok(Self::No);
        }
        let holder = life::holder(paths)?;
        let info = fs::read(&paths.info).ok();
        let info = info.and_then(|text| serde_json::from_slice::<Info>(&text).ok());
        let own = info.filter(|info| i32::try_from(info.pid).is_ok_and(|pid| Some(pid) == holder));
        Ok(own.map_or(Self::Changing, |info| Self::Yes(Box::new(info))))
    }
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
