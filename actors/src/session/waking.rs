//! When an agent is woken because messages wait for it. Pure: the actor reads the inbox, tells the client and sets the
//! timer.
//!
//! A message that nothing takes for [`GRACE_MS`] asks for a wake. One wake is for all waiting messages: until the agent
//! reads its inbox only a more urgent message asks for another one, and the wake is repeated after [`REPEATS_MS`]. The
//! connection of the agent gets it first, if its client can be reached; a hook that waits gets it where that fails.

use std::collections::{HashMap, HashSet};

use crate::{
    clock::Now,
    metrics::WakeHold,
    model::{MailSummary, Priority, SessionId, Wake, WakeFor, WakePreference, WakeReason, WakeResult},
};

/// How long a message waits before it asks for a wake: a program that reads its inbox is not woken.
pub(super) const GRACE_MS: u64 = 300;
/// The pauses after which a wake is repeated while nothing is read.
const REPEATS_MS: [u64; 3] = [2 * MINUTE_MS, 10 * MINUTE_MS, 60 * MINUTE_MS];
/// How long the connection has for its answer to a wake.
const ANSWER_MS: u64 = 10_000;
/// The longest turn that a wake begins, where the client does not tell its end.
const TURN_MS: u64 = 10 * MINUTE_MS;
/// A message with more hops wakes no agent: agents that answer each other come to rest.
const WAKE_HOPS_MAX: u64 = 16;
/// Wakes in an hour that the messages of one sender cause.
const WAKES_OF_SENDER_MAX: u32 = 30;
/// Senders whose wakes are counted.
const SENDERS_MAX: usize = 256;
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// Messages of an inbox that a decision looks at.
pub(super) const PEEK_MAX: usize = 20;
/// Bytes of their envelopes that are read from a store outside this process.
pub(super) const PEEK_BYTES_MAX: usize = 256 * 1024;

/// The decisions about the wakes of one session.
#[derive(Debug, Default)]
pub(super) struct Waking {
    preference: WakePreference,
    /// A push subscription or a call of `receive_messages` takes what comes.
    is_attentive: bool,
    ways: Ways,
    /// When the inbox is looked at, on the monotonic clock.
    due_ms: Option<u64>,
    /// The inbox is being read.
    is_peeking: bool,
    /// The wake that nothing was read after.
    unread_wake: Option<UnreadWake>,
    /// The wake that the connection has not answered.
    attempt: Option<Attempt>,
    /// The number of one that the connection has not answered, and whose agent has read its inbox already.
    read_before_answer: Option<u64>,
    /// When the last wake was sent, on the monotonic clock.
    last_ms: Option<u64>,
    last_number: u64,
    senders: HashMap<SessionId, SenderWakes>,
}

/// The ways in which the agent can be reached now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ways {
    /// The live connection names ways of its own.
    pub connection: bool,
    /// A hook of the client waits.
    pub hook: bool,
}

/// A wake after which nothing was read.
#[derive(Debug)]
struct UnreadWake {
    at_ms: u64,
    /// One of its messages was urgent.
    is_urgent: bool,
    /// How often it was repeated.
    repeats: usize,
    /// A message came after it.
    has_later: bool,
    /// No client took it.
    has_failed: bool,
}

/// A wake that was sent to the connection.
#[derive(Debug)]
struct Attempt {
    wake: Wake,
    hops: u64,
    until_ms: u64,
}

/// The wakes that the messages of a sender caused.
#[derive(Clone, Copy, Debug)]
struct SenderWakes {
    since_ms: u64,
    len: u32,
}

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    /// A message may wait.
    Arrived,
    /// The agent says when it may be woken.
    Prefers(WakePreference),
    /// Something takes what comes, or nothing does.
    Attends { is_attentive: bool },
    /// The ways in which the agent can be reached have changed.
    WaysChanged(Ways),
    /// The agent was given messages, and so many still wait.
    Read { waiting: usize },
    /// The timer went off.
    TimerFired,
    /// The inbox was read.
    Peeked(Unread),
    /// The inbox could not be read.
    PeekFailed,
    /// The hook that waited has left without a wake.
    HookGone,
    /// The connection has answered a wake.
    Answered { number: u64, result: WakeResult },
}

/// The waiting messages of the inbox.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// All messages that wait.
    pub len: usize,
    /// The first of them, at most [`PEEK_MAX`].
    pub first: Vec<UnreadMessage>,
}

/// A message that waits.
#[derive(Clone, Debug)]
pub(super) struct UnreadMessage {
    pub sender: SessionId,
    /// Name of the sender, or its id.
    pub sender_name: String,
    pub protocol: String,
    pub priority: Priority,
    pub hops: u64,
    /// Milliseconds since the Unix epoch.
    pub accepted_ms: u64,
}

/// What the actor has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Read the waiting messages, for [`Event::Peeked`].
    Peek,
    /// Tell the connection.
    TellConnection { wake: Wake, turn: Turn },
    /// Answer the hook that waits.
    TellHook { wake: Wake, turn: Turn },
    /// Count that messages wait and wake no agent.
    Hold(WakeHold),
    /// Count how long after its wake the agent has read its inbox.
    ReadAfterWake { ms: u64 },
}

/// The turn that a wake begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// The hops of what the agent sends in it.
    pub hops: u64,
    /// Its end on the monotonic clock, where the client does not tell it.
    pub until_ms: u64,
}

impl Waking {
    /// The state for an agent that may be woken when it prefers to.
    pub fn new(preference: WakePreference) -> Self {
        Self {
            preference,
            ..Self::default()
        }
    }

    /// Whether new messages are to be reported: the agent can be reached, and nothing takes them.
    pub fn wants_arrivals(&self) -> bool {
        self.can_wake() && !self.is_attentive
    }

    /// Whether something takes what comes.
    pub fn is_attentive(&self) -> bool {
        self.is_attentive
    }

    /// The ways in which the agent can be reached.
    pub fn ways(&self) -> Ways {
        self.ways
    }

    /// Whether this wake was sent to the connection, which has not answered. The agent may have read its inbox meanwhile.
    pub fn awaits_answer(&self, number: u64) -> bool {
        let attempted = self.attempt.as_ref().map(|attempt| attempt.wake.number);
        [attempted, self.read_before_answer].contains(&Some(number))
    }

    /// When [`Event::TimerFired`] is to come, on the monotonic clock.
    pub fn timer_ms(&self) -> Option<u64> {
        let answer = self.attempt.as_ref().map(|attempt| attempt.until_ms);
        let look = self.due_ms.filter(|_| self.wants_arrivals() && !self.is_peeking);
        match (answer, look) {
            (Some(answer), Some(look)) => Some(answer.min(look)),
            (answer, look) => answer.or(look),
        }
    }

    /// Takes note of an event.
    pub fn on(&mut self, event: Event, now: Now) -> Option<Effect> {
        match event {
            Event::Arrived => self.arrived(now),
            Event::Prefers(preference) => {
                self.preference = preference;
                self.look_within(GRACE_MS, now);
            }
            Event::Attends { is_attentive } => {
                self.is_attentive = is_attentive;
                if !is_attentive {
                    self.look_within(GRACE_MS, now);
                }
            }
            Event::WaysChanged(ways) => self.ways_changed(ways, now),
            Event::Read { waiting } => return self.read(waiting, now),
            Event::TimerFired => return self.timer_fired(now),
            Event::Peeked(unread) => {
                self.is_peeking = false;
                return self.decide(&unread, now);
            }
            Event::PeekFailed => {
                self.is_peeking = false;
                self.look_within(ANSWER_MS, now);
            }
            Event::HookGone => {
                self.ways.hook = false;
                self.note_failure();
            }
            Event::Answered { number, result } => return self.answered(number, result, now),
        }
        None
    }

    fn can_wake(&self) -> bool {
        (self.ways.connection || self.ways.hook) && self.preference.wakes_for != WakeFor::Never
    }

    /// Lets the inbox be looked at after this time, or earlier if that was due.
    fn look_within(&mut self, ms: u64, now: Now) {
        let due = now.mono_ms + ms;
        self.due_ms = Some(self.due_ms.map_or(due, |before| before.min(due)));
    }

    fn arrived(&mut self, now: Now) {
        if let Some(unread) = &mut self.unread_wake {
            unread.has_later = true;
        }
        if self.wants_arrivals() {
            self.look_within(GRACE_MS, now);
        }
    }

    fn ways_changed(&mut self, ways: Ways, now: Now) {
        let is_new = ways.connection && !self.ways.connection || ways.hook && !self.ways.hook;
        self.ways = ways;
        if !ways.connection && self.attempt.take().is_some() {
            self.note_failure();
        }
        if is_new {
            // What no client took before is sent to this one.
            self.unread_wake.take_if(|unread| unread.has_failed);
            self.look_within(GRACE_MS, now);
        }
    }

    fn read(&mut self, waiting: usize, now: Now) -> Option<Effect> {
        self.read_before_answer = self.attempt.take().map(|attempt| attempt.wake.number);
        self.due_ms = (waiting > 0).then(|| now.mono_ms + REPEATS_MS[0]);
        let unread = self.unread_wake.take()?;
        let ms = now.mono_ms.saturating_sub(unread.at_ms);
        Some(Effect::ReadAfterWake { ms })
    }

    fn timer_fired(&mut self, now: Now) -> Option<Effect> {
        if let Some(attempt) = self.attempt.take_if(|attempt| attempt.until_ms <= now.mono_ms) {
            return self.fall_back(attempt, now);
        }
        let is_due = self.due_ms.is_some_and(|due| due <= now.mono_ms);
        if !is_due || self.is_peeking || !self.wants_arrivals() {
            return None;
        }
        self.due_ms = None;
        self.is_peeking = true;
        Some(Effect::Peek)
    }

    fn answered(&mut self, number: u64, result: WakeResult, now: Now) -> Option<Effect> {
        self.read_before_answer.take_if(|read| *read == number);
        let attempt = self.attempt.take_if(|attempt| attempt.wake.number == number)?;
        if result == WakeResult::Written {
            return None;
        }
        self.fall_back(attempt, now)
    }

    /// The connection has not reached the client: a hook that waits gets the wake.
    fn fall_back(&mut self, attempt: Attempt, now: Now) -> Option<Effect> {
        if !self.ways.hook {
            self.note_failure();
            return None;
        }
        let turn = Turn::of(attempt.hops, now);
        self.last_ms = Some(now.mono_ms);
        Some(Effect::TellHook {
            wake: attempt.wake,
            turn,
        })
    }

    fn note_failure(&mut self) {
        if let Some(unread) = &mut self.unread_wake {
            unread.has_failed = true;
        }
    }

    /// Whether the waiting messages ask for a wake now.
    fn decide(&mut self, unread: &Unread, now: Now) -> Option<Effect> {
        if unread.len == 0 {
            self.unread_wake = None;
            return None;
        }
        if !self.wants_arrivals() {
            return None;
        }
        let wakers = match self.wakers(unread, now) {
            Ok(wakers) => wakers,
            Err(hold) => {
                if let Some(ms) = self.held_for(hold, unread, now) {
                    self.look_within(ms, now);
                }
                return Some(Effect::Hold(hold));
            }
        };
        let interval_ms = u64::from(self.preference.min_interval_seconds) * 1000;
        if let Some(next) = self
            .last_ms
            .map(|last| last + interval_ms)
            .filter(|next| *next > now.mono_ms)
        {
            self.look_within(next - now.mono_ms, now);
            return None;
        }
        let is_urgent = wakers.iter().any(|message| message.priority == Priority::Urgent);
        let repeats = match &self.unread_wake {
            None => 0,
            Some(before) if is_urgent && !before.is_urgent => 0,
            Some(before) => match REPEATS_MS.get(before.repeats) {
                Some(pause) if before.at_ms + pause > now.mono_ms => {
                    let left = before.at_ms + pause - now.mono_ms;
                    self.look_within(left, now);
                    return None;
                }
                Some(_) => before.repeats + 1,
                None if before.has_later => 0,
                None => return None,
            },
        };
        Some(self.wake(unread, &wakers, is_urgent, repeats, now))
    }

    /// The messages that ask for a wake.
    ///
    /// # Errors
    /// What holds the first of them back, when there is none.
    fn wakers(&self, unread: &Unread, now: Now) -> Result<Vec<UnreadMessage>, WakeHold> {
        let is_quiet = self
            .preference
            .quiet
            .is_some_and(|quiet| quiet.left_ms(now.unix_ms).is_some());
        let hold = |message: &UnreadMessage| {
            if !self.preference.wakes_for.allows(message.priority) {
                Some(WakeHold::Preference)
            } else if message.hops > WAKE_HOPS_MAX {
                Some(WakeHold::HopLimit)
            } else if is_quiet && message.priority != Priority::Urgent {
                Some(WakeHold::Quiet)
            } else if self.sender_left_ms(message.sender, now).is_some() {
                Some(WakeHold::SenderRate)
            } else {
                None
            }
        };
        let wakers: Vec<_> = unread
            .first
            .iter()
            .filter(|message| hold(message).is_none())
            .cloned()
            .collect();
        if wakers.is_empty() {
            // Messages that could not be read are too long to be distinguished: they wake as others do.
            return match unread.first.iter().find_map(hold) {
                Some(hold) => Err(hold),
                None => Ok(wakers),
            };
        }
        Ok(wakers)
    }

    /// After how many milliseconds messages that are held back may wake the agent; None for those that never do.
    fn held_for(&self, hold: WakeHold, unread: &Unread, now: Now) -> Option<u64> {
        match hold {
            WakeHold::HopLimit | WakeHold::Preference => None,
            WakeHold::Quiet => self.preference.quiet.and_then(|quiet| quiet.left_ms(now.unix_ms)),
            WakeHold::SenderRate => unread
                .first
                .iter()
                .filter_map(|message| self.sender_left_ms(message.sender, now))
                .min(),
        }
    }

    /// How long the messages of this sender wake no agent; None if they do.
    fn sender_left_ms(&self, sender: SessionId, now: Now) -> Option<u64> {
        let wakes = self.senders.get(&sender)?;
        let left = (wakes.since_ms + HOUR_MS).checked_sub(now.mono_ms)?;
        (wakes.len >= WAKES_OF_SENDER_MAX && left > 0).then_some(left)
    }

    fn wake(&mut self, unread: &Unread, wakers: &[UnreadMessage], is_urgent: bool, repeats: usize, now: Now) -> Effect {
        let senders: HashSet<_> = wakers.iter().map(|message| message.sender).collect();
        for sender in senders {
            self.count_sender(sender, now);
        }
        let first_ms = self
            .unread_wake
            .as_ref()
            .filter(|_| repeats > 0)
            .map(|before| before.at_ms);
        let at_ms = first_ms.unwrap_or(now.mono_ms);
        self.unread_wake = Some(UnreadWake {
            at_ms,
            is_urgent,
            repeats,
            has_later: false,
            has_failed: false,
        });
        if let Some(pause) = REPEATS_MS.get(repeats) {
            self.due_ms = Some(at_ms + pause);
        }
        self.last_ms = Some(now.mono_ms);
        self.last_number += 1;
        let wake = Wake {
            number: self.last_number,
            mail: unread.summary(now),
            reason: WakeReason::Message,
        };
        let hops = wakers.iter().map(|message| message.hops).max().unwrap_or(0);
        let turn = Turn::of(hops, now);
        if !self.ways.connection {
            return Effect::TellHook { wake, turn };
        }
        self.attempt = Some(Attempt {
            wake: wake.clone(),
            hops,
            until_ms: now.mono_ms + ANSWER_MS,
        });
        Effect::TellConnection { wake, turn }
    }

    /// Counts a wake that messages of this sender cause.
    fn count_sender(&mut self, sender: SessionId, now: Now) {
        if self.senders.len() >= SENDERS_MAX && !self.senders.contains_key(&sender) {
            let oldest = self
                .senders
                .iter()
                .min_by_key(|(_, wakes)| wakes.since_ms)
                .map(|(id, _)| *id);
            oldest.map(|id| self.senders.remove(&id));
        }
        let new = SenderWakes {
            since_ms: now.mono_ms,
            len: 0,
        };
        let wakes = self.senders.entry(sender).or_insert(new);
        if wakes.since_ms + HOUR_MS <= now.mono_ms {
            *wakes = new;
        }
        wakes.len += 1;
    }
}

impl Turn {
    fn of(hops: u64, now: Now) -> Self {
        Self {
            hops: hops + 1,
            until_ms: now.mono_ms + TURN_MS,
        }
    }
}

impl Unread {
    /// The waiting messages, in a few words.
    pub fn summary(&self, now: Now) -> MailSummary {
        let mut mail = MailSummary::default();
        let mut oldest_ms = now.unix_ms;
        for message in &self.first {
            mail.add(&message.sender_name, &message.protocol, message.priority);
            oldest_ms = oldest_ms.min(message.accepted_ms);
        }
        mail.unread = self.len;
        mail.oldest_seconds = (now.unix_ms - oldest_ms) / 1000;
        mail
    }
}

#[cfg(test)]
mod tests;
