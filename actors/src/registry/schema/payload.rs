//! Reads a payload as a [`Value`] and finds duplicate keys.
//!
//! Recipients get the text of a payload unchanged. For a duplicate key, readers take the first or the last value, so a
//! value that was never checked could pass. RFC 7493 therefore requires unique names, and so does the broker.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::model::{BrokerError, PathFailure};

use super::{
    cost::{self, TooExpensive},
    error::FAILURES_LEN_MAX,
    pointer,
};

/// Work of reading a value and freeing it; in addition, of a number with a fraction or exponent; of a member of an
/// object; of a member of a large object; and of an object that is not empty, which takes 660 bytes. Measured: 20 to 36
/// ns, 45 ns, 80 ns, 360 ns, 500 ns when memory has to grow.
const VALUE: u64 = 40;
const FLOAT: u64 = 50;
const MEMBER: u64 = 100;
const LARGE_OBJECT_MEMBER: u64 = 360;
const OBJECT: u64 = 300;
/// An object with more members is large.
const LARGE_OBJECT_LEN: usize = 32;
/// Bytes of text for one unit of work, and the work for each escape. Measured: 0.5 ns and 14 ns; counted as less, so
/// that 8 MB of `\u00e9` are admitted: 10 MiB of text take 6 ms, and 8 MB of such escapes 19 ms.
const BYTES_PER_UNIT: u64 = 4;
const ESCAPE: u64 = 10;

/// The work of reading a text, without the values in it.
pub(super) fn text_work(text: &str) -> u64 {
    let escapes = text.bytes().filter(|&byte| byte == b'\\').count() as u64;
    text.len() as u64 / BYTES_PER_UNIT + ESCAPE * escapes
}

/// Why a payload could not be read.
pub(super) enum ParseFailure {
    TooExpensive(TooExpensive),
    Refused(BrokerError),
}

/// Reads a payload within the budget.
///
/// # Errors
/// [`ParseFailure::TooExpensive`] if the budget is spent; `invalid_argument` if the text is not JSON, or nested deeper
/// than `serde_json` reads (128); `payload_invalid` for a duplicate key.
pub(super) fn parse(payload: &str, budget: &mut u64) -> Result<Value, ParseFailure> {
    if let Err(why) = cost::spend(budget, text_work(payload)) {
        return Err(ParseFailure::TooExpensive(why));
    }
    let mut walk = ParseState {
        budget,
        too_expensive: None,
        duplicates: Vec::new(),
    };
    let mut deserializer = serde_json::Deserializer::from_str(payload);
    let value = StrictSeed(&mut walk)
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    if let Some(why) = walk.too_expensive {
        return Err(ParseFailure::TooExpensive(why));
    }
    let value = value.map_err(|error| ParseFailure::Refused(not_json(&error)))?;
    if walk.duplicates.is_empty() {
        return Ok(value);
    }
    let duplicates = walk.duplicates.into_iter().map(|path| PathFailure {
        path: pointer::bounded(&path),
        reason: "duplicate key".to_owned(),
    });
    Err(ParseFailure::Refused(BrokerError::PayloadInvalid {
        failures: duplicates.collect(),
    }))
}

/// The error for a payload that is not JSON.
pub(super) fn not_json(error: &serde_json::Error) -> BrokerError {
    BrokerError::invalid("payload", format!("not JSON: {error}"))
}

struct ParseState<'b> {
    budget: &'b mut u64,
    too_expensive: Option<TooExpensive>,
    /// JSON Pointers to duplicate keys, each relative to the value that is being read.
    duplicates: Vec<String>,
}

impl ParseState<'_> {
    fn spend<E: Error>(&mut self, work: u64) -> Result<(), E> {
        cost::spend(self.budget, work).map_err(|why| {
            self.too_expensive = Some(why);
            E::custom("more work than is done for one payload")
        })
    }

    /// Prepends `segment` to the pointers from index `from` on, so that they are relative to the enclosing value.
    fn prepend_segment(&mut self, from: usize, segment: &str) {
        for path in &mut self.duplicates[from..] {
            let mut whole = String::new();
            pointer::push(
                &mut whole,
                &segment[..segment.floor_char_boundary(pointer::TEXT_LEN_MAX)],
            );
            // Only the beginning is shown.
            whole.push_str(&path[..path.floor_char_boundary(pointer::TEXT_LEN_MAX)]);
            *path = whole;
        }
    }
}

struct StrictSeed<'a, 'b>(&'a mut ParseState<'b>);

impl<'de> DeserializeSeed<'de> for StrictSeed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.spend(VALUE)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictSeed<'_, '_> {
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
        self.0.spend(FLOAT)?;
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let Self(walk) = self;
        let mut array = Vec::new();
        let mut found = walk.duplicates.len();
        while let Some(item) = items.next_element_seed(StrictSeed(walk))? {
            if walk.duplicates.len() > found {
                walk.prepend_segment(found, &array.len().to_string());
                found = walk.duplicates.len();
            }
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let Self(walk) = self;
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            walk.spend(match object.len() {
                0 => OBJECT + MEMBER,
                1..LARGE_OBJECT_LEN => MEMBER,
                _ => LARGE_OBJECT_MEMBER,
            })?;
            let found = walk.duplicates.len();
            if found < FAILURES_LEN_MAX && object.contains_key(&key) {
                walk.duplicates.push(String::new());
            }
            let value = members.next_value_seed(StrictSeed(walk))?;
            walk.prepend_segment(found, &key);
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work(payload: &str) -> u64 {
        let mut left = u64::MAX;
        assert!(parse(payload, &mut left).is_ok(), "{payload}");
        u64::MAX - left
    }

    #[test]
    fn a_text_costs_a_quarter_of_its_bytes_and_each_escape_in_it() {
        assert_eq!(["", "abc", "abcdefgh"].map(text_work), [0, 0, 2]);
        assert_eq!(text_work(r"\n\n\n"), 1 + 3 * ESCAPE);
    }

    #[test]
    fn a_value_costs_what_is_in_it() {
        for (payload, values) in [
            ("{}", VALUE),
            ("[]", VALUE),
            ("[1,-1,\"x\",null,true]", 6 * VALUE),
            ("[1.5]", 2 * VALUE + FLOAT),
            ("{\"a\":1}", 2 * VALUE + OBJECT + MEMBER),
            ("{\"a\":1,\"b\":2}", 3 * VALUE + OBJECT + 2 * MEMBER),
        ] {
            assert_eq!(work(payload), text_work(payload) + values, "{payload}");
        }
        let crowd = |len: usize| {
            let members: Map<String, Value> = (0..len).map(|at| (at.to_string(), json!(1))).collect();
            let text = Value::Object(members).to_string();
            work(&text) - text_work(&text)
        };
        let full = LARGE_OBJECT_LEN as u64;
        assert_eq!(crowd(LARGE_OBJECT_LEN), VALUE + OBJECT + full * (MEMBER + VALUE));
        assert_eq!(
            crowd(LARGE_OBJECT_LEN + 1) - crowd(LARGE_OBJECT_LEN),
            LARGE_OBJECT_MEMBER + VALUE
        );
    }

    #[test]
    fn a_payload_is_read_as_it_is_written() {
        let payload = r#"{"a":[1,-1,1.5,"x","\n",null,true,false],"b":{"c":{},"d":[]}}"#;
        let read = parse(payload, &mut { u64::MAX }).ok();
        assert_eq!(read, serde_json::from_str(payload).ok());
    }

    #[test]
    fn the_first_20_duplicate_keys_are_listed() {
        let member = |at: usize| format!("\"k{}\":0", at % 30);
        let payload = format!("{{{}}}", (0..60).map(member).collect::<Vec<_>>().join(","));
        let Err(ParseFailure::Refused(BrokerError::PayloadInvalid { failures })) = parse(&payload, &mut { u64::MAX })
        else {
            panic!("keys that occur twice are refused");
        };
        let paths: Vec<_> = failures.into_iter().map(|failure| failure.path).collect();
        let expected: Vec<_> = (0..FAILURES_LEN_MAX).map(|at| format!("/k{at}")).collect();
        assert_eq!(paths, expected);
    }

    #[test]
    fn a_payload_is_read_within_its_budget() {
        let payload = "{\"a\":[1,2.5]}";
        let exact = work(payload);
        assert!(parse(payload, &mut { exact }).is_ok());
        for budget in [0, exact - 1] {
            assert!(matches!(
                parse(payload, &mut { budget }),
                Err(ParseFailure::TooExpensive(TooExpensive::Work))
            ));
        }
    }
}
