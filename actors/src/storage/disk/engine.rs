//! What the disk storage needs from the embedded key-value store beneath it.

use std::sync::Arc;

use crate::storage::StoreError;

/// A record to write; without a value, a record to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// Ordered records on a disk that belongs to this process. One thread uses it.
pub trait Engine: Send + 'static {
    /// Passes each record whose key begins with `prefix` to `each`, by ascending key, while `each` returns true.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] if the disk cannot be read.
    fn scan(&mut self, prefix: &[u8], each: &mut ScanVisitor<'_>) -> Result<(), StoreError>;

    /// Writes a group atomically. When it returns, the group survives a loss of power. Keys ascend and are unique.
    ///
    /// # Errors
    /// [`Engine::scan`] sees nothing of the group, and nothing is written until [`Engine::reopen`]. After a reopen the
    /// group may be visible, if it was written but its sync failed.
    fn commit(&mut self, group: Vec<Record>) -> Result<(), StoreError>;

    /// Opens the disk again after an error.
    ///
    /// # Errors
    /// [`StoreError`] while the disk is still unusable.
    fn reopen(&mut self) -> Result<(), StoreError>;

    /// The space of the disk; None if unknown.
    fn space(&self) -> Option<DiskSpace>;

    /// Reads the same records on other threads, also while this engine writes. It fails until [`Engine::reopen`] succeeds.
    fn reader(&self) -> Arc<dyn EngineReader>;

    /// Starts to free the space of removed records, without waiting. Called when space is low.
    fn reclaim_space(&mut self) {}
}

/// Reads what an [`Engine`] has written.
pub trait EngineReader: Send + Sync + 'static {
    /// [`Engine::scan`].
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] if the disk cannot be read.
    fn scan(&self, prefix: &[u8], each: &mut ScanVisitor<'_>) -> Result<(), StoreError>;
}

/// The space of a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that can still be written.
    pub free: u64,
    pub total: u64,
}

/// Receives a key and its value; returns true to continue.
pub type ScanVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;
