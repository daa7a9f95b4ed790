//! The work that a schema can cause, derived from the graph of its subschemas.
//!
//! The validator walks references as a tree, so a handful of definitions that each refer twice to the next are 2^n
//! subschemas to it. It remembers results in some loops of references and not in others (measured: twelve definitions
//! kept it busy for minutes with a payload of 700 bytes), and it cannot be interrupted. So its work is added up before
//! it starts: for a schema when it is registered, and for a payload by a walk over the pairs of a subschema and a value
//! that the validator would visit ([`Graph::charge`]); the walk ends when the budget is spent.
//!
//! Work is counted in nanoseconds of the slowest case that was measured of each kind, in a release build (see
//! `measure_the_most_expensive_payloads`).

use serde_json::Value;

use crate::model::BrokerError;

use super::error::refuse;

/// Keywords and enumerated alternatives with every reference followed, loops once.
pub(super) const EXPANDED_KEYWORDS_MAX: u64 = 100_000;
/// Nesting depth of subschemas while a value is checked; the validator recurses. Measured: 2600 fit a thread's 2 MiB in
/// a debug build, more in a release build, and an overflow cannot be caught.
const NESTED_MAX: usize = 1024;
/// Applying one keyword to one value, and computing its cost. Measured: 2 to 5 ns.
pub(super) const KEYWORD: u64 = 6;
/// Comparing two values for `uniqueItems`, whose hash sets a payload can make collide: `[]` and `[[]]` have the same
/// hash.
const COMPARISON: u64 = 2;

/// The largest number that is divided. Up to it, with the divisors that admission allows, a division uses 128-bit
/// integers.
pub(super) const DIVIDEND_MAX: f64 = 1e21;

/// The part of a value to which a subschema is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// The value itself.
    SameValue,
    /// The values of all members of an object.
    Members,
    /// The names of all members of an object.
    Names,
    /// All items of an array.
    Items,
}

/// The cost of a subschema without those inside it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weight {
    /// Keywords and enumerated alternatives, each applied to any value.
    pub keywords: u64,
    /// Work for each byte of a string.
    pub string_byte: u64,
    /// Work for each byte of a member's name in an object; `member`: for each member.
    pub name_byte: u64,
    pub member: u64,
    /// The subschema has `multipleOf`, which divides numbers.
    pub has_multiple_of: bool,
    /// The subschema has `uniqueItems`, which may compare every item of an array with every other.
    pub has_unique_items: bool,
    /// The subschema has `unevaluatedProperties` or `unevaluatedItems`: the subschemas inside are applied again, to
    /// learn what they have evaluated.
    pub has_unevaluated: bool,
}

/// The subschemas of a schema, and which of them apply which.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    weight: Weight,
    edges: Vec<(Edge, usize)>,
    /// `properties`: the subschema for the member of that name. Sorted by [`Graph::finish`].
    named: Vec<(Box<str>, usize)>,
}

impl Node {
    fn targets(&self) -> impl Iterator<Item = (Edge, usize)> {
        let named = self.named.iter().map(|&(_, to)| (Edge::Members, to));
        self.edges.iter().copied().chain(named)
    }

    /// Measured: a schema with `unevaluated*` applies its subschemas about 2.5 times.
    fn repeat_factor(&self) -> u64 {
        if self.weight.has_unevaluated { 3 } else { 1 }
    }
}

/// Why a value is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooExpensive {
    /// The budget is spent.
    Work,
    /// A number beyond [`DIVIDEND_MAX`] would have to be divided.
    Number,
}

/// Subtracts work from a budget.
///
/// # Errors
/// [`TooExpensive::Work`] if the budget is too small; it is unchanged then.
pub(super) fn spend(budget: &mut u64, work: u64) -> Result<(), TooExpensive> {
    *budget = budget.checked_sub(work).ok_or(TooExpensive::Work)?;
    Ok(())
}

impl Graph {
    /// Adds a subschema; returns its index.
    pub fn add(&mut self, weight: Weight) -> usize {
        self.nodes.push(Node {
            weight,
            edges: Vec::new(),
            named: Vec::new(),
        });
        self.nodes.len() - 1
    }

    /// Adds that `from` applies `to` to this part of a value.
    pub fn connect(&mut self, from: usize, edge: Edge, to: usize) {
        self.nodes[from].edges.push((edge, to));
    }

    /// Adds that `from` applies `to` to the member of this name.
    pub fn connect_named(&mut self, from: usize, name: &str, to: usize) {
        self.nodes[from].named.push((name.into(), to));
    }

    /// The number of subschemas.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Completes the graph. The node added first is the root.
    ///
    /// # Errors
    /// `invalid_schema` for a loop of references that consumes nothing, and for too much work.
    pub fn finish(mut self) -> Result<Self, BrokerError> {
        for node in &mut self.nodes {
            node.named.sort_unstable();
        }
        let in_place = self.walk(|edge| edge == Edge::SameValue);
        if in_place.has_loop {
            return refuse("references lead in a circle without ever looking at a member of the value");
        }
        if self.expanded_keywords() > EXPANDED_KEYWORDS_MAX {
            return refuse(format!(
                "more than {EXPANDED_KEYWORDS_MAX} keywords with its references followed"
            ));
        }
        if self.nesting_depth(&in_place) > NESTED_MAX {
            return refuse(format!("more than {NESTED_MAX} references after one another"));
        }
        Ok(self)
    }

    /// Subtracts the work of applying the schema to a value from the budget. Takes about as long as the validator.
    ///
    /// # Errors
    /// [`TooExpensive`]: the budget is spent, or a number is too large to divide.
    pub fn charge(&self, value: &Value, budget: &mut u64) -> Result<(), TooExpensive> {
        let mut pricing = Charge {
            nodes: &self.nodes,
            budget,
        };
        pricing.apply(0, Instance::Value(value), 1, 0)
    }

    fn expanded_keywords(&self) -> u64 {
        let walk = self.walk(|_| true);
        let mut costs = vec![0_u64; self.nodes.len()];
        for &at in &walk.order {
            let node = &self.nodes[at];
            // The target of an edge that closes a loop has no cost yet.
            let all = node.targets().fold(0_u64, |sum, (_, to)| sum.saturating_add(costs[to]));
            costs[at] = all
                .saturating_mul(node.repeat_factor())
                .saturating_add(node.weight.keywords);
        }
        costs[0]
    }

    /// The largest nesting depth of subschemas that are all applied to one value.
    fn nesting_depth(&self, in_place: &DepthFirst) -> usize {
        let mut nested = vec![0; self.nodes.len()];
        for &at in &in_place.order {
            let edges = self.nodes[at].edges.iter();
            let inside = edges
                .filter(|(edge, _)| *edge == Edge::SameValue)
                .map(|&(_, to)| nested[to]);
            nested[at] = 1 + inside.max().unwrap_or(0);
        }
        nested.into_iter().max().unwrap_or(0)
    }

    /// Visits all nodes depth first, the root first, along the edges that `along` admits. Iterative, because a chain of
    /// references may be as long as the schema.
    fn walk(&self, along: impl Fn(Edge) -> bool) -> DepthFirst {
        let mut walk = DepthFirst {
            order: Vec::with_capacity(self.nodes.len()),
            has_loop: false,
        };
        let mut finished = vec![false; self.nodes.len()];
        let mut entered = vec![false; self.nodes.len()];
        let targets = |at: usize| self.nodes[at].targets().filter(|(edge, _)| along(*edge));
        let mut path = Vec::new();
        for start in 0..self.nodes.len() {
            if !entered[start] {
                entered[start] = true;
                path.push((start, targets(start)));
            }
            while let Some((at, open)) = path.last_mut() {
                let Some((_, to)) = open.next() else {
                    walk.order.push(*at);
                    finished[*at] = true;
                    path.pop();
                    continue;
                };
                if !entered[to] {
                    entered[to] = true;
                    path.push((to, targets(to)));
                } else if !finished[to] {
                    walk.has_loop = true;
                }
            }
        }
        walk
    }
}

struct DepthFirst {
    /// Each node after all nodes that it leads to, loops cut.
    order: Vec<usize>,
    has_loop: bool,
}

/// What a subschema is applied to.
#[derive(Clone, Copy)]
enum Instance<'v> {
    Value(&'v Value),
    Name(&'v str),
}

struct Charge<'a> {
    nodes: &'a [Node],
    budget: &'a mut u64,
}

impl Charge<'_> {
    /// Subtracts the work of applying node `at`. `times` is how often the validator repeats it, `nested` its recursion
    /// depth.
    fn apply(&mut self, at: usize, given: Instance<'_>, times: u64, nested: usize) -> Result<(), TooExpensive> {
        if nested > NESTED_MAX {
            return Err(TooExpensive::Work);
        }
        let node = &self.nodes[at];
        let weight = &node.weight;
        self.spend(times, KEYWORD.saturating_mul(weight.keywords))?;
        match given {
            Instance::Name(text) => self.text(weight, text, times)?,
            Instance::Value(Value::String(text)) => self.text(weight, text, times)?,
            Instance::Value(Value::Array(items)) if weight.has_unique_items => {
                let comparisons = COMPARISON.saturating_mul(items.len() as u64);
                self.spend(times, comparisons.saturating_mul(comparison_len(items)))?;
            }
            Instance::Value(Value::Object(members)) => {
                self.spend(times, weight.member.saturating_mul(members.len() as u64))?;
                if weight.name_byte > 0 {
                    let names: u64 = members.keys().map(|name| name.len() as u64).sum();
                    self.spend(times, weight.name_byte.saturating_mul(names))?;
                }
            }
            Instance::Value(Value::Number(number)) if weight.has_multiple_of => {
                if number.as_f64().is_none_or(|number| number.abs() > DIVIDEND_MAX) {
                    return Err(TooExpensive::Number);
                }
            }
            Instance::Value(_) => {}
        }
        let times = times.saturating_mul(node.repeat_factor());
        for &(edge, to) in &node.edges {
            match (edge, given) {
                (Edge::SameValue, given) => self.apply(to, given, times, nested + 1)?,
                (Edge::Items, Instance::Value(Value::Array(items))) => {
                    for item in items {
                        self.apply(to, Instance::Value(item), times, nested + 1)?;
                    }
                }
                (Edge::Members, Instance::Value(Value::Object(members))) => {
                    for member in members.values() {
                        self.apply(to, Instance::Value(member), times, nested + 1)?;
                    }
                }
                (Edge::Names, Instance::Value(Value::Object(members))) => {
                    for name in members.keys() {
                        self.apply(to, Instance::Name(name), times, nested + 1)?;
                    }
                }
                _ => {}
            }
        }
        if let Instance::Value(Value::Object(members)) = given
            && !node.named.is_empty()
        {
            self.spend(times, KEYWORD * members.len().min(node.named.len()) as u64)?;
            self.named(node, members, times, nested)?;
        }
        Ok(())
    }

    fn named(
        &mut self,
        node: &Node,
        members: &serde_json::Map<String, Value>,
        times: u64,
        nested: usize,
    ) -> Result<(), TooExpensive> {
        if members.len() < node.named.len() {
            for (name, value) in members {
                if let Ok(found) = node.named.binary_search_by(|(own, _)| (**own).cmp(name)) {
                    self.apply(node.named[found].1, Instance::Value(value), times, nested + 1)?;
                }
            }
        } else {
            for (name, to) in &node.named {
                if let Some(value) = members.get(&**name) {
                    self.apply(*to, Instance::Value(value), times, nested + 1)?;
                }
            }
        }
        Ok(())
    }

    fn text(&mut self, weight: &Weight, text: &str, times: u64) -> Result<(), TooExpensive> {
        self.spend(times, weight.string_byte.saturating_mul(text.len() as u64))
    }

    fn spend(&mut self, times: u64, work: u64) -> Result<(), TooExpensive> {
        spend(self.budget, work.saturating_mul(times))
    }
}

/// The values in an array at any depth, plus one for each 8 bytes of text: what a comparison may look at.
fn comparison_len(items: &[Value]) -> u64 {
    items.iter().fold(0, |sum, item| {
        sum + 1
            + match item {
                Value::Array(items) => comparison_len(items),
                Value::Object(members) => members
                    .iter()
                    .map(|(name, value)| 1 + name.len() as u64 / 8 + comparison_len(std::slice::from_ref(value)))
                    .sum(),
                Value::String(text) => text.len() as u64 / 8,
                _ => 0,
            }
    })
}

#[cfg(test)]
mod tests;
