//! The sessions of a project as this replica knows them: by id, by name, and as recipients of a broadcast.

mod sorted;

use std::{
    any::Any,
    borrow::{Borrow, Cow},
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

use semver::Version;

use crate::{
    clock::Now,
    locked::RwLocked,
    model::{
        CapabilityFilter, PresenceTimeouts, ProtocolName, SessionId, SessionName, SessionRecord, SessionStatus,
        TransformRule, id_map::IdMap,
    },
    registry::{LensPath, Lenses},
    session::{Member, Nudge},
    speech::{Speech, wants_complement},
};

pub use sorted::{SessionOrder, SessionSort, SortKey, SortedPage, SortedPlace};

/// The sessions of a project. Only the project's actor writes it; reads take no actor.
pub struct Directory {
    presence: PresenceTimeouts,
    members: RwLocked<Members>,
}

#[derive(Default)]
struct Members {
    by_id: IdMap<SessionId, Arc<Member>>,
    by_name: HashMap<SessionName, Arc<Member>>,
    by_alias: HashMap<SessionName, SessionId>,
    /// The sessions of each conversation; the newest is the last.
    by_conversation: HashMap<Box<str>, BTreeSet<SessionId>>,
    /// For lists: ids sort by creation.
    in_order: BTreeMap<SessionId, Arc<Member>>,
    /// The version of the roster that this directory equals, where the store is shared.
    version: u64,
    /// The highest roster version that a frame has announced.
    announced_version: u64,
}

/// Names that one text is compared with. With `SIMILAR_CELLS_MAX` this keeps a comparison below a millisecond.
const SIMILAR_CANDIDATES_MAX: usize = 4_000;
/// Cells of the edit-distance tables that one comparison fills.
const SIMILAR_CELLS_MAX: usize = 100_000;
/// What precedes the id of a conversation in an address.
pub(crate) const CONVERSATION_PREFIX: &str = "conversation:";
/// Names that one refusal suggests.
const SIMILAR_LEN_MAX: usize = 3;

/// The names that differ from this text in case, or by at most one edit per three characters.
fn similar_names<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted = text.to_lowercase();
    let edits_max = wanted.chars().count() / 3;
    let mut cells_left = SIMILAR_CELLS_MAX;
    let mut found: Vec<_> = names
        .filter(|name| name.len().abs_diff(wanted.len()) <= edits_max)
        .filter_map(|name| {
            cells_left = cells_left.checked_sub((name.len() + 1) * (wanted.len() + 1))?;
            let edits = strsim::osa_distance(&wanted, &name.to_lowercase());
            (edits <= edits_max).then(|| (edits, name.to_owned()))
        })
        .collect();
    found.sort_unstable();
    found.truncate(SIMILAR_LEN_MAX);
    found.into_iter().map(|(_, name)| name).collect()
}

/// A query for a list of sessions.
#[derive(Clone, Debug)]
pub struct SessionQuery {
    /// None: any status.
    pub status: Option<SessionStatus>,
    /// Only sessions that declare this protocol.
    pub protocol: Option<ProtocolName>,
    /// Only sessions that declare this feature.
    pub feature: Option<String>,
    /// Only sessions with this text, in lower case, in their name, an alias or their id.
    pub text: Option<String>,
    /// Sessions on a page, at most.
    pub limit: usize,
    /// Only sessions after this one.
    pub after: Option<SessionId>,
}

impl SessionQuery {
    /// Whether a session matches, wherever it is in the list.
    fn fits(&self, member: &Member, presence: PresenceTimeouts, now: Now) -> bool {
        let capabilities = &member.record.capabilities;
        let contains = |text: &String| {
            let mut names = member.record.names();
            names.any(|name| name.as_str().to_lowercase().contains(text)) || member.record.id.to_string().contains(text)
        };
        member.is_shown()
            && self.status.is_none_or(|status| member.status(presence, now) == status)
            && self
                .protocol
                .as_ref()
                .is_none_or(|name| capabilities.versions_of(name).next().is_some())
            && self
                .feature
                .as_ref()
                .is_none_or(|feature| capabilities.supported_features.contains(feature))
            && self.text.as_ref().is_none_or(contains)
    }
}

/// The recipients of a broadcast: every agent but the sender that the filter selects and that accepts the protocol.
pub struct AudienceQuery {
    /// Gets no copy of its own message.
    pub sender: SessionId,
    /// What the sender requires of the recipients.
    pub filter: CapabilityFilter,
    /// The protocol of the message.
    pub protocol: ProtocolName,
    /// Its version.
    pub version: Version,
    /// How lenses widen the audience. None for a protocol without lenses.
    pub by_lenses: Option<ByLenses>,
}

/// How the lenses of a protocol widen the audience of a broadcast.
pub struct ByLenses {
    pub lenses: Arc<Lenses>,
    /// What the sender allows.
    pub rule: TransformRule,
    /// Paths that fail on the payload: those who need them do not get it.
    pub failed: Vec<Arc<LensPath>>,
}

/// Recipients of a broadcast that get it by the same path.
pub struct TransformedFor {
    pub plan: Arc<LensPath>,
    pub recipients: usize,
    /// How many of them want to know what was lost.
    pub want_complement: usize,
}

/// The recipients of a broadcast.
pub struct SelectedRecipients {
    pub members: Vec<Arc<Member>>,
    /// Sessions that the filter, their protocols or their absence exclude, and those of no agent.
    pub skipped: usize,
    /// The version of the roster that they were selected from.
    pub roster_version: u64,
    /// The paths by which lenses transform the message for some of `members`.
    pub transformed: Vec<TransformedFor>,
    /// Sessions for which lenses fail on the payload: they are neither in `members` nor `skipped`.
    pub failed: Vec<SessionId>,
    /// As [`Directory::version_without_path`].
    pub without_path: Option<Version>,
}

impl AudienceQuery {
    /// How a session gets the message; None for one that the filter, its kind or its absence excludes.
    fn speech_to(&self, member: &Member, presence: PresenceTimeouts, now: Now) -> Option<Speech> {
        let record = &member.record;
        let is_agent = !record.is_human() && !record.holder.only_sends;
        let reachable = record.name.is_some() || member.status(presence, now) != SessionStatus::Disconnected;
        if !(is_agent && reachable && self.filter.matches(&record.capabilities)) {
            return None;
        }
        let lenses = self.by_lenses.as_ref();
        let (lenses, rule) = lenses.map_or_else(Default::default, |by| (Some(&*by.lenses), by.rule));
        Some(Speech::of(
            (&self.protocol, &self.version),
            &record.capabilities,
            lenses,
            rule,
        ))
    }

    /// The highest version of the protocol that a session declares.
    fn declared_by(&self, member: &Member) -> Option<Version> {
        let declared = member.record.capabilities.supported_protocols.get(&self.protocol);
        declared?.last().cloned()
    }
}

impl ByLenses {
    fn fails(&self, plan: &Arc<LensPath>) -> bool {
        self.failed.iter().any(|failed| Arc::ptr_eq(failed, plan))
    }
}

/// Counts recipients by the path that leads to them.
#[derive(Default)]
struct ByPath {
    rows: Vec<TransformedFor>,
    /// The place of each path in `rows`, by its address.
    places: HashMap<*const LensPath, usize>,
}

impl ByPath {
    fn add(&mut self, plan: Arc<LensPath>, wants_complement: bool) {
        let next = self.rows.len();
        let place = *self.places.entry(Arc::as_ptr(&plan)).or_insert(next);
        if place == next {
            self.rows.push(TransformedFor {
                plan,
                recipients: 0,
                want_complement: 0,
            });
        }
        self.rows[place].recipients += 1;
        self.rows[place].want_complement += usize::from(wants_complement);
    }
}

impl Directory {
    pub(crate) fn new(presence: PresenceTimeouts) -> Self {
        Self {
            presence,
            members: RwLocked::default(),
        }
    }

    /// The session with this id.
    pub fn by_id(&self, id: SessionId) -> Option<Arc<Member>> {
        self.members.read().by_id.get(&id).cloned()
    }

    /// Has a session look into its inbox. An actor that was given up meanwhile has a successor. One whose mailbox is full
    /// looks anyway.
    pub fn nudge(&self, member: &Member, barrier: Option<Arc<dyn Any + Send + Sync>>) {
        let nudge = |member: &Member| {
            let barrier = barrier.clone();
            member.address.tell(Nudge { barrier })
        };
        if nudge(member).is_err()
            && let Some(successor) = self.by_id(member.record.id)
        {
            let _ = nudge(&successor);
        }
    }

    /// The session with this name.
    pub fn by_name(&self, name: &str) -> Option<Arc<Member>> {
        self.members.read().by_name.get(name).cloned()
    }

    /// The session with this name or alias, in its normal form or as it was stored.
    pub fn by_name_or_alias(&self, name: &str) -> Option<Arc<Member>> {
        let members = self.members.read();
        let named = |name: &str| {
            let by_alias = || members.by_id.get(members.by_alias.get(name)?);
            members.by_name.get(name).or_else(by_alias).cloned()
        };
        match SessionName::normalized(name) {
            Cow::Borrowed(_) => named(name),
            Cow::Owned(normalized) => named(&normalized).or_else(|| named(name)),
        }
    }

    /// The session that an address means, unless it is an id: a name, an alias, or `conversation:` and the id of a
    /// conversation. Of the sessions of a conversation the newest is meant.
    pub fn by_address(&self, address: &str) -> Option<Arc<Member>> {
        let conversation = address.strip_prefix(CONVERSATION_PREFIX);
        conversation
            .and_then(|id| self.newest_of(id, |_| true))
            .or_else(|| self.by_name_or_alias(address))
    }

    /// The newest session of a conversation that is wanted.
    pub fn newest_of(&self, conversation: &str, is_wanted: impl Fn(&Member) -> bool) -> Option<Arc<Member>> {
        let members = self.members.read();
        let of_conversation = members.by_conversation.get(conversation)?.iter().rev();
        let mut found = of_conversation.filter_map(|id| members.by_id.get(id));
        found.find(|member| is_wanted(member)).cloned()
    }

    /// Names similar to this text, best match first.
    pub fn similar(&self, text: &str) -> Vec<String> {
        let members = self.members.read();
        let names = members.by_name.keys().chain(members.by_alias.keys());
        let names = names.take(SIMILAR_CANDIDATES_MAX).map(Borrow::borrow);
        similar_names(text, names)
    }

    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.members.read().by_id.len()
    }

    /// Whether the project has no sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All sessions, in order of creation.
    pub fn all(&self) -> Vec<Arc<Member>> {
        self.members.read().in_order.values().cloned().collect()
    }

    /// Calls `each` for every session, in order of creation. Writers wait until it returns.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&Member)) {
        for member in self.members.read().in_order.values() {
            each(member);
        }
    }

    /// The number of active sessions.
    pub fn active_len(&self, now: Now) -> usize {
        let active = |member: &&Arc<Member>| member.status(self.presence, now) == SessionStatus::Active;
        self.members.read().in_order.values().filter(active).count()
    }

    /// The sessions that match, in order of creation, and whether more follow.
    pub fn list(&self, query: &SessionQuery, now: Now) -> (Vec<Arc<Member>>, bool) {
        let members = self.members.read();
        let start = query.after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut fitting = members
            .in_order
            .range((start, Bound::Unbounded))
            .map(|(_, member)| member)
            .filter(|member| query.fits(member, self.presence, now));
        let page = fitting.by_ref().take(query.limit).cloned().collect();
        let more = fitting.next().is_some();
        (page, more)
    }

    /// Selects the recipients of a broadcast. Excludes sessions that the filter or their protocols exclude, disconnected
    /// sessions without a name, which nothing could resume, people, and names in which commands have sent.
    pub fn select_recipients(&self, wanted: &AudienceQuery, now: Now) -> SelectedRecipients {
        let by_lenses = wanted.by_lenses.as_ref();
        let members = self.members.read();
        let mut audience = Vec::with_capacity(members.in_order.len());
        let (mut skipped, mut by_path, mut failed, mut without_path) = (0, ByPath::default(), Vec::new(), None);
        for member in members.others(wanted.sender) {
            let record = &member.record;
            match wanted.speech_to(member, self.presence, now) {
                None => skipped += 1,
                Some(Speech::AsSent) => audience.push(Arc::clone(member)),
                Some(Speech::By(plan)) if by_lenses.is_some_and(|by| by.fails(&plan)) => failed.push(record.id),
                Some(Speech::By(plan)) => {
                    by_path.add(plan, wants_complement(&record.capabilities));
                    audience.push(Arc::clone(member));
                }
                Some(Speech::NotCompiled(_)) => failed.push(record.id),
                Some(Speech::Refused) => {
                    skipped += 1;
                    without_path = without_path.or_else(|| wanted.declared_by(member));
                }
            }
        }
        SelectedRecipients {
            members: audience,
            skipped,
            roster_version: members.version,
            transformed: by_path.rows,
            failed,
            without_path,
        }
    }

    /// A version of the protocol that is declared by a session which the broadcast leaves out, because no lenses lead there.
    pub fn version_without_path(&self, wanted: &AudienceQuery, now: Now) -> Option<Version> {
        let members = self.members.read();
        let mut versions = members.others(wanted.sender).filter_map(|member| {
            let is_refused = matches!(wanted.speech_to(member, self.presence, now), Some(Speech::Refused));
            is_refused.then(|| wanted.declared_by(member)).flatten()
        });
        versions.next()
    }

    /// Applies one membership change. Returns false if `version` is not the next one: a change was missed, and a
    /// resync is needed.
    pub(crate) fn note_version(&self, version: u64) -> bool {
        let mut members = self.members.write();
        members.announced_version = members.announced_version.max(version);
        if version == members.version + 1 {
            members.version = version;
        }
        version <= members.version
    }

    /// The highest roster version that a frame has announced.
    pub(crate) fn announced_version(&self) -> u64 {
        self.members.read().announced_version
    }

    /// Sets the roster version after the directory was replaced.
    pub(crate) fn set_version(&self, version: u64) {
        let mut members = self.members.write();
        (members.version, members.announced_version) = (version, version);
    }

    /// Adds a member, or replaces its entry.
    pub(crate) fn put(&self, member: &Arc<Member>) {
        let mut members = self.members.write();
        let id = member.record.id;
        let before = members.by_id.insert(id, Arc::clone(member));
        members.in_order.insert(id, Arc::clone(member));
        if let Some(before) = before {
            members.remove_addresses(&before.record);
        }
        members.add_addresses(member);
    }

    pub(crate) fn remove(&self, id: SessionId) -> Option<Arc<Member>> {
        let mut members = self.members.write();
        let member = members.by_id.remove(&id)?;
        members.in_order.remove(&id);
        members.remove_addresses(&member.record);
        Some(member)
    }
}

impl Members {
    /// All sessions but this one, in order of creation.
    fn others(&self, session: SessionId) -> impl Iterator<Item = &Arc<Member>> {
        let members = self.in_order.values();
        members.filter(move |member| member.record.id != session)
    }

    fn add_addresses(&mut self, member: &Arc<Member>) {
        let record = &member.record;
        if let Some(name) = &record.name {
            self.by_name.insert(name.clone(), Arc::clone(member));
        }
        for alias in &record.aliases {
            self.by_alias.insert(alias.clone(), record.id);
        }
        if let Some(conversation) = record.conversation() {
            let sessions = self.by_conversation.entry(conversation.into()).or_default();
            sessions.insert(record.id);
        }
    }

    /// Removes the addresses of a session, except those that another one has by now.
    fn remove_addresses(&mut self, record: &SessionRecord) {
        if let Some(name) = &record.name
            && self
                .by_name
                .get(name)
                .is_some_and(|holder| holder.record.id == record.id)
        {
            self.by_name.remove(name);
        }
        for alias in &record.aliases {
            if self.by_alias.get(alias) == Some(&record.id) {
                self.by_alias.remove(alias);
            }
        }
        if let Some(conversation) = record.conversation()
            && let Some(sessions) = self.by_conversation.get_mut(conversation)
        {
            sessions.remove(&record.id);
            if sessions.is_empty() {
                self.by_conversation.remove(conversation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_name_is_similar_to_the_right_one() {
        let names = ["bob", "Alice", "reviewer-1", "reviewer-2", "x"];
        for (text, expected) in [
            ("bbo", vec!["bob"]),
            ("alice", vec!["Alice"]),
            ("reviewer1", vec!["reviewer-1", "reviewer-2"]),
            ("carol", vec![]),
            ("y", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(similar_names(text, names.into_iter()), expected, "{text}");
        }
    }

    #[test]
    fn a_comparison_ends_when_its_cells_are_spent() {
        let text = "x".repeat(128);
        let alike = format!("{}y", "x".repeat(127));
        let others: Vec<_> = (0..100).map(|_| "z".repeat(128)).collect();
        let others = || others.iter().map(String::as_str);
        let alike = alike.as_str();
        assert_eq!(similar_names(&text, std::iter::once(alike).chain(others())), [alike]);
        assert!(similar_names(&text, others().chain([alike])).is_empty());
    }
}
