use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use actors::model::{Message, MessageId};

/// Messages of this process that somebody in it still holds: a sender who waits, a router that counts deliveries. What
/// is read from the store is exchanged for them, so that they hear what becomes of it.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<Messages>);

#[derive(Debug, Default)]
struct Messages {
    by_id: HashMap<MessageId, Weak<Message>>,
    /// At this length those that nobody holds any more are cleared away.
    tidy_len: usize,
}

const TIDY_LEN_MIN: usize = 1024;

impl Held {
    pub fn remember<'a>(&self, messages: impl Iterator<Item = &'a Arc<Message>>) {
        let mut held = self.messages();
        for message in messages {
            held.by_id.insert(message.id, Arc::downgrade(message));
        }
        if held.by_id.len() >= held.tidy_len.max(TIDY_LEN_MIN) {
            held.by_id.retain(|_, message| message.strong_count() > 0);
            held.tidy_len = 2 * held.by_id.len();
        }
    }

    pub fn get(&self, id: MessageId) -> Option<Arc<Message>> {
        self.messages().by_id.get(&id)?.upgrade()
    }

    /// Those whose senders wait to be told how far they come.
    pub fn watched(&self) -> Vec<Arc<Message>> {
        let held = self.messages();
        let all = held.by_id.values().filter_map(Weak::upgrade);
        all.filter(|message| message.is_watched()).collect()
    }

    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
