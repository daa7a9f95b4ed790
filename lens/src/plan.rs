//! The path of lenses from one version to another.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use semver::Version;
use serde::Serialize;

use crate::{
    Class, Direction, TransformError,
    path::Places,
    transform::{Compiled, Request, Step, Transformed, transform},
};

/// The longest path.
pub const STEPS_MAX: usize = 8;

/// A registered lens between two versions of a protocol.
#[derive(Clone, Debug)]
pub struct Edge {
    pub from: Version,
    /// Higher in precedence than `from`.
    pub to: Version,
    pub direction: Direction,
    pub compiled: Arc<Compiled>,
}

/// A path of lenses. Empty for a version that is accepted as it is.
#[derive(Clone, Debug)]
pub struct Plan {
    versions: Vec<Version>,
    /// The versions as a complement names them: without build metadata.
    names: Vec<String>,
    steps: Vec<Hop>,
}

#[derive(Clone, Debug)]
struct Hop {
    compiled: Arc<Compiled>,
    rises: bool,
}

/// What a path does, for those who ask before they send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    pub class: Class,
    pub steps: usize,
    pub may_lose: Places,
}

/// The versions of a path without build metadata, for comparing.
type Key = (u64, u64, u64, semver::Prerelease);

fn key(version: &Version) -> Key {
    (version.major, version.minor, version.patch, version.pre.clone())
}

/// A path that is being searched: its worst class decides, then higher versions from the sender's end.
#[derive(Clone)]
struct Candidate {
    class: Class,
    versions: Vec<Key>,
    steps: Vec<(usize, bool)>,
}

impl Plan {
    /// The best path from a version to one of those that are accepted. One that only rises or only falls comes first,
    /// then fewer steps, then the better class of the worst step, then the higher version at the end, then higher
    /// versions on the way from the sender's end. None if there is none of at most eight steps.
    pub fn find(edges: &[Edge], from: &Version, accepted: &[Version]) -> Option<Self> {
        let accepted: Vec<_> = accepted.iter().map(key).collect();
        let start = Candidate {
            class: Class::Exact,
            versions: vec![key(from)],
            steps: Vec::new(),
        };
        if accepted.contains(&start.versions[0]) {
            return Some(Self::of(edges, from, &start));
        }
        let ways = ways(edges);
        let search = |ways: &[&Way]| search(ways, &start, &accepted);
        let rising: Vec<_> = ways.iter().filter(|way| way.rises).collect();
        let falling: Vec<_> = ways.iter().filter(|way| !way.rises).collect();
        let straight = [search(&rising), search(&falling)]
            .into_iter()
            .flatten()
            .min_by_key(rank);
        let best = straight.or_else(|| search(&ways.iter().collect::<Vec<_>>()))?;
        Some(Self::of(edges, from, &best))
    }

    fn of(edges: &[Edge], from: &Version, candidate: &Candidate) -> Self {
        let mut versions = vec![from.clone()];
        let mut steps = Vec::new();
        for &(at, rises) in &candidate.steps {
            let edge = &edges[at];
            versions.push(if rises { &edge.to } else { &edge.from }.clone());
            steps.push(Hop {
                compiled: Arc::clone(&edge.compiled),
                rises,
            });
        }
        let name = |version: &Version| {
            Version {
                build: semver::BuildMetadata::EMPTY,
                ..version.clone()
            }
            .to_string()
        };
        let names = versions.iter().map(name).collect();
        Self { versions, names, steps }
    }

    /// The versions on the path, the sender's first.
    pub fn versions(&self) -> &[Version] {
        &self.versions
    }

    /// The versions as text, without build metadata.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        self.steps.iter().map(|hop| {
            let (forward, backward) = (&hop.compiled.forward, &hop.compiled.backward);
            let (there, back) = if hop.rises {
                (forward, backward)
            } else {
                (backward, forward)
            };
            Step { there, back }
        })
    }

    /// What the path does to payloads. Places are those of the sender's version.
    pub fn describe(&self) -> Description {
        let mut before = Vec::new();
        let (mut class, mut may_lose) = (Class::Exact, Places::default());
        for step in self.steps() {
            class = class.max(step.there.class.min(Class::Defaulted));
            for place in &step.there.may_lose {
                let origin = before
                    .iter()
                    .rev()
                    .try_fold(place.clone(), |path, act: &&crate::act::Act| {
                        act.operation.origin(&path)
                    });
                if let Some(origin) = origin {
                    may_lose.insert(origin);
                }
            }
            before.extend(&step.there.acts);
        }
        if !may_lose.is_empty() {
            class = Class::Lossy;
        }
        Description {
            class,
            steps: self.steps.len(),
            may_lose,
        }
    }

    /// Transforms a payload that fits the first version. `fits` validates a text against the version of this index in
    /// [`Self::versions`]: always the result, and in between only what has undeclared members. `work` is the budget, in
    /// nanoseconds of the slowest case; what `fits` takes is not part of it.
    ///
    /// # Errors
    /// If an operation cannot be carried out, or the result does not fit, is too large or too expensive.
    pub fn apply(
        &self,
        request: Request<'_>,
        work: &mut u64,
        fits: &mut dyn FnMut(usize, &str) -> bool,
    ) -> Result<Transformed, TransformError> {
        let steps: Vec<_> = self.steps().collect();
        transform(&steps, &self.names, request, work, fits)
    }
}

/// A lens in one direction.
struct Way {
    edge: usize,
    rises: bool,
    from: Key,
    to: Key,
    class: Class,
}

fn ways(edges: &[Edge]) -> Vec<Way> {
    let mut ways = Vec::new();
    for (at, edge) in edges.iter().enumerate() {
        let (from, to) = (key(&edge.from), key(&edge.to));
        if edge.direction.includes(Direction::Forward) {
            let class = edge.compiled.forward.class;
            ways.push(Way {
                edge: at,
                rises: true,
                from: from.clone(),
                to: to.clone(),
                class,
            });
        }
        if edge.direction.includes(Direction::Backward) {
            ways.push(Way {
                edge: at,
                rises: false,
                from: to,
                to: from,
                class: edge.compiled.backward.class,
            });
        }
    }
    ways
}

/// What decides between paths, the best least.
fn rank(candidate: &Candidate) -> (usize, Class, Reverse<Option<Key>>, Reverse<Vec<Key>>) {
    let end = candidate.versions.last().cloned();
    (
        candidate.steps.len(),
        candidate.class,
        Reverse(end),
        Reverse(candidate.versions.clone()),
    )
}

/// Breadth first, with the best path to each version for each class of its worst step: what is added later can make up for
/// a class, and not for the versions on the way.
fn search(ways: &[&Way], start: &Candidate, accepted: &[Key]) -> Option<Candidate> {
    let mut by_start: BTreeMap<&Key, Vec<&Way>> = BTreeMap::new();
    for way in ways {
        by_start.entry(&way.from).or_default().push(way);
    }
    let mut layer = vec![start.clone()];
    for _ in 0..STEPS_MAX {
        let mut next: BTreeMap<(Key, Class), Candidate> = BTreeMap::new();
        for candidate in &layer {
            for way in by_start
                .get(&candidate.versions[candidate.versions.len() - 1])
                .into_iter()
                .flatten()
            {
                let mut longer = candidate.clone();
                longer.class = longer.class.max(way.class);
                longer.versions.push(way.to.clone());
                longer.steps.push((way.edge, way.rises));
                let best = next
                    .entry((way.to.clone(), longer.class))
                    .or_insert_with(|| longer.clone());
                if longer.versions > best.versions {
                    *best = longer;
                }
            }
        }
        layer = next.into_values().collect();
        let reached = layer
            .iter()
            .filter(|candidate| candidate.versions.last().is_some_and(|end| accepted.contains(end)));
        if let Some(best) = reached.min_by_key(|candidate| rank(candidate)) {
            return Some(best.clone());
        }
    }
    None
}
