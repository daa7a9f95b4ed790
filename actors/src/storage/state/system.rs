//! The records that belong to no single project: project records and the audit log.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use crate::model::{AuditEntry, AuditOutcome, AuditQuery, ProjectId, ProjectRecord};

/// The project records and the audit log of a broker.
#[derive(Debug, Default)]
pub struct SystemState {
    projects: BTreeMap<ProjectId, Arc<ProjectRecord>>,
    /// One log for each project; None is the log of entries without a project.
    audit_logs: BTreeMap<Option<ProjectId>, AuditLog>,
}

/// The entries by age, which is by id.
#[derive(Debug, Default)]
struct AuditLog {
    done: VecDeque<Arc<AuditEntry>>,
    refused: VecDeque<Arc<AuditEntry>>,
}

impl SystemState {
    /// All project records.
    pub fn projects(&self) -> Vec<Arc<ProjectRecord>> {
        self.projects.values().cloned().collect()
    }

    /// The record of a project.
    pub fn project(&self, project: &ProjectId) -> Option<Arc<ProjectRecord>> {
        self.projects.get(project).cloned()
    }

    /// Adds a record that was stored before a restart.
    pub fn restore_project(&mut self, record: Arc<ProjectRecord>) {
        self.projects.insert(record.id.clone(), record);
    }

    /// See [`Storage::put_project`](crate::storage::Storage::put_project).
    pub fn put_project(&mut self, record: Arc<ProjectRecord>) -> bool {
        let next = self.projects.get(&record.id).map_or(0, |kept| kept.revision + 1);
        let is_next = record.revision == next;
        if is_next {
            self.projects.insert(record.id.clone(), record);
        }
        is_next
    }

    /// Returns the entry that was evicted.
    pub fn append_audit(&mut self, entry: AuditEntry, len_max: usize) -> Option<Arc<AuditEntry>> {
        let of_project = self.audit_logs.entry(entry.project.clone()).or_default();
        let entries = match entry.outcome {
            AuditOutcome::Done => &mut of_project.done,
            AuditOutcome::Refused => &mut of_project.refused,
        };
        // At the end, unless a younger entry arrived first.
        let place = entries.partition_point(|known| known.id < entry.id);
        entries.insert(place, Arc::new(entry));
        if entries.len() > len_max {
            entries.pop_front()
        } else {
            None
        }
    }

    /// The entries that match a query, newest first.
    pub fn audit(&self, query: &AuditQuery) -> Vec<Arc<AuditEntry>> {
        let newest = |entries: &VecDeque<Arc<AuditEntry>>| -> Vec<_> {
            let fitting = entries.iter().rev().filter(|entry| query.matches(entry));
            fitting.take(query.limit).cloned().collect()
        };
        let asked: Vec<_> = match &query.project {
            Some(_) => self.audit_logs.get(&query.project).into_iter().collect(),
            None => self.audit_logs.values().collect(),
        };
        let rings = asked.into_iter().flat_map(|entries| [&entries.done, &entries.refused]);
        let mut entries: Vec<_> = rings.flat_map(newest).collect();
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.id));
        entries.truncate(query.limit);
        entries
    }
}
