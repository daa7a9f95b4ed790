//! What lenses do for two sessions that declare a protocol in versions that semver keeps apart.

use std::collections::{BTreeMap, BTreeSet};

use lens::{Class, Description};
use semver::{Version, VersionReq};
use serde::Serialize;

use crate::model::ProtocolName;

/// Finds the path of lenses from a version to one of these: the version that it leads to, and what it does. None without one.
pub type Paths<'f> = &'f dyn Fn(&ProtocolName, &Version, &BTreeSet<Version>) -> Option<(Version, Description)>;

/// The newest versions of one side from which paths are searched for.
const TRIED_MAX: usize = 4;

/// The lenses between two sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ByLens {
    /// The version in which this session sends.
    pub ours: Version,
    /// The version in which the target session sends.
    pub theirs: Version,
    /// What becomes of messages of this session; None if no lenses lead there.
    pub send: Option<Description>,
    /// What becomes of messages of the target session; None if no lenses lead here.
    pub receive: Option<Description>,
}

impl ByLens {
    /// Whether messages are transformed both ways.
    pub fn is_both_ways(&self) -> bool {
        self.send.is_some() && self.receive.is_some()
    }

    /// The versions, if messages are transformed both ways.
    pub fn both_ways(self) -> Option<LensVersions> {
        self.is_both_ways().then_some(LensVersions {
            a: self.ours,
            b: self.theirs,
        })
    }

    fn loses(&self) -> bool {
        let is_lossy = |way: &Option<Description>| way.as_ref().is_some_and(|way| way.class == Class::Lossy);
        is_lossy(&self.send) || is_lossy(&self.receive)
    }
}

/// The versions in which two sessions send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LensVersions {
    pub a: Version,
    pub b: Version,
}

/// The best lenses between the versions of two sessions: both ways rather than one, then our highest version that meets the
/// requirement, then our highest.
pub(super) fn by_lens(
    name: &ProtocolName,
    ours: &BTreeSet<Version>,
    theirs: &BTreeSet<Version>,
    requirement: &VersionReq,
    paths: Paths<'_>,
) -> Option<ByLens> {
    let (wanted, others): (Vec<_>, Vec<_>) = ours.iter().rev().partition(|version| admits(requirement, version));
    let mut one_way = None;
    for version in wanted.into_iter().chain(others).take(TRIED_MAX) {
        let Some((end, send)) = paths(name, version, theirs) else {
            continue;
        };
        let back = paths(name, &end, ours);
        let found = ByLens {
            ours: version.clone(),
            theirs: end,
            send: Some(send),
            receive: back.map(|(_, receive)| receive),
        };
        if found.is_both_ways() {
            return Some(found);
        }
        one_way.get_or_insert(found);
    }
    one_way.or_else(|| {
        theirs.iter().rev().take(TRIED_MAX).find_map(|version| {
            let (end, receive) = paths(name, version, ours)?;
            Some(ByLens {
                ours: end,
                theirs: version.clone(),
                send: None,
                receive: Some(receive),
            })
        })
    })
}

/// Names the upgrade that ends a loss, and the lens that is missing.
pub(super) fn add_lens_advice(by_lens: &BTreeMap<ProtocolName, ByLens>, out: &mut Vec<String>) {
    for (name, found) in by_lens {
        let (ours, theirs) = (&found.ours, &found.theirs);
        if !found.is_both_ways() {
            let (from, to) = if found.send.is_none() {
                (ours, theirs)
            } else {
                (theirs, ours)
            };
            out.push(format!(
                "or register a lens by which {name} {from} becomes {to}: only the way back exists"
            ));
        } else if found.loses() {
            let (low, high, older) = if ours < theirs {
                (ours, theirs, "this session")
            } else {
                (theirs, ours, "the target session")
            };
            out.push(format!(
                "upgrade {name} from {low} to {} on {older}: the lenses between them may lose what it sends or gets",
                compatible_range(high)
            ));
        }
    }
}

/// Whether a version meets a requirement. A star admits no prerelease, yet with no requirement two sessions that share one
/// agree on it.
pub(super) fn admits(requirement: &VersionReq, version: &Version) -> bool {
    *requirement == VersionReq::STAR || requirement.matches(version)
}

/// The versions that semver calls compatible with this one: 2.x, 0.3.x, 0.0.4.
pub(super) fn compatible_range(version: &Version) -> String {
    match (version.major, version.minor) {
        _ if !version.pre.is_empty() => version.to_string(),
        (0, 0) => version.to_string(),
        (0, minor) => format!("0.{minor}.x"),
        (major, _) => format!("{major}.x"),
    }
}
