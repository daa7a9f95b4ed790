//! Admission of a schema: its limits, checked before anything recurses over it or compiles it.
//!
//! A schema comes from a client that may be hostile, and runs against every message of a protocol. So its cost is
//! bounded here, once: its size, the targets of its references, and the work that one payload can cause.

use std::collections::{HashMap, hash_map::Entry};

use referencing::{Draft, Registry, Resolver, uri};
use serde_json::Value;

use crate::model::BrokerError;

use super::{
    cost::{Edge, Graph, KEYWORD, Weight},
    error::refuse,
    expression::{Expression, WALK_MAX},
};

/// Bytes of the text of a schema.
pub(super) const BYTES_MAX: usize = 256 * 1024;
/// Nesting depth of the JSON values of a schema.
pub(super) const DEPTH_MAX: usize = 32;
/// JSON values of any kind in the schema: bounds its subschemas and the lengths of its enumerations alike.
pub(super) const NODES_MAX: usize = 4096;
/// Regular expressions in the schema; each compiled one may take [`super::expression::REGEX_BYTES_MAX`].
pub(super) const PATTERNS_MAX: usize = 128;
/// Bytes of all its compiled expressions together.
pub(super) const PATTERN_BYTES_MAX: usize = 2 * 1024 * 1024;

const DRAFT_07: &str = "http://json-schema.org/draft-07/schema#";
const DRAFT_2020_12: &str = "https://json-schema.org/draft/2020-12/schema";
/// Names the document itself if the schema has no `$id`; the default of the `referencing` crate.
const BASE: &str = "json-schema:///";

/// Estimated bytes that a compiled schema takes: for each byte of its text, for each subschema, and for each byte of a
/// compiled expression, which the engine keeps forwards, backwards and as a table.
const TEXT_TIMES: usize = 4;
const NODE_BYTES: usize = 1024;
const PATTERN_TIMES: usize = 4;

/// A schema that may be compiled.
pub(super) struct Admitted {
    pub draft: Draft,
    pub graph: Graph,
    /// Approximate bytes of the compiled schema.
    pub len: usize,
}

/// Checks a schema against all limits.
///
/// # Errors
/// `invalid_schema` if a limit is exceeded, if the dialect is neither of the two of the contract, or if a reference
/// leads out of the document, to nothing, or in a circle that consumes nothing.
pub(super) fn admit(schema: &Value) -> Result<Admitted, BrokerError> {
    if !schema.is_object() {
        return refuse("a schema is a JSON object");
    }
    let scan = Scan::of(schema)?;
    let draft = dialect(schema)?;
    let mut weigher = Weigher::new(draft);
    let graph = build_graph(schema, draft, &scan, &mut weigher)?.finish()?;
    let len = scan.len * TEXT_TIMES + graph.len() * NODE_BYTES + weigher.patterns_len * PATTERN_TIMES;
    Ok(Admitted { draft, graph, len })
}

fn dialect(schema: &Value) -> Result<Draft, BrokerError> {
    let draft = match schema.get("$schema") {
        None => Some(Draft::Draft202012),
        Some(Value::String(uri)) => match uri.strip_suffix('#').unwrap_or(uri) {
            DRAFT_2020_12 => Some(Draft::Draft202012),
            uri if DRAFT_07.strip_suffix('#') == Some(uri) => Some(Draft::Draft7),
            _ => None,
        },
        Some(_) => None,
    };
    draft.map_or_else(
        || refuse(format!("$schema is absent, {DRAFT_2020_12} or {DRAFT_07}")),
        Ok,
    )
}

/// The result of one pass over all values of the document.
#[derive(Default)]
struct Scan<'a> {
    /// The number of declarations of each `$dynamicAnchor`.
    dynamic_anchors: HashMap<&'a str, usize>,
    /// Bytes of the document's text.
    len: usize,
}

impl<'a> Scan<'a> {
    /// Iterative, because the depth of the schema is not bounded yet.
    fn of(schema: &'a Value) -> Result<Self, BrokerError> {
        let mut scan = Self::default();
        let (mut nodes, mut patterns) = (0, 0);
        let mut open = vec![(schema, 1)];
        while let Some((value, depth)) = open.pop() {
            nodes += 1;
            if nodes > NODES_MAX {
                return refuse(format!("more than {NODES_MAX} JSON values"));
            }
            if depth > DEPTH_MAX {
                return refuse(format!("nested deeper than {DEPTH_MAX}"));
            }
            match value {
                Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
                Value::Object(members) => {
                    patterns += usize::from(members.get("pattern").is_some_and(Value::is_string));
                    let by_name = members.get("patternProperties").and_then(Value::as_object);
                    patterns += by_name.map_or(0, serde_json::Map::len);
                    if let Some(Value::String(name)) = members.get("$dynamicAnchor") {
                        *scan.dynamic_anchors.entry(name).or_default() += 1;
                    }
                    let nested_dialect = depth > 1 && members.get("$schema").is_some_and(Value::is_string);
                    if nested_dialect && members["$schema"] != schema["$schema"] {
                        return refuse("one dialect per schema: $schema inside differs from $schema outside");
                    }
                    open.extend(members.values().map(|member| (member, depth + 1)));
                }
                _ => {}
            }
        }
        if patterns > PATTERNS_MAX {
            return refuse(format!("more than {PATTERNS_MAX} regular expressions"));
        }
        scan.len = serialized_len(schema);
        if scan.len > BYTES_MAX {
            return refuse(format!("larger than {BYTES_MAX} bytes"));
        }
        Ok(scan)
    }
}

fn serialized_len(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// How the value of a keyword contains subschemas, and to which part of a value they apply.
#[derive(Clone, Copy)]
enum Subschemas {
    One(Edge),
    Many(Edge),
    Named(Edge),
    /// By the names of members.
    Properties,
    /// No subschema that applies in this place: data, annotations, definitions.
    None,
}

fn subschemas_of(keyword: &str) -> Subschemas {
    match keyword {
        "not" | "if" | "then" | "else" => Subschemas::One(Edge::SameValue),
        "allOf" | "anyOf" | "oneOf" => Subschemas::Many(Edge::SameValue),
        "dependentSchemas" | "dependencies" => Subschemas::Named(Edge::SameValue),
        "properties" => Subschemas::Properties,
        "patternProperties" => Subschemas::Named(Edge::Members),
        "items" | "prefixItems" => Subschemas::Many(Edge::Items),
        "additionalItems" | "contains" | "unevaluatedItems" => Subschemas::One(Edge::Items),
        "additionalProperties" | "unevaluatedProperties" => Subschemas::One(Edge::Members),
        "propertyNames" => Subschemas::One(Edge::Names),
        _ => Subschemas::None,
    }
}

/// Builds the graph of subschemas. References are resolved by the crate that the validator uses, so both find the same
/// target.
fn build_graph(schema: &Value, draft: Draft, scan: &Scan<'_>, weigher: &mut Weigher) -> Result<Graph, BrokerError> {
    let unresolvable = |error: referencing::Error| BrokerError::InvalidSchema {
        reason: format!("a reference leads out of the schema, or nowhere: {error}"),
    };
    let id = draft.create_resource_ref(schema).id().map(str::to_owned);
    let base = uri::from_str(id.as_deref().unwrap_or(BASE)).map_err(unresolvable)?;
    let registry = Registry::new()
        .draft(draft)
        .add(base.as_str(), schema)
        .and_then(referencing::RegistryBuilder::prepare)
        .map_err(unresolvable)?;
    let root = registry.resolver(base);

    let mut builder = Builder {
        weigher,
        graph: Graph::default(),
        seen: HashMap::new(),
        open: Vec::new(),
    };
    builder.node(schema, root)?;
    while let Some((from, value, resolver)) = builder.open.pop() {
        let Value::Object(members) = value else { continue };
        let resolver = resolver
            .in_subresource(draft.create_resource_ref(value))
            .map_err(unresolvable)?;
        for (keyword, value) in members {
            match (keyword.as_str(), value) {
                ("$ref" | "$dynamicRef", Value::String(reference)) => {
                    if keyword == "$dynamicRef" {
                        check_dynamic_ref(reference, scan)?;
                    }
                    if reference.is_empty() {
                        return refuse("an empty reference: write # for the whole schema");
                    }
                    let target = resolver.lookup(reference).map_err(unresolvable)?;
                    if target.resolver().base_uri().as_str().contains("//json-schema.org/") {
                        return refuse("a reference leads out of the schema, to a dialect");
                    }
                    let (contents, resolver, _) = target.into_inner();
                    builder.edge(from, Edge::SameValue, contents, resolver)?;
                }
                ("$recursiveRef", _) => return refuse("$recursiveRef is of draft 2019-09"),
                (keyword, value) => builder.subschemas(from, subschemas_of(keyword), value, &resolver)?,
            }
        }
    }
    Ok(builder.graph)
}

/// With several targets, the meaning and the cost of a `$dynamicRef` would depend on the path that led to it.
fn check_dynamic_ref(reference: &str, scan: &Scan<'_>) -> Result<(), BrokerError> {
    let anchor = reference.rsplit_once('#').map_or("", |(_, anchor)| anchor);
    if scan.dynamic_anchors.get(anchor).is_some_and(|&count| count > 1) {
        return refuse("a $dynamicRef with more than one $dynamicAnchor of its name");
    }
    Ok(())
}

struct Builder<'r, 'w> {
    weigher: &'w mut Weigher,
    graph: Graph,
    seen: HashMap<*const Value, usize>,
    open: Vec<(usize, &'r Value, Resolver<'r>)>,
}

impl<'r> Builder<'r, '_> {
    fn node(&mut self, value: &'r Value, resolver: Resolver<'r>) -> Result<usize, BrokerError> {
        match self.seen.entry(std::ptr::from_ref(value)) {
            Entry::Occupied(seen) => Ok(*seen.get()),
            Entry::Vacant(place) => {
                let node = self.graph.add(self.weigher.weight(value)?);
                place.insert(node);
                self.open.push((node, value, resolver));
                Ok(node)
            }
        }
    }

    fn edge(&mut self, from: usize, edge: Edge, value: &'r Value, resolver: Resolver<'r>) -> Result<(), BrokerError> {
        let to = self.node(value, resolver)?;
        self.graph.connect(from, edge, to);
        Ok(())
    }

    fn subschemas(
        &mut self,
        from: usize,
        holds: Subschemas,
        value: &'r Value,
        resolver: &Resolver<'r>,
    ) -> Result<(), BrokerError> {
        match (holds, value) {
            (Subschemas::None, _) => {}
            (Subschemas::Many(edge) | Subschemas::One(edge), Value::Array(items)) => {
                for item in items {
                    self.edge(from, edge, item, resolver.clone())?;
                }
            }
            (Subschemas::Properties, Value::Object(members)) => {
                for (name, member) in members {
                    let to = self.node(member, resolver.clone())?;
                    self.graph.connect_named(from, name, to);
                }
            }
            (Subschemas::Named(edge), Value::Object(members)) => {
                for member in members.values() {
                    self.edge(from, edge, member, resolver.clone())?;
                }
            }
            (Subschemas::Properties, value) => self.edge(from, Edge::Members, value, resolver.clone())?,
            (Subschemas::One(edge) | Subschemas::Many(edge) | Subschemas::Named(edge), value) => {
                self.edge(from, edge, value, resolver.clone())?;
            }
        }
        Ok(())
    }
}

/// Computes the cost of each subschema by itself; compiles expressions for it.
struct Weigher {
    draft: Draft,
    expressions: HashMap<String, Expression>,
    /// The remaining budget, in states, for exploring expressions.
    budget: u64,
    /// Bytes of the compiled expressions.
    patterns_len: usize,
}

impl Weigher {
    fn new(draft: Draft) -> Self {
        Self {
            draft,
            expressions: HashMap::new(),
            budget: WALK_MAX,
            patterns_len: 0,
        }
    }

    fn weight(&mut self, schema: &Value) -> Result<Weight, BrokerError> {
        let Value::Object(members) = schema else {
            return Ok(Weight {
                keywords: 1,
                ..Weight::default()
            });
        };
        let mut weight = Weight {
            keywords: 1 + members.len() as u64,
            has_unevaluated: members.contains_key("unevaluatedProperties") || members.contains_key("unevaluatedItems"),
            has_unique_items: members.get("uniqueItems") == Some(&Value::Bool(true)),
            ..Weight::default()
        };
        for (keyword, value) in members {
            self.keyword(&mut weight, keyword, value)?;
        }
        if members.contains_key("additionalProperties") {
            // The validator runs the expressions again to find out whether a member is additional.
            weight.name_byte *= 2;
            weight.member *= 2;
        }
        Ok(weight)
    }

    fn keyword(&mut self, weight: &mut Weight, keyword: &str, value: &Value) -> Result<(), BrokerError> {
        match (keyword, value) {
            ("pattern", Value::String(pattern)) => {
                weight.string_byte += self.expression(pattern)?;
                weight.keywords += SEARCH;
            }
            ("patternProperties", Value::Object(by_name)) => {
                for pattern in by_name.keys() {
                    weight.name_byte += self.expression(pattern)?;
                    weight.member += SEARCH * KEYWORD;
                }
            }
            ("enum", Value::Array(items)) if items.iter().all(Value::is_string) => weight.string_byte += 1,
            ("enum" | "const" | "required" | "dependentRequired", value) => {
                weight.keywords += comparison_cost(value);
                weight.string_byte += 1;
            }
            ("dependencies", Value::Object(by_name)) => {
                weight.keywords += by_name
                    .values()
                    .filter(|value| value.is_array())
                    .map(comparison_cost)
                    .sum::<u64>();
            }
            ("minLength" | "maxLength", _) => weight.string_byte += 1,
            ("format", _) if self.draft == Draft::Draft7 => weight.string_byte += FORMAT_BYTE,
            ("contentMediaType" | "contentEncoding", _) if self.draft == Draft::Draft7 => {
                weight.string_byte += CONTENT_BYTE;
            }
            ("multipleOf", Value::Number(number)) => {
                check_divisor(number)?;
                weight.keywords += DIVISION;
                weight.has_multiple_of = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// The work of an expression for each byte of text.
    fn expression(&mut self, pattern: &str) -> Result<u64, BrokerError> {
        if let Some(known) = self.expressions.get(pattern) {
            return Ok(known.per_byte);
        }
        let expression = Expression::of(pattern, &mut self.budget)?;
        self.patterns_len += expression.len;
        if self.patterns_len > PATTERN_BYTES_MAX {
            return refuse(format!(
                "its regular expressions compile to more than {PATTERN_BYTES_MAX} bytes together"
            ));
        }
        self.expressions.insert(pattern.to_owned(), expression);
        Ok(expression.per_byte)
    }
}

/// Starting a search with an expression costs as much as this many keywords.
const SEARCH: u64 = 10;
/// Work for each byte of a string whose `format` is asserted. Measured: 1 to 9 ns, `regex` being the slowest.
const FORMAT_BYTE: u64 = 20;
/// Work for each byte of a string that is decoded, or read as JSON. Measured: 3 ns, and 5 to 15 ns.
const CONTENT_BYTE: u64 = 30;

/// The cost of comparing with a value: one for each value inside, and one for each 64 bytes of text.
fn comparison_cost(value: &Value) -> u64 {
    let inside: u64 = match value {
        Value::Array(items) => items.iter().map(comparison_cost).sum(),
        Value::Object(members) => members.values().map(comparison_cost).sum(),
        Value::String(text) => text.len() as u64 / 64,
        _ => 0,
    };
    1 + inside
}

/// Work of a division, in keywords. Measured: 160 ns.
const DIVISION: u64 = 25;
/// With divisors up to this, and dividends up to [`super::cost::DIVIDEND_MAX`], a division uses 128-bit integers. Beyond, the
/// validator calculates with fractions of hundreds of digits.
const DIVISOR_MAX: f64 = 1e15;
const DECIMALS_MAX: i64 = 9;

fn check_divisor(number: &serde_json::Number) -> Result<(), BrokerError> {
    let is_small = number.as_f64().is_some_and(|number| number <= DIVISOR_MAX);
    if is_small && decimals(&number.to_string()) <= DECIMALS_MAX {
        return Ok(());
    }
    refuse(format!(
        "multipleOf is at most {DIVISOR_MAX:e} and has at most {DECIMALS_MAX} decimals, unlike {number}"
    ))
}

/// The decimals of a number as written: 2 for `0.25` and for `25e-2`.
fn decimals(number: &str) -> i64 {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let fraction = mantissa.split_once('.').map_or("", |(_, fraction)| fraction);
    let exponent: i64 = exponent.parse().unwrap_or(0);
    i64::try_from(fraction.trim_end_matches('0').len()).unwrap_or(i64::MAX) - exponent
}

#[cfg(test)]
mod tests;
