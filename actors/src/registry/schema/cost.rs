//! How much work a schema can cause, from who applies whom.
//!
//! The validator walks references as a tree, so a handful of definitions that each refer twice to the next are 2^n
//! subschemas to it. It remembers results in some loops of references and not in others (measured: twelve definitions
//! kept it busy for minutes with a payload of 700 bytes), so nothing here relies on that memory: the work is counted
//! by dynamic programming, for the schema when it is registered and for a payload, by its depth, before it is checked.

use crate::model::BrokerError;

use super::intake::refuse;

/// Keywords and enumerated alternatives after following every reference, loops once.
pub(super) const EXPANDED_MAX: u64 = 100_000;
/// Subschemas within one another while a value is checked; the validator recurses. Measured: 2600 fit a thread's 2 MiB
/// in a debug build, more in a release build, and an overflow cannot be caught.
const NESTED_MAX: u64 = 1024;
/// `serde_json` reads no deeper.
const PAYLOAD_DEPTH_MAX: usize = 128;

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

impl Node {
    /// The cost of the node, when `of` is the cost of what an edge leads to.
    fn cost(&self, together: impl Fn(Edge) -> bool, of: impl Fn(Edge, usize) -> u64) -> u64 {
        let (mut all, mut dearest) = (0_u64, 0_u64);
        for &(edge, to) in &self.edges {
            let one = of(edge, to);
            if together(edge) {
                all = all.saturating_add(one);
            } else {
                dearest = dearest.max(one);
            }
        }
        // Measured: a schema with unevaluated* costs its subschemas about 2.5 times.
        let times = if self.rechecks { 3 } else { 1 };
        all.saturating_add(dearest)
            .saturating_mul(times)
            .saturating_add(self.weight)
    }
}

/// What a schema can cost.
#[derive(Debug)]
pub(super) struct Cost {
    /// By depth of the payload: most work for one of its values together with all that the value is in. It grows
    /// with depth only where references recur.
    per_value: Vec<u64>,
}

impl Cost {
    /// Upper bound of the keywords applied to a payload of so many bytes, nested so deep. The largest number where it
    /// would take too much stack.
    pub fn of_payload(&self, len: usize, depth: usize) -> u64 {
        let last = self.per_value.len() - 1;
        self.per_value[depth.min(last)].saturating_mul(len as u64)
    }
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

    /// Of the schema that was added first.
    ///
    /// # Errors
    /// `invalid_schema` for a loop of references that consumes nothing, or for too much work.
    pub fn cost(&self) -> Result<Cost, BrokerError> {
        let in_place = self.walk(|edge| edge == Edge::InPlace);
        if in_place.loops {
            return refuse("references lead in a circle without ever looking at a member of the value");
        }
        let expanded = self.expanded();
        if expanded > EXPANDED_MAX {
            return refuse(format!(
                "more than {EXPANDED_MAX} keywords with its references followed"
            ));
        }
        let per_value = self.per_value(&in_place);
        if per_value[0] == u64::MAX {
            return refuse(format!("more than {NESTED_MAX} references after one another"));
        }
        Ok(Cost { per_value })
    }

    fn expanded(&self) -> u64 {
        let walk = self.walk(|_| true);
        let mut costs = vec![0; self.nodes.len()];
        for &at in &walk.order {
            let of = |_, to| if walk.is_back(at, to) { 0 } else { costs[to] };
            costs[at] = self.nodes[at].cost(|_| true, of);
        }
        costs[0]
    }

    /// Both tables by dynamic programming over the depth of the payload: a value of depth n applies to its members what
    /// is known for n - 1.
    fn per_value(&self, in_place: &Walk) -> Vec<u64> {
        let mut by_depth = Vec::new();
        let (mut above, mut nested_above) = (vec![0; self.nodes.len()], vec![0; self.nodes.len()]);
        for _ in 0..=PAYLOAD_DEPTH_MAX {
            let mut costs = vec![0; self.nodes.len()];
            let mut nested = vec![0; self.nodes.len()];
            for &at in &in_place.order {
                let of = |edge, to: usize| if edge == Edge::InPlace { costs[to] } else { above[to] };
                costs[at] = self.nodes[at].cost(|edge| edge != Edge::Property, of);
                let of = |&(edge, to): &(Edge, usize)| {
                    if edge == Edge::InPlace {
                        nested[to]
                    } else {
                        nested_above[to]
                    }
                };
                nested[at] = 1 + self.nodes[at].edges.iter().map(of).max().unwrap_or(0);
            }
            by_depth.push(if nested[0] > NESTED_MAX { u64::MAX } else { costs[0] });
            if costs == above && nested == nested_above {
                break;
            }
            (above, nested_above) = (costs, nested);
        }
        by_depth
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
    /// Whether the edge closes a loop: its target was not finished when it was read.
    fn is_back(&self, from: usize, to: usize) -> bool {
        self.finished[to] >= self.finished[from]
    }
}
