use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use actors::model::{Message, MessageId};

/// Messages that this process appended and that somebody in it still holds, or follows. What is read from the store is
/// exchanged for them, so that they hear what becomes of it.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<Messages>);

#[derive(Debug, Default)]
struct Messages {
    by_id: HashMap<MessageId, Entry>,
    /// At this length those that nobody holds or follows any more are cleared away.
    tidy_len: usize,
    /// Bytes of the watched messages that came since the last tidying.
    watched_bytes: usize,
    /// At as many bytes the same is cleared away: those of the messages that were followed then.
    tidy_bytes: usize,
    tidied: u64,
}

#[derive(Debug)]
struct Entry {
    message: Weak<Message>,
    /// Who follows a message need not hold it. Kept until nothing will become of it any more.
    watched: Option<Arc<Message>>,
    /// How often had been tidied when it came.
    came: u64,
}

impl Entry {
    fn watched_bytes(&self) -> usize {
        self.watched.as_ref().map_or(0, |message| message.body().len())
    }
}

const TIDY_LEN_MIN: usize = 1024;
const TIDY_BYTES_MIN: usize = 8 << 20;

impl Held {
    pub fn remember<'a>(&self, messages: impl Iterator<Item = &'a Arc<Message>>) {
        let mut held = self.messages();
        for message in messages {
            let entry = Entry {
                message: Arc::downgrade(message),
                watched: message.is_watched().then(|| Arc::clone(message)),
                came: held.tidied,
            };
            held.watched_bytes += entry.watched_bytes();
            held.by_id.insert(message.id, entry);
        }
        let is_long = held.by_id.len() >= held.tidy_len.max(TIDY_LEN_MIN);
        if is_long || held.watched_bytes >= held.tidy_bytes.max(TIDY_BYTES_MIN) {
            held.tidy();
        }
    }

    pub fn get(&self, id: MessageId) -> Option<Arc<Message>> {
        self.messages().by_id.get(&id)?.message.upgrade()
    }

    /// The same, of a message of which nothing will become any more.
    pub fn finish(&self, id: MessageId) -> Option<Arc<Message>> {
        let mut held = self.messages();
        let entry = held.by_id.get_mut(&id)?;
        let watched = entry.watched.take();
        watched.or_else(|| entry.message.upgrade())
    }

    /// Forgets all of them: those who follow one hear nothing more.
    pub fn clear(&self) {
        self.messages().by_id.clear();
    }

    /// Those whose senders wait to be told how far they come.
    pub fn watched(&self) -> Vec<Arc<Message>> {
        let held = self.messages();
        held.by_id.values().filter_map(|entry| entry.watched.clone()).collect()
    }

    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Messages {
    fn tidy(&mut self) {
        let now = self.tidied;
        self.by_id.retain(|_, entry| {
            // Who has just sent one has had no time to follow it.
            entry
                .watched
                .take_if(|message| entry.came < now && !message.progress.is_followed());
            entry.message.strong_count() > 0
        });
        self.tidied += 1;
        self.tidy_len = 2 * self.by_id.len();
        let older = self.by_id.values().filter(|entry| entry.came < now);
        (self.watched_bytes, self.tidy_bytes) = (0, older.map(Entry::watched_bytes).sum());
    }
}

#[cfg(test)]
mod tests {
    use actors::{
        clock::now,
        model::{Capabilities, Draft, Headers, MessageIds, Owner, ProjectId, SessionId, SessionRecord, To},
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
        let draft = Draft::new(&project, &sender, To::Many, ("chat", "1.0.0"), &payload, &headers);
        Arc::new(draft.seal(ids.next(now()), None, now(), watched))
    }

    #[test]
    fn the_bytes_of_watched_messages_that_nobody_follows_are_let_go() {
        const LEN: usize = TIDY_BYTES_MIN / 4;
        let (held, ids) = (Held::default(), MessageIds::default());
        let followed = long_message(&ids, true, LEN);
        let _view = followed.progress.subscribe();
        held.remember([&followed].into_iter());
        for _ in 0..40 {
            held.remember([&long_message(&ids, true, LEN)].into_iter());
            // Those of two rounds, and what is followed.
            assert!(held.watched().len() <= 2 * 4 + 1, "{} are kept", held.watched().len());
        }
        assert!(held.watched().iter().any(|message| message.id == followed.id));
    }

    #[test]
    fn what_nobody_holds_or_follows_any_more_is_let_go() {
        let (held, ids) = (Held::default(), MessageIds::default());
        let [plain, kept, left, followed] = [false, false, true, true].map(|watched| message(&ids, watched));
        held.remember([&plain, &kept, &left, &followed].into_iter());
        let [plain_id, left_id, followed_id] = [&plain, &left, &followed].map(|message| message.id);
        let view = followed.progress.subscribe();
        drop((plain, left, followed));
        assert!(held.get(plain_id).is_none() && held.get(left_id).is_some());
        for _ in 0..3 * TIDY_LEN_MIN {
            held.remember([&message(&ids, false)].into_iter());
        }
        assert!(held.get(left_id).is_none(), "nobody follows it");
        assert!(held.get(followed_id).is_some() && held.get(kept.id).is_some());
        assert!(held.messages().by_id.len() < 2 * TIDY_LEN_MIN);

        assert!(held.finish(followed_id).is_some() && held.finish(followed_id).is_none());
        assert!(view.unwrap().has_changed().is_err(), "nothing more will be heard");
    }
}
