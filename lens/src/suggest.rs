//! Compares two schemas, and suggests a lens from the one to the other.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    operation::{Operation, Scalar},
    path::{Path, Token},
    proof::Proof,
    sample::Generator,
    schema::{Document, Types, child, finite, is_required, property_names},
};

/// Changes that are listed.
const CHANGES_MAX: usize = 256;
/// The deepest place that is compared: that of the longest path of an operation.
const DEPTH_MAX: usize = 16;

/// What differs between two versions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// Every payload of the first version fits the second as it is, as far as the rules can tell.
    pub compatible: bool,
    pub changes: Vec<Change>,
    /// A lens to begin with. Its author decides about the values that it makes up, and what it drops.
    pub suggested_lens: Vec<Operation>,
}

/// A difference at a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The place in the payload of the first version; of what is new, in that of the second.
    pub path: Path,
    pub change: String,
}

/// Compares two schemas. Once `is_out_of_time` holds, no further places are compared and no values made up, and
/// `compatible` is false.
pub fn diff(old: &Value, new: &Value, is_out_of_time: &dyn Fn() -> bool) -> Diff {
    let mut comparison = Comparison {
        old: Document::of(old),
        new: Document::of(new),
        is_out_of_time,
        changes: Vec::new(),
        operations: Vec::new(),
        removed: Vec::new(),
        added: Vec::new(),
    };
    comparison.place(&[old], &[new], &Path::default(), &Path::default());
    comparison.pair_up();
    let unproved = Proof::run(comparison.old, old, comparison.new, false, is_out_of_time);
    comparison.operations.truncate(crate::OPERATIONS_MAX);
    Diff {
        compatible: unproved.is_empty(),
        changes: comparison.changes,
        suggested_lens: comparison.operations,
    }
}

/// A member that only one version has.
#[derive(Default)]
struct Member<'a> {
    /// Its place when the operations so far have been carried out.
    path: Path,
    /// Its place in its version.
    shown: Path,
    schemas: Vec<&'a Value>,
    is_required: bool,
}

/// Whether two members are one that has been moved.
fn is_twin(one: &Member<'_>, other: &Member<'_>) -> bool {
    let name = |path: &Path| path.split_name().map(|(_, name)| name.to_owned());
    one.schemas.iter().eq(other.schemas.iter())
        && !refers(&one.schemas)
        && name(&one.path) == name(&other.path)
        && one.path.below_items().0 == other.path.below_items().0
}

/// The members of a member that is an object.
fn members_of<'a>(document: Document<'a>, member: &Member<'a>) -> Vec<Member<'a>> {
    let all = single(document, &member.schemas)
        .filter(|all| Types::of(all) == Types::OBJECT)
        .unwrap_or_default();
    let names = property_names(&all).into_iter();
    let inner = names.map(|name| Member {
        path: member.path.clone().child(name),
        shown: member.shown.clone().child(name),
        schemas: inside(&all, name),
        is_required: is_required(&all, name),
    });
    inner.collect()
}

struct Comparison<'a, 'b, 'f> {
    old: Document<'a>,
    new: Document<'b>,
    is_out_of_time: &'f dyn Fn() -> bool,
    changes: Vec<Change>,
    operations: Vec<Operation>,
    removed: Vec<Member<'a>>,
    added: Vec<Member<'b>>,
}

impl<'a, 'b> Comparison<'a, 'b, '_> {
    fn change(&mut self, path: &Path, change: impl Into<String>) {
        if self.changes.len() < CHANGES_MAX {
            self.changes.push(Change {
                path: path.clone(),
                change: change.into(),
            });
        }
    }

    /// Compares a place. `path` is where operations find it; `shown` where the first version has it.
    fn place(&mut self, old: &[&'a Value], new: &[&'b Value], path: &Path, shown: &Path) {
        if path.0.len() > DEPTH_MAX || old.iter().eq(new.iter()) && !refers(old) || (self.is_out_of_time)() {
            return;
        }
        let (was, is) = (self.old.types(old), self.new.types(new));
        let (Some(old_all), Some(new_all)) = (single(self.old, old), single(self.new, new)) else {
            if !old.iter().eq(new.iter()) {
                self.change(shown, "the alternatives differ");
            }
            return;
        };
        if was.meets(Types::NULL) != is.meets(Types::NULL) {
            self.change(
                shown,
                if is.meets(Types::NULL) {
                    "may be null"
                } else {
                    "may no longer be null"
                },
            );
        }
        match (was.without_null(), is.without_null()) {
            (Types::OBJECT, Types::OBJECT) => self.objects(&old_all, &new_all, path, shown),
            (Types::ARRAY, Types::ARRAY) => {
                let items = |all: &[&'a Value]| {
                    all.iter()
                        .filter_map(|schema| child(schema, &Token::Items))
                        .collect::<Vec<_>>()
                };
                let new_items: Vec<_> = new_all
                    .iter()
                    .filter_map(|schema| child(schema, &Token::Items))
                    .collect();
                self.place(
                    &items(&old_all),
                    &new_items,
                    &path.clone().items(),
                    &shown.clone().items(),
                );
                self.keywords(&old_all, &new_all, shown);
            }
            (was, is) if was == is => {
                self.listed(&old_all, &new_all, path, shown);
                self.keywords(&old_all, &new_all, shown);
            }
            (was, is) => self.types(was, is, &old_all, &new_all, path, shown),
        }
    }

    fn objects(&mut self, old: &[&'a Value], new: &[&'b Value], path: &Path, shown: &Path) {
        let (was, is) = (property_names(old), property_names(new));
        let at = |schemas: &[&'b Value], name: &str| inside(schemas, name);
        let mut added: Vec<_> = is.difference(&was).copied().collect();
        let mut pairs: Vec<(&str, &str)> = was.intersection(&is).map(|name| (*name, *name)).collect();
        let gone: Vec<_> = was.difference(&is).copied().collect();
        let mut renamed = BTreeMap::new();
        // Of several members with one schema, a required one rather becomes a required one.
        for needs_equal in [true, false] {
            for name in &gone {
                let schemas = inside(old, name);
                let is_twin = |to: &&str| {
                    at(new, to).iter().eq(schemas.iter())
                        && (!needs_equal || is_required(old, name) == is_required(new, to))
                };
                if renamed.contains_key(name) || refers(&schemas) {
                    continue;
                }
                if let Some(twin) = added.iter().position(is_twin) {
                    renamed.insert(*name, added.remove(twin));
                }
            }
        }
        for name in gone {
            let schemas = inside(old, name);
            if let Some(to) = renamed.get(name).copied() {
                self.change(&shown.clone().child(name), format!("has the name {to}"));
                self.operations.push(Operation::Rename {
                    path: path.clone().child(name),
                    to: to.to_owned(),
                });
                pairs.push((name, to));
            } else {
                let (path, shown) = (path.clone().child(name), shown.clone().child(name));
                self.removed.push(Member {
                    path,
                    shown,
                    schemas,
                    is_required: is_required(old, name),
                });
            }
        }
        for name in added {
            let (path, shown) = (path.clone().child(name), shown.clone().child(name));
            self.added.push(Member {
                path,
                shown,
                schemas: at(new, name),
                is_required: is_required(new, name),
            });
        }
        for (name, to) in pairs {
            let (path, shown) = (path.clone().child(to), shown.clone().child(name));
            self.place(&inside(old, name), &at(new, to), &path, &shown);
            self.required(
                is_required(old, name),
                is_required(new, to),
                &inside(old, name),
                &at(new, to),
                &path,
                &shown,
            );
        }
        self.keywords(old, new, shown);
    }

    fn required(&mut self, was: bool, is: bool, old: &[&'a Value], new: &[&'b Value], path: &Path, shown: &Path) {
        if was != is {
            self.change(shown, if is { "is required" } else { "is no longer required" });
            let (value, back) = (self.made(self.new, new), self.made(self.old, old));
            let (value, back) = if is { (value, None) } else { (None, back) };
            self.operations.push(Operation::Default {
                path: path.clone(),
                value,
                back,
            });
        }
    }

    /// Members that are in another object now are moved; the others are dropped and added.
    fn pair_up(&mut self) {
        let (mut removed, mut added) = (std::mem::take(&mut self.removed), std::mem::take(&mut self.added));
        // An object that takes members of others is made first, and one that gives its members away is dropped last.
        let (mut made_objects, mut left_objects) = (Vec::new(), Vec::new());
        let taken = |one: &Member<'_>, others: &[Member<'_>]| others.iter().any(|other| is_twin(one, other));
        for at in (0..added.len()).rev() {
            let inside = members_of(self.new, &added[at]);
            if inside.iter().any(|member| taken(member, &removed)) {
                made_objects.push(std::mem::take(&mut added[at]));
                added.extend(inside);
            }
        }
        for at in (0..removed.len()).rev() {
            let inside = members_of(self.old, &removed[at]);
            if inside.iter().any(|member| taken(member, &added)) {
                left_objects.push(std::mem::take(&mut removed[at]));
                removed.extend(inside);
            }
        }
        added.retain(|member| !member.schemas.is_empty());
        removed.retain(|member| !member.schemas.is_empty());
        for object in made_objects {
            self.change(&object.shown, "is new");
            self.operations.push(Operation::Add {
                path: object.path,
                value: Some(json!({})),
            });
        }
        for old in removed {
            if let Some(twin) = added.iter().position(|new| is_twin(new, &old)) {
                let new = added.remove(twin);
                self.change(&old.shown, format!("is at {}", new.path));
                self.operations.push(Operation::Move {
                    path: old.path,
                    to: new.path,
                });
            } else {
                self.change(&old.shown, "is gone");
                let back = if old.is_required {
                    self.made(self.old, &old.schemas)
                } else {
                    None
                };
                self.operations.push(Operation::Drop { path: old.path, back });
            }
        }
        for object in left_objects {
            self.change(&object.shown, "is gone");
            self.operations.push(Operation::Drop {
                path: object.path,
                back: Some(json!({})),
            });
        }
        for new in added {
            self.change(
                &new.shown,
                if new.is_required {
                    "is new and required"
                } else {
                    "is new"
                },
            );
            let value = if new.is_required {
                self.made(self.new, &new.schemas)
            } else {
                None
            };
            self.operations.push(Operation::Add { path: new.path, value });
        }
    }

    /// The shortest value that fits, for a place where one has to be made up.
    fn made(&self, document: Document<'_>, schemas: &[&Value]) -> Option<Value> {
        if (self.is_out_of_time)() {
            return None;
        }
        let whole = json!({ "allOf": schemas });
        let stated = schemas.iter().filter_map(|schema| schema.get("default").cloned());
        let mut values = Generator::new(document, Vec::new(), &Value::Null, self.is_out_of_time).values(schemas, 1);
        values.sort_by_key(|value| value.to_string().len());
        document.first_accepted(&whole, stated.chain(values))
    }

    /// Another type: converted, put into something, or taken out of it.
    fn types(&mut self, was: Types, is: Types, old: &[&'a Value], new: &[&'b Value], path: &Path, shown: &Path) {
        self.change(shown, format!("{} became {}", was.names(), is.names()));
        if path.0.is_empty() {
            return;
        }
        let path = path.clone();
        let items_of = |schemas: &[&Value]| {
            let items: Vec<_> = schemas
                .iter()
                .filter_map(|schema| child(schema, &Token::Items))
                .collect();
            Types::of(&items).without_null()
        };
        let only = |schemas: &[&Value], wanted: Types| {
            let names = property_names(schemas);
            let name = (*names.first()?).to_owned();
            (names.len() == 1 && Types::of(&inside(schemas, &name)).without_null() == wanted).then_some(name)
        };
        let operation = if let (Some(from), Some(to)) = (was.scalar(), is.scalar()) {
            let value = if from == Scalar::String {
                self.made(self.new, new)
            } else {
                None
            };
            let back = if to == Scalar::String {
                self.made(self.old, old)
            } else {
                None
            };
            let is_known =
                from == Scalar::String || to == Scalar::String || (from != Scalar::Boolean && to != Scalar::Boolean);
            is_known.then_some(Operation::Convert { path, to, value, back })
        } else if is == Types::ARRAY && items_of(new) == was {
            Some(Operation::List {
                path,
                back: self.made(self.old, old),
            })
        } else if was == Types::ARRAY && items_of(old) == is {
            Some(Operation::Single {
                path,
                value: self.made(self.new, new),
            })
        } else if is == Types::OBJECT
            && let Some(name) = only(new, was)
        {
            Some(Operation::Wrap { path, name })
        } else if was == Types::OBJECT
            && let Some(name) = only(old, is)
        {
            Some(Operation::Unwrap { path, name })
        } else {
            None
        };
        self.operations.extend(operation);
    }

    /// Values that one version lists and the other does not are replaced, in their order.
    fn listed(&mut self, old: &[&'a Value], new: &[&'b Value], path: &Path, shown: &Path) {
        let (Some(was), Some(is)) = (finite(old), finite(new)) else {
            return;
        };
        let gone: Vec<_> = was.iter().filter(|value| !is.contains(value)).collect();
        let added: Vec<_> = is.iter().filter(|value| !was.contains(value)).collect();
        let (Some(first_old), Some(first_new)) = (was.first(), is.first()) else {
            return;
        };
        if gone.is_empty() && added.is_empty() || path.0.is_empty() {
            return;
        }
        for value in &gone {
            self.change(shown, format!("may no longer be {value}"));
        }
        for value in &added {
            self.change(shown, format!("may be {value}"));
        }
        let len = gone.len().max(added.len());
        let mut values = Vec::new();
        if added.len() > gone.len() && is.contains(first_old) {
            values.push((first_old.clone(), first_old.clone()));
        }
        for at in 0..len {
            let old = gone.get(at).copied().unwrap_or(first_old);
            values.push((old.clone(), added.get(at).copied().unwrap_or(first_new).clone()));
        }
        self.operations.push(Operation::Map {
            path: path.clone(),
            values,
        });
    }

    /// Keywords whose change no operation follows from.
    fn keywords(&mut self, old: &[&Value], new: &[&Value], shown: &Path) {
        for keyword in [
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "pattern",
            "format",
            "minItems",
            "maxItems",
            "uniqueItems",
            "minProperties",
            "maxProperties",
            "additionalProperties",
        ] {
            let stated = |all: &[&Value]| all.iter().find_map(|schema| schema.get(keyword).cloned());
            match (stated(old), stated(new)) {
                (was, is) if was == is => {}
                (Some(was), Some(is)) => self.change(shown, format!("{keyword} was {was} and is {is}")),
                (None, Some(is)) => self.change(shown, format!("{keyword} is {is}")),
                (Some(was), _) => self.change(shown, format!("{keyword} is no longer {was}")),
                (None, None) => {}
            }
        }
    }
}

fn inside<'a>(schemas: &[&'a Value], name: &str) -> Vec<&'a Value> {
    schemas
        .iter()
        .filter_map(|schema| schema.get("properties")?.get(name))
        .collect()
}

/// Whether a schema has a reference, so that equal texts may differ.
fn refers(schemas: &[&Value]) -> bool {
    schemas
        .iter()
        .flat_map(|schema| crate::schema::nested_values(schema))
        .any(|value| value.get("$ref").is_some())
}

/// The subschemas that apply together, where there is one choice of branches, null apart.
fn single<'a>(document: Document<'a>, schemas: &[&'a Value]) -> Option<Vec<&'a Value>> {
    let mut alternatives = document.alternatives(schemas)?;
    if alternatives.len() > 1 {
        alternatives.retain(|all| Types::of(all) != Types::NULL);
    }
    if alternatives.len() == 1 {
        alternatives.pop()
    } else {
        None
    }
}
