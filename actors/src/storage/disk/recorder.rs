//! Makes records of what changes in a project.

use super::{
    engine::Record,
    records::{self, is_shared, key, kind},
};
use crate::{
    clock::millis,
    model::{Message, MessageId},
    storage::{
        id_map::IdMap,
        inbox::InboxEntry,
        journal::{Change, Journal},
    },
};

/// The records that the operation under way has made, until [`Recorder::take`].
#[derive(Debug)]
pub struct Recorder {
    space: u32,
    records: Vec<Record>,
    /// How many records refer to a shared body.
    body_references: IdMap<MessageId, u32>,
    /// The project was cleared: what is still done to it is nobody's business.
    is_closed: bool,
}

impl Recorder {
    /// `first` goes with the first records there are.
    pub fn new(space: u32, first: Vec<Record>) -> Self {
        Self {
            space,
            records: first,
            body_references: IdMap::default(),
            is_closed: false,
        }
    }

    pub const fn space(&self) -> u32 {
        self.space
    }

    /// Takes what was recorded since the last time.
    pub fn take(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// What was recorded since it was taken the last time.
    pub fn pending(&mut self) -> &mut Vec<Record> {
        &mut self.records
    }

    pub fn close(&mut self) {
        self.is_closed = true;
        self.records = Vec::new();
    }

    /// A record refers to the body of this message. True for the first one.
    pub fn add_body_reference(&mut self, message: MessageId) -> bool {
        let count = self.body_references.entry(message).or_default();
        *count += 1;
        *count == 1
    }

    pub fn remove_body(&mut self, message: MessageId) {
        let body = key(self.space, kind::BODY).message(message).0;
        self.remove(body);
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let value = Some(value);
        self.records.push(Record { key, value });
    }

    fn remove(&mut self, key: Vec<u8>) {
        self.records.push(Record { key, value: None });
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

    fn remove_queued(&mut self, item: &InboxEntry) {
        self.remove(records::receipt_key(self.space, kind::QUEUED, item.receipt));
        if item.deliveries > 0 {
            self.remove(records::receipt_key(self.space, kind::DELIVERIES, item.receipt));
        }
    }
}

impl Journal for Recorder {
    fn record(&mut self, change: Change<'_>) {
        if self.is_closed {
            return;
        }
        let space = self.space;
        match change {
            Change::SessionPut(record) => {
                let key = key(space, kind::SESSION).session(record.id).0;
                self.put(key, records::json(record));
            }
            Change::SessionRemoved(session) => self.remove(key(space, kind::SESSION).session(session).0),
            Change::ProtocolInserted(record) => {
                let key = key(space, kind::PROTOCOL).text(record.name.as_str());
                let key = key.rest(record.version.to_string().as_bytes()).0;
                self.put(key, records::json(record));
            }
            Change::MessageQueued {
                session,
                seq,
                message,
                receipt,
                now,
            } => {
                self.put_body(message);
                let deadline = message.ttl.map(|ttl| now.unix_ms.saturating_add(millis(ttl)));
                let writer = super::codec::RecordWriter::with_capacity(128 + message.body().len())
                    .session(session)
                    .u64(seq)
                    .u64(now.unix_ms)
                    .option(deadline, super::codec::RecordWriter::u64);
                let value = records::write_message(writer, message).0;
                self.put(records::receipt_key(space, kind::QUEUED, receipt), value);
            }
            Change::MessageDelivered(item) => {
                let key = records::receipt_key(space, kind::DELIVERIES, item.receipt);
                self.put(key, item.deliveries.to_be_bytes().to_vec());
            }
            Change::MessageRemoved(item) => {
                self.remove_queued(item);
                self.remove_body_reference(&item.message);
            }
            Change::DeadLetterKept {
                dead_letter: letter,
                sequence: death,
            } => {
                self.put_body(&letter.message);
                let value = records::write_dead_letter(letter, death);
                self.put(records::dead_letter_key(space, letter), value);
            }
            Change::DeadLetterRemoved(letter) => {
                self.remove(records::dead_letter_key(space, letter));
                self.remove_body_reference(&letter.message);
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
                key_use: by,
            } => {
                let value = records::write_key_use(until_unix_ms, by);
                self.put(records::idempotency_key(space, sender, key), value);
            }
            Change::KeyRemoved { sender, key } => self.remove(records::idempotency_key(space, sender, key)),
            Change::CrossProjectTargetPut { message, target } => {
                let key = key(space, kind::CROSS_PROJECT).message(message).0;
                self.put(key, target.as_str().as_bytes().to_vec());
            }
            Change::CrossProjectTargetRemoved(message) => {
                self.remove(key(space, kind::CROSS_PROJECT).message(message).0)
            }
        }
    }
}
