//! The known differences between the broker and the SDK, each with its reason.

mod http;
mod json;
mod methods;
mod params;
mod sessions;
mod versions;

/// A group of requests that the two servers answer differently.
pub struct Difference {
    /// Patterns of the names of the requests; in patterns and answers `*` matches anything.
    pub requests: &'static [&'static str],
    pub ours: &'static str,
    pub sdk: &'static str,
    /// Why the broker's answer is right, or as right as the SDK's.
    pub why: &'static str,
    /// The section of the specification that says so.
    pub section: &'static str,
}

/// Stands for the answer of the same server without the mutation.
const SAME: &str = "=";

impl Difference {
    /// Whether this entry covers these answers. Each answer comes with the one without the mutation.
    pub fn covers(&self, ours: (&str, &str), sdk: (&str, &str)) -> bool {
        let is = |pattern, (answer, base)| {
            if pattern == SAME {
                answer == base
            } else {
                matches_pattern(pattern, answer)
            }
        };
        is(self.ours, ours) && is(self.sdk, sdk)
    }
}

/// Whether a known difference has these answers, for any of the requests that `is_of` accepts.
pub fn is_known(is_of: impl Fn(&str) -> bool, ours: (&str, &str), sdk: (&str, &str)) -> bool {
    let mut known = all();
    known.any(|it| it.covers(ours, sdk) && it.requests.iter().any(|pattern| is_of(pattern)))
}

/// Differences where the SDK is right and the broker is not. Remove an entry when the broker is fixed.
pub const DEFECTS: &[Difference] = &[];

/// The differences where the broker is right, or as right as the SDK, by subject.
const DIFFERENCES: &[&[Difference]] = &[
    http::DIFFERENCES,
    versions::DIFFERENCES,
    sessions::DIFFERENCES,
    methods::DIFFERENCES,
    json::DIFFERENCES,
    params::DIFFERENCES,
];

/// Every known difference.
pub fn all() -> impl Iterator<Item = &'static Difference> {
    DIFFERENCES.iter().copied().flatten().chain(DEFECTS)
}

/// Whether a name matches a pattern.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            let mut ends = (0..=name.len()).filter(|at| name.is_char_boundary(*at));
            ends.any(|at| matches_pattern(rest, &name[at..]))
        }),
    }
}

#[test]
fn every_known_difference_has_a_reason() {
    for it in all() {
        assert!(!it.why.is_empty() && !it.section.is_empty(), "{:?}", it.requests);
        assert_ne!(it.ours, it.sdk, "{:?}", it.requests);
    }
}

#[test]
fn a_star_matches_any_text() {
    for pattern in ["modern x | y", "*", "modern * | y", "* | *", "*x | y*", "modern x | y*"] {
        assert!(matches_pattern(pattern, "modern x | y"), "{pattern}");
    }
    for pattern in ["modern x", "* | z", "x*", "modern x | y*z"] {
        assert!(!matches_pattern(pattern, "modern x | y"), "{pattern}");
    }
}
