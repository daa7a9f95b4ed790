//! Looks at a data folder as an operator does, without keeping it: its owner and mode, the process that has it, the
//! version of its data, its free space and the time of a sync.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use actors::storage::disk::{DiskSpace, Engine, layout_version};

use super::{DataFolder, LOCK_FILE, Privacy, RECORDS_FOLDER, free_space, privacy};

/// Syncs that are measured. The median says how long a group of messages waits.
const SYNCS: usize = 5;
/// Bytes that are written before each sync.
const WRITE_BYTES: usize = 4096;

/// What is found in a data folder.
#[derive(Debug)]
pub struct FolderReport {
    /// Why a start would refuse the folder as it is, besides the version of its data.
    pub refusal: Option<String>,
    /// Whether the folder exists; the broker creates it.
    pub exists: bool,
    /// Whether a running process has it.
    pub is_locked: bool,
    /// The version of the layout of its data: `None` where it holds none, where a running process has it, or where others
    /// may enter it.
    pub layout: Option<Result<u32, String>>,
    /// The space of its file system.
    pub space: Option<DiskSpace>,
    /// The median time of a sync in it, or in the nearest folder above it that exists.
    pub sync: Result<Duration, String>,
}

/// Looks at a data folder. A database that no process has is opened as a start would, and closed again.
pub fn inspect(path: &Path) -> FolderReport {
    let exists = path.is_dir();
    let nearest = nearest_folder(path);
    let is_locked = exists && is_locked(path);
    let privacy = privacy(path).ok().filter(|_| exists);
    let has_data = path.join(RECORDS_FOLDER).join("version").is_file();
    // A start makes a folder private before it opens it; this function leaves the folder as it is.
    let layout = (has_data && !is_locked && matches!(privacy, Some(Privacy::Private))).then(|| layout(path));
    FolderReport {
        refusal: match privacy {
            Some(Privacy::Refused { mode, why }) => Some(format!("{why}, and others may enter it (mode {mode:o})")),
            _ => None,
        },
        exists,
        is_locked,
        layout,
        space: nearest.as_deref().and_then(free_space),
        sync: match nearest {
            Some(folder) => sync_time(&folder).map_err(|error| error.to_string()),
            None => Err("no folder above it exists".to_owned()),
        },
    }
}

/// The folder itself, or the nearest above it that exists. `None` where a part of the path is no folder.
fn nearest_folder(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let nearest = path.ancestors().find(|folder| folder.symlink_metadata().is_ok())?;
    nearest.is_dir().then(|| nearest.to_owned())
}

fn is_locked(path: &Path) -> bool {
    File::open(path.join(LOCK_FILE)).is_ok_and(|lock| matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

fn layout(path: &Path) -> Result<u32, String> {
    let folder = DataFolder::open(path).map_err(|error| error.to_string())?;
    let version = layout_version(&*folder.reader()).map_err(|error| error.to_string())?;
    version.ok_or_else(|| "it has no version".to_owned())
}

/// Writes to a file without a name and syncs it, a few times.
fn sync_time(folder: &Path) -> io::Result<Duration> {
    let path = folder.join(format!(".mcp-broker-{}", uuid::Uuid::new_v4().simple()));
    let mut file = File::create_new(&path)?;
    // From here on the file has no name: nothing is left behind, however this process ends.
    fs::remove_file(&path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let started = Instant::now();
        file.write_all(&[0; WRITE_BYTES])?;
        file.sync_data()?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(times[SYNCS / 2])
}
