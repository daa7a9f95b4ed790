//! The engine of the disk storage: a folder with an embedded database (`fjall`).
//!
//! In the folder, `lock` is locked by the process that uses it, and `records` is the database. The folder is private to
//! its owner. What the records mean, the storage in `actors` knows; nothing here does.

mod inspect;

use std::{
    fs::{self, DirBuilder, File, Permissions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use actors::{
    clock::Now,
    faults,
    locked::RwLocked,
    storage::{
        StoreError,
        disk::{DiskSettings, DiskSpace, DiskStorage, Engine, EngineReader, Record, ScanVisitor},
    },
};
use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
    config::{BlockSizePolicy, FilterPolicy},
};

pub use inspect::{FolderReport, inspect};

const LOCK_FILE: &str = "lock";
const RECORDS_FOLDER: &str = "records";

/// The entries that the broker creates in its folder.
const OWN_ENTRIES: [&str; 2] = [LOCK_FILE, RECORDS_FOLDER];

/// The mode of the folder: only its owner may enter.
const PRIVATE_MODE: u32 = 0o700;

/// All records are in one keyspace, so that a journal is deleted as soon as its memtable is a table.
const KEYSPACE: &str = "records";

/// Bytes of the cache. Records are read at the start only: a cache is of little use.
const CACHE_BYTES: u64 = 4 << 20;

/// Bytes of all journals. A journal is deleted when its records are in tables.
const JOURNALS_BYTES_MAX: u64 = 256 << 20;

/// Bytes of a block. Records are read from one end to the other, never by key.
const BLOCK_BYTES: u32 = 32 << 10;

/// Bytes from which on a value is kept next to the tables: compaction then moves keys only.
const BLOB_BYTES_MIN: u32 = 256;

/// The time that a table has to be written before compaction. A table that is late is merged by the next compaction.
const FLUSH_WAIT: Duration = Duration::from_millis(500);

/// Opens the storage in a folder, which is created if it is missing.
///
/// # Errors
/// When another process uses the folder, when it cannot be used, or when its data cannot be read. The text names the
/// folder.
pub fn open(folder: &Path, settings: DiskSettings, now: Now) -> io::Result<DiskStorage> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("data_dir {}: {error}", folder.display()));
    let engine = DataFolder::open(folder).map_err(named)?;
    DiskStorage::open(engine, settings, now).map_err(named)
}

/// The database, for the thread that writes and for those that read.
struct OpenDatabase {
    /// None when it could not be opened again after an error.
    open: RwLocked<Option<(Database, Keyspace)>>,
}

impl OpenDatabase {
    /// Runs an operation on the open database, which is not opened again meanwhile.
    fn with<T>(&self, operation: impl FnOnce(&Database, &Keyspace) -> fjall::Result<T>) -> Result<T, StoreError> {
        let open = self.open.read();
        let Some((database, records)) = &*open else {
            let text = "the folder could not be opened again".to_owned();
            return Err(StoreError::Unreachable(text));
        };
        operation(database, records).map_err(|error| store_error(&error))
    }
}

impl EngineReader for OpenDatabase {
    fn scan(&self, prefix: &[u8], each: &mut ScanVisitor<'_>) -> Result<(), StoreError> {
        self.with(|_, records| {
            for record in records.prefix(prefix) {
                let (key, value) = record.into_inner()?;
                if !each(&key, &value) {
                    break;
                }
            }
            Ok(())
        })
    }
}

/// A folder that this process alone uses.
pub struct DataFolder {
    path: PathBuf,
    database: Arc<OpenDatabase>,
    /// The thread that frees space, if one was started.
    compaction: Option<JoinHandle<()>>,
    _lock: File,
}

impl DataFolder {
    /// Creates the folder if it is missing, locks it and opens the database.
    ///
    /// # Errors
    /// Those of [`open`], without the name of the folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path.exists() && !path.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                "it is a file, and the storage needs a folder; name another one",
            ));
        }
        DirBuilder::new().recursive(true).mode(PRIVATE_MODE).create(path)?;
        ensure_private(path)?;
        let lock = lock_exclusively(&path.join(LOCK_FILE))?;
        let database = open_database(&path.join(RECORDS_FOLDER)).map_err(|error| io_error(&error))?;
        Ok(Self {
            path: path.to_owned(),
            database: Arc::new(OpenDatabase {
                open: RwLocked::new(Some(database)),
            }),
            compaction: None,
            _lock: lock,
        })
    }

    /// Waits for the thread that frees space.
    fn join_compaction(&mut self) {
        if let Some(thread) = self.compaction.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for DataFolder {
    /// Closes the database, even if a reader still has its handle, so that the folder can be opened again afterwards.
    fn drop(&mut self) {
        self.join_compaction();
        *self.database.open.write() = None;
    }
}

impl Engine for DataFolder {
    fn scan(&mut self, prefix: &[u8], each: &mut ScanVisitor<'_>) -> Result<(), StoreError> {
        EngineReader::scan(&*self.database, prefix, each)
    }

    fn reader(&self) -> Arc<dyn EngineReader> {
        self.database.clone()
    }

    fn commit(&mut self, group: Vec<Record>) -> Result<(), StoreError> {
        faults::delay_commit();
        self.database.with(|database, records| {
            let mut batch = database.batch().durability(Some(PersistMode::SyncData));
            for Record { key, value } in group {
                match value {
                    Some(value) => batch.insert(records, key, value),
                    None => batch.remove(records, key),
                }
            }
            batch.commit()
        })
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.join_compaction();
        let mut open = self.database.open.write();
        // The old database holds a lock of its own.
        *open = None;
        let opened = open_database(&self.path.join(RECORDS_FOLDER));
        *open = Some(opened.map_err(|error| store_error(&error))?);
        Ok(())
    }

    fn space(&self) -> Option<DiskSpace> {
        free_space(&self.path)
    }

    fn reclaim_space(&mut self) {
        let is_running = |thread: &JoinHandle<()>| !thread.is_finished();
        if self.compaction.as_ref().is_some_and(is_running) {
            return;
        }
        let Ok(records) = self.database.with(|_, records| Ok(records.clone())) else {
            return;
        };
        let compaction = thread::Builder::new().name("storage-tidy".to_owned());
        let compaction = compaction.spawn(move || {
            // Removed records take up space until the removal is in a table and the tables are merged.
            let merged = records.rotate_memtable().and_then(|_| {
                thread::sleep(FLUSH_WAIT);
                records.major_compact()
            });
            if let Err(error) = merged {
                tracing::warn!(%error, "cannot free space on the disk");
            }
        });
        self.compaction = compaction.ok();
    }
}

/// The space of the file system of a folder.
fn free_space(path: &Path) -> Option<DiskSpace> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(DiskSpace {
        free: disk.f_bavail.saturating_mul(disk.f_frsize),
        total: disk.f_blocks.saturating_mul(disk.f_frsize),
    })
}

/// Whether users besides the broker's own may enter a folder.
enum Privacy {
    Private,
    /// Others may enter it. It holds the files of the broker only, so that a start makes it private.
    Open {
        mode: u32,
    },
    /// Others may enter it, and a start refuses it: its other files may be meant for others.
    Refused {
        mode: u32,
        why: &'static str,
    },
}

fn privacy(path: &Path) -> io::Result<Privacy> {
    let metadata = fs::metadata(path)?;
    let mode = metadata.mode() & 0o777;
    if mode & !PRIVATE_MODE == 0 {
        return Ok(Privacy::Private);
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        let why = "it belongs to another user";
        return Ok(Privacy::Refused { mode, why });
    }
    for entry in fs::read_dir(path)? {
        if !OWN_ENTRIES
            .iter()
            .any(|own| entry.as_ref().is_ok_and(|entry| entry.file_name() == *own))
        {
            let why = "it holds other files";
            return Ok(Privacy::Refused { mode, why });
        }
    }
    Ok(Privacy::Open { mode })
}

/// Makes a folder private, or refuses it.
fn ensure_private(path: &Path) -> io::Result<()> {
    match privacy(path)? {
        Privacy::Private => Ok(()),
        Privacy::Refused { mode, why } => {
            let text =
                format!("others may enter it (mode {mode:o}), and {why}: run chmod 700, or name a folder inside it");
            Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
        }
        Privacy::Open { mode } => {
            fs::set_permissions(path, Permissions::from_mode(PRIVATE_MODE))?;
            tracing::warn!(folder = %path.display(), "others could enter data_dir (mode {mode:o}): it is private now");
            Ok(())
        }
    }
}

/// Locks a file until it is dropped.
fn lock_exclusively(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another process uses it; give each broker its own folder",
        )),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn open_database(path: &Path) -> fjall::Result<(Database, Keyspace)> {
    // The version is written last. Without it, or while its file is empty, nothing was ever accepted.
    let has_version = path.join("version").metadata().is_ok_and(|version| version.len() > 0);
    if !has_version && path.try_exists()? {
        fs::remove_dir_all(path)?;
    }
    let database = Database::builder(path)
        .cache_size(CACHE_BYTES)
        .max_journaling_size(JOURNALS_BYTES_MAX)
        // With several, one of them spins while another merges.
        .worker_threads(1)
        .open()?;
    let records = database.keyspace(KEYSPACE, || {
        KeyspaceCreateOptions::default()
            .filter_policy(FilterPolicy::disabled())
            .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
            .with_kv_separation(Some(
                KvSeparationOptions::default().separation_threshold(BLOB_BYTES_MIN),
            ))
    })?;
    Ok((database, records))
}

fn store_error(error: &fjall::Error) -> StoreError {
    let error = io_error(error);
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full(error.to_string()),
        _ => StoreError::Unreachable(error.to_string()),
    }
}

fn io_error(error: &fjall::Error) -> io::Error {
    match error {
        fjall::Error::Io(error) => io::Error::new(error.kind(), error.to_string()),
        fjall::Error::Storage(inner) => {
            match std::error::Error::source(inner).and_then(|e| e.downcast_ref::<io::Error>()) {
                Some(error) => io::Error::new(error.kind(), error.to_string()),
                None => io::Error::other(inner.to_string()),
            }
        }
        fjall::Error::Poisoned => io::Error::other("an earlier write failed"),
        other => io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
