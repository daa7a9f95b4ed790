//! Lists of sessions in an order that their reader chooses, with the number of all that match.
//!
//! A page looks once at every session of the project, outside of the lock of the directory, and keeps 56 bytes of each that
//! matches while it is made.

use std::{cmp::Ordering, sync::Arc};

use super::{Directory, SessionQuery};
use crate::{
    clock::Now,
    model::{SessionId, SessionName, SessionStatus},
    session::Member,
};

/// What a list of sessions is sorted by. Sessions that are equal in it are in order of creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionSort {
    /// Creation.
    #[default]
    Created,
    /// The time of the first registration.
    ConnectionTime,
    /// The name, by code points; sessions without one come first.
    Name,
    /// Presence: active, stale, disconnected.
    Status,
    /// The number of waiting messages, as this replica last knew it.
    QueueSize,
    /// The last heartbeat.
    LastHeartbeat,
}

/// An order of a list of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionOrder {
    pub by: SessionSort,
    /// Last ones first.
    pub is_descending: bool,
}

/// What a session is sorted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SortKey {
    Number(u64),
    Name(Option<SessionName>),
}

/// The place of a session in an order. A session whose key changes between two pages may be on both, or on none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SortedPlace {
    pub key: SortKey,
    pub id: SessionId,
}

/// A page of a sorted list.
#[derive(Clone, Default)]
pub struct SortedPage {
    /// The sessions with their places.
    pub items: Vec<(SortedPlace, Arc<Member>)>,
    /// More sessions follow.
    pub more: bool,
    /// All sessions that match, on this page and the others.
    pub total: usize,
}

impl SessionOrder {
    /// Compares two places in this order.
    fn compare(self, one: &SortedPlace, other: &SortedPlace) -> Ordering {
        let ordering = one.cmp(other);
        if self.is_descending {
            ordering.reverse()
        } else {
            ordering
        }
    }
}

impl Directory {
    /// The sessions that match behind `after`, at most as many as the query says. The `after` of the query is not used.
    pub fn sorted(
        &self,
        query: &SessionQuery,
        order: SessionOrder,
        after: Option<&SortedPlace>,
        now: Now,
    ) -> SortedPage {
        let mut page = SortedPage::default();
        for member in self.all() {
            if !query.fits(&member, self.presence, now) {
                continue;
            }
            page.total += 1;
            let place = SortedPlace {
                key: self.sort_key(order.by, &member, now),
                id: member.record.id,
            };
            if after.is_none_or(|after| order.compare(&place, after) == Ordering::Greater) {
                page.items.push((place, member));
            }
        }
        let compare = |one: &(SortedPlace, _), other: &(SortedPlace, _)| order.compare(&one.0, &other.0);
        page.more = page.items.len() > query.limit;
        if page.more {
            page.items.select_nth_unstable_by(query.limit, compare);
            page.items.truncate(query.limit);
        }
        page.items.sort_unstable_by(compare);
        page
    }

    fn sort_key(&self, by: SessionSort, member: &Member, now: Now) -> SortKey {
        SortKey::Number(match by {
            SessionSort::Created => 0,
            SessionSort::ConnectionTime => member.record.connected_at_ms,
            SessionSort::Name => return SortKey::Name(member.record.name.clone()),
            SessionSort::Status => match member.status(self.presence, now) {
                SessionStatus::Active => 0,
                SessionStatus::Stale => 1,
                SessionStatus::Disconnected => 2,
            },
            SessionSort::QueueSize => member.shared.waiting() as u64,
            SessionSort::LastHeartbeat => member.shared.last_seen_unix_ms(),
        })
    }
}
