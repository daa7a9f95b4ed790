//! The lenses of one protocol, ready to be used, and the paths that they make.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use lens::{Direction, Edge, Plan};
use semver::Version;

use super::LensPath;
use crate::{locked::Locked, model::LensRecord};

/// Paths that are kept for one protocol. Beyond this all are searched for again.
const PLANS_LEN_MAX: usize = 1024;

/// A lens with its compiled operations.
#[derive(Clone, Debug)]
pub struct RegisteredLens {
    pub record: Arc<LensRecord>,
    pub compiled: Arc<lens::Compiled>,
}

impl RegisteredLens {
    /// Approximate bytes.
    fn bytes_len(&self) -> usize {
        // A value takes some times its text.
        let text = serde_json::to_string(&*self.record).unwrap_or_default();
        self.compiled.bytes_len() + 4 * text.len()
    }
}

/// The paths from one version, by the versions that a recipient declares.
type PlansFrom = HashMap<BTreeSet<Version>, Option<Arc<LensPath>>>;

/// The paths that were searched for.
#[derive(Debug, Default)]
struct Plans {
    len: usize,
    by_version: HashMap<Version, PlansFrom>,
    /// By its versions, so that recipients that declare other versions share a path.
    by_path: HashMap<Vec<Version>, Arc<LensPath>>,
}

/// A stored lens that does not compile in this build.
#[derive(Debug)]
pub(super) struct BrokenLens {
    pub record: Arc<LensRecord>,
    /// Both of its versions are in the catalog. Otherwise it may compile once they are.
    pub has_versions: bool,
}

/// The lenses between the versions of one protocol. They never change: with a change of a lens the catalog gets new ones.
#[derive(Debug, Default)]
pub struct Lenses {
    registered: Vec<RegisteredLens>,
    broken: Vec<BrokenLens>,
    /// Approximate bytes of the lenses.
    bytes_len: usize,
    edges: Vec<Edge>,
    plans: Locked<Plans>,
}

impl Lenses {
    /// Lenses that are ordered by their versions.
    #[must_use]
    pub fn new(mut registered: Vec<RegisteredLens>) -> Self {
        registered.sort_by(|a, b| (&a.record.to, &a.record.from).cmp(&(&b.record.to, &b.record.from)));
        let edge = |lens: &RegisteredLens| Edge {
            from: lens.record.from.clone(),
            to: lens.record.to.clone(),
            direction: lens.record.direction,
            compiled: Arc::clone(&lens.compiled),
        };
        Self {
            edges: registered.iter().map(edge).collect(),
            bytes_len: registered.iter().map(RegisteredLens::bytes_len).sum(),
            registered,
            broken: Vec::new(),
            plans: Locked::default(),
        }
    }

    /// With stored lenses that do not compile.
    pub(super) fn with_broken(self, broken: Vec<BrokenLens>) -> Self {
        Self { broken, ..self }
    }

    /// Whether no lens is stored.
    pub(super) fn is_empty(&self) -> bool {
        self.registered.is_empty() && self.broken.is_empty()
    }

    /// Whether these are the lenses with these records. `has_versions` says whether a lens might compile now.
    pub(super) fn are(&self, records: &[Arc<LensRecord>], has_versions: impl Fn(&LensRecord) -> bool) -> bool {
        let is_broken = |record: &Arc<LensRecord>| {
            self.broken
                .iter()
                .any(|own| own.record == *record && (own.has_versions || !has_versions(record)))
        };
        let is_known = |record: &Arc<LensRecord>| {
            let own = self.of_pair(&record.from, &record.to);
            own.is_some_and(|own| own.record == *record) || is_broken(record)
        };
        self.registered.len() + self.broken.len() == records.len() && records.iter().all(is_known)
    }

    /// The first lens that does not compile on a way from a version to one of the declared ones, and that one.
    #[must_use]
    pub fn broken_between<'a>(
        &'a self,
        from: &'a Version,
        declared: &BTreeSet<Version>,
    ) -> Option<(&'a LensRecord, &'a Version)> {
        if self.broken.is_empty() {
            return None;
        }
        let records = self.registered.iter().map(|lens| (&*lens.record, false));
        let records: Vec<_> = records
            .chain(self.broken.iter().map(|lens| (&*lens.record, true)))
            .collect();
        // The versions that are reached, each with the first broken lens on the way there.
        let mut reached: Vec<(&Version, Option<&LensRecord>)> = vec![(from, None)];
        let mut at = 0;
        while let Some(&(version, broken)) = reached.get(at) {
            at += 1;
            if declared.iter().any(|own| own.cmp_precedence(version).is_eq()) {
                return Some((broken?, version));
            }
            for (record, is_broken) in &records {
                let ways = [
                    (&record.from, &record.to, Direction::Forward),
                    (&record.to, &record.from, Direction::Backward),
                ];
                for (here, there, way) in ways {
                    let is_new = here.cmp_precedence(version).is_eq()
                        && record.direction.includes(way)
                        && !reached.iter().any(|(known, _)| known.cmp_precedence(there).is_eq());
                    if is_new {
                        reached.push((there, broken.or(is_broken.then_some(*record))));
                    }
                }
            }
        }
        None
    }

    /// Approximate bytes of the lenses.
    #[must_use]
    pub const fn bytes_len(&self) -> usize {
        self.bytes_len
    }

    /// All lenses, by `to`, then by `from`.
    #[must_use]
    pub fn registered(&self) -> &[RegisteredLens] {
        &self.registered
    }

    /// The lenses into a version, by `from`.
    #[must_use]
    pub fn into_version(&self, to: &Version) -> &[RegisteredLens] {
        let begin = self
            .registered
            .partition_point(|lens| lens.record.to.cmp_precedence(to).is_lt());
        let rest = &self.registered[begin..];
        &rest[..rest.partition_point(|lens| lens.record.to.cmp_precedence(to).is_eq())]
    }

    /// The lens of this pair of versions.
    #[must_use]
    pub fn of_pair(&self, from: &Version, to: &Version) -> Option<&RegisteredLens> {
        let is_pair = |lens: &&RegisteredLens| {
            lens.record.from.cmp_precedence(from).is_eq() && lens.record.to.cmp_precedence(to).is_eq()
        };
        self.registered.iter().find(is_pair)
    }

    /// The best path from a version to one of the declared ones; None if no lenses lead there. A path is empty if `from` is
    /// declared. As long as the lenses are the same, the same versions get the same path.
    #[must_use]
    pub fn plan(&self, from: &Version, declared: &BTreeSet<Version>) -> Option<Arc<LensPath>> {
        let known = |plans: &Plans| plans.by_version.get(from)?.get(declared).cloned();
        if let Some(known) = known(&self.plans.lock()) {
            return known;
        }
        let accepted: Vec<_> = declared.iter().cloned().collect();
        // Without the lock: it may take milliseconds.
        let found = Plan::find(&self.edges, from, &accepted);
        let mut plans = self.plans.lock();
        if let Some(known) = known(&plans) {
            return known;
        }
        if plans.len == PLANS_LEN_MAX {
            plans.by_version.clear();
            plans.len = 0;
        }
        let plan = found.map(|plan| {
            let path = plans.by_path.entry(plan.versions().to_vec());
            Arc::clone(path.or_insert_with(|| Arc::new(plan.into())))
        });
        let known = plans.by_version.entry(from.clone()).or_default();
        known.insert(declared.clone(), plan.clone());
        plans.len += 1;
        plan
    }
}
