//! A simulated disk with failures and pauses.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, mpsc},
};

use super::super::{DiskSpace, Engine, EngineReader, Record, ScanVisitor};
use crate::storage::StoreError;

/// A disk that survives the storage that opened it, fails on demand, and can pause its commits.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<Contents>>);

#[derive(Clone, Debug, Default)]
struct Contents {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    fault: Option<StoreError>,
    /// A failing commit writes its records nevertheless.
    keeps_what_failed: bool,
    /// A commit failed and the disk has not been reopened.
    needs_reopen: bool,
    space: Option<DiskSpace>,
    /// The number of calls to reclaim space.
    reclaims: usize,
    commits: usize,
    /// A commit reports its arrival on the first channel, and continues when the sender of the second is dropped.
    pause: Option<PauseGate>,
}

#[derive(Clone, Debug)]
struct PauseGate {
    came: mpsc::Sender<()>,
    opens: Arc<Mutex<mpsc::Receiver<()>>>,
}

/// Pauses all commits while it exists.
#[derive(Debug)]
pub struct CommitPause {
    came: mpsc::Receiver<()>,
    _opens: mpsc::Sender<()>,
    gate: PauseGate,
    disk: SimulatedDisk,
}

impl CommitPause {
    /// Waits until a commit is paused.
    pub fn wait_for_commit(&self) {
        self.came.recv().unwrap();
    }
}

impl Drop for CommitPause {
    fn drop(&mut self) {
        // A later pause stays.
        let own = &self.gate.opens;
        self.disk.contents().pause.take_if(|gate| Arc::ptr_eq(&gate.opens, own));
    }
}

impl SimulatedDisk {
    /// A copy of the disk as a restarted process would find it.
    pub fn snapshot(&self) -> Self {
        let mut surface = self.contents().clone();
        surface.pause = None;
        surface.needs_reopen = false;
        Self(Arc::new(Mutex::new(surface)))
    }

    pub fn pause_commits(&self) -> CommitPause {
        let (came, comes) = mpsc::channel();
        let (open, opens) = mpsc::channel();
        let opens = Arc::new(Mutex::new(opens));
        let gate = PauseGate { came, opens };
        self.contents().pause = Some(gate.clone());
        CommitPause {
            came: comes,
            _opens: open,
            gate,
            disk: self.clone(),
        }
    }

    pub fn fails_with(&self, fault: StoreError) {
        self.contents().fault = Some(fault);
    }

    /// Commits fail with this error, but write their records.
    pub fn fails_after_writing_with(&self, fault: StoreError) {
        self.contents().keeps_what_failed = true;
        self.fails_with(fault);
    }

    pub fn recovers(&self) {
        let mut surface = self.contents();
        surface.fault = None;
        surface.keeps_what_failed = false;
    }

    pub fn has_space(&self, free: u64, total: u64) {
        self.contents().space = Some(DiskSpace { free, total });
    }

    pub fn reclaims(&self) -> usize {
        self.contents().reclaims
    }

    pub fn commits(&self) -> usize {
        self.contents().commits
    }

    pub fn len(&self) -> usize {
        self.contents().records.len()
    }

    /// The values of all records of a kind, by ascending key.
    pub fn values_of(&self, kind: u8) -> Vec<Vec<u8>> {
        let contents = self.contents();
        let of_kind = contents.records.iter().filter(|(key, _)| key[4] == kind);
        of_kind.map(|(_, value)| value.clone()).collect()
    }

    /// Writes a record that the open storage does not know of.
    pub fn put(&self, key: Vec<u8>, value: Vec<u8>) {
        self.contents().records.insert(key, value);
    }

    /// Removes the first record of a kind behind the back of the storage.
    pub fn remove_first(&self, kind: u8) {
        let mut contents = self.contents();
        let first = contents.records.keys().find(|key| key[4] == kind).cloned();
        first.and_then(|key| contents.records.remove(&key));
    }

    pub fn remove(&self, key: &[u8]) {
        self.contents().records.remove(key);
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap()
    }
}

impl Contents {
    fn write(&mut self, group: Vec<Record>) {
        self.commits += 1;
        for Record { key, value } in group {
            match value {
                Some(value) => self.records.insert(key, value),
                None => self.records.remove(&key),
            };
        }
    }
}

impl EngineReader for SimulatedDisk {
    fn scan(&self, prefix: &[u8], each: &mut ScanVisitor<'_>) -> Result<(), StoreError> {
        let records = self.contents().records.clone();
        let in_prefix = records
            .range(prefix.to_vec()..)
            .take_while(|(key, _)| key.starts_with(prefix));
        for (key, value) in in_prefix {
            if !each(key, value) {
                break;
            }
        }
        Ok(())
    }
}

impl Engine for SimulatedDisk {
    fn scan(&mut self, prefix: &[u8], each: &mut ScanVisitor<'_>) -> Result<(), StoreError> {
        EngineReader::scan(self, prefix, each)
    }

    fn reader(&self) -> Arc<dyn EngineReader> {
        Arc::new(self.clone())
    }

    fn commit(&mut self, group: Vec<Record>) -> Result<(), StoreError> {
        assert!(group.is_sorted_by(|a, b| a.key < b.key), "ascending, each once");
        let pause = self.contents().pause.clone();
        if let Some(PauseGate { came, opens }) = pause {
            let _ = came.send(());
            let _ = opens.lock().unwrap().recv();
        }
        let mut surface = self.contents();
        if let Some(fault) = surface.fault.clone() {
            surface.needs_reopen = true;
            if surface.keeps_what_failed {
                surface.write(group);
            }
            return Err(fault);
        }
        assert!(!surface.needs_reopen, "written to before it was reopened");
        surface.write(group);
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        let mut surface = self.contents();
        surface.needs_reopen = false;
        surface.fault.clone().map_or(Ok(()), Err)
    }

    fn space(&self) -> Option<DiskSpace> {
        self.contents().space
    }

    fn reclaim_space(&mut self) {
        self.contents().reclaims += 1;
    }
}
