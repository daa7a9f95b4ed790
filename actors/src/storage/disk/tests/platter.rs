use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, mpsc},
};

use super::super::{Each, Engine, Record, Room};
use crate::storage::StoreError;

/// A disk that outlives whoever opened it, fails when it is told to, and can be made to stand still.
#[derive(Clone, Debug, Default)]
pub struct Platter(Arc<Mutex<Surface>>);

#[derive(Clone, Debug, Default)]
struct Surface {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    fault: Option<StoreError>,
    /// A failed commit is written nevertheless.
    keeps_what_failed: bool,
    /// After an error nothing is written until somebody reopens it.
    is_stuck: bool,
    room: Option<Room>,
    /// How often it was asked to make room.
    tidied: usize,
    commits: usize,
    /// A commit tells the first that it has come, and goes on when the second is dropped.
    gate: Option<Gate>,
}

#[derive(Clone, Debug)]
struct Gate {
    came: mpsc::Sender<()>,
    opens: Arc<Mutex<mpsc::Receiver<()>>>,
}

/// Commits stand still for as long as this is there.
#[derive(Debug)]
pub struct Stillness {
    came: mpsc::Receiver<()>,
    _opens: mpsc::Sender<()>,
    platter: Platter,
}

impl Stillness {
    /// Waits until a commit stands still.
    pub fn has_one(&self) {
        self.came.recv().unwrap();
    }
}

impl Drop for Stillness {
    fn drop(&mut self) {
        self.platter.surface().gate = None;
    }
}

impl Platter {
    /// What a restart would find now.
    pub fn snapshot(&self) -> Self {
        let mut surface = self.surface().clone();
        surface.gate = None;
        surface.is_stuck = false;
        Self(Arc::new(Mutex::new(surface)))
    }

    pub fn stands_still(&self) -> Stillness {
        let (came, comes) = mpsc::channel();
        let (open, opens) = mpsc::channel();
        let opens = Arc::new(Mutex::new(opens));
        self.surface().gate = Some(Gate { came, opens });
        Stillness {
            came: comes,
            _opens: open,
            platter: self.clone(),
        }
    }

    pub fn fails_with(&self, fault: StoreError) {
        self.surface().fault = Some(fault);
    }

    /// It says that it failed, and did it.
    pub fn fails_late_with(&self, fault: StoreError) {
        self.surface().keeps_what_failed = true;
        self.fails_with(fault);
    }

    pub fn is_well_again(&self) {
        let mut surface = self.surface();
        surface.fault = None;
        surface.keeps_what_failed = false;
    }

    pub fn has_room(&self, free: u64, total: u64) {
        self.surface().room = Some(Room { free, total });
    }

    pub fn tidied(&self) -> usize {
        self.surface().tidied
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

    pub fn remove(&self, key: &[u8]) {
        self.surface().records.remove(key);
    }

    fn surface(&self) -> MutexGuard<'_, Surface> {
        self.0.lock().unwrap()
    }
}

impl Surface {
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
        let gate = self.surface().gate.clone();
        if let Some(Gate { came, opens }) = gate {
            let _ = came.send(());
            let _ = opens.lock().unwrap().recv();
        }
        let mut surface = self.surface();
        if let Some(fault) = surface.fault.clone() {
            surface.is_stuck = true;
            if surface.keeps_what_failed {
                surface.write(group);
            }
            return Err(fault);
        }
        assert!(!surface.is_stuck, "written to before it was reopened");
        surface.write(group);
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        let mut surface = self.surface();
        surface.is_stuck = false;
        surface.fault.clone().map_or(Ok(()), Err)
    }

    fn room(&self) -> Option<Room> {
        self.surface().room
    }

    fn make_room(&mut self) {
        self.surface().tidied += 1;
    }
}
