use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use actors::model::{Message, MessageId};

/// Messages that this process appended and that somebody in it still holds, or follows. What is read from the store is
/// exchanged for them, so that they hear what becomes of it.
#[derive(Debug, Default)]
pub(super) struct LocalMessages(Mutex<Messages>);

#[derive(Debug, Default)]
struct Messages {
    by_id: HashMap<MessageId, Entry>,
    /// At this length those that nobody holds or follows any more are cleared away.
    sweep_len: usize,
    /// Bytes of the watched messages that came since the last tidying.
    tracked_bytes: usize,
    /// At as many bytes the same is cleared away: those of the messages that were followed then.
    sweep_bytes: usize,
    sweeps: u64,
}

#[derive(Debug)]
struct Entry {
    message: Weak<Message>,
    /// Who follows a message need not hold it. Kept until nothing will become of it any more.
    tracked: Option<Arc<Message>>,
    /// How often had been tidied when it came.
    inserted_at_sweep: u64,
}

impl Entry {
    fn tracked_bytes(&self) -> usize {
        self.tracked.as_ref().map_or(0, |message| message.body().len())
    }
}

const SWEEP_LEN_MIN: usize = 1024;
const SWEEP_BYTES_MIN: usize = 8 << 20;

impl LocalMessages {
    pub fn insert<'a>(&self, messages: impl Iterator<Item = &'a Arc<Message>>) {
        let mut held = self.lock();
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

    pub fn get(&self, id: MessageId) -> Option<Arc<Message>> {
        self.lock().by_id.get(&id)?.message.upgrade()
    }

    /// The same, of a message of which nothing will become any more.
    pub fn take_final(&self, id: MessageId) -> Option<Arc<Message>> {
        let mut held = self.lock();
        let entry = held.by_id.get_mut(&id)?;
        let watched = entry.tracked.take();
        watched.or_else(|| entry.message.upgrade())
    }

    /// Forgets all of them: those who follow one hear nothing more.
    pub fn clear(&self) {
        self.lock().by_id.clear();
    }

    /// Those whose senders wait to be told how far they come.
    pub fn tracked(&self) -> Vec<Arc<Message>> {
        let held = self.lock();
        held.by_id.values().filter_map(|entry| entry.tracked.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Messages {
    fn sweep(&mut self) {
        let now = self.sweeps;
        self.by_id.retain(|_, entry| {
            // Who has just sent one has had no time to follow it.
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
        model::{Addressing, Capabilities, Draft, Headers, MessageIds, Owner, ProjectId, SessionId, SessionRecord},
    };

    use super::*;

    fn message(ids: &MessageIds, watched: bool) -> Arc<Message> {
        long_message(ids, watched, 2)
    }

    fn long_message(ids: &MessageIds, watched: bool, payload_len: usize) -> Arc<Message> {
        let sender = SessionRecord {
            id: SessionId::generate(),
            name: None,
            capabilities: Capabilities::default(),
            metadata: serde_json::Map::new(),
            connected_at_ms: 0,
            owner: Owner::anonymous(),
            holder: actors::model::Holder::default(),
        };
        let (project, headers) = (ProjectId::default_project(), Headers::default());
        let payload = format!("{{{}}}", " ".repeat(payload_len - 2));
        let draft = Draft::new(
            &project,
            &sender,
            Addressing::Broadcast,
            ("chat", "1.0.0"),
            &payload,
            &headers,
        );
        Arc::new(draft.seal(ids.next(now()), None, now(), watched))
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
            // Those of two rounds, and what is followed.
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
        assert!(held.get(left_id).is_none(), "nobody follows it");
        assert!(held.get(followed_id).is_some() && held.get(kept.id).is_some());
        assert!(held.lock().by_id.len() < 2 * SWEEP_LEN_MIN);

        assert!(held.take_final(followed_id).is_some() && held.take_final(followed_id).is_none());
        assert!(view.unwrap().has_changed().is_err(), "nothing more will be heard");
    }
}
