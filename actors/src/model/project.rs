//! The record of a project, and every rule that can be decided from it alone: its keys, its configuration, its
//! grants.

mod grants;
mod logins;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    ApiKey, BrokerError, CrossProjectSide, KeyHuman, KeyId, KeyRecord, KeyStatus, MissingGrant, Owner, ProjectId,
    Scope, ToolSet,
};

pub use grants::Grant;
pub use logins::LoginRecord;

/// A tenant as it is stored, with the rules that depend on the record alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectRecord {
    pub id: ProjectId,
    pub name: String,
    pub description: Option<String>,
    pub tags: BTreeSet<String>,
    pub config: ProjectConfig,
    pub keys: Vec<KeyRecord>,
    /// What browsers are logged in with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logins: Vec<LoginRecord>,
    /// Other projects to which its sessions may send.
    pub grants: BTreeMap<ProjectId, Grant>,
    /// Milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// False after deletion: the messages and sessions are gone, and the id is never given to another project.
    pub active: bool,
    /// Counts the changes. Of two changes based on the same revision the store takes the first.
    pub revision: u64,
}

/// The configuration of a project. None of a limit means the broker's limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProjectConfig {
    pub allow_cross_project: bool,
    /// Other projects see this one in lists.
    pub discoverable: bool,
    pub max_sessions: Option<usize>,
    pub max_protocols: Option<usize>,
    pub queue_capacity: Option<usize>,
    /// Requests per minute of all callers together; 0 means no limit.
    pub rate_limit: u32,
}

/// The fields of a new project.
#[derive(Clone, Debug)]
pub struct NewProject {
    pub id: ProjectId,
    pub name: String,
    pub description: Option<String>,
    pub tags: BTreeSet<String>,
    pub config: ProjectConfig,
}

/// Changes of a project; None keeps the value.
#[derive(Clone, Debug, Default)]
pub struct ProjectChanges {
    pub name: Option<String>,
    pub description: Option<Option<String>>,
    pub tags: Option<BTreeSet<String>>,
    pub config: ConfigChanges,
}

/// Changes of a configuration; None keeps the value.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigChanges {
    #[serde(deserialize_with = "present")]
    pub allow_cross_project: Option<bool>,
    #[serde(deserialize_with = "present")]
    pub discoverable: Option<bool>,
    #[serde(deserialize_with = "present")]
    pub max_sessions: Option<Option<usize>>,
    #[serde(deserialize_with = "present")]
    pub max_protocols: Option<Option<usize>>,
    #[serde(deserialize_with = "present")]
    pub queue_capacity: Option<Option<usize>>,
    #[serde(deserialize_with = "present")]
    pub rate_limit: Option<u32>,
}

/// Reads a member that is present: `null` is a value, and an error where it does not fit.
fn present<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl ConfigChanges {
    /// Whether the changes touch limits, which only an operator may set.
    pub const fn touches_limits(&self) -> bool {
        self.max_sessions.is_some()
            || self.max_protocols.is_some()
            || self.queue_capacity.is_some()
            || self.rate_limit.is_some()
    }

    fn apply(&self, config: &mut ProjectConfig) {
        fn put<T: Copy>(change: Option<T>, to: &mut T) {
            if let Some(value) = change {
                *to = value;
            }
        }
        put(self.allow_cross_project, &mut config.allow_cross_project);
        put(self.discoverable, &mut config.discoverable);
        put(self.max_sessions, &mut config.max_sessions);
        put(self.max_protocols, &mut config.max_protocols);
        put(self.queue_capacity, &mut config.queue_capacity);
        put(self.rate_limit, &mut config.rate_limit);
    }
}

/// The fields of a new key.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub label: Option<String>,
    pub scope: Scope,
    /// The person who holds it: with scope `answer`, and only then.
    pub human: Option<KeyHuman>,
    /// The tools that its callers are listed; None: those of the setting.
    pub tools: Option<ToolSet>,
    /// Milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

/// A new key in clear text.
#[derive(Clone, Debug)]
pub struct IssuedKey {
    pub id: KeyId,
    pub key: ApiKey,
}

/// The result of a rotation: new keys, and old keys with the end of their validity in milliseconds since the Unix
/// epoch.
#[derive(Clone, Debug, Default)]
pub struct KeyRotation {
    pub issued: Vec<IssuedKey>,
    pub retired: Vec<(KeyId, u64)>,
}

const NAME_CHARS_MAX: usize = 128;
const DESCRIPTION_CHARS_MAX: usize = 1024;
const TAGS_LEN_MAX: usize = 32;
const TAG_CHARS_MAX: usize = 64;
/// Valid keys of one project, at most.
const KEYS_LEN_MAX: usize = 100;
/// Invalid keys that stay listed, at most.
const RETIRED_KEYS_LEN_MAX: usize = 100;

impl ProjectRecord {
    /// A record for a new project.
    ///
    /// # Errors
    /// `invalid_argument` for a field that does not fit or a reserved id.
    pub fn new(wanted: NewProject, now_ms: u64) -> Result<Self, BrokerError> {
        if wanted.id.is_reserved() {
            return Err(BrokerError::invalid("project_id", "reserved: choose another"));
        }
        let record = Self {
            id: wanted.id,
            name: wanted.name,
            description: wanted.description,
            tags: wanted.tags,
            config: wanted.config,
            keys: Vec::new(),
            logins: Vec::new(),
            grants: BTreeMap::new(),
            created_at_ms: now_ms,
            active: true,
            revision: 0,
        };
        record.check()?;
        Ok(record)
    }

    /// The project of callers that name none.
    pub fn default_project(now_ms: u64) -> Self {
        Self {
            id: ProjectId::default_project(),
            name: "Default".to_owned(),
            description: None,
            tags: BTreeSet::new(),
            config: ProjectConfig::default(),
            keys: Vec::new(),
            logins: Vec::new(),
            grants: BTreeMap::new(),
            created_at_ms: now_ms,
            active: true,
            revision: 0,
        }
    }

    fn check(&self) -> Result<(), BrokerError> {
        check_line("name", &self.name, 1, NAME_CHARS_MAX)?;
        if let Some(description) = &self.description {
            check_text("description", description, 0, DESCRIPTION_CHARS_MAX)?;
        }
        if self.tags.len() > TAGS_LEN_MAX {
            return Err(BrokerError::invalid("tags", format!("at most {TAGS_LEN_MAX}")));
        }
        self.tags
            .iter()
            .try_for_each(|tag| check_line("tags", tag, 1, TAG_CHARS_MAX))?;
        let config = &self.config;
        for (name, limit, most) in [
            ("config.max_sessions", config.max_sessions, 10_000_000),
            ("config.max_protocols", config.max_protocols, 1_000_000),
            ("config.queue_capacity", config.queue_capacity, 1_000_000),
        ] {
            if limit.is_some_and(|limit| !(1..=most).contains(&limit)) {
                return Err(BrokerError::invalid(
                    name,
                    format!("a whole number from 1 to {most}, or null"),
                ));
            }
        }
        Ok(())
    }

    /// Applies changes.
    ///
    /// # Errors
    /// `invalid_argument` for a field that does not fit; the record is then undefined and must be discarded.
    pub fn change(&mut self, changes: &ProjectChanges) -> Result<(), BrokerError> {
        let ProjectChanges {
            name,
            description,
            tags,
            config,
        } = changes.clone();
        if let Some(name) = name {
            self.name = name;
        }
        if let Some(description) = description {
            self.description = description;
        }
        if let Some(tags) = tags {
            self.tags = tags;
        }
        config.apply(&mut self.config);
        self.check()
    }

    /// Adds a key.
    ///
    /// # Errors
    /// `invalid_argument`: too many keys, or a label, a scope or an expiry that does not fit.
    pub fn add_key(&mut self, made: &IssuedKey, wanted: &NewKey, now_ms: u64) -> Result<(), BrokerError> {
        if wanted.scope == Scope::Operator {
            return Err(BrokerError::invalid("scope", "observer, answer, member or admin"));
        }
        match (wanted.scope, &wanted.human) {
            (Scope::Answer, None) => {
                return Err(BrokerError::invalid(
                    "human",
                    "a key of scope answer names the person who holds it",
                ));
            }
            (Scope::Answer, Some(_)) | (_, None) => {}
            (_, Some(_)) => return Err(BrokerError::invalid("human", "only with scope answer")),
        }
        if let Some(label) = &wanted.label {
            check_line("label", label, 1, NAME_CHARS_MAX)?;
        }
        if wanted.expires_at_ms.is_some_and(|at| at <= now_ms) {
            return Err(BrokerError::invalid("expires_at", "a time in the future"));
        }
        self.put_key(KeyRecord {
            id: made.id.clone(),
            lineage: made.id.clone(),
            label: wanted.label.clone(),
            scope: wanted.scope,
            human: wanted.human.clone(),
            tools: wanted.tools,
            digest: made.key.digest(),
            created_at_ms: now_ms,
            expires_at_ms: wanted.expires_at_ms,
            retired_at_ms: None,
            revoked: false,
            last_used_at_ms: None,
        });
        self.drop_oldest_retired(now_ms);
        let good = self.keys.iter().filter(|key| key.status(now_ms).is_valid()).count();
        if good > KEYS_LEN_MAX {
            return Err(BrokerError::invalid(
                "key",
                format!("a project has at most {KEYS_LEN_MAX} keys"),
            ));
        }
        Ok(())
    }

    fn put_key(&mut self, key: KeyRecord) {
        self.keys.push(key);
    }

    /// Revokes a key. Returns the time from which it is invalid, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// `invalid_argument` when the project has no such key.
    pub fn revoke_key(&mut self, id: &KeyId, now_ms: u64) -> Result<u64, BrokerError> {
        let key = self.keys.iter_mut().find(|key| key.id == *id).ok_or_else(no_such_key)?;
        Ok(end_key(key, now_ms))
    }

    /// The keys that a rotation of `only`, or (None) of all keys, replaces: the active ones.
    ///
    /// # Errors
    /// `invalid_argument` when `only` does not exist or is not active.
    pub fn rotatable_keys(&self, only: Option<&KeyId>, now_ms: u64) -> Result<Vec<KeyId>, BrokerError> {
        let is_active = |key: &&KeyRecord| key.status(now_ms) == KeyStatus::Active;
        let Some(id) = only else {
            return Ok(self.keys.iter().filter(is_active).map(|key| key.id.clone()).collect());
        };
        let key = self.keys.iter().find(|key| key.id == *id).ok_or_else(no_such_key)?;
        if is_active(&key) {
            Ok(vec![id.clone()])
        } else {
            Err(BrokerError::invalid(
                "key_id",
                "it is no longer valid, or was rotated already",
            ))
        }
    }

    /// Replaces keys. The old ones stay valid until `retired_at_ms`.
    ///
    /// # Errors
    /// `invalid_argument` when a key cannot be replaced, or too many old keys would stay valid.
    pub fn rotate(
        &mut self,
        replaced: &[(KeyId, IssuedKey)],
        retired_at_ms: u64,
        now_ms: u64,
    ) -> Result<(), BrokerError> {
        for (id, made) in replaced {
            self.rotatable_keys(Some(id), now_ms)?;
            let Some(old) = self.keys.iter_mut().find(|key| key.id == *id) else {
                continue;
            };
            let new = KeyRecord {
                id: made.id.clone(),
                digest: made.key.digest(),
                created_at_ms: now_ms,
                // The new key has the lifetime of the old one.
                expires_at_ms: old
                    .expires_at_ms
                    .map(|at| now_ms.saturating_add(at.saturating_sub(old.created_at_ms))),
                last_used_at_ms: None,
                ..old.clone()
            };
            if retired_at_ms > now_ms {
                old.retired_at_ms = Some(retired_at_ms);
            } else {
                end_key(old, now_ms);
            }
            self.put_key(new);
        }
        self.drop_oldest_retired(now_ms);
        let is_retiring = |key: &&KeyRecord| key.status(now_ms) == KeyStatus::Retiring;
        if self.keys.iter().filter(is_retiring).count() > KEYS_LEN_MAX {
            let text = format!("at most {KEYS_LEN_MAX} replaced keys stay valid: revoke some, or use no grace period");
            return Err(BrokerError::invalid("grace_period_seconds", text));
        }
        Ok(())
    }

    /// Drops the oldest invalid keys beyond the limit.
    fn drop_oldest_retired(&mut self, now_ms: u64) {
        let retired = self.keys.iter().filter(|key| !key.status(now_ms).is_valid()).count();
        let mut too_many = retired.saturating_sub(RETIRED_KEYS_LEN_MAX);
        self.keys.retain(|key| {
            let goes = too_many > 0 && !key.status(now_ms).is_valid();
            too_many -= usize::from(goes);
            !goes
        });
    }

    /// Deletes the project: revokes its keys and its grants.
    pub fn close(&mut self, now_ms: u64) {
        self.active = false;
        self.grants.clear();
        self.logins.clear();
        for key in &mut self.keys {
            end_key(key, now_ms);
        }
    }

    /// Whether the owner is a key of this project of whose rotation chain no key is valid.
    pub fn is_orphaned(&self, owner: &Owner, now_ms: u64) -> bool {
        let owns = |key: &KeyRecord| Owner::key(&key.lineage) == *owner && key.status(now_ms).is_valid();
        owner.is_key() && !self.keys.iter().any(owns)
    }

    /// The error for a target that cannot exist: the same as for one that does not exist.
    pub const fn no_such_target(&self) -> BrokerError {
        let side = if self.config.allow_cross_project {
            CrossProjectSide::Target
        } else {
            CrossProjectSide::Sender
        };
        BrokerError::CrossProjectDisabled { side }
    }

    /// Checks whether a message of this protocol may be sent to another project, in the order of the contract, section 6,
    /// without the rate limit. `theirs` is the record of the target, if it exists. No answer reveals whether it does.
    ///
    /// # Errors
    /// `cross_project_disabled`, `cross_project_forbidden`.
    pub fn check_send_to(
        &self,
        target: &ProjectId,
        theirs: Option<&Self>,
        protocol: &str,
    ) -> Result<&Grant, BrokerError> {
        let is_open = |record: &Self| record.active && record.config.allow_cross_project;
        if !is_open(self) || !theirs.is_some_and(is_open) {
            return Err(self.no_such_target());
        }
        let forbidden = |wall| BrokerError::CrossProjectForbidden { wall };
        let grant = self.grants.get(target).ok_or(forbidden(MissingGrant::Project))?;
        if !grant.protocols.is_empty() && !grant.protocols.contains(protocol) {
            return Err(forbidden(MissingGrant::Protocol));
        }
        Ok(grant)
    }
}

/// Revokes a key, unless it was revoked before. Returns since when, in milliseconds since the Unix epoch.
fn end_key(key: &mut KeyRecord, now_ms: u64) -> u64 {
    let at_ms = key.retired_at_ms.map_or(now_ms, |at| at.min(now_ms));
    key.retired_at_ms = Some(at_ms);
    key.revoked = true;
    at_ms
}

fn no_such_key() -> BrokerError {
    BrokerError::invalid("key_id", "the project has no such key")
}

/// Checks a text of one line.
fn check_line(field: &str, text: &str, min: usize, max: usize) -> Result<(), BrokerError> {
    if text.contains('\n') {
        return Err(BrokerError::invalid(field, "one line"));
    }
    check_text(field, text, min, max)
}

fn check_text(field: &str, text: &str, min: usize, max: usize) -> Result<(), BrokerError> {
    let len = text.chars().count();
    if !(min..=max).contains(&len) {
        return Err(BrokerError::invalid(field, format!("{min} to {max} characters")));
    }
    if text
        .chars()
        .any(|c| c.is_control() && !(c == '\n' && field == "description"))
    {
        return Err(BrokerError::invalid(field, "no control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests;
