//! The yaps of a project: those that are held until they have their place in the order, and the last ones that were shown.
//!
//! A yap is ordered by the time at which its sender wrote it, as far as that is credible: at most
//! [`YAP_BACKDATE_MAX`] before its arrival, and never before an earlier yap of the same sender.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::journal::{Change, DeskChange, Journal};
use crate::{
    clock::{Now, millis},
    model::{SessionId, ShownYap, Yap, id_map::IdMap},
    storage::questions::{
        HELD_YAPS_BYTES_MAX, HELD_YAPS_MAX, ReleasedYaps, YAP_BACKDATE_MAX, YAPS_BYTES_MAX, YAPS_MAX, YAPS_RETENTION,
        YapHeld,
    },
};

/// The yaps of a project.
#[derive(Debug, Default)]
pub struct Yaps {
    /// In the order in which they will be shown.
    held: BTreeMap<Place, HeldYap>,
    held_bytes: usize,
    /// The places by number, which is by arrival.
    arrivals: BTreeMap<u64, Place>,
    last_number: u64,
    /// The latest time by each clock; they never go back here. A sender is forgotten by the first one too, so that a wall
    /// clock that is set back cannot put its next yap before its last.
    last_unix_ms: u64,
    last_mono_ms: u64,
    /// The last time of each sender, while it may be later than that of the sender's next yap.
    last_at_ms_of: IdMap<SessionId, u64>,
    shown: VecDeque<Arc<ShownYap>>,
    shown_bytes: usize,
    last_seq: u64,
    /// The latest time that was shown.
    last_at_ms: u64,
}

/// The place of a held yap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Milliseconds since the Unix epoch.
    at_ms: u64,
    sender: SessionId,
    /// Counts the arrivals.
    number: u64,
}

#[derive(Debug)]
struct HeldYap {
    yap: Arc<Yap>,
    bytes: usize,
    arrived_mono_ms: u64,
}

/// What a journal has kept of the yaps of a project.
#[derive(Debug, Default)]
pub struct StoredYaps {
    /// Number, time and yap.
    pub held: Vec<(u64, u64, Arc<Yap>)>,
    pub shown: Vec<Arc<ShownYap>>,
    /// The number of the last shown yap, and the latest time that was shown.
    pub last: (u64, u64),
}

/// The bytes of a yap: its JSON.
fn bytes_of(yap: &Yap) -> usize {
    // Writing plain values to memory cannot fail.
    serde_json::to_vec(yap).map_or(0, |text| text.len())
}

impl Yaps {
    /// See [`QuestionStore::hold_yap`](crate::storage::QuestionStore::hold_yap).
    pub fn hold(&mut self, yap: Arc<Yap>, now: Now, journal: &mut impl Journal) -> YapHeld {
        let bytes = bytes_of(&yap);
        if self.held.len() >= HELD_YAPS_MAX || self.held_bytes + bytes > HELD_YAPS_BYTES_MAX {
            return YapHeld::Full;
        }
        self.last_unix_ms = self.last_unix_ms.max(now.unix_ms);
        self.last_mono_ms = self.last_mono_ms.max(now.mono_ms);
        let received_ms = self.last_unix_ms;
        let earliest_ms = received_ms.saturating_sub(millis(YAP_BACKDATE_MAX));
        let sent_at_ms = yap.sent_at_ms.unwrap_or(received_ms).clamp(earliest_ms, received_ms);
        let last_at_ms = self.last_at_ms_of.entry(yap.sender).or_default();
        let at_ms = sent_at_ms.max(*last_at_ms);
        *last_at_ms = at_ms;
        self.last_number += 1;
        let number = self.last_number;
        journal.record(Change::Desk(DeskChange::YapHeld {
            number,
            at_ms,
            yap: &yap,
        }));
        let arrived_mono_ms = self.last_mono_ms;
        self.insert(number, at_ms, yap, arrived_mono_ms);
        if at_ms < self.last_at_ms {
            YapHeld::Late
        } else {
            YapHeld::Held
        }
    }

    fn insert(&mut self, number: u64, at_ms: u64, yap: Arc<Yap>, arrived_mono_ms: u64) {
        let place = Place {
            at_ms,
            sender: yap.sender,
            number,
        };
        let bytes = bytes_of(&yap);
        self.held_bytes += bytes;
        self.arrivals.insert(number, place);
        let held = HeldYap {
            yap,
            bytes,
            arrived_mono_ms,
        };
        self.held.insert(place, held);
    }

    /// See [`QuestionStore::release_yaps`](crate::storage::QuestionStore::release_yaps).
    pub fn release(&mut self, delay: Duration, now: Now, journal: &mut impl Journal) -> ReleasedYaps {
        let due_mono_ms = |place: &Place| {
            let held = self.held.get(place);
            held.map_or(0, |held| held.arrived_mono_ms.saturating_add(millis(delay)))
        };
        // Numbers and arrivals ascend together.
        let due = self
            .arrivals
            .values()
            .take_while(|place| due_mono_ms(place) <= now.mono_ms);
        let last_due = due.max().copied();
        let mut released = Vec::new();
        while let Some((&place, _)) = self.held.first_key_value()
            && (Some(place) <= last_due || place.at_ms < self.last_at_ms)
            && let Some(held) = self.held.remove(&place)
        {
            self.held_bytes -= held.bytes;
            self.arrivals.remove(&place.number);
            released.push(self.show(place, held.yap, journal));
        }
        self.forget_old(now, journal);
        let next = self.arrivals.first_key_value();
        let next_in = next.map(|(_, place)| {
            let due = self
                .held
                .get(place)
                .map_or(0, |held| held.arrived_mono_ms + millis(delay));
            Duration::from_millis(due.saturating_sub(now.mono_ms))
        });
        ReleasedYaps { released, next_in }
    }

    fn show(&mut self, place: Place, yap: Arc<Yap>, journal: &mut impl Journal) -> Arc<ShownYap> {
        let is_late = place.at_ms < self.last_at_ms;
        self.last_at_ms = self.last_at_ms.max(place.at_ms);
        self.last_seq += 1;
        let shown = Arc::new(ShownYap {
            seq: self.last_seq,
            at_ms: place.at_ms,
            is_late,
            yap: Arc::unwrap_or_clone(yap),
        });
        journal.record(Change::Desk(DeskChange::YapShown {
            number: place.number,
            shown: &shown,
            last_at_ms: self.last_at_ms,
        }));
        self.keep(Arc::clone(&shown), journal);
        shown
    }

    fn keep(&mut self, shown: Arc<ShownYap>, journal: &mut impl Journal) {
        self.shown_bytes += bytes_of(&shown.yap);
        self.shown.push_back(shown);
        while self.shown.len() > YAPS_MAX || (self.shown_bytes > YAPS_BYTES_MAX && self.shown.len() > 1) {
            self.forget_oldest(journal);
        }
    }

    /// Forgets the yaps that were shown too long ago, and the senders whose last yap no longer matters.
    pub fn forget_old(&mut self, now: Now, journal: &mut impl Journal) {
        while let Some(oldest) = self.shown.front()
            && oldest.at_ms.saturating_add(millis(YAPS_RETENTION)) <= now.unix_ms
        {
            self.forget_oldest(journal);
        }
        self.last_unix_ms = self.last_unix_ms.max(now.unix_ms);
        let earliest_ms = self.last_unix_ms.saturating_sub(millis(YAP_BACKDATE_MAX));
        self.last_at_ms_of.retain(|_, last_at_ms| *last_at_ms > earliest_ms);
    }

    fn forget_oldest(&mut self, journal: &mut impl Journal) {
        if let Some(oldest) = self.shown.pop_front() {
            self.shown_bytes -= bytes_of(&oldest.yap);
            journal.record(Change::Desk(DeskChange::YapRemoved { seq: oldest.seq }));
        }
    }

    /// Adds the yaps that were kept before a restart. The held ones are due.
    pub fn restore(&mut self, mut stored: StoredYaps, now: Now, journal: &mut impl Journal) {
        (self.last_seq, self.last_at_ms) = stored.last;
        stored.shown.sort_unstable_by_key(|shown| shown.seq);
        for shown in stored.shown {
            self.last_at_ms_of.insert(shown.yap.sender, shown.at_ms);
            self.keep(shown, journal);
        }
        stored.held.sort_unstable_by_key(|(number, ..)| *number);
        for (number, at_ms, yap) in stored.held {
            self.last_number = self.last_number.max(number);
            self.last_at_ms_of.insert(yap.sender, at_ms);
            self.insert(number, at_ms, yap, 0);
        }
        self.forget_old(now, journal);
    }

    /// See [`QuestionStore::yaps`](crate::storage::QuestionStore::yaps).
    pub fn list(&self, after: Option<u64>, limit: usize) -> Vec<Arc<ShownYap>> {
        let from = match after {
            Some(after) => self.shown.partition_point(|shown| shown.seq <= after),
            None => self.shown.len().saturating_sub(limit),
        };
        self.shown.iter().skip(from).take(limit).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
