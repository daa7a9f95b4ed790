//! What a misspelled name probably means.

/// The known name that is closest to a misspelled one; at most a third of its letters may differ.
pub fn nearest_name<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let distance = |other: &str| strsim::damerau_levenshtein(&name, other);
    let best = names.iter().copied().min_by_key(|other| distance(other))?;
    (distance(best) <= best.len() / 3).then_some(best)
}
