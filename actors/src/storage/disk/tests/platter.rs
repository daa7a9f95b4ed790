use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use super::super::{Each, Engine, Record};
use crate::storage::StoreError;

/// A disk that outlives whoever opened it, and fails when it is told to.
#[derive(Clone, Debug, Default)]
pub struct Platter(Arc<Mutex<Surface>>);

#[derive(Clone, Debug, Default)]
struct Surface {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    fault: Option<StoreError>,
    /// After an error nothing is written until somebody reopens it.
    is_stuck: bool,
    free_bytes: Option<u64>,
    commits: usize,
}

impl Platter {
    /// What a restart would find now.
    pub fn snapshot(&self) -> Self {
        Self(Arc::new(Mutex::new(self.surface().clone())))
    }

    pub fn fails_with(&self, fault: Option<StoreError>) {
        self.surface().fault = fault;
    }

    pub fn has_free(&self, bytes: u64) {
        self.surface().free_bytes = Some(bytes);
    }

    pub fn commits(&self) -> usize {
        self.surface().commits
    }

    pub fn len(&self) -> usize {
        self.surface().records.len()
    }

    /// Writes behind the back of whoever has opened it.
    pub fn put(&self, key: Vec<u8>, value: Vec<u8>) {
        self.surface().records.insert(key, value);
    }

    fn surface(&self) -> MutexGuard<'_, Surface> {
        self.0.lock().unwrap()
    }
}

impl Engine for Platter {
    fn scan(&mut self, prefix: &[u8], each: &mut Each<'_>) -> Result<(), StoreError> {
        let records = self.surface().records.clone();
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

    fn commit(&mut self, group: Vec<Record>) -> Result<(), StoreError> {
        assert!(group.is_sorted_by(|a, b| a.key < b.key), "ascending, each once");
        let mut surface = self.surface();
        if let Some(fault) = surface.fault.clone() {
            surface.is_stuck = true;
            return Err(fault);
        }
        assert!(!surface.is_stuck, "written to before it was reopened");
        surface.commits += 1;
        for Record { key, value } in group {
            match value {
                Some(value) => surface.records.insert(key, value),
                None => surface.records.remove(&key),
            };
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        let mut surface = self.surface();
        surface.is_stuck = false;
        surface.fault.clone().map_or(Ok(()), Err)
    }

    fn free_bytes(&self) -> Option<u64> {
        self.surface().free_bytes
    }
}
