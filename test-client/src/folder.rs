//! Folders of tests.

use std::{
    env,
    fs::DirBuilder,
    io,
    ops::Deref,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
};

/// A private folder with a short path: that of a socket in it has 103 bytes at most. Dropping it removes it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        Self::create("mcp-broker").unwrap()
    }

    /// A folder in which a local broker lives. `scripts/test` looks for what is left in such folders.
    pub fn of_broker() -> io::Result<Self> {
        Self::create("mb")
    }

    fn create(kind: &str) -> io::Result<Self> {
        let mut number = 0;
        loop {
            let path = env::temp_dir().join(format!("{kind}-{:x}-{number:x}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Of another folder of this process, or of a process that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                created => return created.map(|()| Self(path)),
            }
        }
    }

    /// The place of the local socket of a broker.
    pub fn socket(&self) -> PathBuf {
        self.0.join("s")
    }

    /// The names of its files.
    pub fn names(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.0).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    /// The flag of a broker that stores here.
    pub fn data_dir(&self) -> String {
        format!("--data-dir={}", self.0.display())
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
