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
        inbox::Item,
        journal::{Change, Journal},
    },
};

/// The records that the operation under way has made, until [`Recorder::take`].
#[derive(Debug)]
pub struct Recorder {
    space: u32,
    records: Vec<Record>,
    /// How many records refer to a shared body.
    shared: IdMap<MessageId, u32>,
    /// The project was cleared: what is still done to it is nobody's business.
    is_mute: bool,
}

impl Recorder {
    /// `first` goes with the first records there are.
    pub fn new(space: u32, first: Vec<Record>) -> Self {
        Self {
            space,
            records: first,
            shared: IdMap::default(),
            is_mute: false,
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
    pub fn untaken(&mut self) -> &mut Vec<Record> {
        &mut self.records
    }

    pub fn mute(&mut self) {
        self.is_mute = true;
        self.records = Vec::new();
    }

    /// A record refers to the body of this message. True for the first one.
    pub fn refer(&mut self, message: MessageId) -> bool {
        let count = self.shared.entry(message).or_default();
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

    fn keep_body(&mut self, message: &Message) {
        if is_shared(message) && self.refer(message.id) {
            let body = key(self.space, kind::BODY).message(message.id).0;
            self.put(body, message.body().to_vec());
        }
    }

    fn let_go_of_body(&mut self, message: &Message) {
        if !is_shared(message) {
            return;
        }
        if let Some(count) = self.shared.get_mut(&message.id) {
            *count -= 1;
            if *count == 0 {
                self.shared.remove(&message.id);
                self.remove_body(message.id);
            }
        }
    }

    fn forget_place(&mut self, item: &Item) {
        self.remove(records::place_key(self.space, kind::QUEUED, item.receipt));
        if item.deliveries > 0 {
            self.remove(records::place_key(self.space, kind::DELIVERIES, item.receipt));
        }
    }
}

impl Journal for Recorder {
    fn note(&mut self, change: Change<'_>) {
        if self.is_mute {
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
            Change::Queued {
                session,
                seq,
                message,
                receipt,
                now,
            } => {
                self.keep_body(message);
                let deadline = message.ttl.map(|ttl| now.unix_ms.saturating_add(millis(ttl)));
                let writer = super::codec::Writer::with_capacity(128 + message.body().len())
                    .session(session)
                    .u64(seq)
                    .u64(now.unix_ms)
                    .option(deadline, super::codec::Writer::u64);
                let value = records::write_message(writer, message).0;
                self.put(records::place_key(space, kind::QUEUED, receipt), value);
            }
            Change::Delivered(item) => {
                let key = records::place_key(space, kind::DELIVERIES, item.receipt);
                self.put(key, item.deliveries.to_be_bytes().to_vec());
            }
            Change::Left(item) => {
                self.forget_place(item);
                self.let_go_of_body(&item.message);
            }
            Change::LetterKept { letter, death } => {
                self.keep_body(&letter.message);
                let value = records::write_letter(letter, death);
                self.put(records::letter_key(space, letter), value);
            }
            Change::LetterForgotten(letter) => {
                self.remove(records::letter_key(space, letter));
                self.let_go_of_body(&letter.message);
            }
            Change::Settled { key, message, entry } => {
                let value = records::write_receipt(message, entry);
                self.put(records::place_key(space, kind::RECEIPT, key), value);
            }
            Change::ReceiptForgotten(key) => self.remove(records::place_key(space, kind::RECEIPT, key)),
            Change::KeyTaken {
                sender,
                key,
                until_unix_ms,
                by,
            } => {
                let value = records::write_taken(until_unix_ms, by);
                self.put(records::outcome_key(space, sender, key), value);
            }
            Change::KeyFreed { sender, key } => self.remove(records::outcome_key(space, sender, key)),
            Change::Crossed { message, target } => {
                let key = key(space, kind::CROSSING).message(message).0;
                self.put(key, target.as_str().as_bytes().to_vec());
            }
            Change::CrossingForgotten(message) => self.remove(key(space, kind::CROSSING).message(message).0),
        }
    }
}
