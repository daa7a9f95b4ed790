//! Reads all records back when the storage opens, and after a disk failure.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    codec::{Decoded, RecordReader, damaged},
    engine::{Engine, EngineReader},
    recorder::Recorder,
    records::{self, SYSTEM_SPACE, VERSION, is_shared, kind},
};
use crate::{
    clock::Now,
    model::{
        AuditEntry, DeadLetter, Message, MessageId, ProjectId, ProjectRecord, Question, QuestionContent, QuestionId,
        SessionName, StoredMessage, Transformed, id_map::IdMap,
    },
    storage::{
        StoreError, Table,
        state::{
            account::StoreLimits,
            journal::ReceiptKey,
            project::ProjectState,
            questions::StoredQuestion,
            restore::{StoredEntry, StoredProject},
            system::SystemState,
        },
    },
};

/// Everything that was on the disk.
#[derive(Debug, Default)]
pub struct Loaded {
    pub system: SystemState,
    pub states: HashMap<ProjectId, ProjectState<Recorder>>,
    /// Spaces of cleared projects that still contain records.
    pub orphaned_spaces: Vec<u32>,
    /// Higher than every space in use.
    pub next_space: u32,
    /// The layout version; None on an empty disk.
    pub version: Option<u32>,
}

/// Reads the layout version alone; None on an empty disk.
///
/// # Errors
/// [`StoreError::Unreachable`] for a record that cannot be read.
pub fn layout_version(reader: &dyn EngineReader) -> Decoded<Option<u32>> {
    let mut version = Ok(None);
    let key = records::key(SYSTEM_SPACE, kind::VERSION).0;
    reader.scan(&key, &mut |_, value| {
        version = RecordReader(value).u32().map(Some);
        false
    })?;
    version
}

/// Reads all records.
///
/// # Errors
/// [`StoreError::Unreachable`] for a record that cannot be read or is damaged, and for a later layout version.
pub fn load(engine: &mut impl Engine, limits: &StoreLimits, now: Now) -> Decoded<Loaded> {
    let mut loading = Loader {
        loaded: Loaded {
            next_space: SYSTEM_SPACE + 1,
            ..Loaded::default()
        },
        spaces: HashMap::new(),
        current: None,
        limits: limits.clone(),
        now,
    };
    let mut result = Ok(());
    engine.scan(&[], &mut |key, value| {
        result = loading.read_record(key, value);
        result.is_ok()
    })?;
    result?;
    loading.finish_space();
    let Loader { mut loaded, spaces, .. } = loading;
    // Projects without any record in their space.
    for (space, project) in spaces {
        let state = ProjectState::with_journal(project.clone(), limits, Recorder::new(space, Vec::new()));
        loaded.states.entry(project).or_insert(state);
    }
    Ok(loaded)
}

struct Loader {
    loaded: Loaded,
    spaces: HashMap<u32, ProjectId>,
    current: Option<ProjectLoader>,
    limits: StoreLimits,
    now: Now,
}

/// One project while its records are read.
struct ProjectLoader {
    space: u32,
    stored: StoredProject,
    recorder: Recorder,
    bodies: IdMap<MessageId, Vec<u8>>,
    shared: IdMap<MessageId, Arc<Message>>,
    /// How often a message was delivered, and what lenses did to it at the last delivery.
    deliveries: HashMap<ReceiptKey, (u32, Option<Arc<Transformed>>)>,
    contents: HashMap<QuestionId, Arc<QuestionContent>>,
}

impl Loader {
    fn read_record(&mut self, key: &[u8], value: &[u8]) -> Decoded<()> {
        let mut key = RecordReader(key);
        let (space, kind) = (key.u32()?, key.u8()?);
        if space == SYSTEM_SPACE {
            return self.read_system_record(kind, &key, value);
        }
        if self.current.as_ref().is_none_or(|reading| reading.space != space) {
            self.finish_space();
            self.current = Some(ProjectLoader::new(space));
        }
        let Some(reading) = self.current.as_mut().filter(|_| self.spaces.contains_key(&space)) else {
            return Ok(());
        };
        reading.read_record(kind, &mut key, RecordReader(value))
    }

    fn read_system_record(&mut self, kind: u8, key: &RecordReader<'_>, value: &[u8]) -> Decoded<()> {
        match kind {
            kind::VERSION => {
                let version = RecordReader(value).u32()?;
                if version > VERSION {
                    let text = format!(
                        "the data have version {version}, and this broker reads versions up to {VERSION}: start the newer \
                         broker, or restore a backup from before the upgrade"
                    );
                    return Err(StoreError::Unreachable(text));
                }
                self.loaded.version = Some(version);
            }
            kind::SPACE => {
                let project = std::str::from_utf8(key.0).map_err(|_| damaged("an invalid project id"))?;
                let project = ProjectId::parse(project).map_err(|_| damaged("an invalid project id"))?;
                let space = RecordReader(value).u32()?;
                self.loaded.next_space = self.loaded.next_space.max(space + 1);
                self.spaces.insert(space, project);
            }
            kind::PROJECT => {
                let record: ProjectRecord = records::read_json(value)?;
                self.loaded.system.restore_project(Arc::new(record));
            }
            kind::AUDIT => {
                let entry: AuditEntry = records::read_json(value)?;
                self.loaded
                    .system
                    .append_audit(entry, self.limits.retention.audit_len_max);
            }
            _ => return Err(damaged("an unknown kind")),
        }
        Ok(())
    }

    fn finish_space(&mut self) {
        let Some(reading) = self.current.take() else {
            return;
        };
        self.loaded.next_space = self.loaded.next_space.max(reading.space + 1);
        match self.spaces.remove(&reading.space) {
            Some(project) => {
                let state = reading.into_state(project.clone(), &self.limits, self.now);
                self.loaded.states.insert(project, state);
            }
            None => self.loaded.orphaned_spaces.push(reading.space),
        }
    }
}

impl ProjectLoader {
    fn new(space: u32) -> Self {
        Self {
            space,
            stored: StoredProject::default(),
            recorder: Recorder::new(space, Vec::new()),
            bodies: IdMap::default(),
            shared: IdMap::default(),
            deliveries: HashMap::new(),
            contents: HashMap::new(),
        }
    }

    fn read_record(&mut self, kind: u8, key: &mut RecordReader<'_>, mut value: RecordReader<'_>) -> Decoded<()> {
        let kept = &mut self.stored;
        if let Some(table) = Table::ALL.into_iter().find(|table| records::kind_of(*table) == kind) {
            let text = std::str::from_utf8(value.0).map_err(|_| damaged("the text of a record is not UTF-8"))?;
            kept.records.restore(table, records::read_key(table, key)?, text.into());
            return Ok(());
        }
        match kind {
            kind::SESSION => kept.sessions.push(records::read_session(value.0)?),
            kind::BODY => {
                self.bodies.insert(key.message()?, value.rest().to_vec());
            }
            kind::DELIVERIES => {
                let (receipt, count) = (records::read_receipt_key(key)?, value.u32()?);
                let transformed = records::read_transformed(value.rest())?;
                self.deliveries.insert(receipt, (count, transformed));
            }
            kind::QUEUED => {
                let receipt = records::read_receipt_key(key)?;
                let (session, seq) = (value.session()?, value.u64()?);
                let accepted_at_ms = value.u64()?;
                let deadline_unix_ms = value.option(RecordReader::u64)?;
                let message = self.message(records::read_message(&mut value)?)?;
                let (deliveries, transformed) = self.deliveries.remove(&receipt).unwrap_or_default();
                self.stored.queued.push(StoredEntry {
                    session,
                    seq,
                    message,
                    receipt,
                    accepted_at_ms,
                    deadline_unix_ms,
                    deliveries,
                    transformed,
                });
            }
            kind::RECEIPT => {
                let at = records::read_receipt_key(key)?;
                let (message, entry) = records::read_receipt(&mut value)?;
                kept.receipts.push((at, message, entry));
            }
            kind::DEAD_LETTER => {
                let recipient = {
                    key.message()?;
                    key.session()?
                };
                let (sequence, stored) = records::read_dead_letter(&mut value)?;
                let dead_letter = DeadLetter {
                    message: self.message(stored.message)?,
                    recipient,
                    recipient_name: stored.recipient_name,
                    reason: stored.reason,
                    at_ms: stored.at_ms,
                    deliveries: stored.deliveries,
                };
                self.stored.dead_letters.push((sequence, dead_letter));
            }
            kind::IDEMPOTENCY_KEY => {
                let sender = key.session()?;
                let text = std::str::from_utf8(key.0).map_err(|_| damaged("a key is not UTF-8"))?;
                let (until_unix_ms, by) = records::read_key_use(&mut value)?;
                kept.idempotency_keys.push(((sender, text.into()), until_unix_ms, by));
            }
            kind::CROSS_PROJECT => {
                kept.cross_project_targets
                    .push((key.message()?, records::read_project(&mut value)?));
            }
            kind::REPORT_PROGRESS => kept.report_progress = Some(records::read_report_progress(&mut value)?),
            kind::EVENTS => kept.events.add(&records::read_events(key, &mut value)?),
            _ => return self.read_desk_record(kind, key, value),
        }
        Ok(())
    }

    fn read_desk_record(&mut self, kind: u8, key: &mut RecordReader<'_>, mut value: RecordReader<'_>) -> Decoded<()> {
        let kept = &mut self.stored;
        match kind {
            kind::QUESTION_CONTENT => {
                self.contents
                    .insert(key.question()?, Arc::new(records::read_json(value.0)?));
            }
            kind::QUESTION => {
                let question: Question = records::read_json(value.0)?;
                let content = self.contents.remove(&question.id);
                kept.questions.push(StoredQuestion {
                    content: content.ok_or_else(|| damaged("the content of a question is missing"))?,
                    question: Arc::new(question),
                    drafts: BTreeMap::new(),
                });
            }
            kind::DRAFT => {
                let id = key.question()?;
                let text = |bytes| std::str::from_utf8(bytes).map_err(|_| damaged("a draft is not UTF-8"));
                let human = SessionName::stored(text(key.0)?).map_err(|_| damaged("an invalid name"))?;
                // Drafts and questions are both read by ascending id.
                let at = kept.questions.binary_search_by_key(&id, |stored| stored.question.id);
                let at = at.map_err(|_| damaged("the question of a draft is missing"))?;
                kept.questions[at].drafts.insert(human, text(value.0)?.to_owned());
            }
            kind::HELD_YAP => {
                let (number, at_ms) = (key.u64()?, value.u64()?);
                kept.yaps
                    .held
                    .push((number, at_ms, Arc::new(records::read_json(value.0)?)));
            }
            kind::SHOWN_YAP => kept.yaps.shown.push(Arc::new(records::read_json(value.0)?)),
            kind::LAST_YAP => kept.yaps.last = (value.u64()?, value.u64()?),
            _ => return Err(damaged("an unknown kind")),
        }
        Ok(())
    }

    /// The message of a record; all records of a broadcast share one message.
    fn message(&mut self, stored: StoredMessage) -> Decoded<Arc<Message>> {
        if stored.recipient.is_some() {
            return Ok(Arc::new(Message::restore(stored)));
        }
        self.recorder.add_body_reference(stored.id);
        if let Some(message) = self.shared.get(&stored.id) {
            return Ok(Arc::clone(message));
        }
        let body = self
            .bodies
            .remove(&stored.id)
            .ok_or_else(|| damaged("the body of a broadcast is missing"))?;
        let message = Arc::new(Message::restore(StoredMessage { body, ..stored }));
        debug_assert!(is_shared(&message));
        self.shared.insert(message.id, Arc::clone(&message));
        Ok(message)
    }

    fn into_state(mut self, project: ProjectId, limits: &StoreLimits, now: Now) -> ProjectState<Recorder> {
        for &unused in self.bodies.keys() {
            self.recorder.remove_body(unused);
        }
        ProjectState::restore(self.stored, project, limits, now, self.recorder)
    }
}
