//! Which versions of a protocol are compatible.

use std::collections::BTreeSet;

use semver::{Comparator, Op, Version};

/// Whether semver calls two versions of one protocol compatible: a caret requirement on the lower one admits the
/// higher (1.0.0 with 1.1.0, not with 2.0.0; 0.1.0 not with 0.2.0).
pub fn are_compatible(a: &Version, b: &Version) -> bool {
    let (low, high) = if a.cmp_precedence(b).is_le() { (a, b) } else { (b, a) };
    let caret = Comparator {
        op: Op::Caret,
        major: low.major,
        minor: Some(low.minor),
        patch: Some(low.patch),
        pre: low.pre.clone(),
    };
    low == high || caret.matches(high)
}

/// Whether a session that declares these versions takes messages of this one.
pub fn accepts_version(versions: &BTreeSet<Version>, version: &Version) -> bool {
    // The common case: the recipient declares the version of the message.
    if versions.contains(version) {
        return true;
    }
    // If any version is compatible, so is the nearest one: below, above, or above among the releases, because the next
    // version may be a prerelease of another release.
    let below = versions.range(..=version).next_back();
    let mut above = versions.range(version..);
    let next = above.next();
    let next_release = above.find(|other| other.pre.is_empty());
    [below, next, next_release]
        .into_iter()
        .flatten()
        .any(|own| are_compatible(own, version))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use semver::VersionReq;

    use super::*;

    fn version() -> impl Strategy<Value = Version> {
        let pre = prop_oneof![4 => Just(""), 1 => Just("-rc.1"), 1 => Just("-rc.2"), 1 => Just("+b")];
        (0..3_u64, 0..3_u64, 0..3_u64, pre)
            .prop_map(|(major, minor, patch, rest)| Version::parse(&format!("{major}.{minor}.{patch}{rest}")).unwrap())
    }

    proptest! {
        #[test]
        fn compatible_is_the_caret_of_semver(a in version(), b in version()) {
            let (low, high) = if a <= b { (&a, &b) } else { (&b, &a) };
            let mut plain = low.clone();
            plain.build = semver::BuildMetadata::EMPTY;
            let caret = VersionReq::parse(&format!("^{plain}")).unwrap();
            prop_assert_eq!(are_compatible(&a, &b), a == b || caret.matches(high));
        }

        #[test]
        fn a_session_accepts_versions_compatible_with_one_of_its_own(
            own in prop::collection::btree_set(version(), 0..6), other in version(),
        ) {
            let any = own.iter().any(|own| are_compatible(own, &other));
            prop_assert_eq!(accepts_version(&own, &other), any, "{:?} {}", own, other);
        }
    }
}
