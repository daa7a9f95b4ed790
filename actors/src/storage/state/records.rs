//! The records of a project.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use super::journal::{Change, Journal};
use crate::storage::records::{Before, RecordPut, Table};

/// The records of a project, by table.
#[derive(Debug, Default)]
pub struct Records([BTreeMap<Vec<u8>, Arc<str>>; Table::ALL.len()]);

impl Records {
    /// Adds a record that was kept before a restart.
    pub fn restore(&mut self, table: Table, key: Vec<u8>, text: Arc<str>) {
        self.0[table as usize].insert(key, text);
    }

    /// See [`RecordStore::get`](crate::storage::RecordStore::get).
    pub fn get(&self, table: Table, key: &[u8]) -> Option<Arc<str>> {
        self.0[table as usize].get(key).cloned()
    }

    /// See [`RecordStore::list`](crate::storage::RecordStore::list).
    pub fn with_prefix(&self, table: Table, prefix: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &Arc<str>)> {
        let from = self.0[table as usize].range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        from.take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// See [`RecordStore::put_if`](crate::storage::RecordStore::put_if).
    pub fn put_if(
        &mut self,
        table: Table,
        key: Vec<u8>,
        before: &Before,
        text: Option<Arc<str>>,
        journal: &mut impl Journal,
    ) -> RecordPut {
        let records = &mut self.0[table as usize];
        let stored = records.get(&key);
        let (is_before, has_room) = match before {
            Before::Any => (true, true),
            Before::Absent { len_max } => (stored.is_none(), records.len() < *len_max),
            Before::Text(before) => (stored == Some(before), true),
        };
        if !is_before {
            return RecordPut::Differs(stored.cloned());
        }
        let fits = |text: &Arc<str>| has_room && text.len() <= table.text_bytes_max();
        if !text.as_ref().is_none_or(fits) {
            return RecordPut::Full;
        }
        journal.record(Change::Record {
            table,
            key: &key,
            text: text.as_deref(),
        });
        match text {
            Some(text) => records.insert(key, text),
            None => records.remove(&key),
        };
        RecordPut::Stored
    }
}
