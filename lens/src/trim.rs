//! Members that the source does not declare: which of them the target gets.
//!
//! An undeclared member is carried where the target is open. One whose name the target declares is a suspect: it is
//! carried if the result fits with it, and otherwise all suspects are dropped. Where the target is closed, the others are
//! dropped.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry};

use serde_json::Value;

use crate::{
    TransformError,
    path::Token,
    payload::{DEPTH_MAX, Node, Work},
    schema::{Document, Place, Types, inside, property_names},
};

/// Pairs of places that are compared.
const PAIRS_MAX: usize = 10_000;

/// Work of finding a name, in nanoseconds of the slowest case measured.
const NAME: usize = 80;

/// What to do with undeclared members, for each place of a schema where that is a question.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    /// The first is the payload.
    places: Vec<PlaceRules>,
}

#[derive(Debug, Default)]
struct PlaceRules {
    /// The rule for the members of an object. None: all members are carried.
    rule: Option<Rule>,
    members: BTreeMap<String, usize>,
    items: Option<usize>,
}

#[derive(Debug)]
struct Rule {
    /// What the source declares.
    declared: BTreeSet<String>,
    /// The other names that the target declares.
    suspects: BTreeSet<String>,
    rest: Rest,
}

/// What happens to undeclared members whose names the target does not declare either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Carried,
    /// The target has a schema for them.
    Suspect,
    Dropped,
}

/// What a trim has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub suspects: bool,
    pub dropped: bool,
}

impl Trim {
    /// Compares what two schemas declare. None if every undeclared member is carried.
    pub fn of(source: Document<'_>, from: &Value, target: Document<'_>) -> Option<Self> {
        let mut builder = Builder {
            source,
            target,
            known: HashMap::new(),
            places: Vec::new(),
        };
        builder.place(&vec![vec![from]], &vec![vec![target.root]])?;
        let places = builder.places;
        places
            .iter()
            .any(|place| place.rule.is_some())
            .then_some(Self { places })
    }

    /// Approximate bytes.
    pub fn bytes_len(&self) -> usize {
        const PLACE_BYTES: usize = 256;
        self.places.len() * PLACE_BYTES
    }

    /// Drops what the target does not take; with `drop_suspects` the suspects too.
    pub fn apply(
        &self,
        payload: &mut Node<'_>,
        drop_suspects: bool,
        work: &mut Work<'_>,
    ) -> Result<Found, TransformError> {
        let mut found = Found::default();
        self.visit(0, payload, drop_suspects, &mut found, DEPTH_MAX, work)?;
        Ok(found)
    }

    fn visit(
        &self,
        place: usize,
        node: &mut Node<'_>,
        drop_suspects: bool,
        found: &mut Found,
        depth: usize,
        work: &mut Work<'_>,
    ) -> Result<(), TransformError> {
        let place = &self.places[place];
        if depth == 0 {
            return Ok(());
        }
        if place.rule.is_some() || !place.members.is_empty() {
            let members = node.members(work)?;
            for (name, value) in members.into_iter().flatten() {
                work.spend(NAME)?;
                if let Some(inside) = place.members.get(&**name) {
                    self.visit(*inside, value, drop_suspects, found, depth - 1, work)?;
                }
            }
        }
        if let (Some(rule), Some(members)) = (&place.rule, node.members(work)?) {
            members.retain(|(name, _)| match rule.of(name) {
                Rest::Carried => true,
                Rest::Suspect => {
                    found.suspects = true;
                    found.dropped |= drop_suspects;
                    !drop_suspects
                }
                Rest::Dropped => {
                    found.dropped = true;
                    false
                }
            });
        }
        if let Some(inside) = place.items {
            for item in node.items(work)?.into_iter().flatten() {
                self.visit(inside, item, drop_suspects, found, depth - 1, work)?;
            }
        }
        Ok(())
    }
}

impl Rule {
    fn of(&self, name: &str) -> Rest {
        if self.declared.contains(name) {
            Rest::Carried
        } else if self.suspects.contains(name) {
            Rest::Suspect
        } else {
            self.rest
        }
    }
}

struct Builder<'a, 'b> {
    source: Document<'a>,
    target: Document<'b>,
    known: HashMap<Vec<usize>, usize>,
    places: Vec<PlaceRules>,
}

impl<'a, 'b> Builder<'a, 'b> {
    /// The index of a place; None where it is too complex or there are too many.
    fn place(&mut self, from: &Place<'a>, to: &Place<'b>) -> Option<usize> {
        let between = Vec::new();
        let addresses = from.iter().chain([&between]).chain(to).flat_map(|group| {
            let addresses = group.iter().map(|schema| std::ptr::from_ref(*schema).addr());
            addresses.chain([0])
        });
        let index = self.places.len();
        match self.known.entry(addresses.collect()) {
            Entry::Occupied(known) => return Some(*known.get()),
            Entry::Vacant(_) if index == PAIRS_MAX => return None,
            Entry::Vacant(new) => new.insert(index),
        };
        self.places.push(PlaceRules::default());
        let (from, to) = (self.source.expanded(from)?, self.target.expanded(to)?);
        let (declared, wanted) = (property_names(&from.concat()), property_names(&to.concat()));
        let mut members = BTreeMap::new();
        for name in declared.intersection(&wanted) {
            let token = Token::Name((*name).to_owned());
            if let Some(inside) = self.inside(&from, &to, &token) {
                members.insert((*name).to_owned(), inside);
            }
        }
        let items = self.inside(&from, &to, &Token::Items);
        let rest = if has_other_names(&to) {
            Rest::Suspect
        } else if is_closed(&to) {
            Rest::Dropped
        } else {
            Rest::Carried
        };
        let suspects: BTreeSet<_> = wanted.difference(&declared).map(|name| (*name).to_owned()).collect();
        let is_asked = !is_closed(&from) && !has_other_names(&from) && (rest != Rest::Carried || !suspects.is_empty());
        let rule = is_asked.then(|| Rule {
            declared: declared.into_iter().map(str::to_owned).collect(),
            suspects,
            rest,
        });
        self.places[index] = PlaceRules { rule, members, items };
        Some(index)
    }

    fn inside(&mut self, from: &Place<'a>, to: &Place<'b>, token: &Token) -> Option<usize> {
        let (from, to) = (inside(from, token)?, inside(to, token)?);
        if from.is_empty() || to.is_empty() {
            None
        } else {
            self.place(&from, &to)
        }
    }
}

/// Whether no branch admits members that it does not declare. Of values that cannot be objects, no branch does.
fn is_closed(branches: &Place<'_>) -> bool {
    let closes = |schema: &&Value| schema.get("additionalProperties") == Some(&Value::Bool(false));
    branches
        .iter()
        .all(|all| all.iter().any(closes) || !Types::of(all).meets(Types::OBJECT))
}

/// Whether members have a schema without being declared by name.
fn has_other_names(branches: &Place<'_>) -> bool {
    const OTHERS: [&str; 3] = ["patternProperties", "propertyNames", "unevaluatedProperties"];
    branches.iter().flatten().any(|schema| {
        let additional = schema.get("additionalProperties");
        additional.is_some_and(Value::is_object) || OTHERS.iter().any(|keyword| schema.get(keyword).is_some())
    })
}
