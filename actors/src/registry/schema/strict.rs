//! A payload as a [`Value`], and which keys occur twice in one object.
//!
//! The text of a payload is handed on as it came. Of a key that occurs twice, readers take the first or the last, so
//! a value that was never checked could pass; RFC 7493 asks for unique names, and so do we.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::model::{BrokerError, PathFailure};

use super::{FAILURES_LEN_MAX, pointer};

pub(super) struct Payload {
    pub value: Value,
    /// 1 for a payload without arrays and objects inside.
    pub depth: usize,
}

/// # Errors
/// `invalid_argument` when the text is not JSON, or nested deeper than `serde_json` reads (128);
/// `payload_invalid` when a key occurs twice in one object.
pub(super) fn parse(payload: &str) -> Result<Payload, BrokerError> {
    let mut walk = Walk::default();
    let mut deserializer = serde_json::Deserializer::from_str(payload);
    let value = Strict(&mut walk)
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| BrokerError::invalid("payload", format!("not JSON: {error}")))?;
    if walk.duplicates.is_empty() {
        let depth = walk.depth_max;
        Ok(Payload { value, depth })
    } else {
        Err(BrokerError::PayloadInvalid {
            failures: walk.duplicates,
        })
    }
}

#[derive(Default)]
struct Walk {
    /// JSON Pointer to the object under way.
    path: String,
    depth: usize,
    depth_max: usize,
    duplicates: Vec<PathFailure>,
}

impl Walk {
    fn inside<T>(&mut self, segment: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let len = self.path.len();
        pointer::push(&mut self.path, segment);
        let result = read(self);
        self.path.truncate(len);
        result
    }

    fn duplicate(&mut self) {
        if self.duplicates.len() < FAILURES_LEN_MAX {
            self.duplicates.push(PathFailure {
                path: pointer::bounded(&self.path),
                reason: "duplicate key".to_owned(),
            });
        }
    }

    fn enter(&mut self) {
        self.depth += 1;
        self.depth_max = self.depth_max.max(self.depth);
    }
}

struct Strict<'a>(&'a mut Walk);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let Self(walk) = self;
        walk.enter();
        let mut array = Vec::new();
        while let Some(item) = walk.inside(&array.len().to_string(), |walk| items.next_element_seed(Strict(walk)))? {
            array.push(item);
        }
        walk.depth -= 1;
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let Self(walk) = self;
        walk.enter();
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = walk.inside(&key, |walk| {
                if object.contains_key(&key) {
                    walk.duplicate();
                }
                members.next_value_seed(Strict(walk))
            })?;
            object.insert(key, value);
        }
        walk.depth -= 1;
        Ok(Value::Object(object))
    }
}
