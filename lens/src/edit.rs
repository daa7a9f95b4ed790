//! Changes a schema where an operation changes the payload.

use serde_json::{Map, Value, json};

use crate::{
    path::Token,
    schema::{Document, Place, Types, strings},
};

/// The keywords that stay true, or are changed with the operation, in a schema on the way to what an operation changes.
const KEPT: &[&str] = &[
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "allOf",
    "anyOf",
    "$schema",
];

/// Changes each subschema that applies to the values at a path, in all branches, and drops the keywords that may no longer
/// hold. None if they are more than `left`, or a reference leads to nothing.
pub(crate) fn edit(
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
    let Value::Object(keywords) = schema else {
        return Some(());
    };
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
            if let Some(child) = keywords
                .get_mut("properties")
                .and_then(|properties| properties.get_mut(name))
            {
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

pub(crate) fn take(keywords: &mut Map<String, Value>, name: &str) -> Option<Value> {
    keywords.get_mut("properties")?.as_object_mut()?.remove(name)
}

/// Returns whether the member was required.
pub(crate) fn unrequire(keywords: &mut Map<String, Value>, name: &str) -> bool {
    let was_required = strings(keywords.get("required")).any(|required| required == name);
    if let Some(Value::Array(required)) = keywords.get_mut("required") {
        required.retain(|required| required != name);
    }
    was_required
}

pub(crate) fn declare(keywords: &mut Map<String, Value>, name: &str, schema: Value, is_required: bool) {
    unrequire(keywords, name);
    if is_required {
        push(keywords, "required", json!(name));
    }
    if let Value::Object(properties) = keywords.entry("properties").or_insert_with(|| json!({})) {
        properties.insert(name.to_owned(), schema);
    }
}

/// A place as one schema.
pub(crate) fn whole(place: &Place<'_>) -> Value {
    let mut any: Vec<Value> = place
        .iter()
        .map(|all| match all.as_slice() {
            [] => Value::Bool(true),
            [one] => (*one).clone(),
            all => json!({ "allOf": all }),
        })
        .collect();
    if any.len() == 1 {
        any.remove(0)
    } else {
        json!({ "anyOf": any })
    }
}

/// The schema of one value, in which later operations find its members.
pub(crate) fn schema_of(value: &Value) -> Value {
    let Value::Object(members) = value else {
        return json!({ "const": value });
    };
    let properties: Map<_, _> = members
        .iter()
        .map(|(name, value)| (name.clone(), schema_of(value)))
        .collect();
    let required: Vec<_> = members.keys().collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
