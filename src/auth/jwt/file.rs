//! Keys in a file, which may be replaced while the broker runs.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, TryLockError},
    time::{Duration, Instant, SystemTime},
};

use super::{JwtTimings, SET_LEN_MAX, key_cache::KeyCache};

pub struct KeyFile {
    path: PathBuf,
    check_interval: Duration,
    key_cache: Arc<KeyCache>,
    last_check: Mutex<LastCheck>,
}

struct LastCheck {
    at: Instant,
    /// What was found then. A file that cannot be looked at has none.
    modified: Option<SystemTime>,
}

impl KeyFile {
    /// # Errors
    /// When the file cannot be read or holds no usable key.
    pub fn open(path: PathBuf, pace: JwtTimings, ring: Arc<KeyCache>) -> Result<Self, String> {
        let at = Instant::now();
        // Before the file is read: what is written in between is read once more.
        let modified = modified(&path);
        if read(&path, &ring)? == 0 {
            return Err(format!("{} holds no key that can be used", path.display()));
        }
        let looked = Mutex::new(LastCheck { at, modified });
        Ok(Self {
            path,
            check_interval: pace.file_check_interval,
            key_cache: ring,
            last_check: looked,
        })
    }

    /// Reads the file again if it was changed. One that cannot be read leaves the keys as they were.
    pub fn reload_if_changed(&self) {
        // Whoever comes while another looks goes on with the keys that there are.
        let mut looked = match self.last_check.try_lock() {
            Ok(looked) => looked,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if looked.at.elapsed() < self.check_interval {
            return;
        }
        looked.at = Instant::now();
        let modified = modified(&self.path);
        if modified == looked.modified {
            return;
        }
        looked.modified = modified;
        if let Err(error) = read(&self.path, &self.key_cache) {
            tracing::warn!(%error, "the keys of the issuer of tokens stay as they were");
        }
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

/// Returns how many keys of the file can be used.
fn read(path: &Path, ring: &KeyCache) -> Result<usize, String> {
    let text = text(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    ring.replace_keys(&text)
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
