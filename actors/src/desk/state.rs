//! What the desk knows, and what follows from it: offers, moves, ends of claims, expiries. Pure: events and the time go in,
//! effects and the next deadline come out.
//!
//! Every replica computes the same plan from the same questions and consoles, and carries out its own part of it: an offer
//! is made by the replica of its console. Everything else may be done by each of them; the store takes the first.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    ConsoleChange, ConsoleView, DeskSummary, Presence,
    load::{Console, ConsoleRecord, Loads, eligible, humans, waiting_order},
};
use crate::{
    clock::{Now, millis},
    model::{ConsoleId, Question, QuestionId, QuestionState, ReplicaId, SessionName, Urgency},
};

/// How long a claim waits for its person when their console is gone.
pub const CLAIM_KEPT_FOR: Duration = Duration::from_secs(30);
/// Closed questions that are remembered, so that an older record of one is not taken for news.
const CLOSED_REMEMBERED_MAX: usize = 1_024;

/// Something that the desk does about a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Shows it to a console first; an earlier offer ends.
    Offer {
        question: Arc<Question>,
        console: ConsoleId,
        human: SessionName,
    },
    /// Its console is gone or its person is away.
    TakeBack {
        question: Arc<Question>,
        console: ConsoleId,
    },
    /// The time of the claim is over.
    EndClaim(Arc<Question>),
    /// The person with the claim has another console.
    MoveClaim {
        question: Arc<Question>,
        human: SessionName,
        console: ConsoleId,
    },
    /// Its time is over.
    Expire(Arc<Question>),
    /// Its time is nearly over, which is said once.
    WarnOfExpiry(Arc<Question>),
}

/// What is to be done now, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub effects: Vec<Effect>,
    /// On the monotonic clock, in milliseconds; None if nothing has a deadline.
    pub next_ms: Option<u64>,
}

/// An open question, and when this replica learnt of its record.
#[derive(Clone, Debug)]
struct Known {
    question: Arc<Question>,
    learnt_ms: u64,
}

/// The consoles and the open questions, as this replica knows them.
#[derive(Debug)]
pub struct DeskState {
    replica: ReplicaId,
    is_shared: bool,
    capacity: usize,
    open: BTreeMap<QuestionId, Known>,
    /// The last revisions of closed questions, the oldest first in `closed_order`.
    closed: HashMap<QuestionId, u64>,
    closed_order: VecDeque<QuestionId>,
    consoles: BTreeMap<ConsoleId, Console>,
    /// When the exchange with other replicas began that brought their consoles.
    exchanged_ms: Option<u64>,
    /// Since when consoles are missed that have a claim.
    missed_since: BTreeMap<ConsoleId, u64>,
    next_console: u64,
}

impl DeskState {
    pub fn new(replica: ReplicaId, is_shared: bool, capacity: usize) -> Self {
        Self {
            replica,
            is_shared,
            capacity,
            open: BTreeMap::new(),
            closed: HashMap::new(),
            closed_order: VecDeque::new(),
            consoles: BTreeMap::new(),
            exchanged_ms: None,
            missed_since: BTreeMap::new(),
            next_console: 1,
        }
    }

    /// A record from the store. Returns whether it is newer than what was known.
    pub fn put(&mut self, question: Arc<Question>, now: Now) -> bool {
        let id = question.id;
        let known = self.open.get(&id).map(|known| known.question.revision);
        let known = known.or_else(|| self.closed.get(&id).copied());
        if known.is_some_and(|revision| revision >= question.revision) {
            return false;
        }
        if !question.is_open() {
            self.forget(id, question.revision);
            return true;
        }
        if let QuestionState::Offered(offer) = &question.state
            && let Some(console) = self.consoles.get_mut(&offer.console)
        {
            console.offered_ms = now.mono_ms;
        }
        let learnt_ms = now.mono_ms;
        self.open.insert(id, Known { question, learnt_ms });
        true
    }

    /// The store has forgotten the question. Returns whether it was open here.
    pub fn remove(&mut self, id: QuestionId) -> bool {
        let was_open = self.open.contains_key(&id);
        self.forget(id, u64::MAX);
        was_open
    }

    /// Remembers that a question is closed.
    fn forget(&mut self, id: QuestionId, revision: u64) {
        self.open.remove(&id);
        if self.closed.insert(id, revision).is_none() {
            self.closed_order.push_back(id);
        }
        if self.closed_order.len() > CLOSED_REMEMBERED_MAX
            && let Some(oldest) = self.closed_order.pop_front()
        {
            self.closed.remove(&oldest);
        }
    }

    /// The open questions of the store, read at or after `asked`. Returns those that are news here, and those that are open
    /// here and no longer there.
    pub fn replace(
        &mut self,
        questions: Vec<Arc<Question>>,
        asked: Now,
        now: Now,
    ) -> (Vec<Arc<Question>>, Vec<QuestionId>) {
        let there: std::collections::HashSet<_> = questions.iter().map(|question| question.id).collect();
        let is_older = |known: &Known| known.learnt_ms < asked.mono_ms;
        let gone = self
            .open
            .iter()
            .filter(|(id, known)| !there.contains(id) && is_older(known));
        let gone: Vec<_> = gone.map(|(id, _)| *id).collect();
        let news = questions
            .into_iter()
            .filter(|question| self.put(Arc::clone(question), now));
        (news.collect(), gone)
    }

    /// The record of an open question.
    pub fn question(&self, id: QuestionId) -> Option<&Arc<Question>> {
        self.open.get(&id).map(|known| &known.question)
    }

    /// The open questions, by id.
    pub fn questions(&self) -> impl Iterator<Item = &Arc<Question>> {
        self.open.values().map(|known| &known.question)
    }

    /// Consoles of this replica.
    pub fn own_consoles(&self) -> impl Iterator<Item = &Console> {
        self.consoles
            .values()
            .filter(|console| console.id.replica == self.replica)
    }

    /// A person has connected a console here. Where the store is shared it takes questions from the next exchange on.
    pub fn attach(&mut self, human: SessionName, roles: Vec<String>, now: Now) -> ConsoleId {
        let id = ConsoleId {
            replica: self.replica,
            number: self.next_console,
        };
        self.next_console += 1;
        let console = Console {
            id,
            human,
            roles,
            is_paused: false,
            is_away: false,
            active_ms: now.mono_ms,
            offered_ms: 0,
            is_unproven: false,
            is_published: !self.is_shared,
        };
        self.consoles.insert(id, console);
        id
    }

    /// A console has left.
    pub fn detach(&mut self, console: ConsoleId) {
        self.consoles.remove(&console);
    }

    /// A person has done something at a console of this replica. Returns None for an unknown console, else whether the
    /// change matters to a plan or to readers.
    pub fn change(&mut self, id: ConsoleId, change: ConsoleChange, now: Now) -> Option<bool> {
        let console = self.consoles.get_mut(&id).filter(|_| id.replica == self.replica)?;
        let before = (console.is_paused, console.is_unproven, console.presence(now));
        console.is_unproven = change.is_unproven.unwrap_or(console.is_unproven);
        console.is_paused = change.is_paused.unwrap_or(console.is_paused);
        console.is_away = change.is_away.unwrap_or(console.is_away && !change.is_active);
        if change.is_active {
            console.active_ms = now.mono_ms;
        }
        Some(before != (console.is_paused, console.is_unproven, console.presence(now)))
    }

    /// A person has done something at any of their consoles. Returns whether that matters to a plan or to readers.
    pub fn person_active(&mut self, human: &SessionName, now: Now) -> bool {
        let own = self.own_consoles().filter(|console| console.human == *human);
        let own: Vec<_> = own.map(|console| console.id).collect();
        let active = ConsoleChange {
            is_active: true,
            ..ConsoleChange::default()
        };
        let changes = own
            .into_iter()
            .map(|console| self.change(console, active, now) == Some(true));
        changes.fold(false, |any, change| any | change)
    }

    /// The person at a console.
    pub fn human_at(&self, console: ConsoleId) -> Option<&SessionName> {
        self.consoles.get(&console).map(|console| &console.human)
    }

    /// The consoles of this replica for others.
    pub fn own_records(&self, now: Now) -> Vec<ConsoleRecord> {
        self.own_consoles().map(|console| console.to_record(now)).collect()
    }

    /// An exchange that began at `begun` with these own consoles has brought those of all replicas.
    pub fn exchanged(&mut self, published: &[ConsoleRecord], all: Vec<ConsoleRecord>, begun: Now, now: Now) {
        let own = self.replica;
        self.consoles.retain(|id, _| id.replica == own);
        let others = all.into_iter().filter(|record| record.id.replica != own);
        let others = others.map(|record| (record.id, Console::from_record(record, now)));
        self.consoles.extend(others);
        for record in published {
            if let Some(console) = self.consoles.get_mut(&record.id) {
                console.is_published = true;
            }
        }
        self.exchanged_ms = Some(begun.mono_ms);
    }

    /// Whether the consoles of other replicas were read within this time.
    pub fn is_exchange_within(&self, span: Duration, now: Now) -> bool {
        !self.is_shared || self.exchanged_ms.is_some_and(|at| now.since(at) <= span)
    }

    /// The place of a question that no console has, 1 first.
    pub fn position(&self, id: QuestionId) -> Option<usize> {
        let is_waiting = |question: &&Arc<Question>| question.state == QuestionState::Waiting;
        let own = self.question(id).filter(is_waiting)?;
        let before = self.questions().filter(is_waiting);
        let before = before.filter(|other| waiting_order(other) < waiting_order(own));
        Some(before.count() + 1)
    }

    /// The desk at a glance.
    pub fn summary(&self, now: Now) -> DeskSummary {
        let loads = Loads::of(self.questions().map(|question| &**question));
        let mut summary = DeskSummary {
            oldest_asked_ms: self.open.keys().next().map(|id| id.created_ms()),
            consoles: self
                .consoles
                .values()
                .map(|console| view(console, &loads, now))
                .collect(),
            ..DeskSummary::default()
        };
        for question in self.questions() {
            match question.state {
                QuestionState::Offered(_) => summary.offered += 1,
                QuestionState::Claimed(_) => summary.claimed += 1,
                _ => summary.waiting += 1,
            }
            summary.high += usize::from(question.urgency == Urgency::High);
        }
        summary
    }

    /// Whether this console is known to be gone. Of another replica that is known only from an exchange that began after
    /// the record was learnt which names the console.
    fn is_gone(&self, console: ConsoleId, learnt_ms: u64) -> bool {
        if self.consoles.contains_key(&console) {
            return false;
        }
        let is_known_here = console.replica == self.replica || !self.is_shared;
        is_known_here || self.exchanged_ms.is_some_and(|at| at > learnt_ms)
    }

    /// What is to be done at this moment.
    pub fn plan(&mut self, now: Now) -> Plan {
        let mut planning = Planning::new(now);
        self.note_missed(now);
        for known in self.open.values() {
            self.plan_held(known, &mut planning);
        }
        // What a console gives back takes its old place in the order before anything is offered.
        if !planning.gives_back {
            self.plan_offers(&mut planning);
        }
        let idle = self.consoles.values().filter_map(|console| console.idle_from_ms(now));
        idle.for_each(|at| planning.look_at(at));
        planning.plan
    }

    /// Notes since when consoles with claims are missed, and forgets the others.
    fn note_missed(&mut self, now: Now) {
        let claims = self.open.values().filter(|known| known.question.claim().is_some());
        let missed = claims.filter_map(|known| Some((known.question.console()?, known.learnt_ms)));
        let missed: Vec<_> = missed
            .filter(|(console, learnt_ms)| self.is_gone(*console, *learnt_ms))
            .map(|(console, _)| console)
            .collect();
        self.missed_since.retain(|console, _| missed.contains(console));
        for console in missed {
            self.missed_since.entry(console).or_insert(now.mono_ms);
        }
    }

    /// Expiry, the end of a claim, and what becomes of a question whose console is gone.
    fn plan_held(&self, known: &Known, planning: &mut Planning) {
        let (now, question) = (planning.now, &known.question);
        if let Some(end) = question.expires_next_ms() {
            if end <= now.unix_ms {
                planning.plan.effects.push(Effect::Expire(Arc::clone(question)));
                return;
            }
            planning.look_at(now.mono_at(end));
        }
        if let Some(at) = question.expiry_warning_ms() {
            if at <= now.unix_ms {
                planning.plan.effects.push(Effect::WarnOfExpiry(Arc::clone(question)));
                return;
            }
            planning.look_at(now.mono_at(at));
        }
        match &question.state {
            QuestionState::Offered(offer) => {
                let console = self.consoles.get(&offer.console);
                let is_away = console.is_some_and(|console| console.is_away);
                if is_away || self.is_gone(offer.console, known.learnt_ms) {
                    planning.take_back(question, offer.console);
                } else if offer.until_ms > now.unix_ms {
                    planning.look_at(now.mono_at(offer.until_ms));
                }
            }
            QuestionState::Claimed(claim) => {
                if claim.until_ms <= now.unix_ms {
                    planning.gives_back = true;
                    planning.plan.effects.push(Effect::EndClaim(Arc::clone(question)));
                    return;
                }
                planning.look_at(now.mono_at(claim.until_ms));
                let Some((console, since)) = claim
                    .console
                    .and_then(|console| Some((console, *self.missed_since.get(&console)?)))
                else {
                    return;
                };
                let of_same = self.consoles.values().filter(|other| other.human == claim.human);
                if let Some(other) = Loads::default().choose(of_same, usize::MAX, now) {
                    if other.id.replica == self.replica {
                        planning.plan.effects.push(Effect::MoveClaim {
                            question: Arc::clone(question),
                            human: claim.human.clone(),
                            console: other.id,
                        });
                    }
                    return;
                }
                let until = since.saturating_add(millis(CLAIM_KEPT_FOR));
                if until <= now.mono_ms {
                    planning.take_back(question, console);
                } else {
                    planning.look_at(until);
                }
            }
            QuestionState::Waiting | QuestionState::Closed(_) => {}
        }
    }

    /// Offers the waiting questions in their order, and offers those to another console that one has had for too long.
    fn plan_offers(&self, planning: &mut Planning) {
        if self.own_consoles().next().is_none() {
            return;
        }
        let now = planning.now;
        let mut loads = Loads::of(self.questions().map(|question| &**question));
        let is_live = |question: &&Arc<Question>| question.expires_next_ms().is_none_or(|end| end > now.unix_ms);
        let mut waiting: Vec<_> = self
            .questions()
            .filter(|question| question.state == QuestionState::Waiting)
            .filter(is_live)
            .collect();
        waiting.sort_unstable_by_key(|question| waiting_order(question));
        for question in waiting {
            let console = loads.choose(eligible(question, &self.consoles), self.capacity, now);
            if let Some(console) = console {
                loads.offer(console.id);
                self.offer(question, console, planning);
            }
        }
        let mut stale: Vec<_> = self
            .questions()
            .filter(
                |question| matches!(&question.state, QuestionState::Offered(offer) if offer.until_ms <= now.unix_ms),
            )
            .filter(is_live)
            .collect();
        stale.sort_unstable_by_key(|question| waiting_order(question));
        for question in stale {
            let before = question.console();
            let others = eligible(question, &self.consoles)
                .into_iter()
                .filter(|console| Some(console.id) != before && console.presence(now) == Presence::Present);
            if let Some(console) = loads.choose(others, self.capacity, now) {
                if let Some(before) = before {
                    loads.take(before);
                }
                loads.offer(console.id);
                self.offer(question, console, planning);
            }
        }
    }

    fn offer(&self, question: &Arc<Question>, console: &Console, planning: &mut Planning) {
        if console.id.replica == self.replica {
            planning.plan.effects.push(Effect::Offer {
                question: Arc::clone(question),
                console: console.id,
                human: console.human.clone(),
            });
        }
    }

    /// People with this presence at the consoles of this replica.
    pub fn own_humans(&self, presence: Presence, now: Now) -> usize {
        let mut own: BTreeMap<ConsoleId, Console> = BTreeMap::new();
        for console in self.own_consoles() {
            own.insert(console.id, console.clone());
        }
        let best = |human: &&SessionName| {
            let of_human = own.values().filter(|console| console.human == **human);
            of_human.map(|console| console.presence(now)).min() == Some(presence)
        };
        humans(&own).into_iter().filter(best).count()
    }
}

/// A plan in the making.
struct Planning {
    now: Now,
    plan: Plan,
    /// A question loses its console in this plan.
    gives_back: bool,
}

impl Planning {
    fn new(now: Now) -> Self {
        Self {
            now,
            plan: Plan::default(),
            gives_back: false,
        }
    }

    /// Looks again at this moment of the monotonic clock.
    fn look_at(&mut self, at_ms: u64) {
        let next = self.plan.next_ms.get_or_insert(at_ms);
        *next = (*next).min(at_ms);
    }

    fn take_back(&mut self, question: &Arc<Question>, console: ConsoleId) {
        self.gives_back = true;
        let question = Arc::clone(question);
        self.plan.effects.push(Effect::TakeBack { question, console });
    }
}

fn view(console: &Console, loads: &Loads, now: Now) -> ConsoleView {
    ConsoleView {
        id: console.id,
        human: console.human.clone(),
        roles: console.roles.clone(),
        presence: console.presence(now),
        is_paused: console.is_paused,
        open: loads.open(console.id),
    }
}

#[cfg(test)]
mod tests;
