//! The reader of one project's event log: reads what was recorded since, four times a second, encodes each event once,
//! and keeps the last of them for its followers.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use actix_web::web::Bytes;
use actors::{
    locked::Locked,
    model::{AcceptedMessage, EventKind, EventKinds, MessageId, ProjectEvent, SessionId},
    project::ProjectHandle,
    storage::{Direction, EventPage, EventPosition, EventQuery, EventStart, LoggedEvent},
};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use super::frame;

/// Time between two reads of the log.
const READ_INTERVAL: Duration = Duration::from_millis(250);
/// Events about messages after each read, 500 a second. Further ones are counted: at a hundred thousand messages a second
/// a follower cannot read each, and encoding them would cost what the messages cost.
const MESSAGE_EVENTS_MAX: usize = 125;
/// The same where many follow the project: 100 a second.
const MESSAGE_EVENTS_MIN: usize = 25;
/// Events about messages that are written after each read to all followers of the project together, as far as each gets
/// [`MESSAGE_EVENTS_MIN`].
const MESSAGE_FRAMES_MAX: usize = 5_000;
/// Records of one read whose events are not about messages.
const OTHER_RECORDS_MAX: usize = 50_000;
/// Reads between two ticks.
const READS_MAX: usize = 40;
/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
/// Events that the ring keeps, and their bytes.
const RING_LEN_MAX: usize = 4096;
const RING_BYTES_MAX: usize = 2 << 20;
/// Messages whose senders are remembered.
const SENDERS_MAX: usize = 10_000;

/// The kinds of events that are encoded at a bounded rate.
const LIMITED: EventKinds = EventKinds::MESSAGES.without(EventKinds::of(&[EventKind::DeadLettered]));

/// Something for the followers.
pub struct Entry {
    /// The kind of the event, or of those that are missing; None if any may be missing.
    pub kind: Option<EventKind>,
    pub parties: Parties,
    pub frame: Bytes,
}

/// Whose event it is: members see those about messages of their own sessions only.
pub enum Parties {
    /// Everyone who may see the topic.
    All,
    /// The sender and the recipients of a message.
    Message(Box<AcceptedMessage>),
    /// The recipient, and the sender if it is known.
    Sessions(SessionId, Option<SessionId>),
}

/// The senders of the messages that were accepted lately.
#[derive(Default)]
pub struct Senders {
    by_message: HashMap<MessageId, SessionId>,
    in_order: VecDeque<MessageId>,
}

/// The reader of the log of one project.
pub struct Tail {
    project: ProjectHandle,
    state: Locked<State>,
    /// Changes when there is something new for the followers, or when the reader has ended.
    changes: watch::Sender<u64>,
}

struct State {
    /// The kinds that any follower has wanted.
    wanted: EventKinds,
    /// Everything up to here has been read; None before the first read.
    position: Option<EventPosition>,
    ring: VecDeque<Arc<Entry>>,
    ring_bytes: usize,
    /// The number of the first entry in the ring. Numbers ascend by one.
    first: u64,
    senders: Senders,
    has_ended: bool,
}

/// What a follower takes from the ring.
pub struct Taken {
    pub entries: Vec<Arc<Entry>>,
    /// Entries that the ring had dropped before.
    pub missed: u64,
    pub has_ended: bool,
}

impl Senders {
    /// The parties of an event. Remembers the sender of an accepted message.
    pub fn parties(&mut self, event: &ProjectEvent) -> Parties {
        match event {
            ProjectEvent::Accepted(accepted) => {
                self.remember(accepted.message, accepted.sender);
                let mut accepted = accepted.clone();
                accepted.payload = None;
                Parties::Message(accepted)
            }
            ProjectEvent::Delivered { message, session, .. }
            | ProjectEvent::Transformed { message, session, .. }
            | ProjectEvent::Acknowledged { message, session }
            | ProjectEvent::Released { message, session }
            | ProjectEvent::DeadLettered { message, session, .. }
            | ProjectEvent::Redriven { message, session, .. } => {
                Parties::Sessions(*session, self.by_message.get(message).copied())
            }
            ProjectEvent::Question { asker, .. } => Parties::Sessions(*asker, None),
            ProjectEvent::Session { .. }
            | ProjectEvent::Protocol { .. }
            | ProjectEvent::Lens { .. }
            | ProjectEvent::Actor { .. }
            | ProjectEvent::Audit { .. }
            | ProjectEvent::Lost { .. } => Parties::All,
        }
    }

    fn remember(&mut self, message: MessageId, sender: SessionId) {
        if self.by_message.insert(message, sender).is_none() {
            self.in_order.push_back(message);
        }
        if self.in_order.len() > SENDERS_MAX
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.by_message.remove(&oldest);
        }
    }
}

impl Tail {
    /// Starts a reader at the present end of the log. It ends when its last follower has left, or with its project.
    pub fn start(project: ProjectHandle) -> Arc<Self> {
        let tail = Arc::new(Self {
            project,
            state: Locked::new(State {
                wanted: EventKinds::of(&[]),
                position: None,
                ring: VecDeque::new(),
                ring_bytes: 0,
                first: 0,
                senders: Senders::default(),
                has_ended: false,
            }),
            changes: watch::Sender::new(0),
        });
        actix_rt::spawn(run(Arc::downgrade(&tail)));
        tail
    }

    /// The project of the log.
    pub fn project(&self) -> &ProjectHandle {
        &self.project
    }

    /// From now on, events of these kinds are read too.
    pub fn want(&self, kinds: EventKinds) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.union(kinds);
    }

    /// Whether the reader has ended, or its project has.
    pub fn has_ended(&self) -> bool {
        self.state.lock().has_ended || self.project.is_closed() || self.project.is_killed()
    }

    /// Publishes changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Up to where the log has been read, and the number of the next entry; None before the first read.
    pub fn end(&self) -> Option<(EventPosition, u64)> {
        let state = self.state.lock();
        state
            .position
            .map(|position| (position, state.first + state.ring.len() as u64))
    }

    /// The entries from a number on, of at most `bytes_max` bytes together unless the first is larger. `next` becomes
    /// the number behind them.
    pub fn take(&self, next: &mut u64, bytes_max: usize) -> Taken {
        let state = self.state.lock();
        let missed = state.first.saturating_sub(*next);
        *next += missed;
        let mut bytes = 0;
        let from = (*next - state.first) as usize;
        let entries: Vec<_> = state
            .ring
            .iter()
            .skip(from)
            .take_while(|entry| {
                let is_first = bytes == 0;
                bytes += entry.frame.len();
                is_first || bytes <= bytes_max
            })
            .cloned()
            .collect();
        *next += entries.len() as u64;
        Taken {
            missed,
            has_ended: state.has_ended && entries.is_empty(),
            entries,
        }
    }

    /// Reads what was recorded since the last time.
    async fn read(&self) {
        let (position, wanted) = {
            let state = self.state.lock();
            (state.position, state.wanted)
        };
        let Some(mut after) = position else {
            return self.find_end().await;
        };
        let message_events_max = self.message_events_max();
        let (mut message_events, mut dropped) = (0, 0);
        for _ in 0..READS_MAX {
            let skips = message_events >= message_events_max;
            let kinds = if skips { wanted.without(LIMITED) } else { wanted };
            let scan_max = if kinds.intersects(LIMITED) {
                message_events_max - message_events
            } else {
                OTHER_RECORDS_MAX
            };
            let Ok(page) = self.events(EventStart::After(after), kinds, scan_max).await else {
                break;
            };
            if page.gap {
                self.push(Entry::gap(None, None));
            }
            let limited = page
                .events
                .iter()
                .filter(|logged| LIMITED.contains(logged.event.kind()));
            message_events += limited.count();
            if skips {
                dropped += (page.scanned - page.events.len()) as u64;
            }
            let (next, more) = (page.next, page.more);
            self.push_events(page.events);
            let Some(next) = next else {
                // The log does not keep positions, or was lost.
                self.state.lock().position = None;
                break;
            };
            after = next;
            self.state.lock().position = Some(next);
            if !more {
                break;
            }
        }
        if dropped > 0 {
            self.push(Entry::gap(Some(EventKind::Accepted), Some(dropped)));
        }
    }

    /// The events about messages that one read may encode.
    fn message_events_max(&self) -> usize {
        let followers = self.changes.receiver_count().max(1);
        (MESSAGE_FRAMES_MAX / followers).clamp(MESSAGE_EVENTS_MIN, MESSAGE_EVENTS_MAX)
    }

    async fn find_end(&self) {
        if let Ok(page) = self.events(EventStart::Newest, EventKinds::of(&[]), 1).await
            && let Some(end) = page.next
        {
            self.state.lock().position = Some(end);
            self.notify();
        }
    }

    async fn events(&self, from: EventStart, kinds: EventKinds, scan_max: usize) -> Result<EventPage, ()> {
        let query = EventQuery {
            from,
            direction: Direction::Forward,
            kinds,
            scan_max,
            bytes_max: READ_BYTES,
        };
        self.project.events(query).await.map_err(|error| {
            tracing::debug!(project = %self.project.id(), %error, "the event log cannot be read");
        })
    }

    fn push_events(&self, events: Vec<LoggedEvent>) {
        if events.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for logged in events {
            let entry = Entry {
                kind: Some(logged.event.kind()),
                frame: frame::event(self.project.id(), &logged),
                parties: state.senders.parties(&logged.event),
            };
            state.push(entry);
        }
        drop(state);
        self.notify();
    }

    fn push(&self, entry: Entry) {
        self.state.lock().push(entry);
        self.notify();
    }

    fn notify(&self) {
        self.changes.send_modify(|change| *change += 1);
    }
}

impl Entry {
    fn gap(kind: Option<EventKind>, dropped: Option<u64>) -> Self {
        Self {
            kind,
            parties: Parties::All,
            frame: frame::gap(dropped),
        }
    }

    fn bytes(&self) -> usize {
        let recipients = match &self.parties {
            Parties::Message(accepted) => 8 * accepted.recipients.len() + accepted.head.len() + accepted.tail.len(),
            _ => 0,
        };
        self.frame.len() + recipients + size_of::<Self>()
    }
}

impl State {
    fn push(&mut self, entry: Entry) {
        self.ring_bytes += entry.bytes();
        self.ring.push_back(Arc::new(entry));
        while (self.ring.len() > RING_LEN_MAX || self.ring_bytes > RING_BYTES_MAX) && self.ring.len() > 1 {
            if let Some(oldest) = self.ring.pop_front() {
                self.ring_bytes -= oldest.bytes();
                self.first += 1;
            }
        }
    }
}

/// Reads until no follower holds the tail.
async fn run(tail: Weak<Tail>) {
    let mut ticks = interval(READ_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(tail) = tail.upgrade() else { return };
        if tail.has_ended() {
            tail.state.lock().has_ended = true;
            return tail.notify();
        }
        tail.read().await;
    }
}
