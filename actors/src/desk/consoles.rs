//! A console as its connection holds it, and how it learns that messages to its person have come.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

use super::{ConsoleChange, DeskFeed, shared::DeskShared};
use crate::{
    clock::now,
    model::{ConnectionId, ConsoleId, Rungs, SessionId, Wake},
    session::{CloseReason, Connection, Member, ReadReservation, SessionShared, Unwatch, Watch},
    storage::Delivery,
};

/// A console that is connected here. Dropping it is leaving.
pub struct ConsoleGuard {
    id: ConsoleId,
    shared: Arc<DeskShared>,
    /// None where the name of the person is an agent's.
    session: Option<Arc<SessionShared>>,
    /// The inbox of the person. None where the person has none, and once it is not watched.
    pub inbox: Option<InboxWatch>,
    /// Its events. They begin before the console was made.
    pub events: DeskFeed,
}

impl ConsoleGuard {
    /// The guard of a console that is attached. `person` is the session of its person.
    pub(crate) fn new(id: ConsoleId, shared: Arc<DeskShared>, person: Option<Arc<Member>>, events: DeskFeed) -> Self {
        Self {
            id,
            shared,
            session: person.as_ref().map(|member| Arc::clone(&member.shared)),
            inbox: person.map(InboxWatch::begin),
            events,
        }
    }

    /// Its id, which changes of questions name.
    pub const fn id(&self) -> ConsoleId {
        self.id
    }

    /// The person has done something now.
    pub fn keystroke(&self) {
        self.change(ConsoleChange {
            is_active: true,
            is_unproven: Some(false),
            ..ConsoleChange::default()
        });
    }

    /// Other consoles are offered questions first, until a person does something at this one.
    pub fn set_unproven(&self) {
        self.change(ConsoleChange {
            is_unproven: Some(true),
            ..ConsoleChange::default()
        });
    }

    /// The console takes no new questions, or does again.
    pub fn set_paused(&self, is_paused: bool) {
        self.change(ConsoleChange {
            is_paused: Some(is_paused),
            ..ConsoleChange::default()
        });
    }

    /// The person is away, or is back.
    pub fn set_away(&self, is_away: bool) {
        self.change(ConsoleChange {
            is_away: Some(is_away),
            is_active: !is_away,
            ..ConsoleChange::default()
        });
    }

    fn change(&self, change: ConsoleChange) {
        let now = now();
        if change.is_active
            && let Some(session) = &self.session
        {
            session.touch(now);
        }
        self.shared.change_console(self.id, change, now);
    }
}

impl Drop for ConsoleGuard {
    fn drop(&mut self) {
        self.shared.detach(self.id);
    }
}

impl std::fmt::Debug for ConsoleGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsoleGuard")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

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
