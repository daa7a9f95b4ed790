//! The load rule: which console a question is offered to. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::Presence;
use crate::{
    clock::{Now, millis},
    model::{AddressedTo, ConsoleId, Question, SessionName},
};

/// A person counts as present for this long after they did something.
pub const PRESENT_FOR: Duration = Duration::from_secs(300);

/// A console of any replica. Times are those of the monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the flags are independent facts about the console"
)]
pub struct Console {
    pub id: ConsoleId,
    pub human: SessionName,
    pub roles: Vec<String>,
    pub is_paused: bool,
    pub is_away: bool,
    /// When the person last did something.
    pub active_ms: u64,
    /// When a question was last offered to it; 0 for never.
    pub offered_ms: u64,
    /// A program that has not answered yet, and may never: it is chosen last.
    pub is_unproven: bool,
    /// Other replicas may not know it yet: nothing is offered to it before they do.
    pub is_published: bool,
}

impl Console {
    /// Whether a person is there.
    pub fn presence(&self, now: Now) -> Presence {
        if self.is_away {
            Presence::Away
        } else if now.mono_ms.saturating_sub(self.active_ms) < millis(PRESENT_FOR) {
            Presence::Present
        } else {
            Presence::Idle
        }
    }

    /// When the person no longer counts as present; None if they do not now.
    pub fn idle_from_ms(&self, now: Now) -> Option<u64> {
        (self.presence(now) == Presence::Present).then(|| self.active_ms.saturating_add(millis(PRESENT_FOR)))
    }

    /// The console as another replica has published it.
    pub fn from_record(record: ConsoleRecord, now: Now) -> Self {
        Self {
            id: record.id,
            human: record.human,
            roles: record.roles,
            is_paused: record.is_paused,
            is_away: record.is_away,
            active_ms: now.mono_ms.saturating_sub(record.idle_ms),
            offered_ms: now.mono_ms.saturating_sub(record.offered_ago_ms),
            is_unproven: record.is_unproven,
            is_published: true,
        }
    }

    /// The console for other replicas.
    pub fn to_record(&self, now: Now) -> ConsoleRecord {
        ConsoleRecord {
            id: self.id,
            human: self.human.clone(),
            roles: self.roles.clone(),
            is_paused: self.is_paused,
            is_away: self.is_away,
            idle_ms: now.mono_ms.saturating_sub(self.active_ms),
            offered_ago_ms: now.mono_ms.saturating_sub(self.offered_ms),
            is_unproven: self.is_unproven,
        }
    }

    /// Whether questions may be offered to it that are addressed in this way.
    fn takes(&self, to: &AddressedTo) -> bool {
        self.is_published && !self.is_paused && !self.is_away && to.includes(self.human.as_str(), &self.roles)
    }
}

/// A console as other replicas see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConsoleRecord {
    pub id: ConsoleId,
    /// The person at the console.
    pub human: SessionName,
    /// Roles of the person.
    pub roles: Vec<String>,
    /// It takes no new questions.
    pub is_paused: bool,
    /// The person said that they are away.
    pub is_away: bool,
    /// Milliseconds since the person did something.
    pub idle_ms: u64,
    /// Milliseconds since the console was last offered a question.
    pub offered_ago_ms: u64,
    /// It has not answered yet, and may never.
    #[serde(default)]
    pub is_unproven: bool,
}

/// The consoles that a question may be offered to. A question that a person gave back to the desk goes to other people, as
/// long as one of them has a console.
pub fn eligible<'a>(question: &Question, consoles: &'a BTreeMap<ConsoleId, Console>) -> Vec<&'a Console> {
    let mut taking: Vec<_> = consoles
        .values()
        .filter(|console| console.takes(&question.to))
        .collect();
    let given_back = question.handover.as_ref().filter(|last| last.to == AddressedTo::Anyone);
    if let Some(last) = given_back
        && taking.iter().any(|console| console.human != last.from)
    {
        taking.retain(|console| console.human != last.from);
    }
    taking
}

/// Open questions of each console.
#[derive(Clone, Debug, Default)]
pub struct Loads {
    of_console: BTreeMap<ConsoleId, usize>,
    /// Consoles in the order in which this plan has offered them something.
    offered: BTreeMap<ConsoleId, usize>,
}

impl Loads {
    /// Counts the questions that are offered to consoles or claimed by them.
    pub fn of<'a>(questions: impl Iterator<Item = &'a Question>) -> Self {
        let mut loads = Self::default();
        for console in questions.filter_map(Question::console) {
            *loads.of_console.entry(console).or_default() += 1;
        }
        loads
    }

    /// The open questions of a console.
    pub fn open(&self, console: ConsoleId) -> usize {
        self.of_console.get(&console).copied().unwrap_or(0)
    }

    /// A question is offered to the console.
    pub fn offer(&mut self, console: ConsoleId) {
        *self.of_console.entry(console).or_default() += 1;
        let turn = self.offered.len() + 1;
        self.offered.insert(console, turn);
    }

    /// A question is taken from the console.
    pub fn take(&mut self, console: ConsoleId) {
        if let Some(open) = self.of_console.get_mut(&console) {
            *open = open.saturating_sub(1);
        }
    }

    /// Chooses a console. It prefers one that has proven to answer, then the one with the fewest open questions, then a present
    /// one, then the one whose last offer is the oldest, then the one with the lowest id. None if all have `capacity`
    /// questions.
    pub fn choose<'a>(
        &self,
        consoles: impl IntoIterator<Item = &'a Console>,
        capacity: usize,
        now: Now,
    ) -> Option<&'a Console> {
        let rank = |console: &Console| {
            let is_present = console.presence(now) == Presence::Present;
            let turn = self.offered.get(&console.id).copied().unwrap_or(0);
            (
                console.is_unproven,
                self.open(console.id),
                !is_present,
                (turn, console.offered_ms),
                console.id,
            )
        };
        let consoles = consoles.into_iter().filter(|console| self.open(console.id) < capacity);
        consoles.min_by_key(|console| rank(console))
    }
}

/// The order in which questions wait: the most urgent first, then the oldest.
pub fn waiting_order(question: &Question) -> impl Ord + use<> {
    (Reverse(question.urgency), question.id)
}

/// People who have a console.
pub fn humans(consoles: &BTreeMap<ConsoleId, Console>) -> BTreeSet<&SessionName> {
    consoles.values().map(|console| &console.human).collect()
}
