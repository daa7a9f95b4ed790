//! The records that the store has not answered for yet. Each reserves its names and its session: a registration that needs
//! one of them waits until the answer is there. Pure.

use std::collections::{HashMap, VecDeque};

use super::registration::Attempt;
use crate::model::{SessionId, SessionName, SessionRecord};

/// The puts under way, by session. A session has one at a time.
#[derive(Default)]
pub(super) struct PendingPuts {
    by_session: HashMap<SessionId, PendingPut>,
    by_name: HashMap<SessionName, SessionId>,
    /// Puts of sessions that the directory does not have.
    new_len: usize,
}

/// A record on its way to the store.
pub(super) struct PendingPut {
    pub record: SessionRecord,
    /// The store has had the session before.
    pub resumes: bool,
    /// The directory has the record: its frame came before the answer of the store.
    pub is_applied: bool,
    /// Registrations that need the name or the session, in the order of their arrival.
    pub waiting: VecDeque<Attempt>,
}

impl PendingPuts {
    /// The record goes to the store.
    pub fn begin(&mut self, record: SessionRecord, resumes: bool) {
        self.new_len += usize::from(!resumes);
        for name in record.names() {
            self.by_name.insert(name.clone(), record.id);
        }
        let put = PendingPut {
            record,
            resumes,
            is_applied: false,
            waiting: VecDeque::new(),
        };
        self.by_session.insert(put.record.id, put);
    }

    /// The put that reserves one of these names or sessions.
    pub fn blocking<'a>(
        &self,
        names: impl IntoIterator<Item = &'a SessionName>,
        mut sessions: impl Iterator<Item = SessionId>,
    ) -> Option<SessionId> {
        let by_name = names.into_iter().find_map(|name| self.by_name.get(name).copied());
        by_name.or_else(|| sessions.find(|session| self.by_session.contains_key(session)))
    }

    /// Has registrations wait for a put. Gives them back if the put has ended.
    pub fn wait(&mut self, put: SessionId, mut attempts: VecDeque<Attempt>) -> VecDeque<Attempt> {
        if let Some(put) = self.by_session.get_mut(&put) {
            put.waiting.append(&mut attempts);
        }
        attempts
    }

    /// The store has published this record. Returns whether the session was resumed, if the directory is to get the
    /// record now: the answer of the store is still missing.
    pub fn confirm(&mut self, record: &SessionRecord) -> Option<bool> {
        let put = self.by_session.get_mut(&record.id)?;
        if put.is_applied || put.record != *record {
            return None;
        }
        put.is_applied = true;
        self.new_len -= usize::from(!put.resumes);
        Some(put.resumes)
    }

    /// The store has answered. Releases what the put reserved.
    pub fn finish(&mut self, session: SessionId) -> Option<PendingPut> {
        let put = self.by_session.remove(&session)?;
        self.new_len -= usize::from(!put.resumes && !put.is_applied);
        for name in put.record.names() {
            if self.by_name.get(name) == Some(&session) {
                self.by_name.remove(name);
            }
        }
        Some(put)
    }

    /// Whether the session has a put under way.
    pub fn contains(&self, session: SessionId) -> bool {
        self.by_session.contains_key(&session)
    }

    /// Puts of sessions that the directory does not have.
    pub const fn new_len(&self) -> usize {
        self.new_len
    }

    /// Whether no put is under way.
    pub fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::{iter, sync::Arc};

    use super::*;
    use crate::{
        model::{Holder, Owner, WakePreference},
        project::registration::Registration,
    };

    fn record(name: &str) -> SessionRecord {
        SessionRecord {
            id: SessionId::generate(),
            name: Some(SessionName::parse(name).unwrap()),
            capabilities: Arc::default(),
            metadata: serde_json::Map::new(),
            aliases: Vec::new(),
            connected_at_ms: 0,
            owner: Owner::anonymous(),
            holder: Holder::default(),
            wake: WakePreference::default(),
        }
    }

    fn attempt() -> Attempt {
        Attempt::new(Registration::default(), tokio::sync::oneshot::channel().0)
    }

    #[test]
    fn a_put_reserves_its_name_and_its_session_until_the_store_answers() {
        let (mut puts, bob) = (PendingPuts::default(), record("bob"));
        puts.begin(bob.clone(), false);
        let other = SessionId::generate();
        assert_eq!(puts.blocking(bob.name.as_ref(), iter::empty()), Some(bob.id));
        assert_eq!(puts.blocking(None, [other, bob.id].into_iter()), Some(bob.id));
        assert_eq!(puts.blocking(record("alice").name.as_ref(), iter::once(other)), None);
        assert!(puts.wait(bob.id, VecDeque::from([attempt(), attempt()])).is_empty());
        assert_eq!(puts.finish(bob.id).map(|put| put.waiting.len()), Some(2));
        assert_eq!(puts.blocking(bob.name.as_ref(), iter::once(bob.id)), None);
        assert!(puts.is_empty() && puts.finish(bob.id).is_none());
        assert_eq!(
            puts.wait(bob.id, VecDeque::from([attempt()])).len(),
            1,
            "nothing to wait for"
        );
    }

    #[test]
    fn a_new_session_counts_until_the_directory_has_it() {
        let (mut puts, bob, alice) = (PendingPuts::default(), record("bob"), record("alice"));
        puts.begin(bob.clone(), false);
        puts.begin(alice.clone(), true);
        assert_eq!(puts.new_len(), 1, "alice is resumed");
        assert_eq!(puts.confirm(&bob), Some(false));
        assert_eq!(puts.confirm(&bob), None, "the directory has it");
        assert_eq!(puts.new_len(), 0);
        puts.finish(bob.id);
        puts.finish(alice.id);
        puts.begin(bob.clone(), false);
        puts.finish(bob.id);
        assert_eq!(puts.new_len(), 0);
    }

    #[test]
    fn a_frame_of_an_older_put_confirms_nothing() {
        let (mut puts, bob) = (PendingPuts::default(), record("bob"));
        let mut older = bob.clone();
        older.holder.by_id = true;
        puts.begin(bob.clone(), true);
        assert_eq!(puts.confirm(&older), None);
        assert_eq!(puts.confirm(&record("carol")), None);
        assert_eq!(puts.confirm(&bob), Some(true));
    }
}
