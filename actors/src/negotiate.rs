//! Compares what two sessions can speak. Pure functions over their capabilities.

use std::collections::{BTreeMap, BTreeSet};

use semver::{Version, VersionReq};
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::model::{Capabilities, ProtocolName, SessionId, TEXT_PROTOCOL, are_compatible};
use by_lens::{add_lens_advice, admits, by_lens, compatible_range};

mod by_lens;

pub use by_lens::{ByLens, LensVersions, Paths};

/// Suggestions of one negotiation, at most; the incompatibilities are always complete.
const SUGGESTIONS_LEN_MAX: usize = 20;

/// A protocol that a negotiation must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequiredProtocol {
    pub name: ProtocolName,
    /// The requirement for the agreed version. A bare version is the caret requirement that semver's `VersionReq`
    /// makes of it: `1.1.0` is at least 1.1.0 and below 2.0.0.
    #[serde(deserialize_with = "requirement")]
    pub version: VersionReq,
}

fn requirement<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VersionReq, D::Error> {
    let text = String::deserialize(deserializer)?;
    let refused = |_| {
        D::Error::custom(format!(
            "{text:.20?} is not a version requirement such as ^1.2 or >=1, <3"
        ))
    };
    VersionReq::parse(&text).map_err(refused)
}

/// The result of `negotiate_capabilities`, with the field names of the contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Negotiation {
    pub compatible: bool,
    /// The version to use of each protocol that both declare in compatible versions, required or not.
    pub supported_protocols: BTreeMap<ProtocolName, Version>,
    /// What lenses do for protocols that both declare without a compatible version.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_lens: BTreeMap<ProtocolName, ByLens>,
    pub feature_intersections: BTreeSet<String>,
    pub unsupported_features: UnsupportedFeatures,
    pub incompatibilities: Vec<Incompatibility>,
    pub suggestions: Vec<String>,
}

/// Features that only one side has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnsupportedFeatures {
    /// Features of the caller that the target lacks.
    pub ours: BTreeSet<String>,
    /// Features of the target that the caller lacks.
    pub theirs: BTreeSet<String>,
}

/// Why one protocol cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Incompatibility {
    pub protocol: ProtocolName,
    pub reason: IncompatibilityReason,
    pub ours: BTreeSet<Version>,
    pub theirs: BTreeSet<Version>,
}

/// Why a protocol cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IncompatibilityReason {
    /// Required, and only the caller declares it.
    NotSupportedByTarget,
    /// Required, and only the target declares it.
    NotSupportedByUs,
    /// Required, and neither side declares it.
    NotSupported,
    /// Both declare it, in versions that semver keeps apart.
    NoCompatibleVersion,
    /// Both can speak it, but in no version that satisfies the requirement.
    RequirementNotMet,
}

/// One pair of sessions in `compatibility_matrix`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatrixRow {
    pub session_a: SessionId,
    pub session_b: SessionId,
    pub compatible: bool,
    /// With the version to use.
    pub common_protocols: BTreeMap<ProtocolName, Version>,
    /// Protocols for which lenses lead both ways, with the version of each side.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_lens: BTreeMap<ProtocolName, LensVersions>,
    pub common_features: BTreeSet<String>,
}

/// Compares what two sessions declare.
///
/// They are compatible when they can exchange a message. With `required`, each of these protocols must be agreed on
/// as required. Without, they must agree on a version of at least one protocol, or one side declares no protocol at
/// all, because such a session accepts any ([`Capabilities::accepts`]). Features never make a pair incompatible. A
/// required protocol must be declared: a side without any protocols fails every requirement.
///
/// Where two versions of a protocol are not compatible, lenses that lead both ways replace the agreement.
///
/// The built-in `text` counts as declared by both where one declares or requires it. Elsewhere it does not count: every
/// session speaks it, so it would make each pair compatible.
pub fn negotiate(
    ours: &Capabilities,
    theirs: &Capabilities,
    required: &[RequiredProtocol],
    paths: Paths<'_>,
) -> Negotiation {
    let is_text_wanted = required.iter().any(|wanted| wanted.name.as_str() == TEXT_PROTOCOL);
    let features = (&ours.supported_features, &theirs.supported_features);
    let (ours, theirs) = &Spoken::pair(ours, theirs, is_text_wanted);
    let supported_protocols = agreements(ours, theirs);
    let requirement_of = |name: &ProtocolName| required.iter().find(|wanted| wanted.name == *name);
    let by_lens: BTreeMap<_, _> = apart(ours, theirs, &supported_protocols)
        .filter_map(|(name, ours, theirs)| {
            let wanted = requirement_of(name).map_or(VersionReq::STAR, |wanted| wanted.version.clone());
            Some((name.clone(), by_lens(name, ours, theirs, &wanted, paths)?))
        })
        .collect();
    // The first unmet requirement of each protocol. The reason is the same for all of them, so it is given once.
    let mut unmet = BTreeMap::new();
    for wanted in required {
        if let Some(reason) = unmet_reason(ours, theirs, wanted, &supported_protocols, &by_lens) {
            unmet.entry(&wanted.name).or_insert((reason, wanted));
        }
    }
    let compatible = if required.is_empty() {
        can_exchange(ours, theirs, &supported_protocols) || by_lens.values().any(ByLens::is_both_ways)
    } else {
        unmet.is_empty()
    };
    let mut reasons: BTreeMap<_, _> = unmet.iter().map(|(name, (reason, _))| (*name, *reason)).collect();
    let is_bridged = |name: &ProtocolName| by_lens.get(name).is_some_and(ByLens::is_both_ways);
    for (name, ..) in apart(ours, theirs, &supported_protocols).filter(|(name, ..)| !is_bridged(name)) {
        reasons
            .entry(name)
            .or_insert(IncompatibilityReason::NoCompatibleVersion);
    }
    let incompatibilities: Vec<_> = reasons
        .into_iter()
        .map(|(name, reason)| incompatibility(ours, theirs, name, reason))
        .collect();
    let requirement = |name: &ProtocolName| unmet.get(name).map(|(_, wanted)| *wanted);
    let mut suggestions = suggestions(ours, theirs, requirement, &incompatibilities, compatible);
    add_lens_advice(&by_lens, &mut suggestions);
    suggestions.truncate(SUGGESTIONS_LEN_MAX);
    Negotiation {
        compatible,
        suggestions,
        supported_protocols,
        by_lens,
        feature_intersections: features.0 & features.1,
        unsupported_features: UnsupportedFeatures {
            ours: features.0 - features.1,
            theirs: features.1 - features.0,
        },
        incompatibilities,
    }
}

/// Compares two sessions for the matrix.
pub fn compare(
    session_a: SessionId,
    a: &Capabilities,
    session_b: SessionId,
    b: &Capabilities,
    paths: Paths<'_>,
) -> MatrixRow {
    let common_features = &a.supported_features & &b.supported_features;
    let (a, b) = &Spoken::pair(a, b, false);
    let common_protocols = agreements(a, b);
    let by_lens: BTreeMap<_, _> = apart(a, b, &common_protocols)
        .filter_map(|(name, of_a, of_b)| {
            let found = by_lens(name, of_a, of_b, &VersionReq::STAR, paths)?;
            Some((name.clone(), found.both_ways()?))
        })
        .collect();
    MatrixRow {
        session_a,
        session_b,
        compatible: can_exchange(a, b, &common_protocols) || !by_lens.is_empty(),
        common_protocols,
        by_lens,
        common_features,
    }
}

/// The protocols of one side of a comparison.
struct Spoken<'c> {
    declared: &'c BTreeMap<ProtocolName, BTreeSet<Version>>,
    /// The versions of the built-in `text` and of what is declared under its name, where they count.
    text: Option<(ProtocolName, BTreeSet<Version>)>,
}

impl<'c> Spoken<'c> {
    /// Both sides. The built-in `text` counts if one of them names it, or if it is wanted.
    fn pair(a: &'c Capabilities, b: &'c Capabilities, is_text_wanted: bool) -> (Self, Self) {
        let text = ProtocolName::parse(TEXT_PROTOCOL).ok();
        let is_named = |name: &ProtocolName| [a, b].iter().any(|of| of.supported_protocols.contains_key(name));
        let text = text.filter(|name| is_text_wanted || is_named(name));
        let side = |of: &'c Capabilities| Self {
            declared: &of.supported_protocols,
            text: text
                .clone()
                .map(|name| (name.clone(), of.versions_of(&name).cloned().collect())),
        };
        (side(a), side(b))
    }

    fn get(&self, name: &ProtocolName) -> Option<&BTreeSet<Version>> {
        match &self.text {
            Some((text, versions)) if text == name => Some(versions),
            _ => self.declared.get(name),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&ProtocolName, &BTreeSet<Version>)> {
        let text = self.text.as_ref().map(|(name, versions)| (name, versions));
        let declared = self.declared.iter();
        declared
            .filter(move |(name, _)| text.is_none_or(|(text, _)| text != *name))
            .chain(text)
    }
}

fn can_exchange(a: &Spoken<'_>, b: &Spoken<'_>, agreed: &BTreeMap<ProtocolName, Version>) -> bool {
    !agreed.is_empty() || a.declared.is_empty() || b.declared.is_empty()
}

fn agreements(a: &Spoken<'_>, b: &Spoken<'_>) -> BTreeMap<ProtocolName, Version> {
    let mut agreed = BTreeMap::new();
    for (name, of_a, of_b) in declared_by_both(a, b) {
        if let Some(version) = agreed_version(of_a, of_b, &VersionReq::STAR) {
            agreed.insert(name.clone(), version.clone());
        }
    }
    agreed
}

fn declared_by_both<'a>(
    a: &'a Spoken<'_>,
    b: &'a Spoken<'_>,
) -> impl Iterator<Item = (&'a ProtocolName, &'a BTreeSet<Version>, &'a BTreeSet<Version>)> {
    a.iter().filter_map(|(name, of_a)| Some((name, of_a, b.get(name)?)))
}

/// The highest version that is the lower one of a compatible pair and satisfies the requirement.
fn agreed_version<'a>(
    of_a: &'a BTreeSet<Version>,
    of_b: &'a BTreeSet<Version>,
    requirement: &VersionReq,
) -> Option<&'a Version> {
    // The lower version of a compatible pair is agreed, so a partner at or above each version is enough.
    let lower = |of: &'a BTreeSet<Version>, with: &'a BTreeSet<Version>| {
        let releases: BTreeSet<_> = with.iter().filter(|version| version.pre.is_empty()).collect();
        of.iter()
            .rev()
            .filter(|version| admits(requirement, version))
            .find(|version| has_partner_above(version, with, &releases))
    };
    lower(of_a, of_b).max(lower(of_b, of_a))
}

/// Whether a version in `with`, at or above this one, is compatible with it. If any is, so is the next one, which for
/// a prerelease may be another of the same release, or the next release.
fn has_partner_above(version: &Version, with: &BTreeSet<Version>, releases: &BTreeSet<&Version>) -> bool {
    let next = with.range(version..).next();
    let next_release = releases.range::<Version, _>(version..).next().copied();
    [next, next_release]
        .into_iter()
        .flatten()
        .any(|other| are_compatible(version, other))
}

fn versions(of: &Spoken<'_>, name: &ProtocolName) -> BTreeSet<Version> {
    of.get(name).cloned().unwrap_or_default()
}

/// Protocols that both declare, in no compatible versions, with the versions of each.
fn apart<'a>(
    ours: &'a Spoken<'_>,
    theirs: &'a Spoken<'_>,
    agreed: &BTreeMap<ProtocolName, Version>,
) -> impl Iterator<Item = (&'a ProtocolName, &'a BTreeSet<Version>, &'a BTreeSet<Version>)> {
    declared_by_both(ours, theirs).filter(|(name, ..)| !agreed.contains_key(*name))
}

fn incompatibility(
    ours: &Spoken<'_>,
    theirs: &Spoken<'_>,
    name: &ProtocolName,
    reason: IncompatibilityReason,
) -> Incompatibility {
    Incompatibility {
        protocol: name.clone(),
        reason,
        ours: versions(ours, name),
        theirs: versions(theirs, name),
    }
}

fn unmet_reason(
    ours: &Spoken<'_>,
    theirs: &Spoken<'_>,
    wanted: &RequiredProtocol,
    agreed: &BTreeMap<ProtocolName, Version>,
    by_lens: &BTreeMap<ProtocolName, ByLens>,
) -> Option<IncompatibilityReason> {
    let declared = |by: &Spoken<'_>| by.get(&wanted.name).is_some_and(|own| !own.is_empty());
    match (declared(ours), declared(theirs)) {
        (true, false) => Some(IncompatibilityReason::NotSupportedByTarget),
        (false, true) => Some(IncompatibilityReason::NotSupportedByUs),
        (false, false) => Some(IncompatibilityReason::NotSupported),
        (true, true) if !agreed.contains_key(&wanted.name) => match by_lens.get(&wanted.name) {
            Some(found) if found.is_both_ways() => {
                (!admits(&wanted.version, &found.ours)).then_some(IncompatibilityReason::RequirementNotMet)
            }
            _ => Some(IncompatibilityReason::NoCompatibleVersion),
        },
        (true, true) => {
            let of_us = ours.get(&wanted.name)?;
            let of_them = theirs.get(&wanted.name)?;
            let met = agreed_version(of_us, of_them, &wanted.version).is_some();
            (!met).then_some(IncompatibilityReason::RequirementNotMet)
        }
    }
}

fn suggestions<'r>(
    ours: &Spoken<'_>,
    theirs: &Spoken<'_>,
    requirement: impl Fn(&ProtocolName) -> Option<&'r RequiredProtocol>,
    incompatibilities: &[Incompatibility],
    compatible: bool,
) -> Vec<String> {
    let mut out = Vec::new();
    for found in incompatibilities {
        if out.len() >= SUGGESTIONS_LEN_MAX {
            break;
        }
        add_advice(found, requirement(&found.protocol), &mut out);
    }
    if !compatible && incompatibilities.is_empty() {
        // Both declare protocols, and have none in common.
        out.extend(additions(theirs, "this session"));
        out.extend(additions(ours, "the target session"));
    }
    out.truncate(SUGGESTIONS_LEN_MAX);
    out
}

fn additions(from: &Spoken<'_>, to: &str) -> impl Iterator<Item = String> {
    from.iter()
        .filter_map(move |(name, versions)| Some(format!("add {name} {} to {to}", versions.last()?)))
        .take(SUGGESTIONS_LEN_MAX / 2)
}

fn add_advice(found: &Incompatibility, wanted: Option<&RequiredProtocol>, out: &mut Vec<String>) {
    let name = &found.protocol;
    let requirement = wanted.map_or_else(|| "*".to_owned(), |wanted| wanted.version.to_string());
    let (ours, theirs) = (found.ours.last(), found.theirs.last());
    match (found.reason, ours, theirs) {
        (IncompatibilityReason::NoCompatibleVersion, Some(ours), Some(theirs)) => {
            let (low, high, newer, older) = if ours < theirs {
                (ours, theirs, "the target session", "this session")
            } else {
                (theirs, ours, "this session", "the target session")
            };
            out.push(format!(
                "upgrade {name} from {low} to {} on {older}",
                compatible_range(high)
            ));
            out.push(format!(
                "or keep {name} {} in addition to {high} on {newer}",
                compatible_range(low)
            ));
        }
        (IncompatibilityReason::RequirementNotMet, ..) => {
            let before = out.len();
            for (who, own) in [("this session", &found.ours), ("the target session", &found.theirs)] {
                let meets = wanted.is_some_and(|wanted| own.iter().any(|version| wanted.version.matches(version)));
                if let Some(highest) = own.last().filter(|_| !meets) {
                    out.push(format!(
                        "add a version of {name} that is {requirement} to {who}, which has {highest}"
                    ));
                }
            }
            if out.len() == before {
                out.push(format!(
                    "agree on one version of {name} that is {requirement} on both sessions"
                ));
            }
        }
        (IncompatibilityReason::NotSupportedByTarget, ..) => {
            out.push(format!("add {name} {requirement} to the target session"))
        }
        (IncompatibilityReason::NotSupportedByUs, ..) => out.push(format!("add {name} {requirement} to this session")),
        _ => out.push(format!("add {name} {requirement} to both sessions")),
    }
}

#[cfg(test)]
mod tests;
