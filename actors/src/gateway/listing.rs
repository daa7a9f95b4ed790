//! One list of backends as clients see it: the names that are offered and accepted, where each leads, and the text in pages.
//! Pure.

use std::collections::{BTreeSet, HashMap};

use super::names::Naming;

/// Where a name leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The position of the backend among the offers.
    pub backend: usize,
    /// The backend's own name or URI.
    pub original: Box<str>,
}

/// One list as clients see it.
#[derive(Debug, Default)]
pub struct Listing {
    /// Every name under which an item is found.
    targets: HashMap<Box<str>, Place>,
    /// The items with their offered names, in the order of the list.
    offered: Vec<(Box<str>, Target)>,
    /// The JSON objects of the list, separated by commas.
    text: String,
    /// Where each item ends in the text.
    ends: Vec<usize>,
    /// The offered names that have their prefix because others have the same name without it.
    ambiguous: BTreeSet<Box<str>>,
}

/// An item that is offered under a prefixed name.
pub(super) struct Prefixed<'a> {
    /// The name of the item without the prefix.
    pub own: &'a str,
    /// The offered name.
    pub offered: String,
    pub target: Target,
}

#[derive(Debug)]
enum Place {
    At(Target),
    /// As [`Self::At`], under the offered name of the item.
    Offered(Target),
    /// Several items have this name.
    Ambiguous,
}

/// A part of a list that fits into one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPage<'a> {
    /// JSON objects, separated by commas.
    pub text: &'a str,
    /// The position of the first item of the next page.
    pub next: Option<usize>,
}

impl Listing {
    /// Where a name leads.
    pub fn find(&self, name: &str) -> Option<&Target> {
        match self.targets.get(name)? {
            Place::At(target) | Place::Offered(target) => Some(target),
            Place::Ambiguous => None,
        }
    }

    /// Where an offered name leads.
    pub(super) fn find_offered(&self, name: &str) -> Option<&Target> {
        match self.targets.get(name)? {
            Place::Offered(target) => Some(target),
            Place::At(_) | Place::Ambiguous => None,
        }
    }

    /// The text of the list: JSON objects, separated by commas.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.offered.len()
    }

    /// Whether the list has no items.
    pub fn is_empty(&self) -> bool {
        self.offered.is_empty()
    }

    /// The offered names, each with where it leads.
    pub fn offered(&self) -> impl Iterator<Item = (&str, &Target)> {
        self.offered.iter().map(|(name, target)| (&**name, target))
    }

    /// The items from a position on that have at most this many bytes together, and at least one. `None` past the end.
    pub fn page(&self, from: usize, bytes_max: usize) -> Option<ListPage<'_>> {
        if from > self.ends.len() {
            return None;
        }
        let start = match from.checked_sub(1) {
            // The comma is left out.
            Some(before) => (self.ends[before] + 1).min(self.text.len()),
            None => 0,
        };
        let fits = |end: &usize| *end <= start + bytes_max;
        let fitting = self.ends[from..].partition_point(|end| fits(end)).max(1);
        let next = (from + fitting).min(self.ends.len());
        let end = next.checked_sub(1).map_or(0, |last| self.ends[last]);
        Some(ListPage {
            text: self.text.get(start..end).unwrap_or_default(),
            next: (next < self.ends.len()).then_some(next),
        })
    }

    pub(super) fn add(&mut self, name: &str, text: &str, target: Target) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(text);
        self.ends.push(self.text.len());
        // An offered name leads to its item, even if it looks like another way to write the name of a second one.
        self.targets.insert(name.into(), Place::Offered(target.clone()));
        self.offered.push((name.into(), target));
    }

    /// Accepts a further name, unless an item is offered under it. A name of several items leads to none of them.
    pub(super) fn accept(&mut self, name: Box<str>, target: &Target) {
        match self.targets.get(&name) {
            None => {
                self.targets.insert(name, Place::At(target.clone()));
            }
            Some(Place::At(known)) if known != target => {
                self.targets.insert(name, Place::Ambiguous);
            }
            Some(_) => {}
        }
    }

    /// The names that have their prefix because others have the same name without it.
    pub fn ambiguous(&self) -> &BTreeSet<Box<str>> {
        &self.ambiguous
    }

    /// The list with names without prefixes. A name that several items would have, or `reserved`, or that is another
    /// way to write a prefixed one, keeps its prefix. Prefixed names stay accepted. `text` writes an item under a name.
    pub(super) fn without_prefixes(
        self,
        items: &[Prefixed<'_>],
        naming: &Naming,
        reserved: &BTreeSet<&str>,
        text: impl Fn(usize, &str) -> String,
    ) -> Self {
        let bare: Vec<String> = items.iter().map(|item| naming.fitting(item.own)).collect();
        let mut uses = HashMap::<&str, usize>::new();
        for name in &bare {
            *uses.entry(name).or_default() += 1;
        }
        let mut listing = Self::default();
        for (at, (item, bare)) in items.iter().zip(&bare).enumerate() {
            let name = bare.as_str();
            let is_free = uses.get(name) == Some(&1) && !reserved.contains(name) && !self.targets.contains_key(name);
            let name = if is_free && !name.is_empty() {
                name
            } else {
                listing.ambiguous.insert(item.offered.as_str().into());
                &item.offered
            };
            listing.add(name, &text(at, name), item.target.clone());
        }
        for (name, place) in self.targets {
            listing.targets.entry(name).or_insert(place);
        }
        listing
    }
}
