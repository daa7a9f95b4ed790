//! The JSON schemas of arguments and results, as `tools/list` shows them.

use serde_json::{Map, Value, json};

/// The schema of an object without further properties.
pub(super) fn object_schema(properties: Value, required: &[&str]) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema.insert("additionalProperties".to_owned(), json!(false));
    Value::Object(schema)
}

/// Adds a description. Most schemas have none: models read every word of the list, and names usually suffice.
pub(super) fn with_description(mut schema: Value, description: &str) -> Value {
    if !description.is_empty() {
        schema["description"] = json!(description);
    }
    schema
}

/// The schema of a string.
pub(super) fn string_schema(description: &str) -> Value {
    with_description(json!({"type": "string"}), description)
}

/// The schema of an integer.
pub(super) fn integer_schema(description: &str) -> Value {
    with_description(json!({"type": "integer"}), description)
}

/// The schema of a list of strings.
pub(super) fn strings_schema(description: &str) -> Value {
    with_description(json!({"type": "array", "items": {"type": "string"}}), description)
}

/// The schema of the argument that bounds a page.
pub(super) fn limit_schema(default: usize, max: usize) -> Value {
    integer_schema(&format!("1 to {max}, default {default}."))
}

/// The schema of a cursor.
pub(super) fn cursor_schema() -> Value {
    string_schema("From next_cursor.")
}
