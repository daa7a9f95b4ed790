//! The schema of a payload as operations change it: checks each operation against it, and finds what the operation may
//! lose and make up.

use serde_json::{Map, Value, json};

use crate::{
    LensError,
    act::{Act, scalar_equal},
    number::Decimal,
    operation::{Operation, Scalar},
    path::{Path, Token},
    schema::{Document, Types, finite, is_required, property_names, strings},
};

/// Subschemas that one operation changes at most.
const EDITS_MAX: usize = 1000;

/// The keywords that stay true, or are changed with the operation, in a schema on the way to what an operation changes.
const KEPT: &[&str] = &[
    "type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems", "allOf", "anyOf", "$schema",
];

/// A place as the schema describes it: the subschemas that apply together, for each choice of branches.
type Place<'s> = Vec<Vec<&'s Value>>;

/// The schema of a payload after some operations. It admits each payload that they make of one that fits the source, and
/// perhaps others.
pub(crate) struct Shape<'d> {
    pub document: Document<'d>,
    pub root: Value,
    pub acts: Vec<Act>,
    /// Places of the source whose values the way back may not restore.
    pub may_lose: Vec<Path>,
    /// An operation may make up a value.
    pub invents: bool,
    /// Operations that may fail, with the reason.
    pub may_fail: Vec<(Path, String)>,
    /// Operations that remove a required member, and make none on the way back.
    pub without_back: Vec<usize>,
}

impl<'d> Shape<'d> {
    pub fn of(source: &'d Value) -> Self {
        Self {
            document: Document::of(source),
            root: source.clone(),
            acts: Vec::new(),
            may_lose: Vec::new(),
            invents: false,
            may_fail: Vec::new(),
            without_back: Vec::new(),
        }
    }

    /// Checks an operation against the schema and applies it.
    ///
    /// # Errors
    /// The reason why the schema does not allow it.
    pub fn apply(&mut self, operation: &Operation, index: usize) -> Result<(), LensError> {
        let fail = |reason: String| LensError { path: Some(operation.path().to_string()), ..LensError::new(reason).at(index) };
        self.change(operation, index).map_err(fail)
    }

    fn change(&mut self, operation: &Operation, index: usize) -> Result<(), String> {
        let mut act = Act::new(operation.clone(), Scalar::String, index);
        match operation {
            Operation::Rename { path, to } => self.rename(path, to)?,
            Operation::Move { path, to } => self.relocate(path, to)?,
            Operation::Add { path, value } => self.add(path, value.as_ref())?,
            Operation::Drop { path, back } => self.remove(path, back.as_ref())?,
            Operation::Default { path, value, .. } => self.default(path, value.as_ref())?,
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
        self.acts.push(act);
        Ok(())
    }

    /// Records that the value at a path, as it is before the next operation, may be lost.
    fn lose(&mut self, path: &Path) {
        let before = self.acts.iter().rev().try_fold(path.clone(), |path, act| act.operation.origin(&path));
        self.may_lose.extend(before);
    }

    fn place(&self, path: &[Token]) -> Result<Place<'_>, String> {
        let place = self.document.at(&[&self.root], path);
        place.ok_or_else(|| "the schema has too many alternatives at this place, or a reference to nothing".to_owned())
    }

    fn declared(&self, path: &Path) -> Result<Place<'_>, String> {
        let place = self.place(&path.0)?;
        if place.is_empty() { Err("the schema does not declare this place".to_owned()) } else { Ok(place) }
    }

    fn types(&self, place: &Place<'_>) -> Types {
        place.iter().fold(Types(0), |types, all| Types(types.0 | self.document.types(all).0))
    }

    fn check_types(&self, path: &Path, taken: Types, what: &str) -> Result<Types, String> {
        let types = self.types(&self.declared(path)?);
        if types.is_within(taken) && types.without_null().0 != 0 {
            return Ok(types);
        }
        Err(format!("the operation takes {what}, and the schema declares another type for {path}"))
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
        let Some((Token::Name(name), parent)) = path.split_last() else { return Ok(true) };
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
            return Err(format!("not every payload has the object {} that takes the member", Path::of(new_parent)));
        }
        let is_required = self.is_always_there(&path.0)?;
        self.edit(parent, &mut |keywords| {
            take(keywords, name);
            unrequire(keywords, name);
        })?;
        self.edit(new_parent, &mut |keywords| declare(keywords, new_name, schema.clone(), is_required))
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
        self.edit(parent, &mut |keywords| declare(keywords, name, schema_of(value), true))
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
        self.edit(parent, &mut |keywords| {
            take(keywords, name);
            unrequire(keywords, name);
        })
    }

    fn default(&mut self, path: &Path, value: Option<&Value>) -> Result<(), String> {
        let (parent, name) = path.split_name().unwrap_or_default();
        self.declared(path)?;
        let Some(value) = value else { return Ok(()) };
        let parents = self.place(parent)?;
        self.invents |= !parents.iter().all(|all| self.document.requires(all, name));
        self.edit(parent, &mut |keywords| {
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
            is_only.then(|| whole(&vec![all.iter().filter_map(|schema| schema.get("properties")?.get(name)).collect()]))
        };
        let place = self.declared(path)?;
        let inside = inner(self, &place)
            .ok_or_else(|| format!("the schema does not declare an object with `{name}` as its one member, required"))?;
        if self.types(&vec![vec![&inside]]).meets(Types::NULL) {
            self.lose(&path.clone().child(name));
        }
        self.replace(path, &|shape, place| inner(shape, place).map(|inside| shape.or_null(place, inside)))
    }

    fn single(&mut self, path: &Path, value: Option<&Value>) -> Result<(), String> {
        self.check_types(path, Types(Types::ARRAY.0 | Types::NULL.0), "an array")?;
        let place = self.declared(path)?;
        let arrays = self.of_type(&place, Types::ARRAY).ok_or("the schema is too complex at this place")?;
        let is_bounded = |keyword: &str, is_enough: fn(u64) -> bool| {
            let states = |schema: &&Value| schema.get(keyword).and_then(Value::as_u64).is_some_and(is_enough);
            arrays.iter().all(|all| all.iter().any(states))
        };
        let can_be_empty = !is_bounded("minItems", |least| least > 0);
        let has_more = !is_bounded("maxItems", |most| most <= 1);
        let items: Vec<Vec<&Value>> = arrays
            .iter()
            .map(|all| all.iter().filter_map(|schema| crate::schema::child(schema, &Token::Items)).collect())
            .collect();
        let has_null = self.types(&items).meets(Types::NULL);
        let parent = path.split_name().map(|(parent, name)| (parent.to_vec(), name.to_owned()));
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
                whole(&vec![all.iter().filter_map(|schema| crate::schema::child(schema, &Token::Items)).collect()])
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

    /// `map`, `convert` and `scale`.
    fn scalars(&mut self, act: Act, path: &Path) -> Result<Act, String> {
        let types = self.types(&self.declared(path)?);
        let from = match types.without_null() {
            Types::STRING => Scalar::String,
            Types::INTEGER => Scalar::Integer,
            Types::NUMBER => Scalar::Number,
            Types::BOOLEAN => Scalar::Boolean,
            types if matches!(act.operation, Operation::Map { .. })
                && !types.meets(Types(Types::ARRAY.0 | Types::OBJECT.0)) => Scalar::String,
            _ => return Err("the operation takes one scalar type, and the schema declares something else".to_owned()),
        };
        let is_scale = matches!(act.operation, Operation::Scale { .. });
        if is_scale && !matches!(from, Scalar::Integer | Scalar::Number) {
            return Err("the operation takes a number, and the schema declares another type".to_owned());
        }
        let act = Act::new(act.operation, from, act.index);
        let back = act.inverse();
        let values = self.finite(&self.declared(path)?);
        for value in values.iter().flatten() {
            act.scalar(&value.to_string())?;
        }
        let is_changed = |value: &Value| {
            let text = value.to_string();
            let there = act.scalar(&text).ok().flatten().unwrap_or_else(|| text.clone());
            let restored = back.scalar(&there).ok().flatten().unwrap_or(there);
            !scalar_equal(&restored, &text)
        };
        let (loses, invents) = match (&values, &act.operation) {
            (_, Operation::Convert { to, value, .. }) => {
                check_convert(from, *to, value.as_ref())?;
                let unread = |values: &Vec<Value>| values.iter().any(|value| act.makes_up(&value.to_string()));
                let makes_up = from == Scalar::String && values.as_ref().is_none_or(unread);
                if makes_up && value.is_none() {
                    return Err("value is needed: it replaces the strings that cannot be read".to_owned());
                }
                let is_exact = from != Scalar::String && (from, *to) != (Scalar::Number, Scalar::Integer);
                (values.as_ref().map_or(!is_exact, |values| values.iter().any(is_changed)), makes_up)
            }
            (Some(values), _) => (values.iter().any(is_changed), false),
            (None, Operation::Map { values, .. }) => {
                let mut all = values.iter().flat_map(|(old, new)| [old, new]);
                (all.any(|value| types.admits(value) && is_changed(value)), false)
            }
            (None, Operation::Scale { multiply, divide, .. }) => {
                (if from == Scalar::Integer { multiply < divide } else { multiply != divide }, false)
            }
            _ => (false, false),
        };
        if loses {
            self.lose(path);
        }
        self.invents |= invents;
        if let Operation::Scale { multiply, divide, .. } = act.operation
            && multiply > divide
            && values.is_none()
            && !self.is_bounded(path)?
        {
            self.may_fail.push((path.clone(), "a number without bounds may become too large".to_owned()));
        }
        self.replace(path, &|shape, place| shape.scalars_after(&act, place))?;
        Ok(act)
    }

    fn is_bounded(&self, path: &Path) -> Result<bool, String> {
        let has = |all: &Vec<&Value>, keywords: [&str; 2]| {
            let bounds = all.iter().flat_map(|schema| keywords.map(|keyword| schema.get(keyword)));
            bounds.flatten().any(|bound| bound.as_f64().is_some_and(|bound| bound.abs() < 1e290))
        };
        let numbers = self.of_type(&self.declared(path)?, Types::NUMBER).unwrap_or_default();
        Ok(numbers.iter().all(|all| has(all, ["minimum", "exclusiveMinimum"]) && has(all, ["maximum", "exclusiveMaximum"])))
    }

    fn scalars_after(&self, act: &Act, place: &Place<'_>) -> Option<Value> {
        let types = self.types(place);
        if types.meets(Types(Types::ARRAY.0 | Types::OBJECT.0)) {
            return None;
        }
        if let Some(values) = self.finite(place) {
            let after = values.into_iter().filter_map(|value| match act.scalar(&value.to_string()).ok()? {
                Some(text) => serde_json::from_str(&text).ok(),
                None => Some(value),
            });
            return Some(json!({"enum": after.collect::<Vec<Value>>()}));
        }
        let any = match &act.operation {
            Operation::Map { values, .. } => {
                let new: Vec<_> = values.iter().map(|(_, new)| new).collect();
                return Some(json!({"anyOf": [whole(place), {"enum": new}]}));
            }
            Operation::Scale { .. } => self.calculated(act, place, act.from),
            Operation::Convert { to: Scalar::String, .. } => json!({"type": "string", "minLength": 1}),
            Operation::Convert { to, .. } if act.from == Scalar::Number => self.calculated(act, place, *to),
            Operation::Convert { to: Scalar::Boolean, .. } => json!({"type": "boolean"}),
            Operation::Convert { .. } if act.from == Scalar::Integer => whole(place),
            Operation::Convert { to, .. } => json!({"type": to}),
            _ => return None,
        };
        Some(self.or_null(place, any))
    }

    /// The schema of a number after a calculation that keeps the order.
    fn calculated(&self, act: &Act, place: &Place<'_>, to: Scalar) -> Value {
        let mut after = json!({ "type": to });
        let numbers = self.of_type(place, Types::NUMBER).unwrap_or_default();
        let [all] = numbers.as_slice() else { return after };
        for (keywords, bound, larger) in [
            (["minimum", "exclusiveMinimum"], "minimum", true),
            (["maximum", "exclusiveMaximum"], "maximum", false),
        ] {
            let stated = all.iter().flat_map(|schema| keywords.map(|keyword| schema.get(keyword)?.as_number()));
            let stated = stated.flatten().map(ToString::to_string).collect::<Vec<_>>();
            let order = |text: &&String| Decimal::parse(text);
            let strictest = if larger { stated.iter().max_by_key(order) } else { stated.iter().min_by_key(order) };
            let scaled = strictest.and_then(|text| act.scalar(text).ok()?);
            if let Some(number) = scaled.and_then(|text| serde_json::from_str(&text).ok()) {
                after[bound] = number;
            }
        }
        after
    }

    /// The choices of branches in which a value has this type, null apart.
    fn of_type<'s>(&'s self, place: &Place<'s>, of: Types) -> Option<Place<'s>> {
        let mut typed = self.document.expanded(place)?;
        typed.retain(|all| Types::of(all).meets(of));
        Some(typed)
    }

    /// The values of a place, if the schema lists them.
    fn finite(&self, place: &Place<'_>) -> Option<Vec<Value>> {
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

    fn or_null(&self, place: &Place<'_>, schema: Value) -> Value {
        if self.types(place).meets(Types::NULL) {
            json!({"anyOf": [schema, {"type": "null"}]})
        } else {
            schema
        }
    }

    /// Replaces the schema of a place, by what each schema that declares it says, or else by what all say together.
    fn replace(&mut self, path: &Path, after: &dyn Fn(&Self, &Place<'_>) -> Option<Value>) -> Result<(), String> {
        let Some((last, parent)) = path.0.split_last() else {
            self.root = after(self, &vec![vec![&self.root]]).ok_or("the schema is too complex")?;
            return Ok(());
        };
        let fallback = after(self, &self.declared(path)?);
        let reader = Shape { root: Value::Null, ..Self::of(self.document.root) };
        let mut is_known = true;
        self.edit(parent, &mut |keywords| {
            let child = match last {
                Token::Name(name) => keywords.get_mut("properties").and_then(|properties| properties.get_mut(name)),
                Token::Items => keywords.get_mut("items").filter(|items| !items.is_array()),
            };
            if let Some(child) = child {
                match after(&reader, &vec![vec![child]]).or_else(|| fallback.clone()) {
                    Some(schema) => *child = schema,
                    None => is_known = false,
                }
            }
        })?;
        if is_known { Ok(()) } else { Err("the schema is too complex at this place".to_owned()) }
    }

    /// Changes each subschema that applies to the values at a path, in all branches. What the schema says of these values
    /// beyond the keywords that are understood is dropped, because it may no longer hold.
    fn edit(&mut self, path: &[Token], change: &mut dyn FnMut(&mut Map<String, Value>)) -> Result<(), String> {
        let mut left = EDITS_MAX;
        edit(&self.document, &mut self.root, path, change, &mut left)
            .ok_or_else(|| "the schema has too many alternatives at this place".to_owned())
    }
}

fn edit(
    document: &Document<'_>,
    schema: &mut Value,
    path: &[Token],
    change: &mut dyn FnMut(&mut Map<String, Value>),
    left: &mut usize,
) -> Option<()> {
    *left = left.checked_sub(1)?;
    if *schema == Value::Bool(true) {
        *schema = json!({});
    }
    if !Types::of(&[schema]).meets(Types(Types::OBJECT.0 | Types::ARRAY.0)) {
        return Some(());
    }
    let Value::Object(keywords) = schema else { return Some(()) };
    if let Some(reference) = keywords.remove("$ref") {
        let target = document.target(reference.as_str()?)?.clone();
        if document.is_draft_07 {
            *keywords = Map::new();
        }
        push(keywords, "allOf", target);
    }
    // After a change the branches may no longer exclude each other.
    if let Some(one_of) = keywords.remove("oneOf") {
        push(keywords, "allOf", json!({ "anyOf": one_of }));
    }
    if keywords.contains_key("patternProperties") {
        keywords.remove("additionalProperties");
    }
    if keywords.contains_key("prefixItems") {
        keywords.remove("items");
    }
    keywords.retain(|keyword, _| KEPT.contains(&keyword.as_str()));
    for keyword in ["allOf", "anyOf"] {
        if let Some(Value::Array(branches)) = keywords.get_mut(keyword) {
            for branch in branches {
                edit(document, branch, path, change, left)?;
            }
        }
    }
    match path.split_first() {
        None => change(keywords),
        Some((Token::Name(name), rest)) => {
            if let Some(child) = keywords.get_mut("properties").and_then(|properties| properties.get_mut(name)) {
                edit(document, child, rest, change, left)?;
            }
        }
        Some((Token::Items, rest)) => {
            if let Some(items) = keywords.get_mut("items").filter(|items| !items.is_array()) {
                edit(document, items, rest, change, left)?;
            }
        }
    }
    Some(())
}

fn push(keywords: &mut Map<String, Value>, keyword: &str, item: Value) {
    if let Value::Array(items) = keywords.entry(keyword).or_insert_with(|| json!([])) {
        items.push(item);
    }
}

fn take(keywords: &mut Map<String, Value>, name: &str) -> Option<Value> {
    keywords.get_mut("properties")?.as_object_mut()?.remove(name)
}

/// Returns whether the member was required.
fn unrequire(keywords: &mut Map<String, Value>, name: &str) -> bool {
    let was_required = strings(keywords.get("required")).any(|required| required == name);
    if let Some(Value::Array(required)) = keywords.get_mut("required") {
        required.retain(|required| required != name);
    }
    was_required
}

fn declare(keywords: &mut Map<String, Value>, name: &str, schema: Value, is_required: bool) {
    unrequire(keywords, name);
    if is_required {
        push(keywords, "required", json!(name));
    }
    if let Value::Object(properties) = keywords.entry("properties").or_insert_with(|| json!({})) {
        properties.insert(name.to_owned(), schema);
    }
}

/// A place as one schema.
fn whole(place: &Place<'_>) -> Value {
    let mut any: Vec<Value> = place
        .iter()
        .map(|all| match all.as_slice() {
            [] => Value::Bool(true),
            [one] => (*one).clone(),
            all => json!({ "allOf": all }),
        })
        .collect();
    if any.len() == 1 { any.remove(0) } else { json!({ "anyOf": any }) }
}

/// The schema of one value, in which later operations find its members.
fn schema_of(value: &Value) -> Value {
    let Value::Object(members) = value else { return json!({ "const": value }) };
    let properties: Map<_, _> = members.iter().map(|(name, value)| (name.clone(), schema_of(value))).collect();
    let required: Vec<_> = members.keys().collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn check_convert(from: Scalar, to: Scalar, value: Option<&Value>) -> Result<(), String> {
    let is_pair = from != to
        && (from == Scalar::String
            || to == Scalar::String
            || matches!((from, to), (Scalar::Number, Scalar::Integer) | (Scalar::Integer, Scalar::Number)));
    if !is_pair {
        return Err("convert leads from or to a string, or between number and integer".to_owned());
    }
    let types = match to {
        Scalar::String => Types::STRING,
        Scalar::Integer => Types::INTEGER,
        Scalar::Number => Types::NUMBER,
        Scalar::Boolean => Types::BOOLEAN,
    };
    match value {
        Some(value) if !types.admits(value) => Err("value is not of the type that convert makes".to_owned()),
        _ => Ok(()),
    }
}
