//! Detects schemas that no object can fit, as far as that is evident.
//!
//! A payload is an object. A schema such as `{"type": "string"}` refuses every payload, so its registration is refused,
//! instead of the first message.

use serde_json::{Map, Value};

use super::pointer;

/// The reason why no object fits; None if one may. Does not follow references or look at conditions on members.
pub(super) fn why_no_object_fits(schema: &Value) -> Option<String> {
    match schema {
        Value::Bool(false) => Some("false refuses every value".to_owned()),
        Value::Object(members) => why_no_object_fits_members(members),
        _ => None,
    }
}

fn why_no_object_fits_members(members: &Map<String, Value>) -> Option<String> {
    // In draft-07 the keywords next to a reference are ignored.
    if members.contains_key("$ref") {
        return None;
    }
    members
        .iter()
        .find_map(|(keyword, value)| match (keyword.as_str(), value) {
            ("type", types) if !names_object(types) => Some(format!("its type is {}", pointer::bounded(types))),
            ("const", value) if !value.is_object() => Some("its const is not an object".to_owned()),
            ("enum", Value::Array(values)) if !values.iter().any(Value::is_object) => {
                Some("no value of its enum is an object".to_owned())
            }
            ("not", Value::Bool(true)) => Some("not true refuses every value".to_owned()),
            ("not", Value::Object(members)) if members.is_empty() => Some("not {} refuses every value".to_owned()),
            ("allOf", Value::Array(all)) => all.iter().find_map(why_no_object_fits),
            ("anyOf" | "oneOf", Value::Array(any)) => {
                let reasons: Option<Vec<_>> = any.iter().map(why_no_object_fits).collect();
                reasons?.into_iter().next()
            }
            _ => None,
        })
}

fn names_object(types: &Value) -> bool {
    match types {
        Value::String(name) => name == "object",
        Value::Array(names) => names.iter().any(|name| name == "object"),
        // A value that is not a list of types is refused as an invalid schema elsewhere.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Schema, *};

    #[test]
    fn a_schema_that_no_object_fits_is_refused_with_the_reason() {
        assert_eq!(Schema::check_admits_objects(&json!({"type": "object"})), Ok(()));
        let refused = Schema::check_admits_objects(&json!({"type": "string"})).unwrap_err();
        assert_eq!(refused.code(), "invalid_schema");
        assert!(refused.to_string().contains("its type is \"string\""), "{refused}");
    }

    #[test]
    fn a_schema_that_refuses_every_object_is_detected() {
        for none in [
            json!(false),
            json!({"type": "string"}),
            json!({"type": ["string", "null"]}),
            json!({"const": 1}),
            json!({"enum": ["a", null]}),
            json!({"not": {}}),
            json!({"not": true}),
            json!({"allOf": [{}, {"type": "array"}]}),
            json!({"anyOf": [{"type": "array"}, {"const": "x"}]}),
            json!({"oneOf": [false]}),
        ] {
            assert!(why_no_object_fits(&none).is_some(), "{none}");
        }
        for some in [
            json!(true),
            json!({}),
            json!({"type": ["string", "object"]}),
            json!({"const": {}}),
            json!({"enum": [1, {"a": 1}]}),
            json!({"not": {"type": "string"}}),
            json!({"anyOf": [{"type": "array"}, {"required": ["a"]}]}),
            json!({"$ref": "#/definitions/a", "type": "string"}),
            json!({"properties": {"a": false}}),
        ] {
            assert_eq!(why_no_object_fits(&some), None, "{some}");
        }
    }
}
