//! Target: lenses, schemas and payloads of untrusted callers. No panic, no stack overflow, no long computation; a proved lens
//! fails no payload that fits, and the complement restores it.

use std::{cell::Cell, sync::Arc};

use actors::registry::Schema;
use mcp_broker_lens::{Direction, Edge, Kept, Lens, Options, Plan, Proved, Request, Side, TransformError, diff};
use semver::Version;
use serde_json::Value;

pub const DICTIONARY: &[&str] = &[
    "\0",
    "{\"op\":\"rename\",\"path\":\"/a\",\"to\":\"b\"},",
    "{\"op\":\"move\",\"path\":\"/a\",\"to\":\"/b/c\"},",
    "{\"op\":\"add\",\"path\":\"/n\",\"value\":{}},",
    "{\"op\":\"drop\",\"path\":\"/a\",\"back\":1},",
    "{\"op\":\"default\",\"path\":\"/a\",\"value\":1,\"back\":null},",
    "{\"op\":\"wrap\",\"path\":\"\",\"as\":\"a\"},",
    "{\"op\":\"unwrap\",\"path\":\"/a\",\"as\":\"a\"},",
    "{\"op\":\"list\",\"path\":\"/a\"},",
    "{\"op\":\"single\",\"path\":\"/a/*\",\"value\":0},",
    "{\"op\":\"map\",\"path\":\"/a\",\"values\":[[1,\"a\"],[null,2]]},",
    "{\"op\":\"convert\",\"path\":\"/a\",\"to\":\"integer\",\"value\":0,\"back\":\"\"},",
    "{\"op\":\"scale\",\"path\":\"/a\",\"multiply\":1000000000,\"divide\":3},",
    "{\"op\":\"split\",\"path\":\"/a\",\"to\":[\"p\",\"q\"],\"by\":\" \"},",
    "{\"op\":\"join\",\"path\":[\"/p\",\"/q\"],\"to\":\"a\",\"by\":\" \"},",
    "/*",
    "~0",
    "~2",
    "\"anyOf\":[",
    "\"oneOf\":[",
    "\"allOf\":[",
    "{\"$ref\":\"#/$defs/a\"}",
    "{\"$ref\":\"#\"}",
    "\"$defs\":{\"a\":{}},",
    "\"additionalProperties\":false,",
    "\"additionalProperties\":{\"type\":\"integer\"},",
    "\"type\":[\"string\",\"null\"]",
    "\"enum\":[\"1\",2,null]",
    "\"minItems\":1",
    "\"required\":[\"a\"]",
    "1e308",
    "-0.0",
    "12345678901234567890123",
    "\\ud800",
    "[[[[[[[[",
];

/// The input is a lens, two schemas and a payload, with a 0 between them.
pub fn run(input: &[u8]) {
    let parts: Vec<_> = input.splitn(4, |&byte| byte == 0).collect();
    let [lens, source, target, payload] = parts[..] else { return };
    let payload = String::from_utf8_lossy(payload);
    let Ok(lens) = serde_json::from_slice::<Value>(lens) else { return };
    let (Ok(source), Ok(target)) = (serde_json::from_slice(source), serde_json::from_slice(target)) else { return };
    let (Ok(from), Ok(to)) = (Schema::compile(&source), Schema::compile(&target)) else { return };
    let _ = diff(&source, &target, &|| false);
    let Ok(lens) = Lens::parse(&lens) else { return };
    let (fits_from, fits_to) = (|text: &str| from.validate(text).is_ok(), |text: &str| to.validate(text).is_ok());
    let kept = [Kept { message_id: "kept", payload: &payload }];
    let steps = Cell::new(0);
    let is_out_of_time = || {
        steps.set(steps.get() + 1);
        steps.get() > 2000
    };
    for direction in [Direction::Both, Direction::Forward] {
        let options = Options { direction, allow_loss: true, is_out_of_time: &is_out_of_time };
        let sides = [
            Side { schema: &source, fits: &fits_from, kept: &kept },
            Side { schema: &target, fits: &fits_to, kept: &[] },
        ];
        steps.set(0);
        let Ok(checked) = lens.check(&sides[0], &sides[1], &options) else { continue };
        let is_proved = checked.forward.is_some_and(|verdict| verdict.proof == Proved::Proved);
        let edge = Edge { from: Version::new(1, 0, 0), to: Version::new(2, 0, 0), direction, compiled: Arc::new(checked.compiled) };
        let plan = |from: &Version, to: &Version| Plan::find(std::slice::from_ref(&edge), from, std::slice::from_ref(to));
        let there = plan(&edge.from, &edge.to).expect("the lens leads there");
        let request = Request { complement: Some(&payload), wants_complement: true, ..Request::of(&payload) };
        let _ = there.apply(request, &mut 20_000_000, &mut |_, _| true);
        if !fits_from(&payload) {
            continue;
        }
        let request = Request { complement: None, ..request };
        match there.apply(request, &mut 20_000_000, &mut |_, text| fits_to(text)) {
            Ok(sent) => {
                let Some(back) = plan(&edge.to, &edge.from) else { continue };
                let request = Request { complement: sent.complement.as_deref(), ..Request::of(&sent.payload) };
                let returned = back.apply(request, &mut 20_000_000, &mut |_, text| fits_from(text));
                let is_whole = sent.complement.is_some() || sent.loss.is_empty() && sent.defaulted.is_empty();
                assert!(!is_whole || returned.is_ok(), "the way back restores what it had: {returned:?}");
            }
            Err(TransformError::TooLarge | TransformError::TooExpensive) => {}
            Err(error) => assert!(!is_proved, "proved, but: {error}"),
        }
    }
}
