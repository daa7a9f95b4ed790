//! Turns the changes of a project into records.

use super::{
    codec::RecordWriter,
    commits::Changes,
    engine::Record,
    records::{self, is_shared, key, kind},
};
use crate::{
    clock::millis,
    model::{Message, MessageId, id_map::IdMap},
    storage::{
        Table,
        state::journal::{Change, DeskChange, InboxEntry, Journal},
    },
};

/// The changes of a project, as records.
#[derive(Debug)]
pub struct Recorder {
    space: u32,
    changes: Changes,
    /// The number of records that refer to each shared body.
    body_references: IdMap<MessageId, u32>,
    /// The project was cleared; further changes are ignored.
    is_closed: bool,
}

impl Recorder {
    /// `first` is written with the first change.
    pub fn new(space: u32, first: Vec<Record>) -> Self {
        let mut changes = Changes::default();
        changes.records = first;
        Self {
            space,
            changes,
            body_references: IdMap::default(),
            is_closed: false,
        }
    }

    /// The space of the project.
    pub const fn space(&self) -> u32 {
        self.space
    }

    /// The changes, with the records that are in no group yet.
    pub fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// Drops the records and ignores further changes.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.changes.records = Vec::new();
    }

    /// Counts one more record that refers to the body of this message. True for the first one.
    pub fn add_body_reference(&mut self, message: MessageId) -> bool {
        let count = self.body_references.entry(message).or_default();
        *count += 1;
        *count == 1
    }

    /// Removes the record of a shared body.
    pub fn remove_body(&mut self, message: MessageId) {
        let body = key(self.space, kind::BODY).message(message).0;
        self.remove(body);
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let value = Some(value);
        self.changes.records.push(Record { key, value });
    }

    fn remove(&mut self, key: Vec<u8>) {
        self.changes.records.push(Record { key, value: None });
    }

    fn put_body(&mut self, message: &Message) {
        if is_shared(message) && self.add_body_reference(message.id) {
            let body = key(self.space, kind::BODY).message(message.id).0;
            self.put(body, message.body().to_vec());
        }
    }

    fn remove_body_reference(&mut self, message: &Message) {
        if !is_shared(message) {
            return;
        }
        if let Some(count) = self.body_references.get_mut(&message.id) {
            *count -= 1;
            if *count == 0 {
                self.body_references.remove(&message.id);
                self.remove_body(message.id);
            }
        }
    }

    fn remove_events(&mut self, block: u64, parts: &[u32]) {
        for part in parts {
            let key = records::events_prefix(self.space, block).u32(*part).0;
            self.remove(key);
        }
    }

    fn change_record(&mut self, table: Table, of: &[u8], text: Option<&str>) {
        let key = key(self.space, records::kind_of(table)).rest(of).0;
        let value = text.map(|text| text.as_bytes().to_vec());
        if table == Table::Lenses && value.is_some() {
            self.changes.records.push(records::layout_version(records::VERSION));
        }
        self.changes.records.push(Record { key, value });
    }

    fn record_desk(&mut self, change: DeskChange<'_>) {
        let space = self.space;
        match change {
            DeskChange::QuestionAsked { question, content } => {
                self.put(
                    key(space, kind::QUESTION_CONTENT).question(question).0,
                    records::json(content),
                );
            }
            DeskChange::QuestionPut(question) => {
                self.put(
                    key(space, kind::QUESTION).question(question.id).0,
                    records::json(question),
                );
            }
            DeskChange::QuestionRemoved(question) => {
                self.remove(key(space, kind::QUESTION).question(question).0);
                self.remove(key(space, kind::QUESTION_CONTENT).question(question).0);
            }
            DeskChange::DraftPut { question, human, text } => {
                let key = key(space, kind::DRAFT)
                    .question(question)
                    .rest(human.as_str().as_bytes());
                self.put(key.0, text.as_bytes().to_vec());
            }
            DeskChange::DraftRemoved { question, human } => {
                let key = key(space, kind::DRAFT)
                    .question(question)
                    .rest(human.as_str().as_bytes());
                self.remove(key.0);
            }
            DeskChange::YapHeld { number, at_ms, yap } => {
                let value = RecordWriter::default().u64(at_ms).rest(&records::json(yap)).0;
                self.put(key(space, kind::HELD_YAP).u64(number).0, value);
            }
            DeskChange::YapShown {
                number,
                shown,
                last_at_ms,
            } => {
                self.remove(key(space, kind::HELD_YAP).u64(number).0);
                self.put(key(space, kind::SHOWN_YAP).u64(shown.seq).0, records::json(shown));
                let last = RecordWriter::default().u64(shown.seq).u64(last_at_ms).0;
                self.put(key(space, kind::LAST_YAP).0, last);
            }
            DeskChange::YapRemoved { seq } => self.remove(key(space, kind::SHOWN_YAP).u64(seq).0),
        }
    }

    fn put_delivery(&mut self, entry: &InboxEntry, transformed: &str) {
        let key = records::receipt_key(self.space, kind::DELIVERIES, entry.receipt);
        let writer = RecordWriter::with_capacity(4 + transformed.len()).u32(entry.deliveries);
        self.put(key, writer.rest(transformed.as_bytes()).0);
    }

    fn remove_queued(&mut self, entry: &InboxEntry) {
        self.remove(records::receipt_key(self.space, kind::QUEUED, entry.receipt));
        if entry.deliveries > 0 {
            self.remove(records::receipt_key(self.space, kind::DELIVERIES, entry.receipt));
        }
    }
}

impl Journal for Recorder {
    const KEEPS_EVENTS: bool = true;

    fn record(&mut self, change: Change<'_>) {
        if self.is_closed {
            return;
        }
        let space = self.space;
        match change {
            Change::SessionPut { record, sign } => {
                let key = key(space, kind::SESSION).session(record.id).0;
                self.put(key, records::write_session(record, sign));
            }
            Change::SessionRemoved(session) => self.remove(key(space, kind::SESSION).session(session).0),
            Change::MessageQueued {
                session,
                seq,
                message,
                receipt,
                now,
            } => {
                self.put_body(message);
                let deadline = message.ttl.map(|ttl| now.unix_ms.saturating_add(millis(ttl)));
                let writer = RecordWriter::with_capacity(128 + message.body().len())
                    .session(session)
                    .u64(seq)
                    .u64(now.unix_ms)
                    .option(deadline, RecordWriter::u64);
                let value = records::write_message(writer, message).0;
                self.put(records::receipt_key(space, kind::QUEUED, receipt), value);
            }
            Change::DeliveryUndone(entry) if entry.deliveries == 0 => {
                self.remove(records::receipt_key(space, kind::DELIVERIES, entry.receipt));
            }
            Change::MessageDelivered(entry) | Change::DeliveryUndone(entry) => self.put_delivery(entry, ""),
            Change::MessageTransformed(entry, transformed) => self.put_delivery(entry, transformed.text()),
            Change::MessageRemoved(entry) => {
                self.remove_queued(entry);
                self.remove_body_reference(&entry.message);
            }
            Change::DeadLetterKept { dead_letter, sequence } => {
                self.put_body(&dead_letter.message);
                let value = records::write_dead_letter(dead_letter, sequence);
                self.put(records::dead_letter_key(space, dead_letter), value);
            }
            Change::DeadLetterRemoved(dead_letter) => {
                self.remove(records::dead_letter_key(space, dead_letter));
                self.remove_body_reference(&dead_letter.message);
            }
            Change::ReportProgress(progress) => {
                let key = key(space, kind::REPORT_PROGRESS).0;
                self.put(key, records::write_report_progress(progress));
            }
            Change::ReceiptFinal { key, message, entry } => {
                let value = records::write_receipt(message, entry);
                self.put(records::receipt_key(space, kind::RECEIPT, key), value);
            }
            Change::ReceiptRemoved(key) => self.remove(records::receipt_key(space, kind::RECEIPT, key)),
            Change::KeyPut {
                sender,
                key,
                until_unix_ms,
                key_use,
            } => {
                let value = records::write_key_use(until_unix_ms, key_use);
                self.put(records::idempotency_key(space, sender, key), value);
            }
            Change::KeyRemoved { sender, key } => self.remove(records::idempotency_key(space, sender, key)),
            Change::CrossProjectTargetPut { message, target } => {
                let key = key(space, kind::CROSS_PROJECT).message(message).0;
                self.put(key, target.as_str().as_bytes().to_vec());
            }
            Change::CrossProjectTargetRemoved(id) => self.remove(key(space, kind::CROSS_PROJECT).message(id).0),
            Change::Record { table, key, text } => self.change_record(table, key, text),
            Change::Desk(change) => self.record_desk(change),
            Change::EventsWritten(part) => {
                let key = records::events_prefix(space, part.block).u32(part.first_index).0;
                self.put(key, records::write_events(&part));
            }
            Change::EventsTrimmed { block, parts } => self.remove_events(block, parts),
        }
    }
}
