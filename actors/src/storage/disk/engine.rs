//! What the disk storage asks of the embedded store beneath it.

use crate::storage::StoreError;

/// A record to write, or to remove when it has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// Ordered records on a disk that one process has for itself. One thread uses it.
pub trait Engine: Send + 'static {
    /// Shows each record whose key begins with `prefix`, by ascending key, for as long as `each` says true.
    ///
    /// # Errors
    /// The disk cannot be read.
    fn scan(&mut self, prefix: &[u8], each: &mut ScanVisitor<'_>) -> Result<(), StoreError>;

    /// Writes all of a group or nothing of it. When it returns, the group survives the loss of power. Keys ascend, each
    /// of them once.
    ///
    /// # Errors
    /// Nothing of the group is seen by [`Engine::scan`], and nothing more is written until [`Engine::reopen`]; which
    /// may find the group, if it was written and only could not be made sure of.
    fn commit(&mut self, group: Vec<Record>) -> Result<(), StoreError>;

    /// Begins anew with what is on the disk, after an error.
    ///
    /// # Errors
    /// It is still not usable.
    fn reopen(&mut self) -> Result<(), StoreError>;

    /// How much room there is; None when nobody knows.
    fn space(&self) -> Option<DiskSpace>;

    /// Begins to give back what removed records take up. It is called when room is short, and does not wait.
    fn reclaim_space(&mut self) {}
}

/// Of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that may still be written.
    pub free: u64,
    pub total: u64,
}

/// Takes a key and its value, and says whether it wants more.
pub type ScanVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;
