//! JSON as the surfaces read and write it: objects, members as slices of a text, pages of lists.

pub mod page;

pub use actors::json::scan;

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

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

/// Appends a value as JSON text.
pub fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok(), "plain values always serialize");
}
