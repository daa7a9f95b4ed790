//! The names under which the tools and prompts of backends are offered: legal for every client and model, unique, and the
//! same wherever the tool is found in the list. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
};

use sha2::{Digest, Sha256};

use crate::model::BackendName;

/// Hexadecimal digits that tell two shortened names apart.
const HASH_LEN: usize = 6;

/// Where offered names begin with the name of the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefix {
    /// Everywhere but at the place of one backend.
    #[default]
    Always,
    /// As [`Self::Always`], but not where a single enabled backend is all that is offered.
    Auto,
    /// Only where the name without it would lead to several items.
    Never,
}

/// How names are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Separates the name of the backend from that of the tool.
    pub separator: String,
    /// Characters of an offered name, at most.
    pub len_max: usize,
    pub prefix: Prefix,
    /// The names of the tools and of the prompts that are listed next to those of backends.
    pub own_tools: BTreeSet<&'static str>,
    pub own_prompts: BTreeSet<&'static str>,
}

impl Naming {
    /// The name that is offered for this one: shortened if it is too long, with `_` in place of illegal characters, and then
    /// with a hash.
    pub fn fitting(&self, full: &str) -> String {
        let legal = legal(full);
        if matches!(legal, Cow::Owned(_)) || legal.len() > self.len_max {
            self.with_hash(&legal, full)
        } else {
            legal.into_owned()
        }
    }

    fn with_hash(&self, legal: &str, hashed: &str) -> String {
        let digest = Sha256::digest(hashed.as_bytes());
        let bits = digest
            .iter()
            .take(HASH_LEN / 2)
            .fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte));
        let room = self.len_max.saturating_sub(HASH_LEN + 1);
        let kept = legal.get(..room).unwrap_or(legal);
        format!("{kept}_{bits:0HASH_LEN$x}")
    }

    /// The separators that are accepted in the name of a tool.
    pub fn separators(&self) -> impl Iterator<Item = &str> {
        let usual = ["__", "::", "."];
        let own = Some(self.separator.as_str()).filter(|own| !usual.contains(own));
        usual.into_iter().chain(own)
    }
}

impl Default for Naming {
    /// `backend__tool`, of at most 51 characters: clients put `mcp__`, the name of the server and `__` before it, and models
    /// take 64.
    fn default() -> Self {
        Self {
            separator: "__".to_owned(),
            len_max: 51,
            prefix: Prefix::Always,
            own_tools: BTreeSet::new(),
            own_prompts: BTreeSet::new(),
        }
    }
}

/// Makes names, and remembers those that are taken.
#[derive(Debug)]
pub struct Names<'a> {
    naming: &'a Naming,
    taken: HashSet<String>,
}

impl<'a> Names<'a> {
    /// Without names.
    pub fn new(naming: &'a Naming) -> Self {
        Self {
            naming,
            taken: HashSet::new(),
        }
    }

    /// The offered name of an item of a backend. Too long names are shortened, illegal characters replaced by `_`; then,
    /// and when the name is taken, a hash of the full name makes it unique.
    pub fn offer(&mut self, backend: &BackendName, item: &str) -> String {
        let full = format!("{backend}{}{item}", self.naming.separator);
        let mut name = self.naming.fitting(&full);
        let mut round = 0;
        while !self.taken.insert(name.clone()) {
            round += 1;
            name = self.naming.with_hash(&legal(&full), &format!("{full}\n{round}"));
        }
        name
    }
}

/// The name with `_` in place of every character outside of `[A-Za-z0-9_-]`.
fn legal(name: &str) -> Cow<'_, str> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.chars().all(is_legal) {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(name.chars().map(|c| if is_legal(c) { c } else { '_' }).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn backend(name: &str) -> BackendName {
        BackendName::parse(name).unwrap()
    }

    #[test]
    fn a_legal_name_is_prefixed_and_otherwise_unchanged() {
        let naming = Naming::default();
        let mut names = Names::new(&naming);
        assert_eq!(
            names.offer(&backend("github"), "search_Repos-2"),
            "github__search_Repos-2"
        );
        let again = names.offer(&backend("github"), "search_Repos-2");
        assert!(again.starts_with("github__search_Repos-2_"), "{again}");
    }

    #[test]
    fn illegal_and_long_names_get_a_hash() {
        let naming = Naming::default();
        let mut names = Names::new(&naming);
        let dotted = names.offer(&backend("a"), "x.y/z");
        assert!(
            dotted.starts_with("a__x_y_z_") && dotted.len() == "a__x_y_z_".len() + HASH_LEN,
            "{dotted}"
        );
        assert_ne!(names.offer(&backend("a"), "x_y.z"), dotted);
        let long = names.offer(&backend("a"), &"x".repeat(200));
        assert_eq!(long.len(), 51);
        assert_ne!(names.offer(&backend("a"), &"x".repeat(201)), long);
    }

    proptest! {
        #[test]
        fn names_are_unique_legal_and_short(items in proptest::collection::vec(("[a-c]{1,2}", "\\PC{0,80}"), 0..60)) {
            let naming = Naming::default();
            let mut names = Names::new(&naming);
            let mut seen = HashSet::new();
            for (name, item) in items {
                let offered = names.offer(&backend(&name), &item);
                prop_assert!(offered.len() <= 51 && !offered.is_empty());
                prop_assert!(offered.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'));
                prop_assert!(seen.insert(offered));
            }
        }
    }
}
