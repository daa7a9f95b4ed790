//! Property test: what a project record guarantees after any sequence of changes.
//!
//! The test applies changes as the broker does: to a copy, which replaces the record when the change succeeds, and
//! never to a closed project.

use std::{collections::HashMap, iter};

use proptest::{collection::vec, option, prelude::*};

use super::{grants::GRANTS_LEN_MAX, *};
use crate::model::ProtocolName;

#[derive(Clone, Debug)]
enum Step {
    Pass {
        ms: u64,
    },
    AddKeys {
        count: usize,
        scope: Scope,
        good_for_ms: Option<u64>,
    },
    /// The key at this position, counted from the newest.
    Revoke {
        at: usize,
    },
    /// The key at this position, or (None) all keys.
    Rotate {
        at: Option<usize>,
        grace_ms: u64,
    },
    Grant {
        count: usize,
        protocols: usize,
        rate: u32,
    },
    RevokeGrant,
    Change(ProjectChanges),
    Close,
}

fn a_while() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..20_u64, Just(u64::MAX)]
}

fn change() -> impl Strategy<Value = ProjectChanges> {
    let limit = || option::of(option::of(prop_oneof![0..3_usize, Just(1_000_000), Just(usize::MAX)]));
    let text = |most: usize| option::of((0..2 * most).prop_map(|len| "x".repeat(len)));
    let tags = option::of((0..2 * TAGS_LEN_MAX).prop_map(|count| (0..count).map(|tag| tag.to_string()).collect()));
    (
        (text(NAME_CHARS_MAX), option::of(text(DESCRIPTION_CHARS_MAX)), tags),
        (any::<Option<bool>>(), limit(), limit(), limit(), any::<Option<u32>>()),
    )
        .prop_map(|((name, description, tags), config)| ProjectChanges {
            name,
            description,
            tags,
            config: ConfigChanges {
                allow_cross_project: config.0,
                discoverable: config.0,
                max_sessions: config.1,
                max_protocols: config.2,
                queue_capacity: config.3,
                rate_limit: config.4,
            },
        })
}

fn step() -> impl Strategy<Value = Step> {
    let scope = prop_oneof![
        Just(Scope::Observer),
        Just(Scope::Answer),
        Just(Scope::Member),
        Just(Scope::Admin),
        Just(Scope::Operator)
    ];
    let add = (1..60_usize, scope, option::of(a_while())).prop_map(|(count, scope, good_for_ms)| Step::AddKeys {
        count,
        scope,
        good_for_ms,
    });
    let rotate = (option::of(0..8_usize), a_while()).prop_map(|(at, grace_ms)| Step::Rotate { at, grace_ms });
    let grant = (1..600_usize, 0..3_usize, any::<u32>()).prop_map(|(count, protocols, rate)| Step::Grant {
        count,
        protocols,
        rate,
    });
    prop_oneof![
        6 => (1..30_u64).prop_map(|ms| Step::Pass { ms }),
        6 => add,
        6 => (0..250_usize).prop_map(|at| Step::Revoke { at }),
        8 => rotate,
        2 => grant,
        1 => Just(Step::RevokeGrant),
        3 => change().prop_map(Step::Change),
        1 => Just(Step::Close),
    ]
}

struct World {
    record: ProjectRecord,
    now_ms: u64,
    made: usize,
    targets: usize,
    /// The first key of the rotation chain of every key that ever existed.
    lineages: HashMap<KeyId, KeyId>,
    /// The earliest end of validity observed for every key that ever existed.
    ends_ms: HashMap<KeyId, u64>,
}

impl World {
    fn new() -> Self {
        Self {
            record: ProjectRecord::default_project(1000),
            now_ms: 1000,
            made: 0,
            targets: 0,
            lineages: HashMap::new(),
            ends_ms: HashMap::new(),
        }
    }

    fn makes_a_key(&mut self) -> IssuedKey {
        self.made += 1;
        let id = KeyId::parse(&format!("k{}", self.made)).unwrap();
        let key = ApiKey::generate(&self.record.id, &id).unwrap();
        IssuedKey { id, key }
    }

    /// The key at a position, counted from the newest.
    fn key_at(&self, at: usize) -> Option<KeyId> {
        self.record.keys.iter().rev().nth(at).map(|key| key.id.clone())
    }

    fn update(&mut self, update: impl FnOnce(&mut ProjectRecord) -> Result<(), BrokerError>) -> bool {
        let mut record = self.record.clone();
        let updated = update(&mut record).is_ok();
        if updated {
            self.record = record;
        }
        updated
    }

    fn takes(&mut self, step: Step) {
        let now_ms = self.now_ms;
        match step {
            Step::Pass { ms } => self.now_ms += ms,
            Step::AddKeys {
                count,
                scope,
                good_for_ms,
            } => {
                let wanted = NewKey {
                    label: None,
                    scope,
                    human: (scope == Scope::Answer).then(|| KeyHuman::parse("mara", Vec::new()).unwrap()),
                    tools: None,
                    expires_at_ms: good_for_ms.map(|ms| now_ms.saturating_add(ms)),
                };
                for _ in 0..count {
                    let made = self.makes_a_key();
                    if self.update(|record| record.add_key(&made, &wanted, now_ms)) {
                        self.lineages.insert(made.id.clone(), made.id);
                    }
                }
            }
            Step::Revoke { at } => {
                if let Some(id) = self.key_at(at) {
                    assert!(self.update(|record| record.revoke_key(&id, now_ms).map(drop)));
                    let key = self.record.keys.iter().find(|key| key.id == id).unwrap();
                    assert!(!key.status(now_ms).is_valid());
                }
            }
            Step::Rotate { at, grace_ms } => self.rotates(at, grace_ms),
            Step::Grant { count, protocols, rate } => {
                let names = ["chat", "call", "mail"].iter().take(protocols);
                let grant = Grant {
                    protocols: names.map(|name| ProtocolName::parse(name).unwrap()).collect(),
                    message_rate_limit: rate,
                    granted_at_ms: now_ms,
                };
                for _ in 0..count {
                    self.targets += 1;
                    let target = ProjectId::parse(&format!("t{}", self.targets)).unwrap();
                    self.update(|record| record.grant(target, grant.clone()));
                }
                let own = self.record.id.clone();
                assert!(!self.update(|record| record.grant(own, grant)));
            }
            Step::RevokeGrant => drop(self.record.grants.pop_first()),
            Step::Change(changes) => drop(self.update(|record| record.change(&changes))),
            Step::Close => self.record.close(now_ms),
        }
    }

    fn rotates(&mut self, at: Option<usize>, grace_ms: u64) {
        let now_ms = self.now_ms;
        let only = at.and_then(|at| self.key_at(at));
        if at.is_some() != only.is_some() {
            return;
        }
        let Ok(old) = self.record.rotatable_keys(only.as_ref(), now_ms) else {
            return;
        };
        let active = |record: &ProjectRecord| {
            let is_active = |key: &&KeyRecord| key.status(now_ms) == KeyStatus::Active;
            record.keys.iter().filter(is_active).count()
        };
        let before = active(&self.record);
        let replaced: Vec<_> = old.into_iter().map(|id| (id, self.makes_a_key())).collect();
        let retired_at_ms = now_ms.saturating_add(grace_ms);
        if self.update(|record| record.rotate(&replaced, retired_at_ms, now_ms)) {
            assert_eq!(active(&self.record), before, "each key is replaced by one");
            for (old, made) in replaced {
                let lineage = self.lineages[&old].clone();
                // The record may have dropped it already.
                let end = self.ends_ms.entry(old).or_insert(u64::MAX);
                *end = retired_at_ms.min(*end);
                self.lineages.insert(made.id, lineage);
            }
        }
    }

    fn holds(&mut self) {
        let ProjectRecord { keys, grants, .. } = &self.record;
        let now_ms = self.now_ms;
        let with = |status| keys.iter().filter(|key| key.status(now_ms) == status).count();
        assert!(with(KeyStatus::Active) <= KEYS_LEN_MAX);
        assert!(
            keys.len() <= 2 * KEYS_LEN_MAX + RETIRED_KEYS_LEN_MAX,
            "{} keys, of which {} are being retired",
            keys.len(),
            with(KeyStatus::Retiring)
        );
        assert!(grants.len() <= GRANTS_LEN_MAX);
        assert!(self.record.check().is_ok());
        let ids: BTreeSet<_> = keys.iter().map(|key| &key.id).collect();
        assert_eq!(ids.len(), keys.len(), "an id names one key");
        for key in keys {
            assert_eq!(key.lineage, self.lineages[&key.id]);
            let end = self.ends_ms.entry(key.id.clone()).or_insert(u64::MAX);
            assert!(key.valid_until_ms() <= *end, "validity is never extended");
            *end = key.valid_until_ms();
            assert_eq!(key.status(now_ms).is_valid(), now_ms < *end);
        }
        // A key that left the record is invalid and never returns.
        let forgotten = self.ends_ms.iter_mut().filter(|(id, _)| !ids.contains(id));
        for (_, end) in forgotten {
            assert!(*end <= now_ms, "dropped while it was valid");
            *end = 0;
        }
        if !self.record.active {
            assert!(grants.is_empty() && keys.iter().all(|key| !key.status(now_ms).is_valid()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_record_keeps_its_guarantees_under_any_changes(steps in vec(step(), 1..40)) {
        let mut world = World::new();
        for step in steps.into_iter().chain(iter::once(Step::Close)) {
            if !world.record.active {
                break;
            }
            world.takes(step);
            world.holds();
        }
        let text = serde_json::to_string(&world.record).unwrap();
        prop_assert_eq!(serde_json::from_str::<ProjectRecord>(&text).unwrap(), world.record);
    }
}
