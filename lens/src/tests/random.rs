//! Random schemas and lenses: there and back with the complement is the identity, a proved lens never fails a payload that
//! fits, and the loss is the difference.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Pair, Route, fits};
use crate::{
    Class, Direction, Proved, TransformError, Transformed, Verdict, number,
    operation::{self, Operation},
    path::{Path, Token},
    sample::Generator,
    schema::Document,
    shape::Shape,
};

/// Random numbers that a seed reproduces (`SplitMix64`).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

const NAMES: [&str; 7] = ["a", "b", "c/d", "e~f", "*", "", "é"];

fn scalar(dice: &mut Dice) -> Value {
    let any = [
        json!("a"),
        json!("b"),
        json!("a b"),
        json!(1),
        json!(2.5),
        json!(true),
        json!(null),
        json!("1"),
        json!(-7),
    ];
    dice.pick(&any)
}

fn schema(dice: &mut Dice, depth: usize) -> Value {
    let with = |base: Value, keyword: &str, value: Value| {
        let mut keywords = base;
        keywords[keyword] = value;
        keywords
    };
    match dice.below(if depth == 0 { 12 } else { 17 }) {
        0 | 1 => json!({"type": "string"}),
        2 => json!({"type": "string", "minLength": dice.below(3), "maxLength": 3 + dice.below(5)}),
        3 => json!({"type": "integer"}),
        4 => json!({"type": "integer", "minimum": dice.below(3), "maximum": 5 + dice.below(1000)}),
        5 => json!({"type": "number"}),
        6 => json!({"type": "boolean"}),
        7 => json!({"enum": (&["a", "b", "c"][..=dice.below(3)])}),
        8 => json!({"enum": (&["1", "-20", "true"][..=dice.below(3)])}),
        9 => json!({"type": ["string", "null"]}),
        10 => json!({"type": "integer", "enum": [1, 2, 3]}),
        11 => dice.pick(&[
            json!({}),
            json!(true),
            json!({"const": 1}),
            json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        ]),
        12 => json!({"$ref": "#/$defs/x"}),
        13 => {
            let items = schema(dice, depth - 1);
            let base = json!({"type": "array", "items": items});
            match dice.below(3) {
                0 => with(base, "minItems", json!(1)),
                1 => with(with(base, "minItems", json!(1)), "maxItems", json!(1)),
                _ => base,
            }
        }
        14 if depth > 1 => json!({"anyOf": [object(dice, depth - 1), schema(dice, 0)]}),
        _ => object(dice, depth - 1),
    }
}

fn object(dice: &mut Dice, depth: usize) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for _ in 0..=dice.below(4) {
        let name = dice.pick(&NAMES);
        properties.insert(name.to_owned(), schema(dice, depth));
        if dice.one_in(2) && !required.contains(&name) {
            required.push(name);
        }
    }
    let mut object = json!({"type": "object", "properties": properties});
    if !required.is_empty() || dice.one_in(2) {
        object["required"] = json!(required);
    }
    match dice.below(8) {
        0..3 => object["additionalProperties"] = json!(false),
        3 => object["additionalProperties"] = json!({"type": "integer"}),
        _ => {}
    }
    if dice.one_in(12) {
        object["minProperties"] = json!(dice.below(2));
    }
    if dice.one_in(20) {
        object["not"] = json!({"required": ["x"]});
    }
    object
}

fn root(dice: &mut Dice) -> Value {
    let mut root = object(dice, 2);
    root["$defs"] = json!({"x": schema(dice, 1)});
    if root["$defs"]["x"].get("$ref").is_some() {
        root["$defs"]["x"] = json!({"type": "string"});
    }
    root
}

/// A place that the schema declares, seldom another one.
fn path(dice: &mut Dice, document: Document<'_>, schema: &Value) -> Path {
    let (mut path, mut place) = (Path::default(), vec![vec![schema]]);
    for _ in 0..=dice.below(3) {
        let expanded = document.expanded(&place).unwrap_or_default();
        let names: Vec<_> = crate::schema::property_names(&expanded.concat())
            .into_iter()
            .map(str::to_owned)
            .collect();
        let token = if names.is_empty() || dice.one_in(20) {
            Token::Items
        } else {
            Token::Name(dice.pick(&names))
        };
        let inside = crate::schema::inside(&expanded, &token).unwrap_or_default();
        if inside.is_empty() && !dice.one_in(10) {
            break;
        }
        path.0.push(token);
        place = inside;
    }
    path
}

fn operation(dice: &mut Dice, document: Document<'_>, schema: &Value) -> Value {
    let path = path(dice, document, schema);
    let at = path.to_string();
    let parent = path.split_name().map_or(&[][..], |(parent, _)| parent);
    let other = Path::join(parent, dice.pick(&["new", "x", "a", "é"])).to_string();
    let name = dice.pick(&["new", "x", "a", "*"]);
    let mut operation = match dice.below(14) {
        0 => json!({"op": "rename", "path": at, "to": name}),
        1 => {
            json!({"op": "move", "path": at, "to": if dice.one_in(2) { format!("/{}", name.replace('*', "~2")) } else { other }})
        }
        2 => json!({"op": "add", "path": other, "value": scalar(dice)}),
        3 => json!({"op": "drop", "path": at, "back": scalar(dice)}),
        4 => json!({"op": "default", "path": at, "value": scalar(dice), "back": scalar(dice)}),
        5 => json!({"op": "wrap", "path": at, "as": name}),
        6 => json!({"op": "unwrap", "path": at, "as": name}),
        7 => json!({"op": "list", "path": at, "back": scalar(dice)}),
        8 => json!({"op": "single", "path": at, "value": scalar(dice)}),
        9 => {
            json!({"op": "map", "path": at, "values": [[scalar(dice), scalar(dice)], ["a", "x"], ["b", dice.pick(&["y", "x"])]]})
        }
        10 => {
            let to = dice.pick(&["string", "integer", "number", "boolean"]);
            json!({"op": "convert", "path": at, "to": to, "value": scalar(dice), "back": scalar(dice)})
        }
        11 => {
            json!({"op": "scale", "path": at, "multiply": dice.pick(&[1, 3, 100, 7]), "divide": dice.pick(&[1, 1, 2, 10])})
        }
        12 => json!({"op": "split", "path": at, "to": ["p", "q"], "by": dice.pick(&[" ", "a", "-"])}),
        _ => {
            let beside = path_beside(dice, document, schema, parent);
            json!({"op": "join", "path": [at, beside], "to": "j", "by": " "})
        }
    };
    for optional in ["value", "back"] {
        if dice.one_in(3) {
            operation.as_object_mut().unwrap().remove(optional);
        }
    }
    operation
}

fn path_beside(dice: &mut Dice, document: Document<'_>, schema: &Value, parent: &[Token]) -> String {
    let place = document.at(&[schema], parent).unwrap_or_default();
    let names: Vec<_> = crate::schema::property_names(&place.concat()).into_iter().collect();
    let name = if names.is_empty() { "a" } else { dice.pick(&names) };
    Path::join(parent, name).to_string()
}

/// A schema that the result of the operations fits, or a similar one.
fn target(dice: &mut Dice, shape: &Shape<'_>, source: &Value) -> Value {
    let mut target = shape.root.clone();
    if target == json!({}) || target.get("type") != Some(&json!("object")) {
        target = json!({"type": "object", "allOf": [target]});
    }
    target["$defs"] = source["$defs"].clone();
    for _ in 0..dice.below(4).saturating_sub(1) {
        match dice.below(6) {
            0 => drop(target.as_object_mut().unwrap().remove("required")),
            1 => target["additionalProperties"] = json!(dice.one_in(2)),
            2 => target["properties"]["extra"] = schema(dice, 1),
            3 => drop(target.as_object_mut().unwrap().remove("additionalProperties")),
            4 => target["description"] = json!("x"),
            _ => {
                let name = dice.pick(&NAMES);
                target["properties"][name] = schema(dice, 1);
            }
        }
    }
    target
}

fn pair(dice: &mut Dice, source: Value) -> Pair {
    let mut lens = Vec::new();
    let mut shape = Shape::of(&source);
    let wanted = dice.below(5);
    for _ in 0..40 {
        if lens.len() == wanted {
            break;
        }
        let written = operation(dice, shape.document, &shape.root);
        let Ok(parsed) = operation::parse(&json!([written])) else {
            continue;
        };
        let parsed: &Operation = &parsed[0];
        let mut trial = shape.clone();
        if trial.apply(parsed, lens.len()).is_ok() {
            lens.push(written);
            shape = trial;
        }
    }
    let target = target(dice, &shape, &source);
    Pair::new(source, target, Value::Array(lens))
}

/// The places of `was` that differ in `is`: written apart from the crate, on values.
fn lost(was: &Value, is: Option<&Value>, at: &Path, places: &mut BTreeSet<String>) {
    match (was, is) {
        (Value::Object(was), Some(Value::Object(is))) => {
            for (name, value) in was {
                lost(value, is.get(name), &at.clone().child(name), places);
            }
        }
        (Value::Array(was), Some(Value::Array(is))) => {
            if was.len() < is.len() {
                places.insert(at.to_string());
            }
            for (index, item) in was.iter().enumerate() {
                lost(item, is.get(index), &at.clone().items(), places);
            }
        }
        (was, Some(is)) if same(was, is) => {}
        _ => drop(places.insert(at.to_string())),
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => number::equal(&a.to_string(), &b.to_string()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, value)| b.get(name).is_some_and(|other| same(value, other)))
        }
        (a, b) => a == b,
    }
}

/// What has been tried.
#[derive(Debug, Default)]
struct Tally {
    accepted: usize,
    proved: usize,
    exact: usize,
    payloads: usize,
    lossy_payloads: usize,
    restored: usize,
    refused: usize,
}

/// A lens that was accepted, and what has been tried with it.
struct Trial<'p> {
    pair: &'p Pair,
    seed: u64,
    forward: Verdict,
    is_back_proved: bool,
    there: Route<'p>,
    back: Option<Route<'p>>,
}

fn try_pair(seed: u64, tally: &mut Tally) {
    let dice = &mut Dice(seed);
    let source = root(dice);
    let pair = pair(dice, source);
    let direction = if dice.one_in(4) {
        Direction::Forward
    } else {
        Direction::Both
    };
    let Ok(checked) = pair.check_in(direction, true) else {
        tally.refused += 1;
        return;
    };
    let is_back_proved = checked.backward.is_some_and(|back| back.proof == Proved::Proved);
    let (there, back) = Route::both(&pair, checked.compiled, direction);
    let forward = checked.forward.unwrap();
    let trial = Trial {
        pair: &pair,
        seed,
        forward,
        is_back_proved,
        there,
        back,
    };
    tally.accepted += 1;
    tally.proved += usize::from(trial.forward.proof == Proved::Proved);
    tally.exact += usize::from(trial.forward.class == Class::Exact);
    for payload in payloads(dice, &pair) {
        trial.try_payload(&payload, tally);
    }
}

/// A chain of lenses: the loss is that of the whole chain, and the complement restores along the whole chain.
fn try_chain(seed: u64) -> usize {
    let dice = &mut Dice(seed);
    let mut source = root(dice);
    let mut pairs = Vec::new();
    for _ in 0..2 + dice.below(2) {
        let next = pair(dice, source);
        source = next.target.clone();
        pairs.push(next);
    }
    let mut lenses = Vec::new();
    for pair in &pairs {
        let Ok(checked) = pair.check() else { return 0 };
        lenses.push((pair, checked.compiled));
    }
    let (Some(there), Some(back)) = Route::chain(lenses, Direction::Both) else {
        return 0;
    };
    let mut restored = 0;
    for payload in payloads(dice, &pairs[0]) {
        let text = payload.to_string();
        if !fits(there.validators[0], &text) {
            continue;
        }
        let Ok(sent) = there.apply(&text, None) else { continue };
        let about = || format!("chain {seed}: {payload} became {}", sent.payload);
        if let Ok(returned) = back.apply(&sent.payload, None) {
            let loss: BTreeSet<_> = sent.loss.iter().map(ToString::to_string).collect();
            let mut expected = BTreeSet::new();
            lost(
                &payload,
                Some(&super::value(&returned.payload)),
                &Path::default(),
                &mut expected,
            );
            assert_eq!(loss, expected, "{} and back {}", about(), returned.payload);
        }
        let returned = back
            .apply(&sent.payload, sent.complement.as_deref())
            .map(|returned| returned.payload);
        let is_restored = returned
            .as_ref()
            .is_ok_and(|returned| same(&super::value(returned), &payload));
        assert!(
            is_restored,
            "{} and back {returned:?}, complement {:?}",
            about(),
            sent.complement
        );
        restored += 1;
    }
    restored
}

#[test]
fn chains_of_lenses_hold_for_random_schemas() {
    let restored: usize = (0..400).map(try_chain).sum();
    assert!(restored > 200, "{restored}");
}

/// Some payloads that may fit the source.
fn payloads(dice: &mut Dice, pair: &Pair) -> Vec<Value> {
    let mut payloads = Generator::new(Document::of(&pair.source), Vec::new(), &pair.target, &|| false).payloads();
    for at in (1..payloads.len()).rev() {
        payloads.swap(at, dice.below(at + 1));
    }
    payloads.truncate(12);
    payloads
}

impl Trial<'_> {
    fn about(&self) -> String {
        let Pair {
            source, target, lens, ..
        } = self.pair;
        format!("seed {}\nsource {source}\ntarget {target}\nlens {lens}", self.seed)
    }

    fn try_payload(&self, payload: &Value, tally: &mut Tally) {
        let text = payload.to_string();
        if !fits(self.there.validators[0], &text) {
            return;
        }
        tally.payloads += 1;
        let transformed = match self.there.apply(&text, None) {
            Ok(transformed) => transformed,
            Err(error) => {
                let is_limit = matches!(error, TransformError::TooLarge | TransformError::TooExpensive);
                let is_proved = self.forward.proof == Proved::Proved;
                assert!(
                    !is_proved || is_limit,
                    "{error}: proved, but fails {payload}\n{}",
                    self.about()
                );
                return;
            }
        };
        self.check_claims(&transformed);
        tally.lossy_payloads += usize::from(!transformed.loss.is_empty());
        let Some(back) = &self.back else { return };
        let there = &transformed.payload;
        match back.apply(there, None) {
            Ok(returned) => {
                let loss: BTreeSet<_> = transformed.loss.iter().map(ToString::to_string).collect();
                let mut expected = BTreeSet::new();
                let returned = super::value(&returned.payload);
                lost(payload, Some(&returned), &Path::default(), &mut expected);
                assert_eq!(
                    loss,
                    expected,
                    "{payload}\nthere {there}\nback {returned}\n{}",
                    self.about()
                );
            }
            Err(error) => assert!(
                !self.is_back_proved,
                "{error}: proved, but fails {there}\n{}",
                self.about()
            ),
        }
        let returned = back
            .apply(there, transformed.complement.as_deref())
            .map(|returned| returned.payload);
        let is_restored = returned
            .as_ref()
            .is_ok_and(|returned| same(&super::value(returned), payload));
        let complement = &transformed.complement;
        assert!(
            is_restored,
            "{payload}\nthere {there}\nback {returned:?}\n{complement:?}\n{}",
            self.about()
        );
        tally.restored += 1;
    }

    /// What is lost of what the source declares has been said before, and so has what is made up.
    fn check_claims(&self, transformed: &Transformed) {
        let source = Document::of(&self.pair.source);
        for place in transformed.loss.iter() {
            let is_declared = source
                .at(&[&self.pair.source], &place.0)
                .is_none_or(|place| !place.is_empty());
            let touches = |claim: &Path| claim.0.starts_with(&place.0) || place.0.starts_with(&claim.0);
            let is_claimed = self.forward.may_lose.iter().any(touches);
            assert!(
                !is_declared || is_claimed,
                "{place} is lost: {:?}\n{}",
                self.forward,
                self.about()
            );
        }
        let invents = !transformed.defaulted.is_empty();
        let is_claimed = self.forward.class != Class::Exact;
        assert!(
            !invents || is_claimed,
            "{:?} is made up\n{}",
            transformed.defaulted,
            self.about()
        );
    }
}

fn try_pairs(from: u64, len: u64) {
    let mut tally = Tally::default();
    for seed in from..from + len {
        try_pair(seed, &mut tally);
    }
    println!("{tally:?}");
    assert!(
        tally.accepted * 4 > len as usize && tally.proved * 8 > len as usize,
        "{tally:?}"
    );
    assert!(
        tally.restored > tally.accepted && tally.lossy_payloads > tally.accepted,
        "{tally:?}"
    );
}

#[test]
fn lenses_hold_for_random_schemas_1() {
    try_pairs(0, 2500);
}

#[test]
fn lenses_hold_for_random_schemas_2() {
    try_pairs(2500, 2500);
}

#[test]
fn lenses_hold_for_random_schemas_3() {
    try_pairs(5000, 2500);
}

#[test]
fn lenses_hold_for_random_schemas_4() {
    try_pairs(7500, 2500);
}

#[test]
#[ignore = "for a long search: SEED=n cargo test -p mcp-broker-lens -- --ignored --nocapture"]
fn search_random_schemas() {
    let seed = std::env::var("SEED").map_or(0, |seed| seed.parse().unwrap());
    let len = std::env::var("PAIRS").map_or(10_000, |len| len.parse().unwrap());
    try_pairs(seed, len);
    let restored: usize = (seed..seed + len).map(try_chain).sum();
    println!("{restored} payloads restored along chains");
}
