//! Messages that this process appended. What is read from the store is exchanged for them, so that a sender in this
//! process learns of the progress of its message.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use actors::{
    locked::Locked,
    model::{Message, MessageId},
};

/// Messages of this process that are still in memory or followed.
#[derive(Debug, Default)]
pub(super) struct LocalMessages(Locked<Messages>);

#[derive(Debug, Default)]
struct Messages {
    by_id: HashMap<MessageId, Entry>,
    /// The number of messages at which the next sweep removes those that are neither held nor followed.
    sweep_len: usize,
    /// Bytes of the tracked messages since the last sweep.
    tracked_bytes: usize,
    /// The bytes at which the next sweep begins: those that were followed at the last one.
    sweep_bytes: usize,
    /// Sweeps so far.
    sweeps: u64,
}

#[derive(Debug)]
struct Entry {
    message: Weak<Message>,
    /// A tracked message is kept until its status is final: a follower holds its progress only.
    tracked: Option<Arc<Message>>,
    /// The number of sweeps before it was inserted.
    inserted_at_sweep: u64,
}

impl Entry {
    fn tracked_bytes(&self) -> usize {
        self.tracked.as_ref().map_or(0, |message| message.body().len())
    }
}

/// Messages, and bytes, below which there is no sweep.
const SWEEP_LEN_MIN: usize = 1024;
const SWEEP_BYTES_MIN: usize = 8 << 20;

impl LocalMessages {
    /// Adds messages. Sweeps where there are too many.
    pub fn insert<'a>(&self, messages: impl Iterator<Item = &'a Arc<Message>>) {
        let mut held = self.0.lock();
        for message in messages {
            let entry = Entry {
                message: Arc::downgrade(message),
                tracked: message.is_tracked().then(|| Arc::clone(message)),
                inserted_at_sweep: held.sweeps,
            };
            held.tracked_bytes += entry.tracked_bytes();
            held.by_id.insert(message.id, entry);
        }
        let is_long = held.by_id.len() >= held.sweep_len.max(SWEEP_LEN_MIN);
        if is_long || held.tracked_bytes >= held.sweep_bytes.max(SWEEP_BYTES_MIN) {
            held.sweep();
        }
    }

    /// A message, if this process still has it.
    pub fn get(&self, id: MessageId) -> Option<Arc<Message>> {
        self.0.lock().by_id.get(&id)?.message.upgrade()
    }

    /// A message whose status is final, if this process still has it. It is no longer kept for its followers.
    pub fn take_final(&self, id: MessageId) -> Option<Arc<Message>> {
        let mut held = self.0.lock();
        let entry = held.by_id.get_mut(&id)?;
        let watched = entry.tracked.take();
        watched.or_else(|| entry.message.upgrade())
    }

    /// Removes all messages. Their followers get no further progress.
    pub fn clear(&self) {
        self.0.lock().by_id.clear();
    }

    /// The tracked messages.
    pub fn tracked(&self) -> Vec<Arc<Message>> {
        let held = self.0.lock();
        held.by_id.values().filter_map(|entry| entry.tracked.clone()).collect()
    }
}

impl Messages {
    fn sweep(&mut self) {
        let now = self.sweeps;
        self.by_id.retain(|_, entry| {
            // The sender of a message that was inserted since the last sweep may not follow it yet.
            entry
                .tracked
                .take_if(|message| entry.inserted_at_sweep < now && !message.progress.has_subscribers());
            entry.message.strong_count() > 0
        });
        self.sweeps += 1;
        self.sweep_len = 2 * self.by_id.len();
        let older = self.by_id.values().filter(|entry| entry.inserted_at_sweep < now);
        (self.tracked_bytes, self.sweep_bytes) = (0, older.map(Entry::tracked_bytes).sum());
    }
}

#[cfg(test)]
mod tests {
    use actors::{
        clock::now,
        model::{
            Addressing, Headers, MessageIds, NewMessage, Owner, ProjectId, SessionId, SessionRecord, WakePreference,
        },
    };

    use super::*;

    fn message(ids: &MessageIds, watched: bool) -> Arc<Message> {
        long_message(ids, watched, 2)
    }

    fn long_message(ids: &MessageIds, watched: bool, payload_len: usize) -> Arc<Message> {
        let sender = SessionRecord {
            id: SessionId::generate(),
            name: None,
            capabilities: Arc::default(),
            metadata: serde_json::Map::new(),
            aliases: Vec::new(),
            connected_at_ms: 0,
            owner: Owner::anonymous(),
            holder: actors::model::Holder::default(),
            wake: WakePreference::default(),
        };
        let (project, headers) = (ProjectId::default_project(), Headers::default());
        let payload = format!("{{{}}}", " ".repeat(payload_len - 2));
        let draft = NewMessage::new(
            &project,
            &sender,
            Addressing::Broadcast,
            ("chat", "1.0.0"),
            &payload,
            &headers,
        );
        draft.seal(ids.next(now()), None, now(), watched)
    }

    #[test]
    fn tracked_messages_without_followers_are_dropped_by_size() {
        const LEN: usize = SWEEP_BYTES_MIN / 4;
        let (held, ids) = (LocalMessages::default(), MessageIds::default());
        let followed = long_message(&ids, true, LEN);
        let _view = followed.progress.subscribe();
        held.insert([&followed].into_iter());
        for _ in 0..40 {
            held.insert([&long_message(&ids, true, LEN)].into_iter());
            // The messages of two sweeps, and the followed one.
            assert!(held.tracked().len() <= 2 * 4 + 1, "{} are kept", held.tracked().len());
        }
        assert!(held.tracked().iter().any(|message| message.id == followed.id));
    }

    #[test]
    fn messages_without_holders_or_followers_are_dropped() {
        let (held, ids) = (LocalMessages::default(), MessageIds::default());
        let [plain, kept, left, followed] = [false, false, true, true].map(|watched| message(&ids, watched));
        held.insert([&plain, &kept, &left, &followed].into_iter());
        let [plain_id, left_id, followed_id] = [&plain, &left, &followed].map(|message| message.id);
        let view = followed.progress.subscribe();
        drop((plain, left, followed));
        assert!(held.get(plain_id).is_none() && held.get(left_id).is_some());
        for _ in 0..3 * SWEEP_LEN_MIN {
            held.insert([&message(&ids, false)].into_iter());
        }
        assert!(held.get(left_id).is_none(), "it has no follower");
        assert!(held.get(followed_id).is_some() && held.get(kept.id).is_some());
        assert!(held.0.lock().by_id.len() < 2 * SWEEP_LEN_MIN);

        assert!(held.take_final(followed_id).is_some() && held.take_final(followed_id).is_none());
        assert!(view.unwrap().has_changed().is_err(), "the progress has ended");
    }
}
