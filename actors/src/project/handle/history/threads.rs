//! Threads: the messages of one thread id, or else of one correlation id.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    ProjectHandle,
    parties::{Names, Party, SessionSet},
    scan::{COUNT_READ_MAX, COUNT_SCAN_MAX, LogScan, Span},
};
use crate::{
    model::{
        AcceptedMessage, BrokerError, EventKind, EventKinds, Headers, LoggedRecipients, MessageId, Owner, ProjectEvent,
        SessionId, excerpt,
    },
    storage::{Direction, EventPosition, EventStart},
};

/// The span ends with the read that finds so many threads.
const SPAN_THREADS_MAX: usize = 2_000;
/// Participants that a thread lists.
pub const PARTICIPANTS_MAX: usize = 20;
/// Protocols that a thread lists.
const PROTOCOLS_MAX: usize = 20;

/// What the messages of a thread have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ThreadKey {
    /// The header `thread_id`; the first message may have it as its message id instead.
    Thread(String),
    /// The header `correlation_id`, of messages without a `thread_id`; the first message may have it as its message id instead.
    Correlation(String),
}

/// A thread, as far as one page has looked back.
#[derive(Clone, Debug)]
pub struct Thread {
    pub key: ThreadKey,
    /// The subject of its first message that has one.
    pub subject: Option<String>,
    /// Its first message.
    pub first: MessageId,
    /// The first words of its first message, if the log keeps payloads.
    pub excerpt: Option<String>,
    /// Its messages; a broadcast is one.
    pub messages: usize,
    /// The first of its senders and recipients.
    pub participants: Vec<Party>,
    /// All of them.
    pub participants_total: usize,
    /// The first of its protocols by name.
    pub protocols: Vec<String>,
    /// When its first and its last message were accepted, in milliseconds since the Unix epoch.
    pub first_ms: u64,
    pub last_ms: u64,
    /// The place of its last message.
    place: EventPosition,
}

/// Where a page of threads begins.
///
/// The pages of one span of the log show the same threads; later messages change none of them. A thread that is longer than a span is
/// also in the next one, with its older messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCursor {
    /// The end of the span: `Newest`, `After` its newest event, or `Before` the oldest one of the span before.
    pub span: EventStart,
    /// Only threads whose last message is before this one.
    pub after: Option<EventPosition>,
}

impl ThreadCursor {
    /// The first page.
    pub const NEWEST: Self = Self {
        span: EventStart::Newest,
        after: None,
    };
}

/// A page of threads, the ones with the newest messages first.
#[derive(Clone, Debug)]
pub struct ThreadPage {
    pub threads: Vec<Thread>,
    /// Where the next page begins; None after the last one.
    pub next: Option<ThreadCursor>,
    /// The end of its span of the log.
    span: EventStart,
}

impl ThreadPage {
    /// Where a page begins that comes after one of these threads.
    pub fn behind(&self, last: &Thread) -> ThreadCursor {
        ThreadCursor {
            span: self.span,
            after: Some(last.place),
        }
    }
}

/// A thread while it is counted.
struct Counted {
    first: MessageId,
    excerpt: Option<String>,
    messages: usize,
    subject: Option<String>,
    participants: BTreeSet<SessionId>,
    protocols: BTreeSet<String>,
    first_ms: u64,
    last_ms: u64,
    place: EventPosition,
}

impl ProjectHandle {
    /// A page of at most `limit` threads since a time. With `visible_to` only of messages that a session of this owner sent
    /// or got.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn threads(
        &self,
        since_ms: Option<u64>,
        cursor: ThreadCursor,
        limit: usize,
        visible_to: Option<&Owner>,
    ) -> Result<ThreadPage, BrokerError> {
        let _permit = self.walk_permit().await;
        let own = visible_to.map(|owner| self.own_sessions(owner));
        let all = SessionSet::of(&self.directory().all());
        let mut scan = LogScan::new(Span {
            from: cursor.span,
            direction: Direction::Backward,
            until_ms: None,
            since_ms,
            kinds: EventKinds::of(&[EventKind::Accepted]),
            scan_max: COUNT_SCAN_MAX,
            read_max: COUNT_READ_MAX,
        });
        let (mut found, mut names) = (HashMap::<ThreadKey, Counted>::new(), Names::default());
        let mut firsts = FirstMessages::default();
        let mut newest = None;
        while let Some(events) = scan.next(self).await? {
            for logged in events {
                scan.count(&logged).await;
                newest = newest.or(Some(logged.position));
                let ProjectEvent::Accepted(accepted) = logged.event else {
                    continue;
                };
                if own.as_ref().is_some_and(|own| !own.sent_or_got(&accepted)) {
                    continue;
                }
                let Some(mut headers) = accepted.parse_headers() else {
                    continue;
                };
                let subject = headers.subject.take();
                let Some(key) = firsts.key_of(accepted.message, headers) else {
                    continue;
                };
                names.note_sender(&accepted);
                let thread = found
                    .entry(key)
                    .or_insert_with(|| Counted::last(accepted.message, logged.position, logged.at_ms));
                thread.add(&accepted, subject, logged.at_ms, &all);
            }
            if found.len() >= SPAN_THREADS_MAX {
                scan.end();
            }
        }
        let mut threads: Vec<_> = found.into_iter().collect();
        threads.retain(|(_, thread)| cursor.after.is_none_or(|after| thread.place < after));
        threads.sort_unstable_by_key(|(_, thread)| std::cmp::Reverse(thread.place));
        let has_more = threads.len() > limit;
        threads.truncate(limit);
        let threads: Vec<_> = threads
            .into_iter()
            .map(|(key, counted)| counted.finish(key, |session| names.party(self, session)))
            .collect();
        let behind = scan.rest().map(|rest| ThreadCursor {
            span: EventStart::Before(rest),
            after: None,
        });
        let mut page = ThreadPage {
            threads,
            next: behind,
            span: match (cursor.span, newest) {
                (EventStart::Newest, Some(newest)) => EventStart::After(newest),
                (span, _) => span,
            },
        };
        if has_more && let Some(last) = page.threads.last() {
            page.next = Some(page.behind(last));
        }
        Ok(page)
    }
}

/// The messages that threads are named by, of all messages met so far.
#[derive(Default)]
struct FirstMessages {
    by_thread: HashSet<MessageId>,
    by_correlation: HashSet<MessageId>,
}

impl FirstMessages {
    /// The thread of a message; None without one. Newer messages of the thread have been met before.
    fn key_of(&mut self, message: MessageId, headers: Headers) -> Option<ThreadKey> {
        if let Some(thread_id) = headers.thread_id {
            self.by_thread.extend(MessageId::parse(&thread_id));
            return Some(ThreadKey::Thread(thread_id));
        }
        if self.by_thread.contains(&message) {
            return Some(ThreadKey::Thread(message.to_string()));
        }
        if let Some(correlation_id) = headers.correlation_id {
            self.by_correlation.extend(MessageId::parse(&correlation_id));
            return Some(ThreadKey::Correlation(correlation_id));
        }
        let is_first = self.by_correlation.contains(&message);
        is_first.then(|| ThreadKey::Correlation(message.to_string()))
    }
}

impl Counted {
    /// A thread of which the last message was met.
    fn last(message: MessageId, place: EventPosition, at_ms: u64) -> Self {
        Self {
            first: message,
            excerpt: None,
            messages: 0,
            subject: None,
            participants: BTreeSet::new(),
            protocols: BTreeSet::new(),
            first_ms: at_ms,
            last_ms: at_ms,
            place,
        }
    }

    /// Adds a message that is older than those before.
    fn add(&mut self, accepted: &AcceptedMessage, subject: Option<String>, at_ms: u64, all: &SessionSet) {
        self.messages += 1;
        self.first = accepted.message;
        self.excerpt = accepted.payload.as_deref().map(excerpt);
        self.subject = subject.or(self.subject.take());
        self.first_ms = self.first_ms.min(at_ms);
        self.last_ms = self.last_ms.max(at_ms);
        self.participants.insert(accepted.sender);
        match &accepted.recipients {
            LoggedRecipients::One(session) => {
                self.participants.insert(*session);
            }
            LoggedRecipients::Many(marks) => self
                .participants
                .extend(marks.iter().filter_map(|mark| all.find(*mark))),
        }
        if self.protocols.len() < PROTOCOLS_MAX
            && let Some(head) = accepted.parse_head()
        {
            self.protocols.insert(head.protocol_name);
        }
    }

    fn finish(self, key: ThreadKey, party: impl FnMut(SessionId) -> Party) -> Thread {
        Thread {
            key,
            subject: self.subject,
            first: self.first,
            excerpt: self.excerpt,
            messages: self.messages,
            participants_total: self.participants.len(),
            participants: self
                .participants
                .into_iter()
                .take(PARTICIPANTS_MAX)
                .map(party)
                .collect(),
            protocols: self.protocols.into_iter().collect(),
            first_ms: self.first_ms,
            last_ms: self.last_ms,
            place: self.place,
        }
    }
}
