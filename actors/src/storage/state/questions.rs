//! The questions to people of a project, open and closed, with their contents and drafts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::journal::{Change, DeskChange, Journal};
use crate::{
    clock::{Now, millis},
    model::{Question, QuestionContent, QuestionId, SessionId, SessionName, id_map::IdMap},
    storage::{
        questions::{
            Asked, DRAFTS_MAX, DraftPut, OPEN_BYTES_DIVISOR, OPEN_MAX, OPEN_OF_SESSION_MAX, QuestionsFull,
            SESSION_BYTES_DIVISOR, Updated, asked_bytes_max,
        },
        retention::{QUESTION_BYTES, Retention},
    },
};

/// The questions of a project.
///
/// Open questions are never forgotten: a new one that does not fit is refused. Closed ones are forgotten by age, number
/// and bytes, the one that was closed first first.
#[derive(Debug)]
pub struct Questions {
    by_id: BTreeMap<QuestionId, StoredQuestion>,
    open: BTreeSet<QuestionId>,
    /// By the time of the end.
    closed: BTreeSet<(u64, QuestionId)>,
    /// The open questions of each session that has any.
    open_of_session: IdMap<SessionId, OpenOfSession>,
    /// Hashed with a secret, because clients choose the keys.
    by_key: HashMap<(SessionId, String), QuestionId>,
    /// Bytes of all questions, and of the open ones.
    bytes: usize,
    open_bytes: usize,
    bytes_max: usize,
    closed_len_max: usize,
    retention_ms: u64,
    window_ms: u64,
}

/// The open questions of one session.
#[derive(Debug, Default)]
struct OpenOfSession {
    len: usize,
    /// Bytes of their contents.
    content_bytes: usize,
}

/// A question with what is kept next to it.
#[derive(Debug)]
pub struct StoredQuestion {
    pub question: Arc<Question>,
    pub content: Arc<QuestionContent>,
    pub drafts: BTreeMap<SessionName, String>,
}

impl StoredQuestion {
    fn bytes(&self) -> usize {
        let drafts = self.drafts.iter().map(|(human, text)| draft_bytes(human, text));
        QUESTION_BYTES + self.question.stored_len() + self.question.content_bytes + drafts.sum::<usize>()
    }
}

fn draft_bytes(human: &SessionName, text: &str) -> usize {
    human.as_str().len() + text.len()
}

impl Questions {
    /// No questions, with the limits of `retention`.
    pub fn new(retention: &Retention) -> Self {
        Self {
            by_id: BTreeMap::new(),
            open: BTreeSet::new(),
            closed: BTreeSet::new(),
            open_of_session: IdMap::default(),
            by_key: HashMap::new(),
            bytes: 0,
            open_bytes: 0,
            bytes_max: retention.questions_bytes_max,
            closed_len_max: retention.closed_questions_len_max,
            retention_ms: millis(retention.questions_retention),
            window_ms: millis(retention.idempotency_window),
        }
    }

    const fn open_bytes_max(&self) -> usize {
        self.bytes_max / OPEN_BYTES_DIVISOR
    }

    /// The bytes of all questions.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// See [`QuestionStore::ask`](crate::storage::QuestionStore::ask).
    pub fn ask(
        &mut self,
        question: Arc<Question>,
        content: Arc<QuestionContent>,
        now: Now,
        journal: &mut impl Journal,
    ) -> Asked {
        self.forget_old(now, journal);
        if let Some(earlier) = self.earlier(&question, now) {
            return Asked::Existing(earlier);
        }
        let stored = StoredQuestion {
            question,
            content,
            drafts: BTreeMap::new(),
        };
        let question = &stored.question;
        let of_session = self.open_of_session.get(&question.asker.session);
        if of_session.is_some_and(|open| open.len >= OPEN_OF_SESSION_MAX) {
            return Asked::Full(QuestionsFull::Session);
        }
        let content_bytes = of_session.map_or(0, |open| open.content_bytes) + question.content_bytes;
        if content_bytes > self.bytes_max / SESSION_BYTES_DIVISOR {
            return Asked::Full(QuestionsFull::SessionBytes(self.bytes_max / SESSION_BYTES_DIVISOR));
        }
        if self.open.len() >= OPEN_MAX {
            return Asked::Full(QuestionsFull::Project);
        }
        let asked_max = asked_bytes_max(self.bytes_max);
        if self.open_bytes + stored.bytes() > asked_max {
            return Asked::Full(QuestionsFull::Bytes(asked_max));
        }
        journal.record(Change::Desk(DeskChange::QuestionAsked {
            question: question.id,
            content: &stored.content,
        }));
        journal.record(Change::Desk(DeskChange::QuestionPut(question)));
        let id = question.id;
        self.insert(stored);
        self.forget_excess(id, journal);
        Asked::New
    }

    /// The question that was stored with this id, or with this key of the session.
    fn earlier(&self, question: &Question, now: Now) -> Option<Arc<Question>> {
        let of_key = || {
            let key = (question.asker.session, question.idempotency_key.clone()?);
            let id = self.by_key.get(&key)?;
            let is_recent = now.unix_ms.saturating_sub(id.created_ms()) < self.window_ms;
            is_recent.then_some(id)
        };
        let id = self
            .by_id
            .get_key_value(&question.id)
            .map(|(id, _)| id)
            .or_else(of_key)?;
        Some(Arc::clone(&self.by_id.get(id)?.question))
    }

    /// Stores the next revision. Returns whether it has closed the question.
    ///
    /// # Errors
    /// [`Updated::Changed`] and [`Updated::Unknown`].
    pub fn update(&mut self, question: Arc<Question>, journal: &mut impl Journal) -> Result<bool, Updated> {
        let id = question.id;
        let stored = self.by_id.get(&id).ok_or(Updated::Unknown)?;
        if question.revision != stored.question.revision + 1 {
            return Err(Updated::Changed(Arc::clone(&stored.question)));
        }
        let was_open = stored.question.is_open();
        if let Some(mut stored) = self.take(id) {
            journal.record(Change::Desk(DeskChange::QuestionPut(&question)));
            stored.question = question;
            let closes = was_open && !stored.question.is_open();
            self.insert(stored);
            self.forget_excess(id, journal);
            return Ok(closes);
        }
        Ok(false)
    }

    /// See [`QuestionStore::put_draft`](crate::storage::QuestionStore::put_draft).
    pub fn put_draft(
        &mut self,
        id: QuestionId,
        human: SessionName,
        text: String,
        journal: &mut impl Journal,
    ) -> DraftPut {
        let Some(stored) = self.by_id.get(&id) else {
            return DraftPut::Unknown;
        };
        let before = stored
            .drafts
            .get(&human)
            .map_or(0, |before| draft_bytes(&human, before));
        if text.is_empty() {
            if before > 0 {
                journal.record(Change::Desk(DeskChange::DraftRemoved {
                    question: id,
                    human: &human,
                }));
                self.change_drafts(id, |drafts| drop(drafts.remove(&human)));
            }
            return DraftPut::Stored;
        }
        let after = draft_bytes(&human, &text);
        let kept = if stored.question.is_open() { self.open_bytes } else { 0 };
        let has_room = before > 0 || stored.drafts.len() < DRAFTS_MAX;
        if !has_room || (after > before && kept + after - before > self.open_bytes_max()) {
            return DraftPut::Full;
        }
        journal.record(Change::Desk(DeskChange::DraftPut {
            question: id,
            human: &human,
            text: &text,
        }));
        self.change_drafts(id, |drafts| drop(drafts.insert(human, text)));
        self.forget_excess(id, journal);
        DraftPut::Stored
    }

    fn change_drafts(&mut self, id: QuestionId, change: impl FnOnce(&mut BTreeMap<SessionName, String>)) {
        if let Some(mut stored) = self.take(id) {
            change(&mut stored.drafts);
            self.insert(stored);
        }
    }

    /// Forgets a question. Returns whether it was known.
    pub fn remove(&mut self, id: QuestionId, journal: &mut impl Journal) -> bool {
        let Some(stored) = self.take(id) else {
            return false;
        };
        for human in stored.drafts.keys() {
            journal.record(Change::Desk(DeskChange::DraftRemoved { question: id, human }));
        }
        journal.record(Change::Desk(DeskChange::QuestionRemoved(id)));
        true
    }

    /// Forgets the closed questions that are older than the retention.
    pub fn forget_old(&mut self, now: Now, journal: &mut impl Journal) {
        while let Some(&(closed_at_ms, oldest)) = self.closed.first()
            && closed_at_ms.saturating_add(self.retention_ms) <= now.unix_ms
        {
            self.remove(oldest, journal);
        }
    }

    /// Forgets closed questions beyond the bounds, except the one that has just changed.
    fn forget_excess(&mut self, changed: QuestionId, journal: &mut impl Journal) {
        while self.closed.len() > self.closed_len_max || self.bytes > self.bytes_max {
            let others = self.closed.iter().map(|(_, id)| *id).filter(|id| *id != changed);
            let Some(oldest) = others.take(1).next() else {
                return;
            };
            self.remove(oldest, journal);
        }
    }

    /// Adds questions that were kept before a restart.
    pub fn restore(&mut self, stored: impl IntoIterator<Item = StoredQuestion>, now: Now, journal: &mut impl Journal) {
        for question in stored {
            self.insert(question);
        }
        self.forget_old(now, journal);
        let Some((_, youngest)) = self.closed.last().copied() else {
            return;
        };
        self.forget_excess(youngest, journal);
    }

    fn insert(&mut self, stored: StoredQuestion) {
        let (question, bytes) = (&stored.question, stored.bytes());
        let (id, session) = (question.id, question.asker.session);
        self.bytes += bytes;
        match question.closed() {
            None => {
                self.open_bytes += bytes;
                self.open.insert(id);
                let of_session = self.open_of_session.entry(session).or_default();
                of_session.len += 1;
                of_session.content_bytes += question.content_bytes;
            }
            Some(closed) => {
                self.closed.insert((closed.at_ms, id));
            }
        }
        if let Some(key) = &question.idempotency_key {
            // The latest question of a key counts.
            let of_key = self.by_key.entry((session, key.clone())).or_insert(id);
            *of_key = id.max(*of_key);
        }
        self.by_id.insert(id, stored);
    }

    fn take(&mut self, id: QuestionId) -> Option<StoredQuestion> {
        let stored = self.by_id.remove(&id)?;
        let (question, bytes) = (&stored.question, stored.bytes());
        let session = question.asker.session;
        self.bytes -= bytes;
        match question.closed() {
            None => {
                self.open_bytes -= bytes;
                self.open.remove(&id);
                if let Some(open) = self.open_of_session.get_mut(&session) {
                    open.len -= 1;
                    open.content_bytes -= question.content_bytes;
                    if open.len == 0 {
                        self.open_of_session.remove(&session);
                    }
                }
            }
            Some(closed) => {
                self.closed.remove(&(closed.at_ms, id));
            }
        }
        if let Some(key) = &question.idempotency_key {
            let key = (session, key.clone());
            if self.by_key.get(&key) == Some(&id) {
                self.by_key.remove(&key);
            }
        }
        Some(stored)
    }

    /// The record of a question.
    pub fn record(&self, id: QuestionId) -> Option<Arc<Question>> {
        Some(Arc::clone(&self.by_id.get(&id)?.question))
    }

    /// The content of a question.
    pub fn content(&self, id: QuestionId) -> Option<Arc<QuestionContent>> {
        Some(Arc::clone(&self.by_id.get(&id)?.content))
    }

    /// The records of the open questions, the oldest first.
    pub fn open(&self) -> Vec<Arc<Question>> {
        self.open.iter().filter_map(|id| self.record(*id)).collect()
    }

    /// The records of at most `limit` questions before this one, the newest first.
    pub fn page(&self, before: Option<QuestionId>, limit: usize) -> Vec<Arc<Question>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let older = (Unbounded, before.map_or(Unbounded, Excluded));
        let newest_first = self.by_id.range(older).rev().take(limit);
        newest_first.map(|(_, stored)| Arc::clone(&stored.question)).collect()
    }

    /// The draft of a person; empty without one.
    pub fn draft(&self, id: QuestionId, human: &SessionName) -> String {
        let stored = self.by_id.get(&id);
        let draft = stored.and_then(|stored| stored.drafts.get(human));
        draft.cloned().unwrap_or_default()
    }
}
