//! Locks between processes: the kernel releases them when their holder dies.

use std::{
    fs::{File, Metadata, OpenOptions, TryLockError},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Time between two tries, at least.
const RETRY_PAUSE: Duration = Duration::from_millis(25);
/// The largest random part of the time between two tries, so that many waiting processes do not try at once.
const JITTER_MS: u64 = 10;

/// An exclusive lock of a file, until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("another process holds it")]
    Held,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl FileLock {
    /// Takes the lock of a file, which is made with mode 0600 if it is missing.
    ///
    /// # Errors
    /// Another process has it, or the file cannot be opened.
    pub fn try_take(path: &Path) -> Result<Self, LockError> {
        loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(LockError::Held),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            let id = |file: Metadata| (file.dev(), file.ino());
            let own = file.metadata().map(id)?;
            // Another process may have removed the file meanwhile: the lock of a file without a name keeps no process away.
            if std::fs::symlink_metadata(path).is_ok_and(|named| id(named) == own) {
                // Removes what a dead holder has written.
                file.set_len(0)?;
                return Ok(Self { file });
            }
        }
    }

    /// Writes a text into the file, which is empty once the lock is taken.
    ///
    /// # Errors
    /// The disk is full.
    pub fn write(&self, text: &str) -> io::Result<()> {
        self.file.write_all_at(text.as_bytes(), 0)
    }

    /// Takes the lock of a file, and waits for its holder until a deadline.
    ///
    /// # Errors
    /// Another process has it at the deadline, or the file cannot be opened.
    pub fn take(path: &Path, deadline: Instant) -> Result<Self, LockError> {
        loop {
            match Self::try_take(path) {
                Err(LockError::Held) if pause_until(deadline) => {}
                result => return result,
            }
        }
    }

    /// Whether a process holds the lock of a file. A missing file is not locked.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn is_held(path: &Path) -> io::Result<bool> {
        if !path.try_exists()? {
            return Ok(false);
        }
        match Self::try_take(path) {
            Ok(_) => Ok(false),
            Err(LockError::Held) => Ok(true),
            Err(LockError::Io(error)) => Err(error),
        }
    }
}

/// Waits until the next try. False when the deadline has passed.
pub fn pause_until(deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let mut random = [0; 1];
    let _ = getrandom::fill(&mut random);
    let pause = RETRY_PAUSE + Duration::from_millis(u64::from(random[0]) % JITTER_MS);
    thread::sleep(pause.min(left));
    !left.is_zero()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_holder_at_a_time() {
        let path = std::env::temp_dir().join(format!("mb-{}.lock", uuid::Uuid::now_v7().simple()));
        assert!(!FileLock::is_held(&path).unwrap());
        let held = FileLock::try_take(&path).unwrap();
        assert!(FileLock::is_held(&path).unwrap());
        assert!(matches!(FileLock::take(&path, Instant::now()), Err(LockError::Held)));
        let waiting = thread::spawn({
            let path = path.clone();
            move || FileLock::take(&path, Instant::now() + Duration::from_secs(20)).map(drop)
        });
        drop(held);
        waiting.join().unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
