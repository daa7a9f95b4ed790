//! Decides what a registration does, from what the directory knows: which session it is about, the record to store, and
//! which sessions it ends or leaves. Pure: the project's actor gathers the facts, stores the record and applies the plan.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::{
    model::{
        ALIASES_LEN_MAX, AUTOMATIC_NAME, BrokerError, Capabilities, HUMAN_KIND, Holder, Owner, SessionId, SessionName,
        SessionRecord, WakePreference, is_name_automatic,
    },
    session::{Connection, Member},
};

/// A request to register a session.
#[derive(Clone, Default)]
pub struct Registration {
    /// None: a session without a name, or the caller's own.
    pub name: Option<SessionName>,
    /// The aliases of the session; None: unchanged, or none for a new session.
    pub aliases: Option<Vec<SessionName>>,
    /// None: unchanged, or none at all for a new session.
    pub capabilities: Option<Capabilities>,
    /// None: unchanged, or empty for a new session.
    pub metadata: Option<Map<String, Value>>,
    /// None: unchanged, or any time for a new session.
    pub wake: Option<WakePreference>,
    /// The caller. It becomes the owner of a new session.
    pub owner: Owner,
    /// The session that the caller has so far.
    pub current: Option<SessionId>,
    /// The caller's lasting connection, if it has one.
    pub connection: Option<Arc<dyn Connection>>,
    /// The agent of this name is not here: a sender expects it, or a program sends as it and goes. A new session is
    /// disconnected from the start, and one that the caller could take stays as it is.
    pub is_absent: bool,
    /// With `is_absent`: a program sends as it, and awaits no answer to what it sends. A new session ends soon.
    pub only_sends: bool,
}

/// The answer to a registration.
pub struct Registered {
    /// The registered session.
    pub member: Arc<Member>,
    /// The session existed before, with its inbox.
    pub resumed: bool,
    /// The name that the session had, if it has another one now.
    pub former_name: Option<SessionName>,
    /// The session was active before this registration.
    pub was_active: bool,
    /// The time since the last heartbeat before this registration; None for a new session.
    pub silence: Option<Duration>,
}

/// How often a registration is tried again when another replica was faster.
const TRIES_MAX: usize = 8;

/// A registration, and where its answer goes.
pub(super) struct Attempt {
    pub registration: Registration,
    /// How often it may still be repeated when the store knows more than the directory.
    pub tries: usize,
    /// Whether nothing is in the inbox that the caller would leave; None before the store was asked.
    pub leaves_empty: Option<bool>,
    reply: oneshot::Sender<Result<Registered, BrokerError>>,
}

impl Attempt {
    /// The first try.
    pub fn new(registration: Registration, reply: oneshot::Sender<Result<Registered, BrokerError>>) -> Self {
        Self {
            registration,
            tries: TRIES_MAX,
            leaves_empty: None,
            reply,
        }
    }

    /// The registration, once it is known whether the caller leaves an empty inbox.
    pub fn leaving(self, is_empty: bool) -> Self {
        Self {
            leaves_empty: Some(is_empty),
            ..self
        }
    }

    /// The next try of the same registration.
    pub fn repeated(self) -> Self {
        Self {
            tries: self.tries.saturating_sub(1),
            ..self
        }
    }

    /// Answers the caller.
    pub fn answer(self, answer: Result<Registered, BrokerError>) {
        // A caller that has gone wants no answer.
        let _ = self.reply.send(answer);
    }
}

/// A living session of the directory, as far as a registration depends on it.
#[derive(Clone, Debug)]
pub(super) struct Candidate<'a> {
    pub record: &'a SessionRecord,
    /// Its owner is a key whose rotation chain has no valid key left: no caller can act as it.
    pub is_orphaned: bool,
}

/// What the directory knows when the registration arrives.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    /// The session that the caller says it has.
    pub current: Option<Candidate<'a>>,
    /// The session that has the wanted name; for a name that a front has chosen, also as an alias.
    pub holder: Option<Candidate<'a>>,
    /// Nothing is in the inbox of `current`, and it asks nothing.
    pub leaves_empty: bool,
    /// Sessions of the project.
    pub sessions_len: usize,
    /// Sessions of the project, at most.
    pub sessions_max: usize,
    /// Milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// What a registration does.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The record to store.
    pub record: SessionRecord,
    /// The session exists: its inbox stays.
    pub resumes: bool,
    /// The session is the caller's own: the caller keeps what was delivered to it.
    pub renews: bool,
    /// The orphaned session that has to end before the record takes its name.
    pub evicts: Option<SessionId>,
    /// The session that the caller leaves for this one.
    pub leaves: Option<SessionId>,
    /// It ends, because its front has named it and nothing is in it: its name becomes an alias of this one.
    pub merges: bool,
    /// The name that the caller had before, and that now is an alias.
    pub renames: Option<SessionName>,
}

impl Registration {
    /// Decides what this registration does.
    ///
    /// The session is the holder of the name; otherwise the caller's own, if it can take the name; otherwise a new one. A
    /// session takes a name if it has none, if its front has chosen the one that it has, and if the name is its alias.
    ///
    /// # Errors
    /// `forbidden` for a name that another owner or a person holds, and for a new session beyond the maximum;
    /// `invalid_argument` for aliases without a name.
    pub(super) fn plan(&self, facts: &Facts<'_>) -> Result<Plan, BrokerError> {
        let is_own = |candidate: &&Candidate<'_>| self.may_own(candidate.record);
        // A session of another owner counts as missing.
        let current = facts.current.as_ref().filter(is_own);
        let evicted = facts
            .holder
            .as_ref()
            .filter(|holder| holder.is_orphaned && !is_own(holder));
        let holder = facts.holder.as_ref().filter(|_| evicted.is_none());
        let can_take_the_name = |own: &&Candidate<'_>| {
            let Candidate { record, .. } = own;
            let is_replaced = record.name.is_none() || is_name_automatic(&record.metadata);
            self.name
                .as_ref()
                .is_none_or(|name| is_replaced || record.aliases.contains(name))
        };
        let subject = holder.or_else(|| current.filter(can_take_the_name));
        let renews = subject.is_some_and(|subject| current.is_some_and(|own| own.record.id == subject.record.id));
        let record = match subject {
            Some(subject) if !is_own(&subject) => {
                let text = "the name belongs to a session of another key: choose another";
                return Err(BrokerError::forbidden(text));
            }
            Some(subject) if subject.record.is_human() && !self.is_of_human() => {
                return Err(BrokerError::forbidden("the name is that of a person: choose another"));
            }
            Some(subject) => self.renewed(subject, renews),
            None if facts.sessions_len >= facts.sessions_max => return Err(too_many_sessions(facts.sessions_max)),
            None => self.new_record(facts.now_ms),
        };
        // Nothing can resume a session without a name, so its aliases would lead nowhere once it has left.
        if record.name.is_none() && !record.aliases.is_empty() {
            return Err(BrokerError::invalid(
                "aliases",
                "only a session with a name has aliases: give a name",
            ));
        }
        let id_of = |candidate: &Candidate<'_>| candidate.record.id;
        let merged =
            current.filter(|own| facts.leaves_empty && self.may_merge(own.record, subject.map(|to| to.record)));
        let mut record = record;
        if let Some(merged) = merged {
            add_aliases(&mut record, merged.record.names());
        }
        let before = merged.or(subject).and_then(|session| session.record.name.clone());
        Ok(Plan {
            resumes: subject.is_some(),
            renews,
            evicts: evicted.map(id_of),
            leaves: current.map(id_of).filter(|id| *id != record.id),
            merges: merged.is_some(),
            renames: before.filter(|before| record.name.as_ref() != Some(before)),
            record,
        })
    }

    /// Whether the session that the caller has may end in favour of the one that it registers: its front has named it, and
    /// the other one exists.
    pub(super) fn may_merge(&self, current: &SessionRecord, holder: Option<&SessionRecord>) -> bool {
        let is_other = holder.is_some_and(|holder| holder.id != current.id && self.may_own(holder));
        is_other && self.may_own(current) && is_name_automatic(&current.metadata)
    }

    /// Whether a person registers, and not an agent.
    fn is_of_human(&self) -> bool {
        let kind = self.metadata.as_ref().and_then(|metadata| metadata.get("kind"));
        kind.is_some_and(|kind| kind == HUMAN_KIND)
    }

    /// Whether a front has chosen the name.
    pub(super) fn is_name_automatic(&self) -> bool {
        self.metadata.as_ref().is_some_and(is_name_automatic)
    }

    /// Whether a session that has the wanted name stays as it is: its agent is not here, or is another than the caller.
    pub(super) fn leaves_alone(&self, holder: &SessionRecord) -> bool {
        let is_kept_longer = holder.holder.only_sends && !self.only_sends;
        self.is_absent && (self.owner.is_unclaimed() || holder.owner == self.owner && !is_kept_longer)
    }

    /// Whether the caller is the owner of a session, or may become it.
    pub(super) fn may_own(&self, record: &SessionRecord) -> bool {
        record.owner == self.owner || record.owner.is_unclaimed()
    }

    fn renewed(&self, subject: &Candidate<'_>, renews: bool) -> SessionRecord {
        let before = subject.record;
        let is_found_by_alias =
            self.is_name_automatic() && self.name.as_ref().is_some_and(|name| before.aliases.contains(name));
        let wanted = self.name.clone().filter(|_| !is_found_by_alias);
        let name = wanted.or_else(|| before.name.clone());
        let aliases = other_names(self.aliases.as_ref().unwrap_or(&before.aliases), name.as_ref());
        let mut record = SessionRecord {
            id: before.id,
            aliases,
            name,
            capabilities: self
                .capabilities
                .clone()
                .map_or_else(|| Arc::clone(&before.capabilities), Arc::new),
            metadata: self.renewed_metadata(before),
            connected_at_ms: before.connected_at_ms,
            owner: self.owner.clone(),
            holder: self.next_holder(before, renews),
            wake: self.wake.unwrap_or(before.wake),
        };
        add_aliases(&mut record, before.name.iter());
        record
    }

    /// A name that an agent has chosen stays its choice when a front registers it, and one of a front stays so until the
    /// agent chooses one.
    fn renewed_metadata(&self, before: &SessionRecord) -> Map<String, Value> {
        let mut metadata = self.metadata.clone().unwrap_or_else(|| before.metadata.clone());
        let was_automatic = before.name.is_none() || before.holder.only_sends || is_name_automatic(&before.metadata);
        let is_automatic = match &self.name {
            Some(_) => self.is_name_automatic() && was_automatic,
            None => is_name_automatic(&before.metadata),
        };
        if is_automatic {
            metadata.insert(AUTOMATIC_NAME.to_owned(), Value::Bool(true));
        } else {
            metadata.remove(AUTOMATIC_NAME);
        }
        metadata
    }

    fn new_record(&self, now_ms: u64) -> SessionRecord {
        let mut record = SessionRecord {
            id: SessionId::generate(),
            name: self.name.clone(),
            aliases: other_names(self.aliases.as_deref().unwrap_or_default(), self.name.as_ref()),
            capabilities: Arc::new(self.capabilities.clone().unwrap_or_default()),
            metadata: self.metadata.clone().unwrap_or_default(),
            connected_at_ms: now_ms,
            owner: self.owner.clone(),
            holder: Holder::default(),
            wake: self.wake.unwrap_or_default(),
        };
        record.holder = Holder {
            only_sends: self.is_absent && self.only_sends,
            ..self.next_holder(&record, false)
        };
        record
    }

    /// The holder after a registration. A caller that renews its own session stays the holder; another one gets another
    /// incarnation, so that the id of the one before acts no longer.
    fn next_holder(&self, before: &SessionRecord, renews: bool) -> Holder {
        let stays = renews && before.holder.incarnation != 0;
        Holder {
            incarnation: if stays {
                before.holder.incarnation
            } else {
                before.new_incarnation()
            },
            by_id: self.connection.is_none() || (renews && before.holder.by_id),
            only_sends: false,
        }
    }
}

/// The aliases, each once, without the name.
fn other_names(aliases: &[SessionName], name: Option<&SessionName>) -> Vec<SessionName> {
    let mut others = Vec::with_capacity(aliases.len());
    for alias in aliases {
        if Some(alias) != name && !others.contains(alias) {
            others.push(alias.clone());
        }
    }
    others
}

/// Adds names that lead to the session. Those that it chose first give way beyond the bound.
fn add_aliases<'a>(record: &mut SessionRecord, names: impl Iterator<Item = &'a SessionName>) {
    for name in names {
        if record.name.as_ref() != Some(name) && !record.aliases.contains(name) {
            record.aliases.truncate(ALIASES_LEN_MAX - 1);
            record.aliases.push(name.clone());
        }
    }
}

/// The refusal of a name or an alias that another session has.
pub(super) fn address_taken(address: &SessionName, holder: &SessionRecord) -> BrokerError {
    let who = match &holder.name {
        Some(name) => format!("`{name}`"),
        None => format!("{}", holder.id),
    };
    BrokerError::forbidden(format!(
        "`{address}` is an address of the session {who}: choose another, or ask that session to register without it"
    ))
}

/// The refusal of a session beyond the maximum of the project.
pub(super) fn too_many_sessions(max: usize) -> BrokerError {
    BrokerError::forbidden(format!(
        "the project has its maximum of {max} sessions (max_sessions of the project, else sessions_max of the broker): \
         one must leave first"
    ))
}

/// The refusal of a record that takes more bytes than the project has left for them.
pub(super) fn records_too_large(limit: usize) -> BrokerError {
    BrokerError::forbidden(format!(
        "the capabilities and metadata of the project's sessions have reached their limit of {limit} bytes: register \
         with less, or have another session leave first"
    ))
}

#[cfg(test)]
mod tests;
