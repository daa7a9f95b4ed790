//! A line of the report: a figure without the gateway and through it.

use super::Row;
use crate::{report::Figure, workloads::median};

/// The way through this broker.
const OURS: &str = "mcp-broker";

/// A figure of all rounds.
pub struct Comparison {
    row: String,
    way: String,
    figure: &'static str,
    /// Without the gateway; empty where there is no such thing.
    direct: Vec<f64>,
    through: Vec<f64>,
    goal: Goal,
}

/// What the figure should be.
#[derive(Clone, Copy)]
pub enum Goal {
    None,
    AddedAtMost(f64),
    RatioAtMost(f64),
    RatioAtLeast(f64),
    /// Of the figure through the gateway.
    AtMost(f64),
}

impl Comparison {
    /// The figure names its unit.
    pub fn new(row: Row, figure: &'static str, direct: Vec<f64>, through: Vec<f64>) -> Self {
        Self {
            row: row.name().to_owned(),
            way: OURS.to_owned(),
            figure,
            direct,
            through,
            goal: Goal::None,
        }
    }

    /// The same of another way.
    pub fn by(mut self, way: &str) -> Self {
        way.clone_into(&mut self.way);
        self
    }

    /// The same of a part of the row.
    pub fn of(mut self, part: &str) -> Self {
        self.row = format!("{} {part}", self.row);
        self
    }

    pub fn aims_at(mut self, goal: Goal) -> Self {
        self.goal = goal;
        self
    }

    /// The medians of the rounds. What was added, and the ratio, are medians of what they are in each round.
    pub fn fields(&self) -> Vec<(&'static str, Figure)> {
        let through = median(self.through.clone());
        let of_rounds = |of: fn((&f64, &f64)) -> f64| {
            let pairs = self.direct.iter().zip(&self.through);
            (!self.direct.is_empty()).then(|| median(pairs.map(of).collect()))
        };
        let direct = of_rounds(|(direct, _)| *direct);
        let added = of_rounds(|(direct, through)| through - direct);
        let ratio = of_rounds(|(direct, through)| through / direct).filter(|ratio| ratio.is_finite());
        let added_or = added.unwrap_or(f64::NAN);
        let ratio_or = ratio.unwrap_or(f64::NAN);
        let (goal, is_within) = match self.goal {
            Goal::None => (Figure::Absent, Figure::Absent),
            Goal::AddedAtMost(most) => (format!("added <= {most}").into(), (added_or <= most).into()),
            Goal::RatioAtMost(most) => (format!("ratio <= {most}").into(), (ratio_or <= most).into()),
            Goal::RatioAtLeast(least) => (format!("ratio >= {least}").into(), (ratio_or >= least).into()),
            Goal::AtMost(most) => (format!("through <= {most}").into(), (through <= most).into()),
        };
        vec![
            ("row", self.row.as_str().into()),
            ("way", self.way.as_str().into()),
            ("figure", self.figure.into()),
            ("direct", direct.into()),
            ("through", through.into()),
            ("added", added.into()),
            ("ratio", ratio.into()),
            ("goal", goal),
            ("within", is_within),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_the_median_of_the_rounds() {
        let found = Comparison::new(Row::Stdio, "p50_us", vec![10.0, 20.0, 100.0], vec![15.0, 26.0, 107.0]);
        let json = |comparison: &Comparison, key: &str| {
            let fields = comparison.fields();
            let (_, figure) = fields.iter().find(|(name, _)| *name == key).unwrap();
            figure.json()
        };
        assert_eq!(
            (json(&found, "direct"), json(&found, "added")),
            (20.0.into(), 6.0.into())
        );
        assert_eq!(json(&found, "within"), serde_json::Value::Null);
        let found = found.aims_at(Goal::AddedAtMost(5.0));
        assert_eq!(json(&found, "within"), false);
        let alone = Comparison::new(Row::Idle, "kib", vec![], vec![3.0]).aims_at(Goal::AtMost(3.0));
        assert_eq!(json(&alone, "within"), true);
        assert_eq!(json(&alone, "ratio"), serde_json::Value::Null);
    }
}
