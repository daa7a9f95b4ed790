//! Decides what a registration does, from what the directory knows: which session it is about, the record to store, and
//! which sessions it ends or leaves. Pure: the project's actor gathers the facts, stores the record and applies the plan.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::{
    model::{BrokerError, Capabilities, Holder, Owner, SessionId, SessionName, SessionRecord, WakePreference},
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
}

/// The answer to a registration.
pub struct Registered {
    /// The registered session.
    pub member: Arc<Member>,
    /// The session existed before, with its inbox.
    pub resumed: bool,
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
    reply: oneshot::Sender<Result<Registered, BrokerError>>,
}

impl Attempt {
    /// The first try.
    pub fn new(registration: Registration, reply: oneshot::Sender<Result<Registered, BrokerError>>) -> Self {
        Self {
            registration,
            tries: TRIES_MAX,
            reply,
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
    /// The session that has the wanted name.
    pub holder: Option<Candidate<'a>>,
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
}

impl Registration {
    /// Decides what this registration does.
    ///
    /// The session is the holder of the name; otherwise the caller's own, if it can take the name; otherwise a new one.
    ///
    /// # Errors
    /// `forbidden` for a name that another owner holds, and for a new session beyond the maximum; `invalid_argument` for
    /// aliases without a name.
    pub(super) fn plan(&self, facts: &Facts<'_>) -> Result<Plan, BrokerError> {
        let is_own = |candidate: &&Candidate<'_>| self.may_own(candidate.record);
        // A session of another owner counts as missing.
        let current = facts.current.as_ref().filter(is_own);
        let evicted = facts
            .holder
            .as_ref()
            .filter(|holder| holder.is_orphaned && !is_own(holder));
        let holder = facts.holder.as_ref().filter(|_| evicted.is_none());
        let can_take_the_name = |own: &&Candidate<'_>| self.name.is_none() || own.record.name.is_none();
        let subject = holder.or_else(|| current.filter(can_take_the_name));
        let renews = subject.is_some_and(|subject| current.is_some_and(|own| own.record.id == subject.record.id));
        let record = match subject {
            Some(subject) if !is_own(&subject) => {
                let text = "the name belongs to a session of another key: choose another";
                return Err(BrokerError::forbidden(text));
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
        Ok(Plan {
            resumes: subject.is_some(),
            renews,
            evicts: evicted.map(id_of),
            leaves: current.map(id_of).filter(|id| *id != record.id),
            record,
        })
    }

    /// Whether a session that has the wanted name stays as it is: its agent is not here, or is another than the caller.
    pub(super) fn leaves_alone(&self, holder: &SessionRecord) -> bool {
        self.is_absent && (self.owner.is_unclaimed() || holder.owner == self.owner)
    }

    /// Whether the caller is the owner of a session, or may become it.
    pub(super) fn may_own(&self, record: &SessionRecord) -> bool {
        record.owner == self.owner || record.owner.is_unclaimed()
    }

    fn renewed(&self, subject: &Candidate<'_>, renews: bool) -> SessionRecord {
        let before = subject.record;
        let name = self.name.clone().or_else(|| before.name.clone());
        SessionRecord {
            id: before.id,
            aliases: other_names(self.aliases.as_ref().unwrap_or(&before.aliases), name.as_ref()),
            name,
            capabilities: self.capabilities.clone().unwrap_or_else(|| before.capabilities.clone()),
            metadata: self.metadata.clone().unwrap_or_else(|| before.metadata.clone()),
            connected_at_ms: before.connected_at_ms,
            owner: self.owner.clone(),
            holder: self.next_holder(before, renews),
            wake: self.wake.unwrap_or(before.wake),
        }
    }

    fn new_record(&self, now_ms: u64) -> SessionRecord {
        let mut record = SessionRecord {
            id: SessionId::generate(),
            name: self.name.clone(),
            aliases: other_names(self.aliases.as_deref().unwrap_or_default(), self.name.as_ref()),
            capabilities: self.capabilities.clone().unwrap_or_default(),
            metadata: self.metadata.clone().unwrap_or_default(),
            connected_at_ms: now_ms,
            owner: self.owner.clone(),
            holder: Holder::default(),
            wake: self.wake.unwrap_or_default(),
        };
        record.holder = self.next_holder(&record, false);
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
mod tests {
    use super::*;
    use crate::model::KeyId;

    fn owner(key: &str) -> Owner {
        Owner::key(&KeyId::parse(key).unwrap())
    }

    fn name(text: &str) -> SessionName {
        SessionName::parse(text).unwrap()
    }

    /// A session with a connection.
    fn session(named: Option<&str>, key: &str) -> SessionRecord {
        SessionRecord {
            id: SessionId::generate(),
            name: named.map(name),
            capabilities: Capabilities::default(),
            metadata: Map::from_iter([("kept".to_owned(), Value::Bool(true))]),
            aliases: Vec::new(),
            connected_at_ms: 7,
            owner: owner(key),
            holder: Holder::default(),
            wake: WakePreference::default(),
        }
    }

    fn candidate(record: &SessionRecord) -> Candidate<'_> {
        Candidate {
            record,
            is_orphaned: false,
        }
    }

    fn facts<'a>(current: Option<&'a SessionRecord>, holder: Option<&'a SessionRecord>) -> Facts<'a> {
        Facts {
            current: current.map(candidate),
            holder: holder.map(candidate),
            sessions_len: 2,
            sessions_max: 3,
            now_ms: 1000,
        }
    }

    /// Of a caller without a connection, which names its session by id.
    fn registration(named: Option<&str>, key: &str) -> Registration {
        Registration {
            name: named.map(name),
            owner: owner(key),
            ..Registration::default()
        }
    }

    #[test]
    fn an_unknown_name_gets_a_new_session_and_the_caller_leaves_the_one_it_had() {
        let own = session(Some("alice"), "k1");
        let plan = registration(Some("bob"), "k1").plan(&facts(Some(&own), None)).unwrap();
        assert!(!plan.resumes && !plan.renews && plan.evicts.is_none());
        assert_eq!(plan.leaves, Some(own.id));
        let SessionRecord {
            name: named,
            connected_at_ms,
            holder,
            owner: owned_by,
            ..
        } = plan.record;
        assert_eq!(
            (named, connected_at_ms, owned_by),
            (Some(name("bob")), 1000, owner("k1"))
        );
        assert!(holder.incarnation != 0 && holder.by_id);
    }

    #[test]
    fn a_known_name_resumes_its_session_and_keeps_what_is_not_given() {
        let (own, holder) = (session(None, "k1"), session(Some("bob"), "k1"));
        let plan = registration(Some("bob"), "k1")
            .plan(&facts(Some(&own), Some(&holder)))
            .unwrap();
        assert!(plan.resumes && !plan.renews);
        assert_eq!((plan.record.id, plan.leaves), (holder.id, Some(own.id)));
        assert_eq!(
            (&plan.record.metadata, plan.record.connected_at_ms),
            (&holder.metadata, 7)
        );
    }

    #[test]
    fn aliases_are_replaced_when_given_and_kept_when_absent() {
        let mut holder = session(Some("bob"), "k1");
        holder.aliases = vec![name("reviewer")];
        let mut wanted = registration(Some("bob"), "k1");
        let aliases = |wanted: &Registration| wanted.plan(&facts(None, Some(&holder))).unwrap().record.aliases;
        assert_eq!(aliases(&wanted), [name("reviewer")]);
        wanted.aliases = Some(vec![name("tester"), name("bob"), name("tester"), name("db")]);
        assert_eq!(aliases(&wanted), [name("tester"), name("db")]);
        wanted.aliases = Some(Vec::new());
        assert_eq!(aliases(&wanted), []);
        let mut nameless = registration(None, "k1");
        nameless.aliases = Some(vec![name("tester")]);
        assert_eq!(
            nameless.plan(&facts(None, None)).unwrap_err().code(),
            "invalid_argument"
        );
        assert!(nameless.plan(&facts(Some(&holder), None)).is_ok());
    }

    #[test]
    fn a_session_without_a_name_takes_one_and_a_named_session_keeps_its_own() {
        let nameless = session(None, "k1");
        let plan = registration(Some("bob"), "k1")
            .plan(&facts(Some(&nameless), None))
            .unwrap();
        assert!(plan.resumes && plan.renews);
        assert_eq!((plan.record.id, plan.record.name), (nameless.id, Some(name("bob"))));
        let named = session(Some("alice"), "k1");
        let plan = registration(None, "k1").plan(&facts(Some(&named), None)).unwrap();
        assert_eq!(
            (plan.record.id, plan.record.name, plan.leaves),
            (named.id, named.name, None)
        );
    }

    #[test]
    fn a_name_of_another_owner_is_refused_unless_its_key_has_ended() {
        let holder = session(Some("bob"), "k2");
        let mut facts = facts(None, Some(&holder));
        let wanted = registration(Some("bob"), "k1");
        assert_eq!(wanted.plan(&facts).unwrap_err().code(), "forbidden");
        facts.holder.as_mut().unwrap().is_orphaned = true;
        let plan = wanted.plan(&facts).unwrap();
        assert!(!plan.resumes && plan.record.id != holder.id);
        assert_eq!(plan.evicts, Some(holder.id));
    }

    #[test]
    fn an_owner_resumes_its_session_whatever_became_of_its_key() {
        let holder = session(Some("bob"), "k1");
        let mut facts = facts(None, Some(&holder));
        facts.holder.as_mut().unwrap().is_orphaned = true;
        let plan = registration(Some("bob"), "k1").plan(&facts).unwrap();
        assert_eq!((plan.record.id, plan.evicts), (holder.id, None));
    }

    #[test]
    fn a_session_of_another_owner_counts_as_missing() {
        let other = session(None, "k2");
        let plan = registration(None, "k1").plan(&facts(Some(&other), None)).unwrap();
        assert!(!plan.resumes && plan.leaves.is_none() && plan.record.id != other.id);
    }

    #[test]
    fn an_expected_name_belongs_to_its_first_caller() {
        let mut expected = session(Some("bob"), "k1");
        expected.owner = Owner::unclaimed();
        let plan = registration(Some("bob"), "k2")
            .plan(&facts(None, Some(&expected)))
            .unwrap();
        assert!(plan.resumes && !plan.renews);
        assert_eq!((plan.record.id, &plan.record.owner), (expected.id, &owner("k2")));
        let later = registration(Some("bob"), "k1").plan(&facts(None, Some(&plan.record)));
        assert_eq!(later.unwrap_err().code(), "forbidden");
    }

    #[test]
    fn only_a_new_session_counts_against_the_maximum() {
        let holder = session(Some("bob"), "k1");
        let mut facts = facts(None, Some(&holder));
        facts.sessions_len = facts.sessions_max;
        assert!(registration(Some("bob"), "k1").plan(&facts).unwrap().resumes);
        facts.holder = None;
        assert_eq!(
            registration(Some("bob"), "k1").plan(&facts).unwrap_err().code(),
            "forbidden"
        );
    }

    #[test]
    fn another_caller_gets_another_incarnation_and_the_holder_keeps_its_own() {
        let mut before = session(Some("bob"), "k1");
        let incarnation = |before: &SessionRecord, is_own: bool| {
            let facts = facts(is_own.then_some(before), Some(before));
            let holder = registration(Some("bob"), "k1").plan(&facts).unwrap().record.holder;
            assert!(holder.by_id && holder.incarnation != 0);
            holder.incarnation
        };
        incarnation(&before, true);
        before.holder.incarnation = 5;
        assert_ne!(incarnation(&before, false), 5);
        assert_eq!(incarnation(&before, true), 5);
    }
}
