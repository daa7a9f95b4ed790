//! The history of messages: lists and lives of messages, read from the event log and joined with what the receipts say
//! now. And the log itself, for those who follow it.

mod envelopes;
mod filter;
mod flow;
mod parties;
mod payloads;
mod scan;
mod threads;
mod usage;

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use super::ProjectHandle;
use crate::{
    clock::now,
    model::{
        AcceptedMessage, BrokerError, DeadLetterReason, EventKind, EventKinds, LoggedRecipients, Message, MessageId,
        Owner, ProjectEvent, RecipientStatus, SessionId, Transformed,
    },
    storage::{Direction, EventPage, EventPosition, EventQuery, EventStart, LoggedEvent},
};

pub use envelopes::EnvelopePage;
pub use filter::{MessageFilter, StatusFilter};
pub use flow::{Flow, FlowEdge};
pub use parties::{Party, SessionSet};
pub use threads::{Thread, ThreadCursor, ThreadKey, ThreadPage};
pub use usage::{ProtocolUsage, VersionUsage};

pub(in crate::project) use scan::WALKS_MAX;
use scan::{LogScan, READ_BYTES, Span};

/// Records that one page of the list looks at, at most: a page may be short, or empty, and still have a successor.
const LIST_SCAN_MAX: usize = 5_000;
/// Records that the life of one message looks at, at most: about 10 ms in memory.
const LIFE_SCAN_MAX: usize = 50_000;
/// Records of one read of the log.
const READ_RECORDS: usize = 1_000;
/// Recipients whose receipts are read for one page, unless one message has more.
const RECIPIENTS_MAX: usize = 20_000;
/// The id of a message may be this much younger than its record, and as much older, because clocks are set.
const CLOCK_STEP_MS: u64 = 2_000;

/// A message of the list.
#[derive(Clone, Debug)]
pub struct ListedMessage {
    /// Its place in the log: the cursor behind it.
    pub position: EventPosition,
    /// The envelope.
    pub accepted: Box<AcceptedMessage>,
    /// The status for each recipient; None once the receipts are forgotten.
    pub recipients: Option<Vec<RecipientStatus>>,
}

/// A page of the list, newest first.
#[derive(Clone, Debug, Default)]
pub struct MessagePage {
    pub messages: Vec<ListedMessage>,
    /// Where the next page begins; None after the last one.
    pub next: Option<EventPosition>,
}

/// A page of the list while it is made.
#[derive(Default)]
struct PageInProgress {
    done: MessagePage,
    /// The last message that was looked at.
    looked_at: Option<EventPosition>,
    /// Recipients whose receipts were read.
    recipients: usize,
}

/// What happened to a message for one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifeChange {
    Queued,
    Delivered {
        delivery: u32,
        /// What lenses did to it for this delivery.
        transformed: Option<Arc<Transformed>>,
    },
    Released,
    Acknowledged,
    DeadLettered {
        reason: DeadLetterReason,
        deliveries: u32,
    },
    Redriven {
        from: SessionId,
    },
}

/// The life of a message for one recipient.
#[derive(Clone, Debug, Default)]
pub struct RecipientLife {
    /// What the receipts say now; None once they are forgotten.
    pub status: Option<RecipientStatus>,
    /// The changes in their order, each with its time in milliseconds since the Unix epoch.
    pub changes: Vec<(u64, LifeChange)>,
}

/// The life of a message for a page of its recipients.
#[derive(Clone, Debug, Default)]
pub struct MessageLife {
    /// The envelope and the time of acceptance in milliseconds since the Unix epoch; None once the log has forgotten it.
    pub accepted: Option<(u64, Box<AcceptedMessage>)>,
    /// By recipient, those of the page.
    pub recipients: BTreeMap<SessionId, RecipientLife>,
    /// The last recipient of the page; None if no other follows.
    pub next: Option<SessionId>,
    /// All recipients whose receipts are kept, in no order.
    pub with_receipt: Vec<SessionId>,
    /// The log has more events than were looked at, so that later changes may be missing.
    pub is_partial: bool,
}

impl ProjectHandle {
    /// A page of the event log.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn events(&self, query: EventQuery) -> Result<EventPage, BrokerError> {
        Ok(self.store().events(query).await?)
    }

    /// Whether a message that the log knows was sent or got by a session of this owner.
    pub fn is_party(&self, owner: &Owner, accepted: &AcceptedMessage) -> bool {
        self.own_sessions(owner).sent_or_got(accepted)
    }

    /// The sessions of an owner, now.
    pub fn own_sessions(&self, owner: &Owner) -> SessionSet {
        let members = self.directory().all();
        SessionSet::of(members.iter().filter(|member| member.record.owner == *owner))
    }

    /// The sessions with the text of a filter in their name, without the session of the filter.
    fn sessions_named(&self, filter: &MessageFilter) -> Option<SessionSet> {
        let text = filter.text.as_ref()?;
        let members = self.directory().all();
        let named = members.iter().filter(|member| {
            let name = member.record.name.as_ref();
            filter.session != Some(member.record.id)
                && name.is_some_and(|name| name.as_str().to_lowercase().contains(text))
        });
        Some(SessionSet::of(named))
    }

    /// A page of at most `limit` messages of the log, newest first, behind the message at `before`.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn messages(
        &self,
        filter: &MessageFilter,
        before: Option<EventPosition>,
        limit: usize,
    ) -> Result<MessagePage, BrokerError> {
        let own = filter.visible_to.as_ref().map(|owner| self.own_sessions(owner));
        let named = self.sessions_named(filter);
        let newest = filter.until_ms.map_or(EventStart::Newest, EventStart::At);
        let mut scan = LogScan::new(Span {
            from: before.map_or(newest, EventStart::Before),
            direction: Direction::Backward,
            until_ms: filter.until_ms,
            since_ms: filter.since_ms,
            kinds: EventKinds::of(&[EventKind::Accepted]),
            scan_max: LIST_SCAN_MAX,
            read_max: READ_RECORDS,
        });
        let mut page = PageInProgress::default();
        while let Some(events) = scan.next(self).await? {
            let found = events.into_iter().filter_map(|logged| match logged.event {
                ProjectEvent::Accepted(accepted) => Some((logged.position, accepted)),
                _ => None,
            });
            let found = found.filter(|(_, accepted)| {
                filter.selects(accepted, named.as_ref()) && own.as_ref().is_none_or(|own| own.sent_or_got(accepted))
            });
            if self.join(&mut page, found.collect(), filter, limit).await? {
                return Ok(page.done);
            }
        }
        page.done.next = scan.rest();
        Ok(page.done)
    }

    /// Adds the messages that have the status that the filter wants. Returns true once the page is complete, with its
    /// cursor set: it is full, or the receipts of enough recipients were read for it.
    async fn join(
        &self,
        page: &mut PageInProgress,
        found: Vec<(EventPosition, Box<AcceptedMessage>)>,
        filter: &MessageFilter,
        limit: usize,
    ) -> Result<bool, BrokerError> {
        let mut found = found.into_iter().peekable();
        while found.peek().is_some() {
            let mut batch = Vec::new();
            while let Some((_, accepted)) = found.peek()
                && batch.len() < limit.max(1)
                && (page.recipients == 0 || page.recipients + accepted.recipients.len() <= RECIPIENTS_MAX)
            {
                page.recipients += accepted.recipients.len();
                batch.extend(found.next());
            }
            if batch.is_empty() {
                page.done.next = page.looked_at;
                return Ok(true);
            }
            let ids = batch.iter().map(|(_, accepted)| accepted.message).collect();
            let statuses = self.store().message_statuses(ids, now()).await?;
            for ((position, accepted), recipients) in batch.into_iter().zip(statuses) {
                let is_selected = filter.selects_status(recipients.as_deref());
                if is_selected && page.done.messages.len() == limit {
                    page.done.next = page.looked_at;
                    return Ok(true);
                }
                page.looked_at = Some(position);
                if is_selected {
                    page.done.messages.push(ListedMessage {
                        position,
                        accepted,
                        recipients,
                    });
                }
            }
        }
        Ok(false)
    }

    /// The life of a message for at most `limit` of its recipients, by id, behind the recipient `after`: what the log has of
    /// it, and what the receipts say now. None for a message that neither knows.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn message_life(
        &self,
        message: MessageId,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Option<MessageLife>, BrokerError> {
        let receipts = self.message_status(message).await?;
        let is_known = receipts.is_some();
        let (mut life, page) = MessageLife::begin(receipts.unwrap_or_default(), after, limit);
        let mut from = EventStart::At(begin_ms(message));
        let mut scanned = 0;
        loop {
            let read = self
                .events(EventQuery {
                    from,
                    direction: Direction::Forward,
                    kinds: EventKinds::MESSAGES,
                    scan_max: READ_RECORDS,
                    bytes_max: READ_BYTES,
                })
                .await?;
            scanned += read.scanned;
            for event in read.events {
                life.add(message, event, page);
            }
            let Some(next) = read.next.filter(|_| read.more) else {
                break;
            };
            // A message that the log has not met by now is not in it: its record is at the time of its id.
            if life.is_over() || (life.accepted.is_none() && scanned >= LIST_SCAN_MAX) {
                break;
            }
            if scanned >= LIFE_SCAN_MAX {
                life.is_partial = true;
                break;
            }
            from = EventStart::After(next);
            tokio::task::yield_now().await;
        }
        life.end(limit);
        Ok((is_known || life.accepted.is_some()).then_some(life))
    }

    /// A message that is still kept: it waits, is leased, or is a dead letter. A project reads few of them at once,
    /// because each may be large.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn kept_message(&self, message: MessageId) -> Result<Option<Arc<Message>>, BrokerError> {
        let _permit = self.walk_permit().await;
        let kept = self.store().messages(vec![message]).await?;
        Ok(kept.into_iter().next().flatten())
    }
}

/// When the record of a message is not older than, in milliseconds since the Unix epoch.
fn begin_ms(message: MessageId) -> u64 {
    let (high, _) = message.as_uuid().as_u64_pair();
    (high >> 16).saturating_sub(CLOCK_STEP_MS)
}

/// The recipients of a page: those behind the first bound and up to the second.
type PageBounds = (Bound<SessionId>, Bound<SessionId>);

impl MessageLife {
    /// What the receipts say of a page of recipients, and its bounds. The log may know others in it.
    fn begin(mut receipts: Vec<RecipientStatus>, after: Option<SessionId>, limit: usize) -> (Self, PageBounds) {
        let with_receipt = receipts.iter().map(|receipt| receipt.session).collect();
        receipts.retain(|receipt| after.is_none_or(|after| receipt.session > after));
        let mut next = None;
        if receipts.len() > limit {
            let (_, last, _) = receipts.select_nth_unstable_by_key(limit.max(1) - 1, |receipt| receipt.session);
            next = Some(last.session);
            receipts.truncate(limit.max(1));
        }
        let lives = receipts.into_iter().map(|receipt| {
            let (session, status) = (receipt.session, Some(receipt));
            let changes = Vec::new();
            (session, RecipientLife { status, changes })
        });
        let life = Self {
            recipients: lives.collect(),
            next,
            with_receipt,
            ..Self::default()
        };
        let bounds = (
            after.map_or(Bound::Unbounded, Bound::Excluded),
            next.map_or(Bound::Unbounded, Bound::Included),
        );
        (life, bounds)
    }

    /// Ends the page at its limit, which recipients that only the log knows may exceed.
    fn end(&mut self, limit: usize) {
        if let Some(&first_beyond) = self.recipients.keys().nth(limit.max(1)) {
            self.recipients.split_off(&first_beyond);
            self.next = self.recipients.keys().next_back().copied();
        }
    }

    fn add(&mut self, message: MessageId, logged: LoggedEvent, page: PageBounds) {
        let at_ms = logged.at_ms;
        let (session, change) = match logged.event {
            ProjectEvent::Accepted(accepted) if accepted.message == message => {
                if let LoggedRecipients::One(session) = accepted.recipients
                    && page.contains(&session)
                {
                    self.recipients.entry(session).or_default();
                }
                // The receipts also name the sessions to which it was redriven later. Where replicas write the log, the
                // record of a delivery may precede that of the acceptance.
                let accepted_for = accepted.recipients.lookup();
                for (session, life) in &mut self.recipients {
                    if accepted_for.may_contain(*session) {
                        life.changes.insert(0, (at_ms, LifeChange::Queued));
                    }
                }
                self.accepted = Some((at_ms, accepted));
                return;
            }
            ProjectEvent::Delivered {
                message: of,
                session,
                delivery,
            } if of == message => {
                let transformed = None;
                (session, LifeChange::Delivered { delivery, transformed })
            }
            ProjectEvent::Transformed {
                message: of,
                session,
                delivery,
                transformed,
            } if of == message => return self.note_transformed(session, delivery, transformed),
            ProjectEvent::Released { message: of, session } if of == message => (session, LifeChange::Released),
            ProjectEvent::Acknowledged { message: of, session } if of == message => (session, LifeChange::Acknowledged),
            ProjectEvent::DeadLettered {
                message: of,
                session,
                reason,
                deliveries,
            } if of == message => (session, LifeChange::DeadLettered { reason, deliveries }),
            ProjectEvent::Redriven {
                message: of,
                session,
                from,
            } if of == message => (session, LifeChange::Redriven { from }),
            _ => return,
        };
        if page.contains(&session) {
            let life = self.recipients.entry(session).or_default();
            life.changes.push((at_ms, change));
        }
    }

    /// Adds what lenses did to the delivery that it belongs to.
    fn note_transformed(&mut self, session: SessionId, number: u32, by_lenses: Arc<Transformed>) {
        let Some(life) = self.recipients.get_mut(&session) else {
            return;
        };
        let last = life.changes.iter_mut().rev().find_map(|(_, change)| match change {
            LifeChange::Delivered { delivery, transformed } if *delivery == number => Some(transformed),
            _ => None,
        });
        if let Some(transformed) = last {
            *transformed = Some(by_lenses);
        }
    }

    /// Whether nothing more can happen: every recipient of the page has acknowledged it, in the log too.
    fn is_over(&self) -> bool {
        let is_acknowledged = |life: &RecipientLife| {
            let last = life.changes.last();
            last.is_some_and(|(_, change)| *change == LifeChange::Acknowledged)
        };
        !self.recipients.is_empty() && self.recipients.values().all(is_acknowledged)
    }
}
