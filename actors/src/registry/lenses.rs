//! The lenses of one protocol, ready to be used, and the paths that they make.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use lens::{Edge, Lens, Plan};
use semver::Version;

use super::catalog::Catalog;
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
    /// Compiles a lens that was checked when it was registered.
    fn compile(catalog: &Catalog, record: &Arc<LensRecord>) -> Result<Self, String> {
        let version = |version: &Version| {
            let protocol = catalog.get(record.name.as_str(), &version.to_string());
            protocol.ok_or_else(|| format!("version {version} is not registered"))
        };
        let (source, target) = (version(&record.from)?, version(&record.to)?);
        let compiled = Lens::parse(&record.ops)
            .and_then(|lens| lens.compile(&source.record.schema, &target.record.schema, record.direction));
        Ok(Self {
            record: Arc::clone(record),
            compiled: Arc::new(compiled.map_err(|error| error.to_string())?),
        })
    }

    /// Approximate bytes.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        // A value takes some times its text.
        self.compiled.bytes_len() + 4 * self.record.ops.to_string().len()
    }
}

/// The paths from one version, by the versions that a recipient declares.
type PlansFrom = HashMap<BTreeSet<Version>, Option<Arc<Plan>>>;

/// The lenses between the versions of one protocol. They never change: with a change of a lens the catalog gets new ones.
#[derive(Debug, Default)]
pub struct Lenses {
    registered: Vec<RegisteredLens>,
    edges: Vec<Edge>,
    plans: Locked<(usize, HashMap<Version, PlansFrom>)>,
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
            registered,
            plans: Locked::default(),
        }
    }

    /// Compiles stored lenses of one protocol. Takes those of `known` that are the same. One that does not compile is logged and
    /// ignored.
    pub(super) fn compile(catalog: &Catalog, known: Option<&Self>, records: Vec<Arc<LensRecord>>) -> Self {
        let compiled = records.into_iter().filter_map(|record| {
            let unchanged = known.and_then(|known| known.of_pair(&record.from, &record.to));
            if let Some(unchanged) = unchanged.filter(|known| known.record == record) {
                return Some(unchanged.clone());
            }
            RegisteredLens::compile(catalog, &record)
                .inspect_err(|error| {
                    let LensRecord { name, from, to, .. } = &*record;
                    tracing::error!(%name, %from, %to, error, "a stored lens does not compile and is ignored");
                })
                .ok()
        });
        Self::new(compiled.collect())
    }

    /// Whether these are the lenses with these records.
    pub(super) fn are(&self, records: &[Arc<LensRecord>]) -> bool {
        let own = self.registered.iter().map(|lens| &lens.record);
        self.registered.len() == records.len() && own.zip(records).all(|(own, record)| own == record)
    }

    /// Approximate bytes of the lenses.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        self.registered.iter().map(RegisteredLens::bytes_len).sum()
    }

    /// All lenses, by `to`, then by `from`.
    #[must_use]
    pub fn registered(&self) -> &[RegisteredLens] {
        &self.registered
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
    pub fn plan(&self, from: &Version, declared: &BTreeSet<Version>) -> Option<Arc<Plan>> {
        let (len, plans) = &mut *self.plans.lock();
        if let Some(known) = plans.get(from).and_then(|plans| plans.get(declared)) {
            return known.clone();
        }
        if *len == PLANS_LEN_MAX {
            plans.clear();
            *len = 0;
        }
        let accepted: Vec<_> = declared.iter().cloned().collect();
        let plan = Plan::find(&self.edges, from, &accepted).map(Arc::new);
        plans
            .entry(from.clone())
            .or_default()
            .insert(declared.clone(), plan.clone());
        *len += 1;
        plan
    }
}
