//! Proves by rules of structure that every payload of one schema fits another.
//!
//! The rules are sound and incomplete. A schema is read as alternatives: for each choice of branches of `anyOf` and
//! `oneOf`, the subschemas that apply together. A pair that is met again inside itself holds.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    number::Decimal,
    path::{Path, Token},
    schema::{Document, Types, branches, child, finite, is_required, nested_values, property_names, strings},
};

/// Pairs of subschemas that are compared.
const PAIRS_MAX: usize = 10_000;
/// Reasons that are listed.
const UNPROVED_MAX: usize = 32;
const DEPTH_MAX: usize = 100;

/// A place where the rules do not decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unproved {
    /// The place in the payload of the target.
    pub path: Path,
    /// Why.
    pub reason: String,
}

/// Keywords that say nothing about whether a value fits.
const ANNOTATIONS: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$schema",
    "$id",
    "$defs",
    "definitions",
    "$anchor",
    "$vocabulary",
];

/// Keywords that depend on other keywords in the same schema or elsewhere.
const DEPENDENT: &[&str] = &[
    "unevaluatedProperties",
    "unevaluatedItems",
    "additionalItems",
    "patternProperties",
    "prefixItems",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
];

/// A proof that what `source` admits fits `target`.
pub(crate) struct Proof<'a, 'b, 'f> {
    source: Document<'a>,
    target: Document<'b>,
    /// Undeclared members may be dropped, where the target does not take them.
    trims: bool,
    is_out_of_time: &'f dyn Fn() -> bool,
    left: usize,
    known: HashSet<(Vec<usize>, usize, bool)>,
    /// What has been added to `known`, in order.
    assumed: Vec<(Vec<usize>, usize, bool)>,
    at: Path,
    unproved: Vec<Unproved>,
    depth: usize,
}

/// The subschemas of the source that apply together.
type All<'x, 'a> = &'x [&'a Value];

impl<'a, 'b, 'f> Proof<'a, 'b, 'f> {
    /// The places that the rules leave open; none if each value of `from` fits the target.
    pub fn run(
        source: Document<'a>,
        from: &'a Value,
        target: Document<'b>,
        trims: bool,
        is_out_of_time: &'f dyn Fn() -> bool,
    ) -> Vec<Unproved> {
        let mut proof = Self {
            source,
            target,
            trims,
            is_out_of_time,
            left: PAIRS_MAX,
            known: HashSet::new(),
            assumed: Vec::new(),
            at: Path::default(),
            unproved: Vec::new(),
            depth: 0,
        };
        proof.fits(&[from], target.root, trims);
        proof.unproved
    }

    fn fail(&mut self, reason: impl Into<String>) -> bool {
        let unproved = Unproved {
            path: self.at.clone(),
            reason: reason.into(),
        };
        if self.unproved.len() < UNPROVED_MAX && !self.unproved.contains(&unproved) {
            self.unproved.push(unproved);
        }
        false
    }

    /// Tries something, and forgets what it has assumed and listed if it fails.
    fn attempt(&mut self, check: impl FnOnce(&mut Self) -> bool) -> bool {
        let (assumed, listed) = (self.assumed.len(), self.unproved.len());
        let holds = check(self);
        if !holds {
            for pair in self.assumed.drain(assumed..) {
                self.known.remove(&pair);
            }
            self.unproved.truncate(listed);
        }
        holds
    }

    fn inside(&mut self, token: Token, check: impl FnOnce(&mut Self) -> bool) -> bool {
        self.at.0.push(token);
        let holds = check(self);
        self.at.0.pop();
        holds
    }

    /// Whether each value of `from` fits `to`. `may_drop`: undeclared members that do not fit are dropped before.
    fn fits(&mut self, from: All<'_, 'a>, to: &'b Value, may_drop: bool) -> bool {
        if self.is_anything(to) || self.equals_one(from, to) {
            return true;
        }
        let addresses = from.iter().map(|schema| std::ptr::from_ref(*schema).addr()).collect();
        let pair = (addresses, std::ptr::from_ref(to).addr(), may_drop);
        if self.known.contains(&pair) {
            return true;
        }
        if self.left == 0 || (self.is_out_of_time)() || self.depth == DEPTH_MAX {
            return self.fail("the schemas take too long to compare");
        }
        self.left -= 1;
        self.known.insert(pair.clone());
        self.assumed.push(pair);
        self.depth += 1;
        let holds = self.each_alternative(from, to, may_drop);
        self.depth -= 1;
        holds
    }

    fn each_alternative(&mut self, from: All<'_, 'a>, to: &'b Value, may_drop: bool) -> bool {
        let Some(mut alternatives) = self.source.alternatives(from) else {
            return self.fail("the schema has too many alternatives, or a reference that is not followed");
        };
        alternatives.retain(|all| Types::of(all).0 != 0);
        let containers = Types(Types::OBJECT.0 | Types::ARRAY.0);
        if self.trims
            && alternatives
                .iter()
                .filter(|all| Types::of(all).meets(containers))
                .count()
                > 1
        {
            return self.fail("undeclared members of alternatives");
        }
        // Every alternative is looked at, so that all reasons are listed.
        let mut holds = true;
        for all in &alternatives {
            holds &= self.fits_all(all, to, may_drop);
        }
        holds
    }

    /// Whether each value of schemas that apply together, their branches chosen, fits `to`.
    fn fits_all(&mut self, all: All<'_, 'a>, to: &'b Value, may_drop: bool) -> bool {
        if self.is_anything(to) || self.equals_one(all, to) {
            return true;
        }
        if let Some(values) = finite(all) {
            return match self.target.accepts(to, &values) {
                Some(true) => true,
                Some(false) => self.fail("a listed value does not fit"),
                None => self.fail("a listed value cannot be checked here"),
            };
        }
        let Value::Object(keywords) = to else {
            return self.fail("the target admits no value");
        };
        if self.left == 0 || self.depth == DEPTH_MAX {
            return self.fail("the schemas take too long to compare");
        }
        self.left -= 1;
        self.depth += 1;
        let holds = self.fits_keywords(all, to, keywords, may_drop);
        self.depth -= 1;
        holds
    }

    fn fits_keywords(
        &mut self,
        all: All<'_, 'a>,
        to: &'b Value,
        keywords: &'b Map<String, Value>,
        may_drop: bool,
    ) -> bool {
        if let Some(reference) = keywords.get("$ref") {
            let target = reference.as_str().and_then(|reference| self.target.target(reference));
            let Some(target) = target else {
                return self.fail("a reference that is not followed");
            };
            if !self.fits_all(all, target, may_drop) {
                return false;
            }
            if self.target.keywords(to).is_none() {
                return true;
            }
        }
        let mut holds = true;
        for branch in branches(keywords, "allOf") {
            holds &= self.fits_all(all, branch, may_drop);
        }
        if keywords.contains_key("anyOf") {
            let any = branches(keywords, "anyOf");
            let may_drop = may_drop && any.len() == 1;
            let one = any
                .iter()
                .any(|branch| self.attempt(|proof| proof.fits_all(all, branch, may_drop)));
            holds &= one || self.fits_split(all, to) || self.fail("fits no single branch of anyOf");
        }
        if keywords.contains_key("oneOf") {
            let one = self.fits_one_of(all, branches(keywords, "oneOf"));
            holds &= one || self.fail("may fit no branch of oneOf, or several");
        }
        self.fits_plain(all, keywords, may_drop) && holds
    }

    /// A value of several types is looked at type by type, where the target has alternatives.
    fn fits_split(&mut self, all: All<'_, 'a>, to: &'b Value) -> bool {
        let types = Types::of(all);
        let Some(any) = to.get("anyOf").and_then(Value::as_array) else {
            return false;
        };
        let each = TYPES.iter().filter(|(of, _)| types.meets(*of)).collect::<Vec<_>>();
        each.len() > 1
            && each.iter().all(|(_, schema)| {
                let narrowed: Vec<&Value> = all.iter().copied().chain([schema]).collect();
                any.iter()
                    .any(|branch| self.attempt(|proof| proof.fits_all(&narrowed, branch, false)))
            })
    }

    /// Fits one branch and is apart from all others.
    fn fits_one_of(&mut self, all: All<'_, 'a>, one_of: &'b [Value]) -> bool {
        let fitting = one_of
            .iter()
            .position(|branch| self.attempt(|proof| proof.fits_all(all, branch, false)));
        let Some(fitting) = fitting else { return false };
        let others = one_of.iter().enumerate().filter(|(at, _)| *at != fitting);
        others.into_iter().all(|(_, branch)| self.is_apart(all, branch))
    }

    /// No value of the one fits the other: by type, or by a member that both have with different values.
    fn is_apart(&self, all: All<'_, 'a>, branch: &'b Value) -> bool {
        let Some(branches) = self.target.alternatives(&[branch]) else {
            return false;
        };
        branches.iter().all(|other| {
            let types = Types::of(all);
            let by_member = types == Types::OBJECT
                && property_names(all).iter().any(|name| {
                    let token = Token::Name((*name).to_owned());
                    let inside = |schemas: &[&'a Value]| {
                        schemas
                            .iter()
                            .filter_map(|schema| child(schema, &token))
                            .collect::<Vec<_>>()
                    };
                    let theirs: Vec<_> = other.iter().filter_map(|schema| child(schema, &token)).collect();
                    let values = |schemas: &[&Value]| if schemas.is_empty() { None } else { finite(schemas) };
                    let known = values(&inside(all)).zip(values(&theirs));
                    is_required(all, name)
                        && known.is_some_and(|(ours, theirs)| !ours.iter().any(|own| theirs.contains(own)))
                });
            !types.meets(Types::of(other)) || by_member
        })
    }

    fn is_anything(&self, to: &Value) -> bool {
        match to {
            Value::Bool(admits) => *admits,
            Value::Object(keywords) => keywords.keys().all(|keyword| self.is_annotation(keyword)),
            _ => false,
        }
    }

    fn is_annotation(&self, keyword: &str) -> bool {
        let is_asserted = self.target.is_draft_07
            || !matches!(
                keyword,
                "format" | "contentMediaType" | "contentEncoding" | "contentSchema"
            );
        ANNOTATIONS.contains(&keyword) || !is_asserted
    }

    /// One of the schemas is equal to the other and means the same.
    fn equals_one(&self, from: All<'_, 'a>, to: &'b Value) -> bool {
        if !to.is_object() || self.trims && Types::of(&[to]).meets(Types(Types::OBJECT.0 | Types::ARRAY.0)) {
            return false;
        }
        from.contains(&to) && self.means_the_same(to)
    }

    /// The two documents read a schema in the same way: it has no reference, or both have the same definitions.
    fn means_the_same(&self, schema: &Value) -> bool {
        let is_local = |value: &Value| {
            ["$ref", "$dynamicRef", "$id"]
                .iter()
                .all(|keyword| value.get(keyword).is_none())
        };
        let mut inside = nested_values(schema);
        let definitions = |document: &Value| [document.get("$defs").cloned(), document.get("definitions").cloned()];
        let same_definitions = || {
            let leads_there = |value: &Value| {
                let reference = value.get("$ref").and_then(Value::as_str);
                value.get("$dynamicRef").is_none()
                    && value.get("$id").is_none()
                    && reference.is_none_or(|it| it.starts_with("#/$defs/") || it.starts_with("#/definitions/"))
            };
            let all = definitions(self.source.root);
            all == definitions(self.target.root)
                && nested_values(schema).all(leads_there)
                && all.iter().flatten().flat_map(nested_values).all(leads_there)
        };
        self.source.is_draft_07 == self.target.is_draft_07 && (inside.all(is_local) || same_definitions())
    }

    /// The keywords without branches and references.
    fn fits_plain(&mut self, all: All<'_, 'a>, keywords: &'b Map<String, Value>, may_drop: bool) -> bool {
        let types = Types::of(all);
        let mut holds = true;
        for (keyword, wanted) in keywords {
            let concerns = match keyword.as_str() {
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => Types::NUMBER,
                "minLength" | "maxLength" | "pattern" | "format" | "contentMediaType" | "contentEncoding" => {
                    Types::STRING
                }
                "items" | "minItems" | "maxItems" | "uniqueItems" | "contains" | "prefixItems" | "additionalItems"
                | "unevaluatedItems" | "minContains" | "maxContains" => Types::ARRAY,
                "properties"
                | "required"
                | "additionalProperties"
                | "minProperties"
                | "maxProperties"
                | "propertyNames"
                | "patternProperties"
                | "dependentRequired"
                | "dependentSchemas"
                | "dependencies"
                | "unevaluatedProperties" => Types::OBJECT,
                _ => Types::ALL,
            };
            if types.meets(concerns) && !self.is_annotation(keyword) {
                holds &= self.fits_keyword(all, keyword, wanted, keywords, may_drop);
            }
        }
        holds
    }

    fn fits_keyword(
        &mut self,
        all: All<'_, 'a>,
        keyword: &str,
        wanted: &'b Value,
        keywords: &'b Map<String, Value>,
        may_drop: bool,
    ) -> bool {
        let is_stated = all.iter().any(|schema| schema.get(keyword) == Some(wanted));
        match keyword {
            "$ref" | "allOf" | "anyOf" | "oneOf" => true,
            "type" => {
                let to = Types::of(&[&serde_json::json!({ "type": wanted })]);
                Types::of(all).is_within(to) || self.fail(format!("may be of another type than {wanted}"))
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                is_stated
                    || is_bounded(all, keyword, wanted)
                    || self.fail(format!("may be outside of {keyword} {wanted}"))
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" => {
                let is_least = keyword.starts_with("min");
                let own = all.iter().filter_map(|schema| schema.get(keyword)?.as_f64());
                let wanted_count = wanted.as_f64().unwrap_or(f64::MAX);
                let is_within = own.into_iter().any(|own| {
                    if is_least {
                        own >= wanted_count
                    } else {
                        own <= wanted_count
                    }
                });
                is_within
                    || is_least && wanted_count == 0.0
                    || self.fail(format!("may be outside of {keyword} {wanted}"))
            }
            "minProperties" | "maxProperties" => {
                let required: HashSet<_> = all.iter().flat_map(|schema| strings(schema.get("required"))).collect();
                let is_least =
                    keyword == "minProperties" && wanted.as_u64().is_some_and(|least| required.len() as u64 >= least);
                is_least || is_stated && !self.trims || self.fail(format!("may be outside of {keyword} {wanted}"))
            }
            "multipleOf" => {
                let divisor = Decimal::parse(&wanted.to_string());
                let own = all
                    .iter()
                    .filter_map(|schema| Decimal::parse(&schema.get(keyword)?.to_string()));
                let is_one = Types::of(all).is_within(Types(Types::INTEGER.0 | !Types::NUMBER.0))
                    && wanted.as_f64() == Some(1.0);
                let divides = own
                    .into_iter()
                    .any(|own| divisor.as_ref().is_some_and(|divisor| own.is_multiple_of(divisor)));
                is_one || divides || self.fail(format!("may be no multiple of {wanted}"))
            }
            "pattern" => is_stated || self.fail(format!("may not match {wanted}")),
            "format" | "contentMediaType" | "contentEncoding" => {
                is_stated && self.source.is_draft_07 || self.fail(format!("may not have the {keyword} {wanted}"))
            }
            "uniqueItems" if *wanted == Value::Bool(false) => true,
            "required" => {
                let missing: Vec<_> = strings(Some(wanted)).filter(|name| !is_required(all, name)).collect();
                missing.is_empty() || self.fail(format!("may be without {}", missing.join(", ")))
            }
            "properties" => self.fits_properties(all, wanted, may_drop),
            "additionalProperties" => self.fits_other_names(all, wanted, keywords, may_drop),
            "items" if !wanted.is_array() && !keywords.contains_key("prefixItems") => {
                let inside: Vec<_> = all.iter().filter_map(|schema| child(schema, &Token::Items)).collect();
                self.inside(Token::Items, |proof| proof.fits(&inside, wanted, may_drop))
            }
            _ => self.fits_equal(all, keyword, keywords),
        }
    }

    fn fits_properties(&mut self, all: All<'_, 'a>, properties: &'b Value, may_drop: bool) -> bool {
        let mut holds = true;
        for (name, to) in properties.as_object().into_iter().flatten() {
            let token = Token::Name(name.clone());
            let named: Vec<_> = all.iter().filter_map(|schema| child(schema, &token)).collect();
            let has_patterns = all.iter().any(|schema| schema.get("patternProperties").is_some());
            let by_rest = named.is_empty() && !has_patterns;
            let others = all
                .iter()
                .filter_map(|schema| schema.get("additionalProperties").filter(|_| by_rest));
            let inside: Vec<_> = named
                .iter()
                .copied()
                .chain(others)
                .filter(|schema| **schema != Value::Bool(true))
                .collect();
            let is_dropped =
                named.is_empty() && inside.is_empty() && !has_patterns && may_drop && !is_required(all, name);
            // Members that the source declares by a schema for other names are not looked into at delivery.
            let may_drop = may_drop && !named.is_empty();
            holds &= is_dropped || self.inside(token, |proof| proof.fits(&inside, to, may_drop));
        }
        holds
    }

    fn fits_other_names(
        &mut self,
        all: All<'_, 'a>,
        to: &'b Value,
        keywords: &'b Map<String, Value>,
        may_drop: bool,
    ) -> bool {
        if self.is_anything(to) {
            return true;
        }
        if keywords.contains_key("patternProperties") {
            return self.fail("patternProperties");
        }
        let mut holds = true;
        let wanted = keywords.get("properties");
        for name in property_names(all) {
            if wanted.is_none_or(|wanted| wanted.get(name).is_none()) {
                let token = Token::Name(name.to_owned());
                let inside: Vec<_> = all.iter().filter_map(|schema| child(schema, &token)).collect();
                holds &= self.inside(token, |proof| proof.fits(&inside, to, false));
            }
        }
        if all.iter().any(|schema| schema.get("patternProperties").is_some()) {
            return self.fail("patternProperties");
        }
        let others: Vec<_> = all
            .iter()
            .filter_map(|schema| schema.get("additionalProperties"))
            .collect();
        let is_closed = others.iter().any(|others| **others == Value::Bool(false));
        let has_schema = others.iter().any(|others| others.is_object());
        let rest = if has_schema {
            self.attempt(|proof| proof.fits(&others, to, false))
        } else {
            may_drop
        };
        holds && (is_closed || rest || self.fail("may have members that the target does not declare"))
    }

    /// Any other keyword: one schema of the source has it too, and nothing is dropped.
    fn fits_equal(&mut self, all: All<'_, 'a>, keyword: &str, keywords: &'b Map<String, Value>) -> bool {
        let is_other = |keyword: &str| !self.is_annotation(keyword) && !PLAIN.contains(&keyword);
        let others: Vec<_> = keywords.iter().filter(|(keyword, _)| is_other(keyword)).collect();
        let is_equal = !self.trims
            && !DEPENDENT.contains(&keyword)
            && others.iter().all(|(_, value)| self.means_the_same(value))
            && all.iter().any(|schema| {
                others
                    .iter()
                    .all(|(keyword, value)| schema.get(*keyword) == Some(*value))
            });
        is_equal || self.fail(format!("{keyword} is compared only with its equal"))
    }
}

/// Keywords with rules of their own.
const PLAIN: &[&str] = &[
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "type",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "multipleOf",
    "pattern",
    "format",
    "required",
    "properties",
    "additionalProperties",
    "items",
];

static TYPES: std::sync::LazyLock<Vec<(Types, Value)>> = std::sync::LazyLock::new(|| {
    let of = |types, name: &str| (types, serde_json::json!({ "type": name }));
    vec![
        of(Types::NULL, "null"),
        of(Types::BOOLEAN, "boolean"),
        of(Types::STRING, "string"),
        of(Types::NUMBER, "number"),
        of(Types::ARRAY, "array"),
        of(Types::OBJECT, "object"),
    ]
});

/// Whether the bounds of the source are within a bound of the target.
fn is_bounded(all: &[&Value], keyword: &str, wanted: &Value) -> bool {
    let Some(wanted) = Decimal::parse(&wanted.to_string()) else {
        return false;
    };
    let is_least = keyword.ends_with("inimum");
    let (inclusive, exclusive) = if is_least {
        ("minimum", "exclusiveMinimum")
    } else {
        ("maximum", "exclusiveMaximum")
    };
    let own = |keyword: &'static str| {
        all.iter()
            .filter_map(move |schema| Decimal::parse(&schema.get(keyword)?.to_string()))
    };
    let is_beyond = |own: &Decimal| if is_least { *own > wanted } else { *own < wanted };
    let touches = |own: &Decimal| *own == wanted && !keyword.starts_with("exclusive");
    own(inclusive).any(|own| is_beyond(&own) || touches(&own))
        || own(exclusive).any(|own| is_beyond(&own) || own == wanted)
}
