//! Reads everything back.

use std::{collections::HashMap, sync::Arc};

use super::{
    codec::{Read, Reader, damaged},
    engine::Engine,
    recorder::Recorder,
    records::{self, OFFICES, VERSION, is_shared, kind},
};
use crate::{
    clock::Now,
    model::{AuditEntry, DeadLetter, KeptMessage, Message, MessageId, ProjectId, ProjectRecord},
    storage::{
        StoreError,
        account::Limits,
        id_map::IdMap,
        memory::{
            offices::Offices,
            restore::{Kept, Queued},
            state::State,
        },
        receipts::ReceiptKey,
    },
};

/// What was on the disk.
#[derive(Debug, Default)]
pub struct Loaded {
    pub offices: Offices,
    pub states: HashMap<ProjectId, State<Recorder>>,
    /// Spaces of projects that were cleared, with something still in them.
    pub orphans: Vec<u32>,
    /// Above all that are in use.
    pub next_space: u32,
    /// None: nobody has written here before.
    pub version: Option<u32>,
}

/// # Errors
/// What cannot be read, was damaged, or was written by a later version.
pub fn load(engine: &mut impl Engine, limits: &Limits, now: Now) -> Read<Loaded> {
    let mut loading = Loading {
        loaded: Loaded {
            next_space: OFFICES + 1,
            ..Loaded::default()
        },
        spaces: HashMap::new(),
        reading: None,
        limits: limits.clone(),
        now,
    };
    let mut result = Ok(());
    engine.scan(&[], &mut |key, value| {
        result = loading.take(key, value);
        result.is_ok()
    })?;
    result?;
    loading.end_of_space();
    let Loading { mut loaded, spaces, .. } = loading;
    // Those that nothing was put into after all.
    for (space, project) in spaces {
        let state = State::with_journal(project.clone(), limits, Recorder::new(space, Vec::new()));
        loaded.states.entry(project).or_insert(state);
    }
    Ok(loaded)
}

struct Loading {
    loaded: Loaded,
    spaces: HashMap<u32, ProjectId>,
    reading: Option<Reading>,
    limits: Limits,
    now: Now,
}

/// One project, while it is read.
struct Reading {
    space: u32,
    kept: Kept,
    recorder: Recorder,
    bodies: IdMap<MessageId, Vec<u8>>,
    shared: IdMap<MessageId, Arc<Message>>,
    deliveries: HashMap<ReceiptKey, u32>,
}

impl Loading {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Read<()> {
        let mut key = Reader(key);
        let (space, kind) = (key.u32()?, key.u8()?);
        if space == OFFICES {
            return self.take_office(kind, &key, value);
        }
        if self.reading.as_ref().is_none_or(|reading| reading.space != space) {
            self.end_of_space();
            self.reading = Some(Reading::new(space));
        }
        let Some(reading) = self.reading.as_mut().filter(|_| self.spaces.contains_key(&space)) else {
            return Ok(());
        };
        reading.take(kind, &mut key, Reader(value))
    }

    fn take_office(&mut self, kind: u8, key: &Reader<'_>, value: &[u8]) -> Read<()> {
        match kind {
            kind::VERSION => {
                let version = Reader(value).u32()?;
                if version > VERSION {
                    let text = format!("the data are of version {version}, and this broker reads up to {VERSION}");
                    return Err(StoreError::Unreachable(text));
                }
                self.loaded.version = Some(version);
            }
            kind::SPACE => {
                let project = std::str::from_utf8(key.0).map_err(|_| damaged("a project id is none"))?;
                let project = ProjectId::parse(project).map_err(|_| damaged("a project id is none"))?;
                let space = Reader(value).u32()?;
                self.loaded.next_space = self.loaded.next_space.max(space + 1);
                self.spaces.insert(space, project);
            }
            kind::PROJECT => {
                let record: ProjectRecord = records::read_json(value)?;
                self.loaded.offices.restore_project(Arc::new(record));
            }
            kind::AUDIT => {
                let entry: AuditEntry = records::read_json(value)?;
                self.loaded
                    .offices
                    .append_audit(entry, self.limits.retention.audit_len_max);
            }
            _ => return Err(damaged("nobody knows what kind it is of")),
        }
        Ok(())
    }

    fn end_of_space(&mut self) {
        let Some(reading) = self.reading.take() else {
            return;
        };
        self.loaded.next_space = self.loaded.next_space.max(reading.space + 1);
        match self.spaces.remove(&reading.space) {
            Some(project) => {
                let state = reading.into_state(project.clone(), &self.limits, self.now);
                self.loaded.states.insert(project, state);
            }
            None => self.loaded.orphans.push(reading.space),
        }
    }
}

impl Reading {
    fn new(space: u32) -> Self {
        Self {
            space,
            kept: Kept::default(),
            recorder: Recorder::new(space, Vec::new()),
            bodies: IdMap::default(),
            shared: IdMap::default(),
            deliveries: HashMap::new(),
        }
    }

    fn take(&mut self, kind: u8, key: &mut Reader<'_>, mut value: Reader<'_>) -> Read<()> {
        let kept = &mut self.kept;
        match kind {
            kind::SESSION => kept.sessions.push(records::read_json(value.0)?),
            kind::PROTOCOL => kept.protocols.push(records::read_json(value.0)?),
            kind::BODY => {
                self.bodies.insert(key.message()?, value.rest().to_vec());
            }
            kind::DELIVERIES => {
                self.deliveries.insert(records::read_place(key)?, value.u32()?);
            }
            kind::QUEUED => {
                let receipt = records::read_place(key)?;
                let (session, seq) = (value.session()?, value.u64()?);
                let accepted_at_ms = value.u64()?;
                let deadline_unix_ms = value.option(Reader::u64)?;
                let message = self.message(records::read_message(&mut value)?)?;
                self.kept.queued.push(Queued {
                    session,
                    seq,
                    message,
                    receipt,
                    accepted_at_ms,
                    deadline_unix_ms,
                    deliveries: self.deliveries.remove(&receipt).unwrap_or(0),
                });
            }
            kind::RECEIPT => {
                let at = records::read_place(key)?;
                let (message, entry) = records::read_receipt(&mut value)?;
                kept.receipts.push((at, message, entry));
            }
            kind::LETTER => {
                let recipient = {
                    key.message()?;
                    key.session()?
                };
                let death = value.u64()?;
                let reason = records::read_reason(value.u8()?)?;
                let (at_ms, deliveries) = (value.u64()?, value.u32()?);
                let message = self.message(records::read_message(&mut value)?)?;
                let letter = DeadLetter {
                    message,
                    recipient,
                    reason,
                    at_ms,
                    deliveries,
                };
                self.kept.letters.push((death, letter));
            }
            kind::OUTCOME => {
                let sender = key.session()?;
                let text = std::str::from_utf8(key.0).map_err(|_| damaged("a key is no UTF-8"))?;
                let (until_unix_ms, by) = records::read_taken(&mut value)?;
                kept.taken_keys.push(((sender, text.into()), until_unix_ms, by));
            }
            kind::CROSSING => {
                kept.crossings
                    .push((key.message()?, records::read_project(&mut value)?));
            }
            _ => return Err(damaged("nobody knows what kind it is of")),
        }
        Ok(())
    }

    /// One message for all who hold it.
    fn message(&mut self, kept: KeptMessage) -> Read<Arc<Message>> {
        if kept.recipient.is_some() {
            return Ok(Arc::new(Message::restore(kept)));
        }
        self.recorder.refer(kept.id);
        if let Some(message) = self.shared.get(&kept.id) {
            return Ok(Arc::clone(message));
        }
        let body = self
            .bodies
            .remove(&kept.id)
            .ok_or_else(|| damaged("its body is missing"))?;
        let message = Arc::new(Message::restore(KeptMessage { body, ..kept }));
        debug_assert!(is_shared(&message));
        self.shared.insert(message.id, Arc::clone(&message));
        Ok(message)
    }

    fn into_state(mut self, project: ProjectId, limits: &Limits, now: Now) -> State<Recorder> {
        for &unused in self.bodies.keys() {
            self.recorder.remove_body(unused);
        }
        State::restore(self.kept, project, limits, now, self.recorder)
    }
}
