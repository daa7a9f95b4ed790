//! Compares what two sessions can speak. Pure functions over their capabilities.

use std::collections::{BTreeMap, BTreeSet};

use semver::{Version, VersionReq};
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::model::{Capabilities, ProtocolName, SessionId, are_compatible};

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
    pub common_features: BTreeSet<String>,
}

/// Compares what two sessions declare.
///
/// They are compatible when they can exchange a message. With `required`, each of these protocols must be agreed on
/// as required. Without, they must agree on a version of at least one protocol, or one side declares no protocol at
/// all, because such a session accepts any ([`Capabilities::accepts`]). Features never make a pair incompatible. A
/// required protocol must be declared: a side without any protocols fails every requirement.
#[must_use]
pub fn negotiate(ours: &Capabilities, theirs: &Capabilities, required: &[RequiredProtocol]) -> Negotiation {
    let supported_protocols = agreements(ours, theirs);
    // The first unmet requirement of each protocol. The reason is the same for all of them, so it is given once.
    let mut unmet = BTreeMap::new();
    for wanted in required {
        if let Some(reason) = unmet_reason(ours, theirs, wanted, &supported_protocols) {
            unmet.entry(&wanted.name).or_insert((reason, wanted));
        }
    }
    let compatible = if required.is_empty() {
        can_exchange(ours, theirs, &supported_protocols)
    } else {
        unmet.is_empty()
    };
    let mut reasons: BTreeMap<_, _> = unmet.iter().map(|(name, (reason, _))| (*name, *reason)).collect();
    for name in incompatible_protocols(ours, theirs, &supported_protocols) {
        reasons
            .entry(name)
            .or_insert(IncompatibilityReason::NoCompatibleVersion);
    }
    let incompatibilities: Vec<_> = reasons
        .into_iter()
        .map(|(name, reason)| incompatibility(ours, theirs, name, reason))
        .collect();
    let requirement = |name: &ProtocolName| unmet.get(name).map(|(_, wanted)| *wanted);
    Negotiation {
        compatible,
        suggestions: suggestions(ours, theirs, requirement, &incompatibilities, compatible),
        supported_protocols,
        feature_intersections: &ours.supported_features & &theirs.supported_features,
        unsupported_features: UnsupportedFeatures {
            ours: &ours.supported_features - &theirs.supported_features,
            theirs: &theirs.supported_features - &ours.supported_features,
        },
        incompatibilities,
    }
}

/// Compares two sessions for the matrix.
#[must_use]
pub fn compare(session_a: SessionId, a: &Capabilities, session_b: SessionId, b: &Capabilities) -> MatrixRow {
    let common_protocols = agreements(a, b);
    MatrixRow {
        session_a,
        session_b,
        compatible: can_exchange(a, b, &common_protocols),
        common_protocols,
        common_features: &a.supported_features & &b.supported_features,
    }
}

fn can_exchange(a: &Capabilities, b: &Capabilities, agreed: &BTreeMap<ProtocolName, Version>) -> bool {
    !agreed.is_empty() || a.supported_protocols.is_empty() || b.supported_protocols.is_empty()
}

fn agreements(a: &Capabilities, b: &Capabilities) -> BTreeMap<ProtocolName, Version> {
    let mut agreed = BTreeMap::new();
    for (name, of_a, of_b) in declared_by_both(a, b) {
        if let Some(version) = agreed_version(of_a, of_b, &VersionReq::STAR) {
            agreed.insert(name.clone(), version.clone());
        }
    }
    agreed
}

fn declared_by_both<'a>(
    a: &'a Capabilities,
    b: &'a Capabilities,
) -> impl Iterator<Item = (&'a ProtocolName, &'a BTreeSet<Version>, &'a BTreeSet<Version>)> {
    a.supported_protocols
        .iter()
        .filter_map(|(name, of_a)| Some((name, of_a, b.supported_protocols.get(name)?)))
}

/// The highest version that is the lower one of a compatible pair and satisfies the requirement.
fn agreed_version<'a>(
    of_a: &'a BTreeSet<Version>,
    of_b: &'a BTreeSet<Version>,
    requirement: &VersionReq,
) -> Option<&'a Version> {
    // A star admits no prerelease, yet with no requirement two sessions that share one agree on it.
    let admits = |version: &Version| *requirement == VersionReq::STAR || requirement.matches(version);
    // The lower version of a compatible pair is agreed, so a partner at or above each version is enough.
    let lower = |of: &'a BTreeSet<Version>, with: &'a BTreeSet<Version>| {
        let releases: BTreeSet<_> = with.iter().filter(|version| version.pre.is_empty()).collect();
        of.iter()
            .rev()
            .filter(|version| admits(version))
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

fn versions(of: &Capabilities, name: &ProtocolName) -> BTreeSet<Version> {
    of.supported_protocols.get(name).cloned().unwrap_or_default()
}

/// Protocols that both declare, in no compatible versions.
fn incompatible_protocols<'a>(
    ours: &'a Capabilities,
    theirs: &'a Capabilities,
    agreed: &BTreeMap<ProtocolName, Version>,
) -> impl Iterator<Item = &'a ProtocolName> {
    declared_by_both(ours, theirs)
        .map(|(name, ..)| name)
        .filter(|name| !agreed.contains_key(*name))
}

fn incompatibility(
    ours: &Capabilities,
    theirs: &Capabilities,
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
    ours: &Capabilities,
    theirs: &Capabilities,
    wanted: &RequiredProtocol,
    agreed: &BTreeMap<ProtocolName, Version>,
) -> Option<IncompatibilityReason> {
    let declared = |by: &Capabilities| {
        by.supported_protocols
            .get(&wanted.name)
            .is_some_and(|own| !own.is_empty())
    };
    match (declared(ours), declared(theirs)) {
        (true, false) => Some(IncompatibilityReason::NotSupportedByTarget),
        (false, true) => Some(IncompatibilityReason::NotSupportedByUs),
        (false, false) => Some(IncompatibilityReason::NotSupported),
        (true, true) if !agreed.contains_key(&wanted.name) => Some(IncompatibilityReason::NoCompatibleVersion),
        (true, true) => {
            let of_us = ours.supported_protocols.get(&wanted.name)?;
            let of_them = theirs.supported_protocols.get(&wanted.name)?;
            let met = agreed_version(of_us, of_them, &wanted.version).is_some();
            (!met).then_some(IncompatibilityReason::RequirementNotMet)
        }
    }
}

fn suggestions<'r>(
    ours: &Capabilities,
    theirs: &Capabilities,
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

fn additions(from: &Capabilities, to: &str) -> impl Iterator<Item = String> {
    from.supported_protocols
        .iter()
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
                "or keep {name} {} beside {high} on {newer}",
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

/// The versions that semver calls compatible with this one: 2.x, 0.3.x, 0.0.4.
fn compatible_range(version: &Version) -> String {
    match (version.major, version.minor) {
        _ if !version.pre.is_empty() => version.to_string(),
        (0, 0) => version.to_string(),
        (0, minor) => format!("0.{minor}.x"),
        (major, _) => format!("{major}.x"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn speaks(protocols: &[(&str, &[&str])], features: &[&str]) -> Capabilities {
        let versions = |texts: &[&str]| texts.iter().map(|text| Version::parse(text).unwrap()).collect();
        Capabilities {
            supported_protocols: protocols
                .iter()
                .map(|(name, texts)| (ProtocolName::parse(name).unwrap(), versions(texts)))
                .collect(),
            supported_features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        }
    }

    fn chat(versions: &[&str]) -> Capabilities {
        speaks(&[("chat", versions)], &[])
    }

    fn required(name: &str, version: &str) -> Vec<RequiredProtocol> {
        vec![RequiredProtocol {
            name: ProtocolName::parse(name).unwrap(),
            version: VersionReq::parse(version).unwrap(),
        }]
    }

    fn agreed(negotiation: &Negotiation) -> String {
        let text = |version: &Version| version.to_string();
        negotiation.supported_protocols.get("chat").map_or(String::new(), text)
    }

    #[test]
    fn the_lower_of_two_compatible_versions_is_agreed_and_the_highest_of_several() {
        for (ours, theirs, expected) in [
            (&["1.0.0"][..], &["1.1.0"][..], "1.0.0"),
            (&["1.0.0", "1.2.0", "2.0.0"], &["1.1.0", "2.3.0"], "2.0.0"),
            (&["1.0.0", "1.4.0"], &["1.3.0"], "1.3.0"),
            (&["1.0.0"], &["2.0.0"], ""),
            (&["0.1.0"], &["0.2.0"], ""),
            (&["1.0.0-rc.1"], &["1.0.0-rc.1"], "1.0.0-rc.1"),
        ] {
            let result = negotiate(&chat(ours), &chat(theirs), &[]);
            assert_eq!(
                (agreed(&result).as_str(), result.compatible),
                (expected, !expected.is_empty())
            );
        }
    }

    #[test]
    fn the_result_has_the_names_of_the_contract() {
        let ours = speaks(&[("chat", &["1.0.0"]), ("call", &["1.0.0"])], &["a", "b"]);
        let theirs = speaks(&[("chat", &["2.1.0"]), ("call", &["1.2.0"])], &["b", "c"]);
        let expected = json!({
            "compatible": true,
            "supported_protocols": {"call": "1.0.0"},
            "feature_intersections": ["b"],
            "unsupported_features": {"ours": ["a"], "theirs": ["c"]},
            "incompatibilities": [
                {"protocol": "chat", "reason": "no_compatible_version", "ours": ["1.0.0"], "theirs": ["2.1.0"]}
            ],
            "suggestions": [
                "upgrade chat from 1.0.0 to 2.x on this session",
                "or keep chat 1.x beside 2.1.0 on the target session",
            ],
        });
        assert_eq!(serde_json::to_value(negotiate(&ours, &theirs, &[])).unwrap(), expected);
    }

    #[test]
    fn an_unmet_requirement_decides_and_names_its_reason() {
        let (one, none) = (chat(&["1.0.0"]), Capabilities::default());
        for (ours, theirs, wanted, reason, advice) in [
            (
                &one,
                &none,
                "1",
                "not_supported_by_target",
                "add chat ^1 to the target session",
            ),
            (&none, &one, "1", "not_supported_by_us", "add chat ^1 to this session"),
            (&none, &none, "1", "not_supported", "add chat ^1 to both sessions"),
            (
                &one,
                &chat(&["2.0.0"]),
                "*",
                "no_compatible_version",
                "upgrade chat from 1.0.0 to 2.x on this session",
            ),
            (
                &one,
                &chat(&["1.1.0"]),
                "1.1.0",
                "requirement_not_met",
                "add a version of chat that is ^1.1.0 to this session, which has 1.0.0",
            ),
        ] {
            let result = negotiate(ours, theirs, &required("chat", wanted));
            let shown = serde_json::to_value(&result).unwrap();
            assert_eq!(shown["incompatibilities"][0]["reason"], reason);
            assert_eq!((result.compatible, result.suggestions[0].as_str()), (false, advice));
        }
        let both = speaks(&[("chat", &["1.0.0"]), ("call", &["1.0.0"])], &[]);
        assert!(negotiate(&both, &chat(&["1.2.0"]), &required("chat", "1.0.0")).compatible);
        // Another common protocol does not make up for it.
        assert!(!negotiate(&both, &both, &required("chat", ">1")).compatible);
    }

    #[test]
    fn a_session_without_protocols_accepts_any_and_disjoint_sessions_are_incompatible() {
        let (chat, call) = (chat(&["1.0.0"]), speaks(&[("call", &["1.0.0"])], &[]));
        let none = Capabilities::default();
        assert!(negotiate(&chat, &none, &[]).compatible && negotiate(&none, &none, &[]).compatible);
        let apart = negotiate(&chat, &call, &[]);
        assert!(!apart.compatible && apart.incompatibilities.is_empty());
        assert_eq!(
            apart.suggestions,
            ["add call 1.0.0 to this session", "add chat 1.0.0 to the target session"]
        );
    }

    #[test]
    fn a_pair_is_compared_by_what_both_declare() {
        let (a, b) = (SessionId::generate(), SessionId::generate());
        let row = compare(
            a,
            &chat(&["1.0.0"]),
            b,
            &speaks(&[("chat", &["1.1.0"])], &["streaming"]),
        );
        assert_eq!((row.session_a, row.session_b, row.compatible), (a, b, true));
        assert_eq!(
            serde_json::to_value(&row).unwrap()["common_protocols"],
            json!({"chat": "1.0.0"})
        );
        assert!(!compare(a, &chat(&["1.0.0"]), b, &chat(&["2.0.0"])).compatible);
    }

    #[test]
    fn a_protocol_that_is_required_in_many_versions_is_reported_once() {
        let wanted: Vec<_> = (2..200)
            .flat_map(|major| required("chat", &format!("{major}.0.0")))
            .collect();
        let negotiation = negotiate(&chat(&["1.0.0"]), &chat(&["1.0.0"]), &wanted);
        assert!(!negotiation.compatible);
        assert_eq!(negotiation.incompatibilities.len(), 1);
        assert_eq!(
            negotiation.incompatibilities[0].reason,
            IncompatibilityReason::RequirementNotMet
        );
    }

    #[test]
    fn the_matrix_shows_the_features_that_both_have() {
        let (a, b) = (speaks(&[], &["x", "y"]), speaks(&[], &["y", "z"]));
        let row = compare(SessionId::generate(), &a, SessionId::generate(), &b);
        assert_eq!(row.common_features, BTreeSet::from(["y".to_owned()]));
    }

    #[test]
    fn a_requirement_is_read_from_its_text_and_a_refusal_shows_the_text() {
        let read = |version: &str| {
            let text = json!({"name": "chat", "version": version}).to_string();
            serde_json::from_str::<RequiredProtocol>(&text)
        };
        assert_eq!(vec![read("1.1.0").unwrap()], required("chat", "1.1.0"));
        let error = read("newest").unwrap_err().to_string();
        assert!(error.contains("\"newest\" is not a version requirement"), "{error}");
    }

    #[test]
    fn a_compatible_pair_gets_no_advice() {
        let compatible = negotiate(&chat(&["1.0.0"]), &chat(&["1.1.0"]), &[]);
        assert!(compatible.compatible && compatible.suggestions.is_empty());
    }

    #[test]
    fn advice_is_for_both_sides_however_many_protocols_one_declares() {
        let names: Vec<_> = (0..SUGGESTIONS_LEN_MAX).map(|at| format!("a{at}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), &["1.0.0"][..])).collect();
        let apart = negotiate(&chat(&["1.0.0"]), &speaks(&many, &[]), &[]);
        assert_eq!(apart.suggestions.len(), SUGGESTIONS_LEN_MAX / 2 + 1);
        assert_eq!(
            apart.suggestions.last().map(String::as_str),
            Some("add chat 1.0.0 to the target session")
        );
    }

    #[test]
    fn advice_names_only_the_missing_versions() {
        for (ours, theirs, wanted, expected) in [
            (
                &["1.0.0", "3.0.0"][..],
                &["1.0.0", "4.0.0"][..],
                ">=3",
                &["agree on one version of chat that is >=3 on both sessions"][..],
            ),
            (
                &["1.0.0"],
                &["1.1.0"],
                "1.1.0",
                &["add a version of chat that is ^1.1.0 to this session, which has 1.0.0"],
            ),
            (
                &["1.0.0"],
                &["2.0.0-rc.1"],
                "*",
                &[
                    "upgrade chat from 1.0.0 to 2.0.0-rc.1 on this session",
                    "or keep chat 1.x beside 2.0.0-rc.1 on the target session",
                ],
            ),
        ] {
            let result = negotiate(&chat(ours), &chat(theirs), &required("chat", wanted));
            assert_eq!(result.suggestions, expected, "{wanted}");
        }
    }

    fn version() -> impl Strategy<Value = Version> {
        let pre = prop_oneof![4 => Just(""), 1 => Just("-rc.1"), 1 => Just("-rc.2"), 1 => Just("+b")];
        (0..3_u64, 0..3_u64, 0..3_u64, pre)
            .prop_map(|(major, minor, patch, rest)| Version::parse(&format!("{major}.{minor}.{patch}{rest}")).unwrap())
    }

    fn capabilities() -> impl Strategy<Value = Capabilities> {
        let name = prop_oneof![Just("chat"), Just("call"), Just("task")];
        let name = name.prop_map(|name| ProtocolName::parse(name).unwrap());
        (
            prop::collection::btree_map(name, prop::collection::btree_set(version(), 0..5), 0..4),
            prop::collection::btree_set("[a-c]", 0..3),
        )
            .prop_map(|(supported_protocols, supported_features)| Capabilities {
                supported_protocols,
                supported_features,
            })
    }

    fn wanted() -> impl Strategy<Value = Vec<RequiredProtocol>> {
        let one = (
            prop_oneof![Just("chat"), Just("call")],
            prop_oneof![Just("*"), Just("1.1.0"), Just("<2")],
        );
        prop::collection::vec(one.prop_map(|(name, version)| required(name, version).remove(0)), 0..3)
    }

    fn swapped(of: Negotiation) -> Negotiation {
        let exchange = |text: String| {
            let text = text
                .replace("this session", "\0")
                .replace("the target session", "this session");
            text.replace('\0', "the target session")
        };
        let mut suggestions: Vec<String> = of.suggestions.into_iter().map(exchange).collect();
        suggestions.sort();
        Negotiation {
            unsupported_features: UnsupportedFeatures {
                ours: of.unsupported_features.theirs,
                theirs: of.unsupported_features.ours,
            },
            incompatibilities: of
                .incompatibilities
                .into_iter()
                .map(|found| Incompatibility {
                    reason: match found.reason {
                        IncompatibilityReason::NotSupportedByTarget => IncompatibilityReason::NotSupportedByUs,
                        IncompatibilityReason::NotSupportedByUs => IncompatibilityReason::NotSupportedByTarget,
                        reason => reason,
                    },
                    ours: found.theirs,
                    theirs: found.ours,
                    ..found
                })
                .collect(),
            suggestions,
            ..of
        }
    }

    fn sorted(mut of: Negotiation) -> Negotiation {
        of.suggestions.sort();
        of
    }

    proptest! {
        #[test]
        fn swapping_the_sides_swaps_ours_and_theirs_and_nothing_else(
            a in capabilities(), b in capabilities(), wanted in wanted(),
        ) {
            prop_assert_eq!(sorted(negotiate(&a, &b, &wanted)), swapped(negotiate(&b, &a, &wanted)));
        }

        #[test]
        fn the_agreed_version_is_the_best_that_both_speak(a in capabilities(), b in capabilities()) {
            let result = negotiate(&a, &b, &[]);
            for (name, of_a) in &a.supported_protocols {
                let of_b = versions(&b, name);
                let pairs = of_a.iter().flat_map(|x| of_b.iter().map(move |y| (x, y)));
                let best = pairs.filter(|(x, y)| are_compatible(x, y)).map(|(x, y)| x.min(y)).max();
                prop_assert_eq!(result.supported_protocols.get(name), best);
            }
            prop_assert_eq!(&negotiate(&a, &b, &[]), &result);
        }

        #[test]
        fn a_session_agrees_with_itself_on_the_highest_of_each(a in capabilities()) {
            let result = negotiate(&a, &a, &[]);
            for (name, own) in &a.supported_protocols {
                prop_assert_eq!(result.supported_protocols.get(name), own.last());
            }
            prop_assert!(result.unsupported_features == UnsupportedFeatures::default());
        }
    }
}
