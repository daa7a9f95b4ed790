//! Keys in a file that may be replaced while the broker runs.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use actors::locked::Locked;

use super::{
    key_cache::KeyCache,
    settings::{JwtTimings, SET_LEN_MAX},
};

/// A key file, with the state of its last check.
pub struct KeyFile {
    path: PathBuf,
    check_interval: Duration,
    key_cache: Arc<KeyCache>,
    last_check: Locked<LastCheck>,
}

struct LastCheck {
    at: Instant,
    /// Modification time at the last check; `None` when the file could not be read.
    modified: Option<SystemTime>,
}

impl KeyFile {
    /// Reads the keys of a file.
    ///
    /// # Errors
    /// The reason when the file cannot be read or holds no usable key.
    pub fn open(path: PathBuf, timings: JwtTimings, key_cache: Arc<KeyCache>) -> Result<Self, String> {
        let at = Instant::now();
        // Taken before the file is read: a change in between is read again.
        let modified = modified(&path);
        if read(&path, &key_cache)? == 0 {
            return Err(format!("{} holds no usable key", path.display()));
        }
        let last_check = Locked::new(LastCheck { at, modified });
        Ok(Self {
            path,
            check_interval: timings.file_check_interval,
            key_cache,
            last_check,
        })
    }

    /// Reads the file again if it has changed. A file that cannot be read leaves the keys as they are.
    pub fn reload_if_changed(&self) {
        // While another thread checks, the current keys are used.
        let Some(mut last_check) = self.last_check.try_lock() else {
            return;
        };
        if last_check.at.elapsed() < self.check_interval {
            return;
        }
        last_check.at = Instant::now();
        let modified = modified(&self.path);
        if modified == last_check.modified {
            return;
        }
        last_check.modified = modified;
        if let Err(error) = read(&self.path, &self.key_cache) {
            tracing::warn!(%error, "the issuer's keys stay unchanged");
        }
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

/// Returns the number of usable keys of the file.
fn read(path: &Path, key_cache: &KeyCache) -> Result<usize, String> {
    let text = text(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    key_cache
        .replace_keys(&text)
        .map_err(|error| format!("{} cannot be used: {error}", path.display()))
}

fn text(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(SET_LEN_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > SET_LEN_MAX {
        return Err(io::Error::other(format!("it is longer than {SET_LEN_MAX} bytes")));
    }
    Ok(text)
}
