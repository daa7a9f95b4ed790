//! Finds the principal of a key by the digest of the key, without asking an actor.

use std::{collections::HashMap, sync::Arc};

use crate::{
    locked::RwLocked,
    model::{CredentialStatus, KeyDigest, KeyHuman, KeyId, KeyRecord, Owner, ProjectId, ProjectRecord, Scope, ToolSet},
    rate::RateLimit,
};

/// An authenticated caller: its identity, its scope and the end of its validity.
#[derive(Debug)]
pub struct Principal {
    /// The owner of the sessions that this principal registers.
    pub owner: Owner,
    /// The name of the principal in the audit log.
    pub audit_name: Arc<str>,
    /// What it may do.
    pub scope: Scope,
    /// The person in whose name it answers questions, if its scope is `answer`.
    pub human: Option<KeyHuman>,
    /// The tools that it is listed; None: those of the setting.
    pub tools: Option<ToolSet>,
    /// The only project in which it may act; None: any.
    pub only_project: Option<ProjectId>,
    /// Until when its credential is valid.
    pub status: CredentialStatus,
    /// Limits its requests.
    pub rate: Option<RateLimit>,
}

impl Principal {
    /// The key of this project that authenticates the principal; None for every other principal.
    pub fn key_in<'a>(&self, record: &'a ProjectRecord) -> Option<&'a KeyRecord> {
        let is_own = |key: &&KeyRecord| *self.audit_name == *audit_name_of_key(&record.id, &key.id);
        record.keys.iter().find(is_own)
    }
}

fn audit_name_of_key(project: &ProjectId, key: &KeyId) -> String {
    format!("key:{project}/{key}")
}

/// The keys of all projects that are valid, or were when they were last used.
///
/// A key is found by its digest alone. Every invalid key takes the same path, whichever part of it is wrong, so the
/// time of the answer reveals nothing about a guess.
#[derive(Debug, Default)]
pub struct Keyring {
    /// For each key; 0 means no limit.
    requests_per_minute: u32,
    keys: RwLocked<HashMap<u128, KeyEntry>>,
}

#[derive(Clone, Debug)]
struct KeyEntry {
    id: KeyId,
    project: ProjectId,
    digest: KeyDigest,
    principal: Arc<Principal>,
}

impl Keyring {
    /// An empty keyring whose keys each have this limit of requests per minute; 0 means no limit.
    pub fn new(requests_per_minute: u32) -> Self {
        Self {
            requests_per_minute,
            keys: RwLocked::default(),
        }
    }

    /// The principal of the key with this digest. The caller checks whether its credential is still valid.
    pub fn find(&self, digest: &KeyDigest) -> Option<Arc<Principal>> {
        let keys = self.keys.read();
        let found = keys.get(&digest.prefix());
        // An unknown key costs the same comparison as a known one.
        let is_same = found.map_or(digest, |key| &key.digest).matches(digest);
        found.filter(|_| is_same).map(|key| Arc::clone(&key.principal))
    }

    /// When this process last saw the key, in milliseconds since the Unix epoch, rounded down to the minute.
    pub fn last_used_at_ms(&self, digest: &KeyDigest) -> Option<u64> {
        let keys = self.keys.read();
        keys.get(&digest.prefix())?.principal.status.last_used_at_ms()
    }

    /// Revokes all keys of a project.
    pub(crate) fn revoke_all(&self, project: &ProjectId) {
        let mut keys = self.keys.write();
        for (_, key) in keys.extract_if(|_, key| key.project == *project) {
            key.principal.status.set_valid_until_ms(0);
        }
    }

    /// Applies the keys of a project record. Callers see the end of their key through the shared
    /// [`CredentialStatus`]. A key that has ended stays ended even if the clock is set back, unless the record itself was
    /// rolled back to before the revocation.
    pub(crate) fn apply(&self, record: &ProjectRecord, now_ms: u64) {
        let mut keys = self.keys.write();
        keys.retain(|_, key| {
            let is_kept = |known: &KeyRecord| known.id == key.id && known.digest.matches(&key.digest);
            let stays = key.project != record.id || record.keys.iter().any(is_kept);
            if !stays {
                key.principal.status.set_valid_until_ms(0);
            }
            stays
        });
        for known in &record.keys {
            let until = if known.status(now_ms).is_valid() {
                known.valid_until_ms()
            } else {
                0
            };
            if let Some(key) = keys.get(&known.digest.prefix()) {
                key.principal.status.set_valid_until_ms(until);
                continue;
            }
            let principal = Principal {
                owner: Owner::key(&known.lineage),
                audit_name: audit_name_of_key(&record.id, &known.id).into(),
                scope: known.scope,
                human: known.human.clone(),
                tools: known.tools,
                only_project: Some(record.id.clone()),
                status: CredentialStatus::valid_until(until),
                rate: RateLimit::from_per_minute(self.requests_per_minute),
            };
            let key = KeyEntry {
                id: known.id.clone(),
                project: record.id.clone(),
                digest: known.digest.clone(),
                principal: Arc::new(principal),
            };
            keys.insert(known.digest.prefix(), key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ApiKey, IssuedKey, NewKey};

    const NOW: u64 = 1000;

    fn made(record: &mut ProjectRecord) -> IssuedKey {
        let id = KeyId::generate().unwrap();
        let made = IssuedKey {
            key: ApiKey::generate(&record.id, &id).unwrap(),
            id,
        };
        let wanted = NewKey {
            label: None,
            scope: Scope::Member,
            human: None,
            tools: None,
            expires_at_ms: None,
        };
        record.add_key(&made, &wanted, NOW).unwrap();
        made
    }

    #[test]
    fn a_key_is_found_by_its_full_text_only() {
        let (keyring, mut record) = (Keyring::new(0), ProjectRecord::default_project(NOW));
        let made = made(&mut record);
        keyring.apply(&record, NOW);
        let key = made.key.reveal();
        let found = keyring.find(&KeyDigest::of_key(key)).unwrap();
        assert_eq!(
            (found.scope, found.only_project.as_ref()),
            (Scope::Member, Some(&record.id))
        );
        for wrong in [
            "",
            &key[..key.len() - 1],
            &format!("{key}0"),
            &key.replace("default", "other"),
        ] {
            assert!(keyring.find(&KeyDigest::of_key(wrong)).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_revocation_reaches_authenticated_callers() {
        let (keyring, mut record) = (Keyring::new(0), ProjectRecord::default_project(NOW));
        let (kept, gone) = (made(&mut record), made(&mut record));
        keyring.apply(&record, NOW);
        let principals = [&kept, &gone].map(|made| keyring.find(&made.key.digest()).unwrap());
        record.revoke_key(&gone.id, NOW).unwrap();
        keyring.apply(&record, NOW);
        assert_eq!(principals.each_ref().map(|who| who.status.is_valid(NOW)), [true, false]);
        record.keys.clear();
        keyring.apply(&record, NOW);
        assert!(!principals[0].status.is_valid(NOW) && keyring.find(&kept.key.digest()).is_none());
    }

    #[test]
    fn a_record_leaves_the_keys_of_other_projects_alone() {
        let keyring = Keyring::new(0);
        let (mut here, mut there) = (ProjectRecord::default_project(NOW), ProjectRecord::default_project(NOW));
        there.id = ProjectId::parse("there").unwrap();
        let made = made(&mut here);
        keyring.apply(&here, NOW);
        there.revision = 1;
        keyring.apply(&there, NOW);
        assert!(keyring.find(&made.key.digest()).unwrap().status.is_valid(NOW));
    }
}
