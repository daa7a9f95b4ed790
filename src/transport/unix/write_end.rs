//! The end of the FIFO for requests at which programs write: whether one does.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use actors::locked::Locked;

use common::hang_up::is_hung_up;

/// The end of the FIFO for requests that this process has open for writing, so that its reader finds no end of the input
/// between two clients.
pub struct WriteEnd {
    #[cfg(not(target_os = "linux"))]
    path: PathBuf,
    /// The other end once more.
    reader: File,
    kept: Locked<Option<File>>,
}

impl WriteEnd {
    /// Opens it, in addition to a reader.
    ///
    /// # Errors
    /// The path is gone.
    pub fn open(reader: File, path: &Path) -> io::Result<Self> {
        let kept = OpenOptions::new().write(true).open(path)?;
        Ok(Self {
            #[cfg(not(target_os = "linux"))]
            path: path.to_owned(),
            reader,
            kept: Locked::new(Some(kept)),
        })
    }

    /// Whether another process has the FIFO open for writing: without one, the reader is hung up while this end is closed.
    /// Runs on the thread of the reader, which must not look meanwhile.
    pub fn has_other(&self) -> bool {
        let mut kept = self.kept.lock();
        drop(kept.take());
        let is_hung_up = is_hung_up(&self.reader);
        match OpenOptions::new().write(true).open(self.name()) {
            Ok(file) => *kept = Some(file),
            Err(error) => tracing::error!(%error, "the FIFO for requests cannot be kept open"),
        }
        !is_hung_up
    }

    /// A name of the FIFO, also after its path was removed.
    #[cfg(target_os = "linux")]
    fn name(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}", self.reader.as_raw_fd()))
    }

    #[cfg(not(target_os = "linux"))]
    fn name(&self) -> PathBuf {
        self.path.clone()
    }
}
