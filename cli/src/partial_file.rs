//! A file that is written next to its final place, so that no reader sees a part of it.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that is removed unless it gets its final name.
pub struct PartialFile {
    pub file: File,
    path: PathBuf,
}

impl PartialFile {
    /// Makes a file next to its target. `mode` is what the umask leaves of it.
    ///
    /// # Errors
    /// The folder cannot be written, or another process with the same id has left its file there.
    pub fn create(target: &Path, mode: u32) -> std::io::Result<Self> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = target.with_file_name(name);
        let file = File::options().write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Self { file, path })
    }

    /// Gives the file its final name.
    ///
    /// # Errors
    /// The folder cannot be written, or the target is a folder.
    pub fn rename_to(self, target: &Path) -> std::io::Result<()> {
        std::fs::rename(&self.path, target)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After the rename there is no such file.
        let _ = std::fs::remove_file(&self.path);
    }
}
