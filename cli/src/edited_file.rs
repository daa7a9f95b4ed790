//! Replaces the text of a file in one step, and only if the file has not changed since it was read.

use std::{
    fs::{self, File, Metadata, Permissions, TryLockError},
    io::{self, ErrorKind, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{client_file, partial_file::PartialFile};
use common::user_broker::pause_until;

/// How long another process that edits the same file is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// How often an edit begins again because the client has written its file meanwhile.
const TRIES_MAX: usize = 5;
/// Permissions of a new file, less the umask.
pub const PUBLIC: u32 = 0o666;
/// Permissions of a new file that may hold secrets.
pub const PRIVATE: u32 = 0o600;

/// What an edit does to a file.
pub struct Edit<T> {
    /// The new text; `None` leaves the file untouched.
    pub text: Option<String>,
    /// What the edit says about it.
    pub result: T,
}

/// Edits a file, which may be missing: then it gets the permissions `new_mode`. `decide` gets its text and may be called again with another one. A link is followed.
/// The owner and the permissions of the file stay.
///
/// # Errors
/// What to do, in one line. Nothing was changed.
pub fn edit<T>(
    path: &Path,
    new_mode: u32,
    is_written: bool,
    decide: impl Fn(Option<&str>) -> Result<Edit<T>, String>,
) -> Result<T, String> {
    let target = followed(path)?;
    let decided = |text: &Option<String>| decide(text.as_deref());
    let edit = decided(&client_file::read(&target)?)?;
    if edit.text.is_none() {
        return Ok(edit.result);
    }
    let metadata = writable(&target)?;
    if !is_written {
        return Ok(edit.result);
    }
    let folder = target.parent().unwrap_or(Path::new("/"));
    let failed = |error: io::Error| format!("it cannot be written: {error}");
    if metadata.is_none() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let _lock = lock(folder)?;
    for _ in 0..TRIES_MAX {
        let text = client_file::read(&target)?;
        let edit = decided(&text)?;
        let Some(new) = edit.text else { return Ok(edit.result) };
        let partial = write_beside(&target, metadata.as_ref().ok_or(new_mode), &new).map_err(failed)?;
        if client_file::read(&target)? == text {
            partial.rename_to(&target).map_err(failed)?;
            // A rename is durable once the folder is synced.
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
            return Ok(edit.result);
        }
    }
    Err(format!(
        "it has changed {TRIES_MAX} times during the edit: close the client and repeat this"
    ))
}

/// The file that a path names, through links.
fn followed(path: &Path) -> Result<PathBuf, String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(format!("it cannot be read: {error}")),
        Ok(metadata) if metadata.is_symlink() => fs::canonicalize(path).map_err(|error| {
            format!("it is a link whose target cannot be reached: {error}; correct or remove the link")
        }),
        Ok(_) => Ok(path.to_owned()),
    }
}

/// Checks that a path below `folder` names a file that is in this folder, through links too. The author
/// of the folder, a cloned repository for example, must not choose which other file of the user is edited.
///
/// # Errors
/// Where it leads, and what to do.
pub fn check_within(folder: &Path, path: &Path) -> Result<(), String> {
    let unreadable = |error: io::Error| format!("it cannot be read: {error}");
    let folder = fs::canonicalize(folder).map_err(unreadable)?;
    let nearest = path.ancestors().find(|path| path.symlink_metadata().is_ok());
    let target = followed(nearest.unwrap_or(path))?;
    let target = fs::canonicalize(target).map_err(unreadable)?;
    if target.starts_with(&folder) {
        return Ok(());
    }
    Err(format!(
        "a link leads out of the project, to {}: remove the link, or leave --project out",
        target.display()
    ))
}

/// The metadata of the file, if it may be replaced. A read-only file is refused, because its owner protects it, although
/// the folder would let it be replaced.
fn writable(target: &Path) -> Result<Option<Metadata>, String> {
    let metadata = match fs::metadata(target) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| format!("it cannot be read: {error}"))?,
    };
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    if metadata.permissions().readonly() {
        return Err(format!(
            "it is read-only; allow the change with chmod u+w {}",
            target.display()
        ));
    }
    let opened = File::options().write(true).open(target);
    opened.map_err(|error| format!("it cannot be written: {error}"))?;
    Ok(Some(metadata))
}

fn write_beside(target: &Path, old: Result<&Metadata, u32>, text: &str) -> io::Result<PartialFile> {
    // A file that exists may hold secrets: the copy is private until it has the permissions of the original.
    let mut partial = PartialFile::create(target, old.err().unwrap_or(PRIVATE))?;
    partial.file.write_all(text.as_bytes())?;
    if let Ok(old) = old {
        let new = partial.file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            std::os::unix::fs::fchown(&partial.file, Some(old.uid()), Some(old.gid()))?;
        }
        partial
            .file
            .set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
    }
    partial.file.sync_all()?;
    Ok(partial)
}

/// Locks the folder against other edits by this program. Some network file systems cannot lock a folder: there only the
/// comparison before the rename protects the file.
fn lock(folder: &Path) -> Result<Option<File>, String> {
    let Ok(file) = File::open(folder) else { return Ok(None) };
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) if pause_until(deadline) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!(
                    "another process has locked the folder {} for {} s; end it and repeat this",
                    folder.display(),
                    LOCK_WAIT.as_secs()
                ));
            }
        }
    }
}
