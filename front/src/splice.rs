//! Adds members to the bytes of calls. Pure.
//!
//! A call that sends a message or asks people without an idempotency key gets one, so that it can be repeated after its answer was lost. A
//! call that registers a session gets the conversation, by which hooks find the session.

use serde_json::json;

use api::mcp::rpc::Params;
use common::json::scan;

/// The header that holds the key (contract of the tools that send).
const KEY: &str = "idempotency_key";

/// The argument of `register_session` in which the conversation is, and its name there.
const METADATA: &str = "metadata";
const CONVERSATION: &str = "conversation";
/// Bytes of metadata to which nothing is added: the broker takes 16 KiB.
const METADATA_LEN_MAX: usize = 14 * 1024;

/// Text that is added to a frame at a position.
#[derive(Debug, PartialEq, Eq)]
pub struct Insertion {
    at: usize,
    text: String,
}

/// Where a key belongs in the frame of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The caller gave a key.
    Given,
    /// As the first member of the headers, whose brace is before this position.
    InHeaders { at: usize, is_empty: bool },
    /// In headers of its own, as the first argument, whose brace is before this position.
    InArguments { at: usize, is_empty: bool },
    /// As the first argument, whose brace is before this position.
    AsArgument { at: usize, is_empty: bool },
    /// Nowhere: the broker refuses the call for its shape.
    None,
}

/// Finds the place of the key in a frame of a call that asks people, where the key is an argument.
pub fn place_in_arguments(frame: &str, params: &Params<'_>) -> Place {
    let Some(arguments) = params.arguments.filter(|arguments| arguments.starts_with('{')) else {
        return Place::None;
    };
    if params.members.iter().any(|(name, _)| name == KEY) {
        return Place::Given;
    }
    // The slices of a parsed frame lie in it.
    let Some(at) = (arguments.as_ptr() as usize).checked_sub(frame.as_ptr() as usize) else {
        return Place::None;
    };
    Place::AsArgument {
        at: at + 1,
        is_empty: params.members.is_empty(),
    }
}

/// Finds the place of the key in a frame, whose params are slices of it.
pub fn place(frame: &str, params: &Params<'_>) -> Place {
    let Some(arguments) = params.arguments else {
        return Place::None;
    };
    let headers = params.members.iter().find(|(name, _)| name == "headers");
    let (object, in_headers) = match headers {
        Some((_, headers)) => (*headers, true),
        None => (arguments, false),
    };
    if !object.starts_with('{') {
        return Place::None;
    }
    let (mut is_empty, mut has_key) = (true, false);
    let read = scan::members::<scan::ScanError>(object, |name, _| {
        is_empty = false;
        has_key |= in_headers && name == KEY;
        Ok(())
    });
    // The slices of a parsed frame lie in it.
    let Some(at) = (object.as_ptr() as usize).checked_sub(frame.as_ptr() as usize) else {
        return Place::None;
    };
    match (read, has_key) {
        (Err(_), _) => Place::None,
        (Ok(()), true) => Place::Given,
        (Ok(()), false) if in_headers => Place::InHeaders { at: at + 1, is_empty },
        (Ok(()), false) => Place::InArguments { at: at + 1, is_empty },
    }
}

/// The key as an insertion; `None` where the frame stays as it is.
pub fn key(place: Place, key: &str) -> Option<Insertion> {
    let (at, is_empty, before, after) = match place {
        Place::Given | Place::None => return None,
        Place::InHeaders { at, is_empty } | Place::AsArgument { at, is_empty } => (at, is_empty, "", ""),
        Place::InArguments { at, is_empty } => (at, is_empty, "\"headers\":{", "}"),
    };
    let comma = if is_empty { "" } else { "," };
    let text = format!("{before}\"{KEY}\":\"{key}\"{after}{comma}");
    Some(Insertion { at, text })
}

/// The conversation for the metadata of a call of `register_session`; `None` if the agent has given one, or the broker
/// refuses the call for its shape.
pub fn conversation(frame: &str, params: &Params<'_>, conversation: &str) -> Option<Insertion> {
    let arguments = params.arguments.filter(|arguments| arguments.starts_with('{'))?;
    let metadata = params.members.iter().find(|(name, _)| name == METADATA);
    let (object, before, after) = match metadata {
        Some((_, metadata)) if metadata.starts_with('{') && metadata.len() <= METADATA_LEN_MAX => (*metadata, "", ""),
        Some(_) => return None,
        None => (arguments, "\"metadata\":{", "}"),
    };
    let (mut is_empty, mut is_given) = (true, false);
    scan::members::<scan::ScanError>(object, |name, _| {
        is_empty = false;
        is_given |= metadata.is_some() && name == CONVERSATION;
        Ok(())
    })
    .ok()?;
    if is_given {
        return None;
    }
    // The slices of a parsed frame lie in it.
    let at = (object.as_ptr() as usize).checked_sub(frame.as_ptr() as usize)? + 1;
    let comma = if is_empty { "" } else { "," };
    let text = format!("{before}\"{CONVERSATION}\":{}{after}{comma}", json!(conversation));
    Some(Insertion { at, text })
}

/// Appends a frame with an insertion. Returns the bytes by which what follows the position has moved, and the position.
pub fn write(out: &mut Vec<u8>, frame: &[u8], insertion: Option<&Insertion>) -> (usize, usize) {
    let Some(Insertion { at, text }) = insertion else {
        out.extend_from_slice(frame);
        return (0, 0);
    };
    let (head, tail) = frame.split_at((*at).min(frame.len()));
    for part in [head, text.as_bytes(), tail] {
        out.extend_from_slice(part);
    }
    (text.len(), *at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use api::mcp::rpc::{self, Incoming};

    fn spliced(frame: &str) -> (Place, String) {
        let Ok(Incoming::Request { params, .. }) = rpc::parse(frame) else {
            panic!("{frame} is a request")
        };
        let (place, mut out) = (place(frame, &params), Vec::new());
        write(&mut out, frame.as_bytes(), key(place, "k1").as_ref());
        (place, String::from_utf8(out).unwrap())
    }

    fn call(arguments: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"send_message","arguments":{arguments}}}}}"#
        )
    }

    #[test]
    fn a_key_is_added_where_none_is_given() {
        for (before, after) in [
            ("{}", r#"{"headers":{"idempotency_key":"k1"}}"#),
            (r#"{ "a":1}"#, r#"{"headers":{"idempotency_key":"k1"}, "a":1}"#),
            (
                r#"{"a":1,"headers":{}}"#,
                r#"{"a":1,"headers":{"idempotency_key":"k1"}}"#,
            ),
            (
                r#"{"headers":{ "priority":"low"}}"#,
                r#"{"headers":{"idempotency_key":"k1", "priority":"low"}}"#,
            ),
            (
                r#"{"headers":{"idempotency_key":"mine"}}"#,
                r#"{"headers":{"idempotency_key":"mine"}}"#,
            ),
            (r#"{"headers":[1]}"#, r#"{"headers":[1]}"#),
            (
                r#"{"payload":{"idempotency_key":"x"}}"#,
                r#"{"headers":{"idempotency_key":"k1"},"payload":{"idempotency_key":"x"}}"#,
            ),
        ] {
            assert_eq!(spliced(&call(before)).1, call(after));
        }
        assert_eq!(
            spliced(&call(r#"{"headers":{"idempotency_key":"mine"}}"#)).0,
            Place::Given
        );
        let none = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_message"}}"#;
        assert_eq!(spliced(none), (Place::None, none.to_owned()));
    }

    #[test]
    fn a_question_has_its_key_among_its_arguments() {
        for (before, after) in [
            ("{}", r#"{"idempotency_key":"k1"}"#),
            (r#"{ "question":"?"}"#, r#"{"idempotency_key":"k1", "question":"?"}"#),
            (r#"{"idempotency_key":"mine"}"#, r#"{"idempotency_key":"mine"}"#),
            ("[1]", "[1]"),
        ] {
            let frame = call(before);
            let Ok(Incoming::Request { params, .. }) = rpc::parse(&frame) else {
                panic!("a request")
            };
            let mut out = Vec::new();
            write(
                &mut out,
                frame.as_bytes(),
                key(place_in_arguments(&frame, &params), "k1").as_ref(),
            );
            assert_eq!(String::from_utf8(out).unwrap(), call(after));
        }
    }

    #[test]
    fn the_place_of_what_follows_is_known() {
        let frame = r#"{"params":{"arguments":{}},"id":"é"}"#;
        let mut out = Vec::new();
        let place = Place::InArguments {
            at: frame.find("{}").unwrap() + 1,
            is_empty: true,
        };
        let (moved, at) = write(&mut out, frame.as_bytes(), key(place, "k1").as_ref());
        let id = frame.find("\"é\"").unwrap();
        assert!(id >= at && out[id + moved..].starts_with("\"é\"".as_bytes()));
    }

    #[test]
    fn the_conversation_is_added_to_what_the_agent_gave() {
        for (before, after) in [
            ("{}", Some(r#"{"metadata":{"conversation":"c\"1"}}"#)),
            (
                r#"{"name":"a"}"#,
                Some(r#"{"metadata":{"conversation":"c\"1"},"name":"a"}"#),
            ),
            (
                r#"{"name":"a","metadata":{ }}"#,
                Some(r#"{"name":"a","metadata":{"conversation":"c\"1" }}"#),
            ),
            (
                r#"{"metadata":{"a":1}}"#,
                Some(r#"{"metadata":{"conversation":"c\"1","a":1}}"#),
            ),
            (r#"{"metadata":{"conversation":"mine"}}"#, None),
            (r#"{"metadata":[1]}"#, None),
            (r#"{"metadata":null}"#, None),
            ("[]", None),
        ] {
            let frame = call(before);
            let Ok(Incoming::Request { params, .. }) = rpc::parse(&frame) else {
                panic!("{frame} is a request")
            };
            let (insertion, mut out) = (conversation(&frame, &params, "c\"1"), Vec::new());
            write(&mut out, frame.as_bytes(), insertion.as_ref());
            assert_eq!(String::from_utf8(out).unwrap(), call(after.unwrap_or(before)));
        }
        let large = call(&json!({"metadata": {"a": "x".repeat(METADATA_LEN_MAX)}}).to_string());
        let Ok(Incoming::Request { params, .. }) = rpc::parse(&large) else {
            panic!("a request")
        };
        assert_eq!(conversation(&large, &params, "c1"), None);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            "[ -~é\"\\\\{}]{0,8}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            let key = prop_oneof![Just("headers".to_owned()), Just(KEY.to_owned()), "[a-c\"]{0,2}"];
            proptest::collection::vec((key, inner), 0..4).prop_map(|members| Value::Object(Map::from_iter(members)))
        })
    }

    proptest! {
        /// Nothing but the key changes, and only where no key was.
        #[test]
        fn a_spliced_call_differs_by_its_key_alone(arguments in value(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&arguments) } else { serde_json::to_string(&arguments) };
            let before = call(&text.unwrap());
            let (_, after) = spliced(&before);
            let (before, mut after): (Value, Value) =
                (serde_json::from_str(&before).unwrap(), serde_json::from_str(&after).unwrap());
            if before != after {
                prop_assert_eq!(&after["params"]["arguments"]["headers"][KEY], &json!("k1"));
                let headers = after["params"]["arguments"]["headers"].as_object_mut().unwrap();
                headers.remove(KEY);
                if headers.is_empty() && before["params"]["arguments"].get("headers").is_none() {
                    after["params"]["arguments"].as_object_mut().unwrap().remove("headers");
                }
                prop_assert_eq!(before, after);
            }
        }
    }
}
