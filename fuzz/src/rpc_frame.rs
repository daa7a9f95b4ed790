//! Target: the reader of JSON-RPC frames. An accepted frame is JSON and means what `serde_json` reads in it; a frame
//! that `serde_json` reads is not refused as something other than JSON.

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};

use crate::{
    json::scan,
    mcp::rpc::{self, Incoming, Malformed, PARSE_ERROR, Params},
};

pub const DICTIONARY: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0041",
    "\\ud800",
    "\"jsonrpc\":\"2.0\"",
    "\"id\":",
    "\"method\":",
    "\"params\":{",
    "\"arguments\":{",
    "\"_meta\":{",
    "\"name\":",
    "\"result\":",
    "null",
    "true",
    "-0",
    "1e999",
    "1.5",
    "\u{a0}",
    "\n",
    "\t",
    "[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":{\"a\":",
];

pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    frame(&text);
}

fn frame(text: &str) {
    let parsed = rpc::parse(text);
    if let Err(Malformed { id, code, .. }) = &parsed {
        if let Some(id) = id {
            assert!(scan::check(id).is_ok(), "the id {id:?} is echoed");
        }
        if *code == PARSE_ERROR && depth(text) <= scan::DEPTH_MAX {
            assert!(serde_json::from_str::<Value>(text).is_err(), "this is JSON");
        }
    }
    match parsed {
        Ok(Incoming::Request { id, method, params }) => {
            if let Some(members) = checked(text, &params) {
                assert_eq!(members["id"].get(), id);
                agree(&members, &method, &params);
            }
        }
        Ok(Incoming::Notification { method, params }) => {
            if let Some(members) = checked(text, &params) {
                assert!(!members.contains_key("id"));
                agree(&members, &method, &params);
            }
        }
        Ok(Incoming::Batch(frames)) => {
            for element in frames.iter().filter(|element| !element.trim_start().starts_with('[')) {
                frame(element);
            }
            if frames.iter().all(|element| scan::check(element).is_ok()) {
                assert!(scan::check(text).is_ok(), "its elements are JSON and it is none");
            }
        }
        Ok(Incoming::Response { .. }) => assert!(scan::check(text).is_ok(), "no JSON, and called a response"),
        Err(_) => {}
    }
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

/// The members of an accepted frame, or None if a part that the reader has not checked is not JSON.
fn checked<'a>(text: &'a str, params: &Params<'a>) -> Option<Members<'a>> {
    let values = params.members.iter().map(|(_, value)| *value);
    let parts = [params.name, params.meta].into_iter().flatten().chain(values);
    // The reader has scanned an object of arguments member by member; other values are parsed here.
    let other = params.arguments.filter(|text| !text.starts_with('{'));
    for part in parts.chain(other) {
        scan::check(part).ok()?;
    }
    assert!(scan::check(text).is_ok(), "every part is JSON and the frame is none");
    Some(serde_json::from_str(text).expect("the members of an object"))
}

fn agree(members: &Members<'_>, method: &str, params: &Params<'_>) {
    let text = |members: &Members<'_>, name: &str| members.get(name).map(|value| value.get().to_owned());
    assert_eq!(text(members, "jsonrpc").as_deref(), Some("\"2.0\""));
    let expected: String = serde_json::from_str(members["method"].get()).expect("a string");
    assert_eq!(expected, method);
    assert_eq!(text(members, "params").as_deref(), params.text);
    let inner = params
        .text
        .and_then(|text| serde_json::from_str::<Members<'_>>(text).ok());
    let inner = inner.unwrap_or_default();
    assert_eq!(text(&inner, "name").as_deref(), params.name);
    assert_eq!(text(&inner, "_meta").as_deref(), params.meta);
    assert_eq!(text(&inner, "arguments").as_deref(), params.arguments);
    let arguments = params
        .arguments
        .and_then(|text| serde_json::from_str::<Members<'_>>(text).ok());
    let expected: BTreeMap<_, _> = arguments
        .iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), value.get()))
        .collect();
    // `serde_json` keeps the last of two members with the same name.
    let found: BTreeMap<_, _> = params.members.iter().map(|(name, value)| (&**name, *value)).collect();
    assert_eq!(found, expected);
}

/// The largest number of brackets open at once, quoted ones included: an upper bound of the nesting.
fn depth(text: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'{' | b'[' => open += 1,
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}
