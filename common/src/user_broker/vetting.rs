//! Checks that other users cannot have put anything into a folder.

use std::{
    fs::{self, DirBuilder, Metadata, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::Path,
};

use rustix::process::geteuid;

use super::error::LocalError;

const PRIVATE_MODE: u32 = 0o700;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Makes a folder of mode 0700 and its missing parents, and vets it.
///
/// # Errors
/// The folder cannot be made, or fails [`vet`].
pub fn make_private(folder: &Path) -> Result<(), LocalError> {
    let made = DirBuilder::new().recursive(true).mode(PRIVATE_MODE).create(folder);
    made.map_err(|error| LocalError(format!("the folder {} cannot be made: {error}", folder.display())))?;
    vet(folder)
}

/// Checks a folder: it is no symbolic link, belongs to this user and has mode 0700, and every folder above it belongs to
/// this user or root, and others may write to it only where the sticky bit keeps them from replacing what is not theirs.
/// An own folder that others may enter is made private.
///
/// # Errors
/// What is wrong with which folder, and what to do, in one line.
pub fn vet(folder: &Path) -> Result<(), LocalError> {
    let own = fs::symlink_metadata(folder).map_err(|error| unreadable(folder, error))?;
    vet_above(folder)?;
    if !own.is_dir() {
        return Err(LocalError(format!("{} is no folder; remove it", folder.display())));
    }
    if own.uid() != geteuid().as_raw() {
        return Err(LocalError(format!(
            "{} belongs to another user (uid {}); remove it, or name another folder in XDG_RUNTIME_DIR",
            folder.display(),
            own.uid()
        )));
    }
    if own.mode() & 0o777 != PRIVATE_MODE {
        let private = fs::set_permissions(folder, Permissions::from_mode(PRIVATE_MODE));
        private.map_err(|error| LocalError(format!("{} cannot be made private: {error}", folder.display())))?;
    }
    Ok(())
}

/// Checks the folders above one that may be missing, as [`vet`] does, from the first that exists on.
///
/// # Errors
/// What is wrong with which folder, and what to do, in one line.
pub fn vet_above(folder: &Path) -> Result<(), LocalError> {
    let mut parents = folder.ancestors().skip(1);
    let parent = parents.find(|parent| parent.symlink_metadata().is_ok());
    let parent = parent.unwrap_or(folder);
    let parent = fs::canonicalize(parent).map_err(|error| unreadable(parent, error))?;
    for above in parent.ancestors() {
        let metadata = fs::symlink_metadata(above).map_err(|error| unreadable(above, error))?;
        if let Some(why) = foreign(&metadata) {
            return Err(LocalError(format!(
                "{} is not safe, because {} {why}; name another folder in XDG_RUNTIME_DIR",
                folder.display(),
                above.display()
            )));
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: io::Error) -> LocalError {
    LocalError(format!("{} cannot be used: {error}", path.display()))
}

/// Why another user could replace what is in a folder.
fn foreign(folder: &Metadata) -> Option<String> {
    let owner = folder.uid();
    if owner != 0 && owner != geteuid().as_raw() {
        return Some(format!("belongs to another user (uid {owner})"));
    }
    let mode = folder.mode();
    let is_writable = mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0;
    is_writable.then(|| format!("may be changed by other users (mode {:o})", mode & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, path::PathBuf};

    use super::*;

    /// A folder that is removed on drop.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("mb-{}", uuid::Uuid::now_v7().simple()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_is_made_private_with_its_parents() {
        let temporary = Temporary::new();
        let folder = temporary.0.join("a/b");
        make_private(&folder).unwrap();
        for made in [&folder, &temporary.0.join("a")] {
            assert_eq!(fs::metadata(made).unwrap().mode() & 0o777, PRIVATE_MODE);
        }
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        make_private(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, PRIVATE_MODE);
    }

    #[test]
    fn a_folder_that_other_users_could_replace_is_refused() {
        let temporary = Temporary::new();
        let target = temporary.0.join("target");
        make_private(&target).unwrap();
        let link = temporary.0.join("link");
        symlink(&target, &link).unwrap();
        assert!(vet(&link).unwrap_err().0.contains("is no folder"));
        fs::write(temporary.0.join("file"), "").unwrap();
        assert!(make_private(&temporary.0.join("file")).is_err());
        fs::set_permissions(&temporary.0, Permissions::from_mode(0o777)).unwrap();
        assert!(vet(&target).unwrap_err().0.contains("may be changed by other users"));
        fs::set_permissions(&temporary.0, Permissions::from_mode(0o1777)).unwrap();
        vet(&target).unwrap();
        // A way through a symbolic link is judged by where it leads.
        vet(&link.join("..").join("target")).unwrap();
    }
}
