//! Who talks to whom: the messages of the last minutes, by sender and recipient.

use std::collections::HashMap;

use super::{
    ProjectHandle,
    parties::{Names, Party, SessionSet},
    scan::{COUNT_READ_MAX, COUNT_SCAN_MAX, LogScan, Span},
};
use crate::{
    model::{BrokerError, EventKind, EventKinds, LoggedRecipients, MessageId, Owner, ProjectEvent, SessionId},
    storage::{Direction, EventStart, LoggedEvent},
};

/// Messages from one session to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowEdge {
    pub from: Party,
    pub to: Party,
    /// Copies of messages.
    pub messages: u64,
    /// Those of them that became dead letters.
    pub dead_letters: u64,
}

/// Who talks to whom.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Since when everything was counted, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// The number of records that were looked at.
    pub events: usize,
    /// Everything since the start of the window was counted.
    pub is_complete: bool,
    /// The busiest ones first.
    pub edges: Vec<FlowEdge>,
    /// Edges that are not among these, and their messages.
    pub folded_edges: usize,
    pub folded_messages: u64,
}

/// Sender and recipient; None: a recipient of a broadcast that has ended.
type Ends = (SessionId, Option<SessionId>);

#[derive(Clone, Copy, Default)]
struct Counts {
    messages: u64,
    dead_letters: u64,
}

/// What was counted so far.
#[derive(Default)]
struct Tally {
    edges: HashMap<Ends, Counts>,
    /// The recipients for which a message was given up. A walk backward meets them before the message itself.
    dead: HashMap<MessageId, Vec<SessionId>>,
    names: Names,
}

impl ProjectHandle {
    /// The messages between two times, by sender and recipient: the `limit` busiest pairs. With `visible_to` only messages that a
    /// session of this owner sent or got.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn flow(
        &self,
        since_ms: u64,
        until_ms: u64,
        limit: usize,
        visible_to: Option<&Owner>,
    ) -> Result<Flow, BrokerError> {
        let _permit = self.walk_permit().await;
        let own = visible_to.map(|owner| self.own_sessions(owner));
        let mut scan = LogScan::new(Span {
            from: EventStart::Newest,
            direction: Direction::Backward,
            until_ms: Some(until_ms),
            since_ms: Some(since_ms),
            kinds: EventKinds::of(&[EventKind::Accepted, EventKind::DeadLettered]),
            scan_max: COUNT_SCAN_MAX,
            read_max: COUNT_READ_MAX,
        });
        let (mut tally, all) = (Tally::default(), SessionSet::of(&self.directory().all()));
        while let Some(events) = scan.next(self).await? {
            for event in events {
                scan.count(&event).await;
                tally.add(event, own.as_ref(), &all);
            }
        }
        let is_complete = scan.rest().is_none();
        let mut flow = Flow {
            since_ms: if is_complete {
                since_ms
            } else {
                scan.oldest_ms().unwrap_or(until_ms)
            },
            events: scan.scanned(),
            is_complete,
            ..Flow::default()
        };
        tokio::task::yield_now().await;
        let mut edges: Vec<_> = tally.edges.iter().map(|(ends, counts)| (*ends, *counts)).collect();
        // Pairs that are equally busy keep their order from one answer to the next.
        let rank = |(ends, counts): &(Ends, Counts)| (std::cmp::Reverse(counts.messages), *ends);
        if edges.len() > limit {
            edges.select_nth_unstable_by_key(limit, rank);
            flow.folded_edges = edges.len() - limit;
            flow.folded_messages = edges[limit..].iter().map(|(_, counts)| counts.messages).sum();
            edges.truncate(limit);
        }
        edges.sort_unstable_by_key(rank);
        let edges = edges.into_iter().map(|((from, to), counts)| FlowEdge {
            from: tally.names.party(self, from),
            to: to.map_or_else(Party::default, |to| tally.names.party(self, to)),
            messages: counts.messages,
            dead_letters: counts.dead_letters,
        });
        flow.edges = edges.collect();
        Ok(flow)
    }
}

impl Tally {
    fn add(&mut self, logged: LoggedEvent, own: Option<&SessionSet>, all: &SessionSet) {
        match logged.event {
            ProjectEvent::DeadLettered { message, session, .. } => self.dead.entry(message).or_default().push(session),
            ProjectEvent::Accepted(accepted) => {
                let dead = self.dead.remove(&accepted.message).unwrap_or_default();
                if own.is_some_and(|own| !own.sent_or_got(&accepted)) {
                    return;
                }
                let from = accepted.sender;
                self.names.note_sender(&accepted);
                let mut count = |to| self.edges.entry((from, to)).or_default().messages += 1;
                match &accepted.recipients {
                    LoggedRecipients::One(to) => count(Some(*to)),
                    LoggedRecipients::Many(marks) => marks.iter().for_each(|mark| count(all.find(*mark))),
                }
                if dead.is_empty() {
                    return;
                }
                let recipients = accepted.recipients.lookup();
                for to in dead {
                    let known = recipients.may_contain(to).then_some(to);
                    let ends = [(from, known), (from, None)];
                    if let Some(ends) = ends.into_iter().find(|ends| self.edges.contains_key(ends)) {
                        self.edges.entry(ends).or_default().dead_letters += 1;
                    }
                }
            }
            _ => {}
        }
    }
}
