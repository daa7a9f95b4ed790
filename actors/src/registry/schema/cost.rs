//! How much work a schema can cause, from who applies whom.
//!
//! The validator walks references as a tree, so a handful of definitions that each refer twice to the next are
//! 2^n subschemas to it. (A `$ref` back into what is being validated is different: its result is kept per value, so
//! a loop counts once.) Counted here by dynamic programming instead of being found out in production.

use crate::model::BrokerError;

use super::intake::refuse;

/// Keywords and enumerated alternatives after following every reference, loops once.
pub(super) const EXPANDED_MAX: u64 = 100_000;
/// The same for a schema that refers back to itself, whose expansion can recur at every level of a payload.
pub(super) const EXPANDED_RECURSIVE_MAX: u64 = 16_000;

/// How a subschema is applied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    /// To the same value.
    InPlace,
    /// To one member of the value, which no sibling of this kind applies to.
    Property,
    /// To members of the value, which siblings may apply to as well.
    Overlapping,
}

#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
}

struct Node {
    weight: u64,
    rechecks: bool,
    edges: Vec<(Edge, usize)>,
}

/// What a schema can cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Its size with every reference followed, loops once.
    pub expanded: u64,
    /// Most work that concerns any one value of a payload, per turn of a loop.
    pub per_value: u64,
    /// How often a loop can be entered again per turn, for the same value. Above 1 the validator's memory of
    /// results is what keeps validation from growing exponentially with depth; it has none when listing failures.
    pub loops: u64,
}

impl Graph {
    pub fn add(&mut self, weight: u64, rechecks: bool) -> usize {
        self.nodes.push(Node {
            weight,
            rechecks,
            edges: Vec::new(),
        });
        self.nodes.len() - 1
    }

    pub fn connect(&mut self, from: usize, edge: Edge, to: usize) {
        self.nodes[from].edges.push((edge, to));
    }

    /// # Errors
    /// `invalid_schema` for a loop of references that consumes nothing, or for too much work.
    pub fn cost(mut self) -> Result<Cost, BrokerError> {
        if self.walk(|edge| edge == Edge::InPlace).has_loop() {
            return refuse("references lead in a circle without ever looking at a member of the value");
        }
        // Where a loop is cut depends on where one begins to read it; the dearer of two readings counts.
        let forward = self.cost_as_read();
        for node in &mut self.nodes {
            node.edges.reverse();
        }
        let backward = self.cost_as_read();
        let cost = Cost {
            expanded: forward.expanded.max(backward.expanded),
            per_value: forward.per_value.max(backward.per_value),
            loops: forward.loops.max(backward.loops),
        };
        let limit = if cost.loops > 0 {
            EXPANDED_RECURSIVE_MAX
        } else {
            EXPANDED_MAX
        };
        if cost.expanded > limit {
            return refuse(format!(
                "with its references followed it has {} keywords, more than {limit}",
                if cost.expanded == u64::MAX {
                    "far too many".to_owned()
                } else {
                    cost.expanded.to_string()
                }
            ));
        }
        Ok(cost)
    }

    fn cost_as_read(&self) -> Cost {
        let walk = self.walk(|_| true);
        let mut costs = vec![Cost::default(); self.nodes.len()];
        let mut loops_max = 0;
        for &at in &walk.order {
            costs[at] = self.cost_of(at, &walk, &costs);
            loops_max = loops_max.max(costs[at].loops);
        }
        Cost {
            loops: loops_max,
            ..costs[0]
        }
    }

    fn cost_of(&self, at: usize, walk: &Walk, costs: &[Cost]) -> Cost {
        let node = &self.nodes[at];
        let (mut all, mut dearest) = (Cost::default(), Cost::default());
        for &(edge, to) in &node.edges {
            let one = if walk.is_back(at, to) {
                Cost {
                    loops: 1,
                    ..Cost::default()
                }
            } else {
                costs[to]
            };
            all.expanded = all.expanded.saturating_add(one.expanded);
            if edge == Edge::Property {
                dearest.per_value = dearest.per_value.max(one.per_value);
                dearest.loops = dearest.loops.max(one.loops);
            } else {
                all.per_value = all.per_value.saturating_add(one.per_value);
                all.loops = all.loops.saturating_add(one.loops);
            }
        }
        // Measured: a schema with unevaluated* costs its subschemas about 2.5 times.
        let times = if node.rechecks { 3 } else { 1 };
        let sum = |a: u64, b: u64| a.saturating_add(b).saturating_mul(times);
        Cost {
            expanded: sum(all.expanded, 0).saturating_add(node.weight),
            per_value: sum(all.per_value, dearest.per_value).saturating_add(node.weight),
            loops: sum(all.loops, dearest.loops),
        }
    }

    /// Depth first along the edges that `along` admits, from every node, the root first. Iterative: a chain of
    /// references is as long as the schema.
    fn walk(&self, along: impl Fn(Edge) -> bool) -> Walk {
        let mut walk = Walk {
            order: Vec::with_capacity(self.nodes.len()),
            finished: vec![0; self.nodes.len()],
            loops: false,
        };
        let mut entered = vec![false; self.nodes.len()];
        let mut path: Vec<(usize, usize)> = Vec::new();
        for start in 0..self.nodes.len() {
            if !entered[start] {
                entered[start] = true;
                path.push((start, 0));
            }
            while let Some((at, next)) = path.last_mut() {
                let Some(&(edge, to)) = self.nodes[*at].edges.get(*next) else {
                    walk.order.push(*at);
                    walk.finished[*at] = walk.order.len();
                    path.pop();
                    continue;
                };
                *next += 1;
                if !along(edge) {
                    continue;
                }
                if !entered[to] {
                    entered[to] = true;
                    path.push((to, 0));
                } else if walk.finished[to] == 0 {
                    walk.loops = true;
                }
            }
        }
        walk
    }
}

struct Walk {
    /// Every node after all that it leads to, loops cut.
    order: Vec<usize>,
    /// Place in `order`, from 1.
    finished: Vec<usize>,
    loops: bool,
}

impl Walk {
    fn has_loop(&self) -> bool {
        self.loops
    }

    /// Whether the edge closes a loop: its target was not finished when it was read.
    fn is_back(&self, from: usize, to: usize) -> bool {
        self.finished[to] >= self.finished[from]
    }
}
