//! What two sessions have in common, by example and for random capabilities.

mod lenses;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn negotiate(ours: &Capabilities, theirs: &Capabilities, required: &[RequiredProtocol]) -> Negotiation {
    super::negotiate(ours, theirs, required, &|_, _, _| None)
}

fn compare(session_a: SessionId, a: &Capabilities, session_b: SessionId, b: &Capabilities) -> MatrixRow {
    super::compare(session_a, a, session_b, b, &|_, _, _| None)
}

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
fn the_built_in_text_counts_where_one_side_names_it() {
    let (nothing, apart) = (Capabilities::default(), chat(&["2.0.0"]));
    let text = |result: &Negotiation| result.supported_protocols.get("text").map(ToString::to_string);
    for (ours, theirs) in [(&nothing, &apart), (&chat(&["1.0.0"]), &apart), (&nothing, &nothing)] {
        let wanted = negotiate(ours, theirs, &required("text", "^1"));
        assert!(
            wanted.compatible && text(&wanted).as_deref() == Some("1.0.0"),
            "{wanted:?}"
        );
        assert!(!negotiate(ours, theirs, &required("text", "^2")).compatible);
        assert_eq!(text(&negotiate(ours, theirs, &[])), None);
    }
    // One declares it as if it were a protocol like others.
    let declared = speaks(&[("text", &["1.0.0"])], &[]);
    let result = negotiate(&declared, &apart, &[]);
    assert!(
        result.compatible && text(&result).as_deref() == Some("1.0.0"),
        "{result:?}"
    );
    let row = compare(SessionId::generate(), &apart, SessionId::generate(), &declared);
    assert!(row.compatible && row.common_protocols.contains_key("text"), "{row:?}");
    assert!(!compare(SessionId::generate(), &apart, SessionId::generate(), &chat(&["1.0.0"])).compatible);
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
            "or keep chat 1.x in addition to 2.1.0 on the target session",
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
                "or keep chat 1.x in addition to 2.0.0-rc.1 on the target session",
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
            let of_b = b.supported_protocols.get(name).cloned().unwrap_or_default();
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
