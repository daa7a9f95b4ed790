//! How a console hears that messages to its person have come.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

use crate::{
    clock::now,
    model::{ConnectionId, Rungs, SessionId, Wake},
    session::{CloseReason, Connection, Member, ReadReservation, Unwatch, Watch},
    storage::Delivery,
};

/// A console is notified of new messages at most once in this time, however many come.
const TOLD_EVERY: Duration = Duration::from_millis(250);

/// Watches the inbox of a person until it is dropped.
pub struct InboxWatch {
    /// The session of the person.
    pub member: Arc<Member>,
    signal: Arc<Signal>,
    changes: u64,
    told_ms: u64,
}

/// What the session tells: that something changed, not what.
struct Signal {
    id: ConnectionId,
    is_changed: AtomicBool,
    is_closed: AtomicBool,
    news: Notify,
}

impl InboxWatch {
    /// Begins to watch.
    pub(crate) fn begin(member: Arc<Member>) -> Self {
        let signal = Arc::new(Signal {
            id: ConnectionId::next(),
            is_changed: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            news: Notify::new(),
        });
        // A session that ends or is overloaded refuses it: the person finds the messages when the page looks again.
        let _ = member.address.tell(Watch {
            connection: Some(Arc::clone(&signal) as Arc<dyn Connection>),
        });
        Self {
            member,
            signal,
            changes: 0,
            told_ms: 0,
        }
    }

    /// How many changes [`Self::changed`] has reported.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Waits for the next change. Returns false once the session has ended, or too many consoles of the
    /// person watch it. A future that is dropped loses no change.
    pub async fn changed(&mut self) -> bool {
        loop {
            if self.signal.is_closed.load(Ordering::Acquire) {
                return false;
            }
            if self.signal.is_changed.load(Ordering::Acquire) {
                let since = now().since(self.told_ms);
                if let Some(rest) = TOLD_EVERY.checked_sub(since).filter(|rest| !rest.is_zero()) {
                    sleep(rest).await;
                }
                self.signal.is_changed.store(false, Ordering::Release);
                self.told_ms = now().mono_ms;
                self.changes += 1;
                return true;
            }
            self.signal.news.notified().await;
        }
    }
}

impl Drop for InboxWatch {
    fn drop(&mut self) {
        let connection = self.signal.id;
        // A session that has ended has no watchers.
        let _ = self.member.address.tell(Unwatch { connection });
    }
}

impl Connection for Signal {
    fn id(&self) -> ConnectionId {
        self.id
    }

    fn reserve(self: Arc<Self>, _bytes: usize) -> Option<ReadReservation> {
        None
    }

    fn push(&self, _deliveries: &[Delivery]) {}

    fn notify_inbox_changed(&self) {
        self.is_changed.store(true, Ordering::Release);
        self.news.notify_one();
    }

    fn wakes_by(&self) -> Rungs {
        Rungs::default()
    }

    fn wake(&self, _session: SessionId, _wake: &Wake) {}

    fn close(&self, _reason: CloseReason) {
        self.is_closed.store(true, Ordering::Release);
        self.news.notify_one();
    }

    fn ends_with_client(&self) -> bool {
        false
    }
}
