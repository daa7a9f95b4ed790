//! Parameters of tools that clients repeat in headers (`x-mcp-header`; 2026-07-28, basic/transports/streamable-http, Custom
//! Headers), and the encoding of header values (section Value Encoding). Pure.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

/// The annotation in the schema of a parameter.
const ANNOTATION: &str = "x-mcp-header";
/// What the names of the headers begin with.
const HEADER_PREFIX: &str = "Mcp-Param-";
/// Integers beyond this differ between implementations of JSON, and are not repeated.
const INTEGER_MAX: f64 = 9_007_199_254_740_991.0;
/// Members of a schema that hold data and no schemas.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// A parameter that a client repeats in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirroredParameter {
    /// Its place in the arguments (RFC 6901).
    pub pointer: String,
    /// The name of the header.
    pub header: String,
}

impl MirroredParameter {
    /// The value of the header for these arguments; `None` if there is none.
    pub fn value(&self, arguments: &Value) -> Option<String> {
        match arguments.pointer(&self.pointer)? {
            Value::String(text) => Some(encoded(text).into_owned()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Number(number) => {
                let is_exact = number.as_f64().is_some_and(|value| value.abs() <= INTEGER_MAX);
                is_exact.then(|| number.to_string())
            }
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// The parameters of a tool that clients repeat, by its input schema.
///
/// # Errors
/// An annotation breaks a rule, so that clients must not use the tool: which, for an operator.
pub fn mirrored_parameters(input_schema: &Value) -> Result<Vec<MirroredParameter>, String> {
    let mut found = Vec::new();
    collect(input_schema, "", &mut found)?;
    Ok(found)
}

/// Collects the annotations of a schema that is reached by `properties` alone.
fn collect(schema: &Value, at: &str, found: &mut Vec<MirroredParameter>) -> Result<(), String> {
    for (key, value) in schema.as_object().into_iter().flatten() {
        match key.as_str() {
            ANNOTATION => found.push(annotated(schema, value, at, found)?),
            "properties" => {
                for (name, schema) in value.as_object().into_iter().flatten() {
                    let pointer = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                    collect(schema, &pointer, found)?;
                }
            }
            key if DATA.contains(&key) => {}
            _ if has_annotation(value) => {
                return Err(format!(
                    "{ANNOTATION} below {key} of {at:?}, where it cannot be found in the arguments"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn annotated(
    schema: &Value,
    annotation: &Value,
    at: &str,
    found: &[MirroredParameter],
) -> Result<MirroredParameter, String> {
    let wrong = |reason: &str| Err(format!("{ANNOTATION} of {at:?} {reason}"));
    let Some(name) = annotation.as_str().filter(|name| is_token(name)) else {
        return wrong("is no name of a header");
    };
    if at.is_empty() {
        return wrong("is not that of a parameter");
    }
    // `number` is not in the rules, and used by servers all the same.
    if !["string", "integer", "boolean", "number"].contains(&schema["type"].as_str().unwrap_or_default()) {
        return wrong("needs the type string, integer or boolean");
    }
    let header = format!("{HEADER_PREFIX}{name}");
    if found.iter().any(|known| known.header.eq_ignore_ascii_case(&header)) {
        return wrong("has the name of another one");
    }
    Ok(MirroredParameter {
        pointer: at.to_owned(),
        header,
    })
}

/// Whether an annotation is anywhere in a part of a schema.
fn has_annotation(part: &Value) -> bool {
    match part {
        Value::Object(members) => members
            .iter()
            .any(|(key, value)| key == ANNOTATION || !DATA.contains(&key.as_str()) && has_annotation(value)),
        Value::Array(elements) => elements.iter().any(has_annotation),
        _ => false,
    }
}

/// RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// A text as the value of a header: as it is if it is visible ASCII, otherwise in Base64.
pub fn encoded(text: &str) -> Cow<'_, str> {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim_matches(' ') == text
        && !text.starts_with("=?base64?");
    if is_plain {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("=?base64?{}?=", STANDARD.encode(text)))
    }
}

/// The text of the value of a header; `None` if it is not Base64 of UTF-8 although it is marked as such.
pub fn decoded(value: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let encoded = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let Some(encoded) = encoded else { return Some(value) };
    let bytes = STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_found_by_the_path_of_their_properties() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "x-mcp-header": {"type": "string", "default": {"x-mcp-header": 1}},
            "a/b": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
        }});
        let found = mirrored_parameters(&schema).unwrap();
        let arguments = json!({"region": "zürich", "a/b": {"n": 7}});
        let values: Vec<_> = found
            .iter()
            .map(|found| (&*found.header, found.value(&arguments)))
            .collect();
        let expected = [
            ("Mcp-Param-N", Some("7".to_owned())),
            ("Mcp-Param-Region", Some("=?base64?esO8cmljaA==?=".to_owned())),
        ];
        assert!(expected.iter().all(|wanted| values.contains(wanted)), "{values:?}");
        assert_eq!(found.len(), 2);
        for none in [
            json!({}),
            json!({"region": null}),
            json!({"a/b": {"n": 9_007_199_254_740_992_u64}}),
        ] {
            assert!(found.iter().all(|found| found.value(&none).is_none()), "{none}");
        }
    }

    #[test]
    fn a_wrong_annotation_is_refused_with_its_reason() {
        let property =
            |annotation: Value, kind: &str| json!({"properties": {"p": {"type": kind, "x-mcp-header": annotation}}});
        let twice = json!({"properties": {
            "p": {"type": "string", "x-mcp-header": "A"},
            "q": {"type": "string", "x-mcp-header": "a"},
        }});
        for (schema, reason) in [
            (property(json!("a b"), "string"), "no name of a header"),
            (property(json!(""), "string"), "no name of a header"),
            (property(json!(1), "string"), "no name of a header"),
            (property(json!("A"), "array"), "needs the type"),
            (twice, "the name of another one"),
            (
                json!({"x-mcp-header": "A", "type": "string"}),
                "not that of a parameter",
            ),
            (json!({"items": property(json!("A"), "string")}), "below items"),
            (json!({"oneOf": [{"x-mcp-header": "A"}]}), "below oneOf"),
        ] {
            let found = mirrored_parameters(&schema).unwrap_err();
            assert!(found.contains(reason), "{schema}: {found}");
        }
    }

    proptest! {
        #[test]
        fn a_text_survives_the_header(text in "\\PC{0,20}|=\\?base64\\?.{0,5}| x|x ") {
            let value = encoded(&text);
            prop_assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            prop_assert_eq!(value.trim(), &*value);
            prop_assert_eq!(&*decoded(value.clone()).unwrap(), &text);
        }
    }
}
