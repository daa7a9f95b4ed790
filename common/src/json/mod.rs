//! JSON as the surfaces read and write it: objects, members as slices of a text, pages of lists.

pub mod page;

pub use actors::json::{frame, scan};

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

/// A JSON object. For a struct, serde would also accept an array of its fields, which no input schema allows.
#[derive(Debug)]
pub struct JsonObject<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for MapVisitor<T> {
            type Value = JsonObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JsonObject<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(JsonObject)
            }
        }
        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}

/// Reads a value. `1.0` and `1e1` count as integers, as in JSON Schema (draft 2020-12, core, section 4.2.3).
///
/// # Errors
/// As [`serde_json::from_str`].
pub fn from_text<'de, T: Deserialize<'de>>(text: &'de str) -> serde_json::Result<T> {
    serde_json::from_str(text).or_else(|error| {
        let mut value: Value = serde_json::from_str(text)?;
        if normalize_integers(&mut value) {
            T::deserialize(value)
        } else {
            Err(error)
        }
    })
}

/// Rewrites integral floats as integers. Returns whether any was found.
fn normalize_integers(value: &mut Value) -> bool {
    /// From here on, floats do not represent every integer.
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < MOST => {
                *value = Value::from(float as i64);
                true
            }
            _ => false,
        },
        Value::Array(items) => items.iter_mut().fold(false, |any, item| normalize_integers(item) | any),
        Value::Object(members) => members
            .values_mut()
            .fold(false, |any, member| normalize_integers(member) | any),
        _ => false,
    }
}

/// The whole number that a raw JSON value is, however it is written: `5`, `5.0`, `5e0` or `"5"`.
pub fn whole_number(raw: &str) -> Option<i64> {
    /// Beyond it a float represents more than one number.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let text = scan::string(raw).map_or_else(|| raw.to_owned(), |text| text.into_owned());
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number.fract() == 0.0 && number.abs() <= EXACT_MAX).then_some(number as i64)
    })
}

/// Appends a value as JSON text.
pub fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok(), "plain values always serialize");
}
