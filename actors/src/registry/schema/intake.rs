//! What a schema may be, decided before anything recurses over it or compiles it.
//!
//! A schema comes from a client that may be hostile and is then run against every message of a protocol, so its cost
//! is settled here, once: its size, where its references lead, and how much work one payload can cause.

use std::collections::HashMap;

use referencing::{Draft, Registry, Resolver, uri};
use serde_json::Value;

use crate::model::BrokerError;

use super::cost::{Cost, Edge, Graph};

pub(super) const BYTES_MAX: usize = 256 * 1024;
pub(super) const DEPTH_MAX: usize = 32;
/// JSON values in the schema, of any kind: a bound on subschemas and on the lengths of its enumerations alike.
pub(super) const NODES_MAX: usize = 4096;
/// Regular expressions in the schema: each compiled one may take [`super::REGEX_BYTES_MAX`].
pub(super) const PATTERNS_MAX: usize = 128;

const DRAFT_07: &str = "http://json-schema.org/draft-07/schema#";
const DRAFT_2020_12: &str = "https://json-schema.org/draft/2020-12/schema";
/// Stands for the document itself when the schema has no `$id`; the crate's own default.
const BASE: &str = "json-schema:///";

/// A schema that may be compiled.
pub(super) struct Admitted {
    pub draft: Draft,
    pub cost: Cost,
}

/// # Errors
/// `invalid_schema` when a limit is passed, the dialect is another than the two of the contract, or a reference leads
/// out of the document, nowhere, or in a circle that consumes nothing.
pub(super) fn admit(schema: &Value) -> Result<Admitted, BrokerError> {
    if !schema.is_object() {
        return refuse("a schema is a JSON object");
    }
    let scan = Scan::of(schema)?;
    let draft = dialect(schema)?;
    let graph = graph(schema, draft, &scan)?;
    Ok(Admitted {
        draft,
        cost: graph.cost()?,
    })
}

pub(super) fn refuse<T>(reason: impl Into<String>) -> Result<T, BrokerError> {
    Err(BrokerError::InvalidSchema { reason: reason.into() })
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

/// What one pass over all values of the document finds, whatever their place.
#[derive(Default)]
struct Scan<'a> {
    /// How often each `$dynamicAnchor` is declared.
    dynamic_anchors: HashMap<&'a str, usize>,
}

impl<'a> Scan<'a> {
    /// Iterative: the schema is not known to be shallow yet.
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
        if serialized_len(schema) > BYTES_MAX {
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

/// How a keyword's value holds subschemas, and of what.
#[derive(Clone, Copy)]
enum Holds {
    One(Edge),
    Many(Edge),
    Named(Edge),
    /// No subschema that is applied by being here: data, annotations, definitions.
    None,
}

fn holds(keyword: &str) -> Holds {
    match keyword {
        "not" | "if" | "then" | "else" => Holds::One(Edge::InPlace),
        "allOf" | "anyOf" | "oneOf" => Holds::Many(Edge::InPlace),
        "dependentSchemas" | "dependencies" => Holds::Named(Edge::InPlace),
        "properties" => Holds::Named(Edge::Property),
        "patternProperties" => Holds::Named(Edge::Overlapping),
        "items" | "prefixItems" => Holds::Many(Edge::Overlapping),
        "additionalItems"
        | "contains"
        | "additionalProperties"
        | "propertyNames"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Holds::One(Edge::Overlapping),
        _ => Holds::None,
    }
}

/// Who applies whom. References are resolved by the code that the validator resolves them with, so both mean the same
/// target.
fn graph(schema: &Value, draft: Draft, scan: &Scan<'_>) -> Result<Graph, BrokerError> {
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

    let mut builder = Builder::default();
    builder.node(schema, root);
    while let Some((from, value, resolver)) = builder.open.pop() {
        let Value::Object(members) = value else { continue };
        let resolver = resolver
            .in_subresource(draft.create_resource_ref(value))
            .map_err(unresolvable)?;
        for (keyword, value) in members {
            match (keyword.as_str(), value) {
                ("$ref" | "$dynamicRef", Value::String(reference)) => {
                    if keyword == "$dynamicRef" {
                        one_target(reference, scan)?;
                    }
                    if reference.is_empty() {
                        return refuse("an empty reference: write # for the whole schema");
                    }
                    let target = resolver.lookup(reference).map_err(unresolvable)?;
                    if target.resolver().base_uri().as_str().contains("//json-schema.org/") {
                        return refuse("a reference leads out of the schema, to a dialect");
                    }
                    let (contents, resolver, _) = target.into_inner();
                    builder.edge(from, Edge::InPlace, contents, resolver);
                }
                ("$recursiveRef", _) => return refuse("$recursiveRef is of draft 2019-09"),
                (keyword, value) => builder.subschemas(from, holds(keyword), value, &resolver),
            }
        }
    }
    Ok(builder.graph)
}

/// With several targets the meaning of a `$dynamicRef` depends on the way that led to it, and so does its cost.
fn one_target(reference: &str, scan: &Scan<'_>) -> Result<(), BrokerError> {
    let anchor = reference.rsplit_once('#').map_or("", |(_, anchor)| anchor);
    if scan.dynamic_anchors.get(anchor).is_some_and(|&count| count > 1) {
        return refuse("a $dynamicRef with more than one $dynamicAnchor of its name");
    }
    Ok(())
}

#[derive(Default)]
struct Builder<'r> {
    graph: Graph,
    seen: HashMap<*const Value, usize>,
    open: Vec<(usize, &'r Value, Resolver<'r>)>,
}

impl<'r> Builder<'r> {
    fn node(&mut self, value: &'r Value, resolver: Resolver<'r>) -> usize {
        if let Some(&node) = self.seen.get(&std::ptr::from_ref(value)) {
            return node;
        }
        let node = self.graph.add(weight(value), rechecks(value));
        self.seen.insert(value, node);
        self.open.push((node, value, resolver));
        node
    }

    fn edge(&mut self, from: usize, edge: Edge, value: &'r Value, resolver: Resolver<'r>) {
        let to = self.node(value, resolver);
        self.graph.connect(from, edge, to);
    }

    fn subschemas(&mut self, from: usize, holds: Holds, value: &'r Value, resolver: &Resolver<'r>) {
        match (holds, value) {
            (Holds::None, _) => {}
            (Holds::Many(edge) | Holds::One(edge), Value::Array(items)) => {
                for item in items {
                    self.edge(from, edge, item, resolver.clone());
                }
            }
            (Holds::Named(edge), Value::Object(members)) => {
                for member in members.values() {
                    self.edge(from, edge, member, resolver.clone());
                }
            }
            (Holds::One(edge) | Holds::Many(edge) | Holds::Named(edge), value) => {
                self.edge(from, edge, value, resolver.clone());
            }
        }
    }
}

/// The work of a schema on one value, that of its subschemas apart: its keywords, the alternatives it compares with,
/// and its regular expressions, of which one step for each byte of text is dearer than any other keyword's.
fn weight(schema: &Value) -> u64 {
    const EXPRESSION: u64 = 16;
    let Value::Object(members) = schema else { return 1 };
    let compared = ["enum", "required"]
        .iter()
        .filter_map(|keyword| members.get(*keyword)?.as_array());
    let by_name = members.get("patternProperties").and_then(Value::as_object);
    let expressions = u64::from(members.contains_key("pattern")) + by_name.map_or(0, |by_name| by_name.len() as u64);
    1 + members.len() as u64 + compared.map(|items| items.len() as u64).sum::<u64>() + EXPRESSION * expressions
}

/// Whether applying the schema applies its subschemas again, to learn what they have evaluated.
fn rechecks(schema: &Value) -> bool {
    schema.get("unevaluatedProperties").is_some() || schema.get("unevaluatedItems").is_some()
}
