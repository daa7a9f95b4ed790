//! What two sessions can speak: pure functions over their capabilities.

use semver::{Comparator, Op, Version};

/// Whether semver calls two versions of one protocol compatible: a caret requirement on the lower one admits the
/// higher (1.0.0 with 1.1.0, not with 2.0.0; 0.1.0 not with 0.2.0).
#[must_use]
pub fn compatible(a: &Version, b: &Version) -> bool {
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
