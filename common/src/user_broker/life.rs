//! Whether the broker of an instance lives: it holds the life lock. A process id alone says nothing, for ids are used
//! again.

use std::{
    fs, io,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{
    lock::{FileLock, LockError},
    paths::LocalPaths,
};

/// Longest time for which a process that checks the lock may hold it.
const PROBE_TIME_MAX: Duration = Duration::from_secs(1);

/// How the names of the files begin that hooks of clients keep in the runtime folder.
pub const HOOK_PREFIX: &str = "hook-";

/// Held by a broker as long as it lives.
#[derive(Debug)]
pub struct LifeLock {
    _lock: FileLock,
}

impl LifeLock {
    /// Takes the lock of an instance for this process.
    ///
    /// # Errors
    /// Another broker of this instance lives, or the file cannot be written.
    pub fn take(paths: &LocalPaths) -> Result<Self, LockError> {
        let lock = FileLock::take(&paths.life_lock, Instant::now() + PROBE_TIME_MAX)?;
        lock.write(&std::process::id().to_string())?;
        Ok(Self { _lock: lock })
    }
}

/// Whether the broker of an instance lives.
///
/// # Errors
/// The lock cannot be opened.
pub fn is_alive(paths: &LocalPaths) -> io::Result<bool> {
    FileLock::is_held(&paths.life_lock)
}

/// The process that holds the life lock; `None` when no process does, or when it has not yet written its id.
///
/// # Errors
/// The lock cannot be opened.
pub fn holder(paths: &LocalPaths) -> io::Result<Option<i32>> {
    if !is_alive(paths)? {
        return Ok(None);
    }
    let text = fs::read_to_string(&paths.life_lock)?;
    Ok(text.trim().parse().ok())
}

/// The files that a broker removes when it ends, as far as they exist. Those of a dead broker are its remains.
pub fn files(paths: &LocalPaths) -> Vec<PathBuf> {
    let all = [&paths.socket, &paths.info, &paths.fifo_in, &paths.fifo_out];
    all.into_iter()
        .filter(|path| path.symlink_metadata().is_ok())
        .cloned()
        .collect()
}

/// What the hooks of clients keep next to the socket. A waiter that loses its lock keeps waiting.
fn hook_files(paths: &LocalPaths) -> Vec<PathBuf> {
    let entries = fs::read_dir(&paths.folder).into_iter().flatten().flatten();
    let is_hook = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(HOOK_PREFIX))
    };
    entries.map(|entry| entry.path()).filter(is_hook).collect()
}

/// Removes the remains of a dead broker and returns their paths. Removes nothing while a broker lives or is being started.
///
/// # Errors
/// A file cannot be removed.
pub fn remove_remains(paths: &LocalPaths) -> io::Result<Vec<PathBuf>> {
    if files(paths).is_empty() {
        return Ok(Vec::new());
    }
    let locked = FileLock::try_take(&paths.start_lock).and_then(|start| {
        let life = FileLock::try_take(&paths.life_lock)?;
        Ok((start, life))
    });
    match locked {
        Ok(_locks) => {
            let remains = files(paths);
            remains.iter().try_for_each(fs::remove_file)?;
            Ok(remains)
        }
        Err(LockError::Held) => Ok(Vec::new()),
        Err(LockError::Io(error)) => Err(error),
    }
}

/// Removes the runtime folder of an instance without a live broker: the remains, the locks, and the folder if it is empty
/// then. Returns the paths that it has removed.
///
/// # Errors
/// A file cannot be removed.
pub fn remove_folder(paths: &LocalPaths) -> io::Result<Vec<PathBuf>> {
    let Ok(_start) = FileLock::try_take(&paths.start_lock) else {
        return Ok(Vec::new());
    };
    let Ok(_life) = FileLock::try_take(&paths.life_lock) else {
        return Ok(Vec::new());
    };
    let mut removed = files(paths);
    removed.extend(hook_files(paths));
    removed.extend([paths.life_lock.clone(), paths.start_lock.clone()]);
    removed.iter().try_for_each(fs::remove_file)?;
    // Fails when the folder has other files, which stay.
    if fs::remove_dir(&paths.folder).is_ok() {
        removed.push(paths.folder.clone());
    }
    Ok(removed)
}
