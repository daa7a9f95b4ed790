//! The schema of a payload as operations change it: checks each operation against it, and finds what the operation may
//! lose and make up.

use serde_json::{Map, Value, json};

use crate::{
    LensError,
    act::Act,
    edit::{declare, edit, schema_of, take, unrequire, whole},
    operation::{Operation, Scalar},
    path::{Path, Token},
    schema::{Document, Place, Types, child, finite, is_required, nested_values, property_names},
};

/// Subschemas that one operation changes, and JSON values that it copies into them and that the schema may have after it.
const EDITS_MAX: usize = 1000;
const NODES_MAX: usize = 20_000;
/// Bytes of text that count as one more value.
const TEXT_PER_NODE: usize = 64;

/// The schema of a payload after some operations. It admits each payload that they make of one that fits the source, and
/// perhaps others.
#[derive(Clone)]
pub(crate) struct Shape<'d> {
    pub document: Document<'d>,
    pub root: Value,
    pub acts: Vec<Act>,
    /// Places of the source whose values the way back may not restore.
    pub may_lose: Vec<Path>,
    /// An operation may make up a value.
    pub invents: bool,
    /// The way back gives each payload as it was, undeclared members apart.
    pub restores: bool,
    /// Operations that may fail, with the reason.
    pub may_fail: Vec<(Path, String)>,
    /// Operations that remove a required member, and make none on the way back.
    pub without_back: Vec<usize>,
}

/// The values of a schema, with long texts counted as more than one.
fn size_of_schema(schema: &Value) -> usize {
    let text_len = |value: &Value| value.as_str().map_or(0, str::len);
    nested_values(schema)
        .map(|value| 1 + text_len(value) / TEXT_PER_NODE)
        .sum()
}

impl<'d> Shape<'d> {
    pub fn of(source: &'d Value) -> Self {
        Self {
            document: Document::of(source),
            root: source.clone(),
            acts: Vec::new(),
            may_lose: Vec::new(),
            invents: false,
            restores: true,
            may_fail: Vec::new(),
            without_back: Vec::new(),
        }
    }

    /// Checks an operation against the schema and applies it.
    ///
    /// # Errors
    /// The reason why the schema does not allow it.
    pub fn apply(&mut self, operation: &Operation, index: usize) -> Result<(), LensError> {
        let fail = |reason: String| LensError {
            path: Some(operation.path().to_string()),
            ..LensError::new(reason).at(index)
        };
        self.change(operation, index).map_err(fail)
    }

    fn change(&mut self, operation: &Operation, index: usize) -> Result<(), String> {
        let mut act = Act::new(operation.clone(), Scalar::String, index);
        match operation {
            Operation::Rename { path, to } => self.rename(path, to)?,
            Operation::Move { path, to } => self.relocate(path, to)?,
            Operation::Add { path, value } => self.add(path, value.as_ref())?,
            Operation::Drop { path, back } => self.remove(path, back.as_ref())?,
            Operation::Default { path, value, back } => self.default(path, value.as_ref(), back.is_some())?,
            Operation::Split { path, to, .. } => self.split(path, to)?,
            Operation::Join { path, to, .. } => self.join(path, to)?,
            Operation::Wrap { path, name } => self.replace(path, &|shape, place| {
                let inside = shape.without_null(place);
                let object = json!({"type": "object", "properties": {name: inside}, "required": [name], "additionalProperties": false});
                Some(shape.or_null(place, object))
            })?,
            Operation::List { path, .. } => self.replace(path, &|shape, place| {
                let items = shape.without_null(place);
                Some(shape.or_null(place, json!({"type": "array", "items": items, "minItems": 1, "maxItems": 1})))
            })?,
            Operation::Unwrap { path, name } => self.unwrap(path, name)?,
            Operation::Single { path, value } => self.single(path, value.as_ref())?,
            Operation::Map { path, .. } | Operation::Convert { path, .. } | Operation::Scale { path, .. } => {
                act = self.scalars(act, path)?;
            }
        }
        if size_of_schema(&self.root) > NODES_MAX {
            return Err("the schema becomes too large".to_owned());
        }
        self.acts.push(act);
        Ok(())
    }

    /// Records that the value at a path, as it is before the next operation, may be lost.
    pub fn lose(&mut self, path: &Path) {
        self.restores = false;
        let before = self
            .acts
            .iter()
            .rev()
            .try_fold(path.clone(), |path, act| act.operation.origin(&path));
        self.may_lose.extend(before);
    }

    /// Records that the way back may make up a member that is absent. That is no loss, unless it is joined with others.
    fn invent_on_return(&mut self, path: &Path) {
        self.restores = false;
        let mut at = path.clone();
        for act in self.acts.iter().rev() {
            let Some(before) = act.operation.origin(&at) else {
                return;
            };
            if matches!(act.operation, Operation::Split { .. }) && before != at {
                return self.lose(path);
            }
            at = before;
        }
    }

    fn place(&self, path: &[Token]) -> Result<Place<'_>, String> {
        let place = self.document.at(&[&self.root], path);
        place.ok_or_else(|| "the schema has too many alternatives at this place, or a reference to nothing".to_owned())
    }

    pub fn declared(&self, path: &Path) -> Result<Place<'_>, String> {
        let place = self.place(&path.0)?;
        if place.is_empty() {
            Err("the schema does not declare this place".to_owned())
        } else {
            Ok(place)
        }
    }

    pub fn types(&self, place: &Place<'_>) -> Types {
        place
            .iter()
            .fold(Types(0), |types, all| Types(types.0 | self.document.types(all).0))
    }

    fn check_types(&self, path: &Path, taken: Types, what: &str) -> Result<Types, String> {
        let types = self.types(&self.declared(path)?);
        if types.is_within(taken) && types.without_null().0 != 0 {
            return Ok(types);
        }
        Err(format!(
            "the operation takes {what}, and the schema declares another type for {path}"
        ))
    }

    fn check_new(&self, parent: &[Token], name: &str) -> Result<(), String> {
        if self.place(&Path::join(parent, name).0)?.is_empty() {
            Ok(())
        } else {
            Err(format!("the schema declares {} already", Path::join(parent, name)))
        }
    }

    /// Whether each payload, or each item up to the last `*`, has the member, in an object.
    fn is_always_there(&self, path: &[Token]) -> Result<bool, String> {
        let Some((Token::Name(name), parent)) = path.split_last() else {
            return Ok(true);
        };
        let place = self.place(parent)?;
        let is_object = self.types(&place) == Types::OBJECT || parent.is_empty();
        let requires = place.iter().all(|all| self.document.requires(all, name));
        Ok(is_object && requires && self.is_always_there(parent)?)
    }

    fn rename(&mut self, path: &Path, to: &str) -> Result<(), String> {
        let (parent, name) = path.split_name().unwrap_or_default();
        self.declared(path)?;
        self.check_new(parent, to)?;
        self.edit(parent, &mut |keywords| {
            if let Some(schema) = take(keywords, name) {
                let is_required = unrequire(keywords, name);
                declare(keywords, to, schema, is_required);
            }
        })
    }

    fn relocate(&mut self, path: &Path, to: &Path) -> Result<(), String> {
        let (parent, name) = path.split_name().unwrap_or_default();
        let (new_parent, new_name) = to.split_name().unwrap_or_default();
        let schema = whole(&self.declared(path)?);
        let place = self.place(new_parent)?;
        self.check_new(new_parent, new_name)?;
        if place.is_empty() || !self.is_always_there(new_parent)? || !self.is_object(&place, new_parent) {
            return Err(format!(
                "not every payload has the object {} that takes the member",
                Path::of(new_parent)
            ));
        }
        let is_required = self.is_always_there(&path.0)?;
        self.edit(parent, &mut |keywords| {
            take(keywords, name);
            unrequire(keywords, name);
        })?;
        self.edit_with(&schema, new_parent, &mut |keywords| {
            declare(keywords, new_name, schema.clone(), is_required);
        })
    }

    /// The payload itself is an object, whether or not the schema says it.
    fn is_object(&self, place: &Place<'_>, path: &[Token]) -> bool {
        path.is_empty() || self.types(place) == Types::OBJECT
    }

    fn add(&mut self, path: &Path, value: Option<&Value>) -> Result<(), String> {
        let (parent, name) = path.split_name().unwrap_or_default();
        let place = self.declared(&Path::of(parent))?;
        if !self.types(&place).meets(Types::OBJECT) {
            return Err("the schema declares no object there".to_owned());
        }
        self.check_new(parent, name)?;
        let Some(value) = value else { return Ok(()) };
        self.invents = true;
        self.edit_with(value, parent, &mut |keywords| {
            declare(keywords, name, schema_of(value), true);
        })
    }

    fn remove(&mut self, path: &Path, back: Option<&Value>) -> Result<(), String> {
        let (parent, name) = path.split_name().unwrap_or_default();
        let only = self.finite(&self.declared(path)?);
        let parents = self.place(parent)?;
        let is_required = parents.iter().all(|all| self.document.requires(all, name));
        let is_restored = is_required && only.is_some_and(|only| only.iter().all(|value| Some(value) == back));
        if !is_restored {
            self.lose(path);
        }
        if is_required && back.is_none() {
            self.without_back.push(self.acts.len());
        }
        if !is_required && back.is_some() {
            self.invent_on_return(path);
        }
        self.edit(parent, &mut |keywords| {
            take(keywords, name);
            unrequire(keywords, name);
        })
    }

    fn default(&mut self, path: &Path, value: Option<&Value>, has_back: bool) -> Result<(), String> {
        let (parent, name) = path.split_name().unwrap_or_default();
        self.declared(path)?;
        let may_be_absent = !self.place(parent)?.iter().all(|all| self.document.requires(all, name));
        if may_be_absent && (value.is_some() || has_back) {
            self.invent_on_return(path);
        }
        let Some(value) = value else { return Ok(()) };
        self.invents |= may_be_absent;
        self.edit_with(value, parent, &mut |keywords| {
            let is_closed = keywords.get("additionalProperties") == Some(&Value::Bool(false));
            let schema = match take(keywords, name) {
                Some(schema) => json!({"anyOf": [schema, schema_of(value)]}),
                None if is_closed => schema_of(value),
                None => Value::Bool(true),
            };
            declare(keywords, name, schema, true);
        })
    }

    fn split(&mut self, path: &Path, to: &[String]) -> Result<(), String> {
        let (parent, name) = path.split_name().unwrap_or_default();
        self.check_types(path, Types::STRING, "a string")?;
        to.iter().try_for_each(|to| self.check_new(parent, to))?;
        self.edit(parent, &mut |keywords| {
            if take(keywords, name).is_some() {
                let is_required = unrequire(keywords, name);
                for (at, to) in to.iter().enumerate() {
                    declare(keywords, to, json!({"type": "string"}), is_required && at == 0);
                }
            }
        })
    }

    fn join(&mut self, path: &[Path], to: &str) -> Result<(), String> {
        let (parent, _) = path[0].split_name().unwrap_or_default();
        for path in path {
            self.check_types(path, Types::STRING, "strings")?;
            self.lose(path);
        }
        self.check_new(parent, to)?;
        self.edit(parent, &mut |keywords| {
            let (mut is_declared, mut is_required) = (false, false);
            for (_, name) in path.iter().filter_map(Path::split_name) {
                is_declared |= take(keywords, name).is_some();
                is_required |= unrequire(keywords, name);
            }
            if is_declared {
                declare(keywords, to, json!({"type": "string"}), is_required);
            }
        })
    }

    fn unwrap(&mut self, path: &Path, name: &str) -> Result<(), String> {
        self.check_types(path, Types(Types::OBJECT.0 | Types::NULL.0), "an object")?;
        let inner = |shape: &Self, place: &Place<'_>| {
            let objects = shape.of_type(place, Types::OBJECT)?;
            let [all] = objects.as_slice() else { return None };
            let is_only = property_names(all).into_iter().eq([name]) && is_required(all, name);
            is_only.then(|| {
                whole(&vec![
                    all.iter()
                        .filter_map(|schema| schema.get("properties")?.get(name))
                        .collect(),
                ])
            })
        };
        let place = self.declared(path)?;
        let inside = inner(self, &place).ok_or_else(|| {
            format!("the schema does not declare an object with `{name}` as its one member, required")
        })?;
        if self.types(&vec![vec![&inside]]).meets(Types::NULL) {
            self.lose(&path.clone().child(name));
        }
        self.replace(path, &|shape, place| {
            inner(shape, place).map(|inside| shape.or_null(place, inside))
        })
    }

    fn single(&mut self, path: &Path, value: Option<&Value>) -> Result<(), String> {
        self.check_types(path, Types(Types::ARRAY.0 | Types::NULL.0), "an array")?;
        let place = self.declared(path)?;
        let arrays = self
            .of_type(&place, Types::ARRAY)
            .ok_or("the schema is too complex at this place")?;
        let is_bounded = |keyword: &str, is_enough: fn(u64) -> bool| {
            let states = |schema: &&Value| schema.get(keyword).and_then(Value::as_u64).is_some_and(is_enough);
            arrays.iter().all(|all| all.iter().any(states))
        };
        let can_be_empty = !is_bounded("minItems", |least| least > 0);
        let has_more = !is_bounded("maxItems", |most| most <= 1);
        let items: Vec<Vec<&Value>> = arrays
            .iter()
            .map(|all| all.iter().filter_map(|schema| child(schema, &Token::Items)).collect())
            .collect();
        let has_null = self.types(&items).meets(Types::NULL);
        let parent = path
            .split_name()
            .map(|(parent, name)| (parent.to_vec(), name.to_owned()));
        if can_be_empty && value.is_none() && parent.is_none() {
            return Err("an item cannot become absent: give the value for an empty array".to_owned());
        }
        if has_more || has_null {
            self.lose(&path.clone().items());
        }
        if can_be_empty {
            self.lose(path);
            self.invents |= value.is_some();
        }
        self.replace(path, &|shape, place| {
            let arrays = shape.of_type(place, Types::ARRAY)?;
            let items = arrays.iter().map(|all| {
                whole(&vec![
                    all.iter().filter_map(|schema| child(schema, &Token::Items)).collect(),
                ])
            });
            let made = value.filter(|_| can_be_empty).map(schema_of);
            let any: Vec<_> = items.chain(made).collect();
            Some(shape.or_null(place, json!({"anyOf": any})))
        })?;
        match parent {
            Some((parent, name)) if can_be_empty && value.is_none() => self.edit(&parent, &mut |keywords| {
                unrequire(keywords, &name);
            }),
            _ => Ok(()),
        }
    }

    /// The choices of branches in which a value has this type, null apart.
    pub fn of_type<'s>(&'s self, place: &Place<'s>, of: Types) -> Option<Place<'s>> {
        let mut typed = self.document.expanded(place)?;
        typed.retain(|all| Types::of(all).meets(of));
        Some(typed)
    }

    /// The values of a place, if the schema lists them.
    pub fn finite(&self, place: &Place<'_>) -> Option<Vec<Value>> {
        let mut values = Vec::new();
        for all in self.document.expanded(place)? {
            values.append(&mut finite(&all)?);
        }
        Some(values)
    }

    fn without_null(&self, place: &Place<'_>) -> Value {
        if self.types(place).meets(Types::NULL) {
            json!({"allOf": [whole(place), {"type": ["boolean", "string", "number", "array", "object"]}]})
        } else {
            whole(place)
        }
    }

    pub fn or_null(&self, place: &Place<'_>, schema: Value) -> Value {
        if self.types(place).meets(Types::NULL) {
            json!({"anyOf": [schema, {"type": "null"}]})
        } else {
            schema
        }
    }

    /// Replaces the schema of a place, by what each schema that declares it says, or else by what all say together.
    pub fn replace(&mut self, path: &Path, after: &dyn Fn(&Self, &Place<'_>) -> Option<Value>) -> Result<(), String> {
        let Some((last, parent)) = path.0.split_last() else {
            self.root = after(self, &vec![vec![&self.root]]).ok_or("the schema is too complex")?;
            return Ok(());
        };
        let fallback = after(self, &self.declared(path)?);
        let reader = Shape {
            root: Value::Null,
            ..Self::of(self.document.root)
        };
        let mut is_known = true;
        let copied = fallback.clone().unwrap_or_default();
        self.edit_with(&copied, parent, &mut |keywords| {
            let child = match last {
                Token::Name(name) => keywords
                    .get_mut("properties")
                    .and_then(|properties| properties.get_mut(name)),
                Token::Items => keywords.get_mut("items").filter(|items| !items.is_array()),
            };
            if let Some(child) = child {
                match after(&reader, &vec![vec![child]]).or_else(|| fallback.clone()) {
                    Some(schema) => *child = schema,
                    None => is_known = false,
                }
            }
        })?;
        if is_known {
            Ok(())
        } else {
            Err("the schema is too complex at this place".to_owned())
        }
    }

    fn edit(&mut self, path: &[Token], change: &mut dyn FnMut(&mut Map<String, Value>)) -> Result<(), String> {
        self.edit_with(&Value::Null, path, change)
    }

    /// Changes each subschema that applies to the values at a path, in all branches, and copies `copied` into each. What
    /// the schema says of these values beyond the keywords that are understood is dropped, because it may no longer hold.
    fn edit_with(
        &mut self,
        copied: &Value,
        path: &[Token],
        change: &mut dyn FnMut(&mut Map<String, Value>),
    ) -> Result<(), String> {
        let mut left = EDITS_MAX.min(NODES_MAX / size_of_schema(copied).max(1));
        edit(&self.document, &mut self.root, path, change, &mut left)
            .ok_or_else(|| "the schema has too many alternatives at this place".to_owned())
    }
}
