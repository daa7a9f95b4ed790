//! The series of the last hour, as `GET /api/v1/stats?window=1h&step=10s` shows them.

use std::collections::BTreeMap;

use answer::answer;

/// Seconds between two points that are kept.
pub const STEP_SECONDS: u64 = 10;
/// Seconds for which points are kept.
pub const WINDOW_SECONDS: u64 = 3600;

/// Points of several figures at the same moments. A step begins at a multiple of its length since the Unix epoch, so that
/// those of all replicas coincide.
#[answer(lenient)]
pub struct Series {
    pub step_seconds: u64,
    /// The end of the first step, in seconds since the Unix epoch.
    pub from: u64,
    /// The points of each figure, oldest first; null where no replica has one. Counters have what was added in the step,
    /// and gauges their value at its end (of several steps in one: the largest).
    #[schema(value_type = Object)]
    pub points: BTreeMap<String, Vec<Option<f64>>>,
}

/// How the points of a figure are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Added in a step: points of several steps and of several replicas are added.
    Count,
    /// Measured by each replica for itself: points of replicas are added.
    Own,
    /// Seen by every replica: the largest holds.
    Shared,
}

/// The figures of a series in the order in which the sampler keeps them.
pub const FIGURES: &[(&str, Combine)] = &[
    ("messages_received", Combine::Count),
    ("messages_accepted", Combine::Count),
    ("messages_refused", Combine::Count),
    ("messages_delivered", Combine::Count),
    ("messages_acknowledged", Combine::Count),
    ("messages_dead_lettered", Combine::Count),
    ("sessions_active", Combine::Shared),
    ("messages_waiting", Combine::Shared),
    ("inbox_longest", Combine::Shared),
    ("connections", Combine::Own),
    ("cpu_seconds", Combine::Count),
    ("resident_bytes", Combine::Own),
];

fn combine_of(figure: &str) -> Combine {
    let known = FIGURES.iter().find(|(name, _)| *name == figure);
    known.map_or(Combine::Own, |(_, combine)| *combine)
}

impl Series {
    /// Adds the series of another replica. Its points are aligned by time; a series with another step is ignored.
    pub fn merge(&mut self, other: &Self) {
        if self.points.is_empty() {
            *self = other.clone();
            return;
        }
        if other.points.is_empty() || other.step_seconds != self.step_seconds || self.step_seconds == 0 {
            return;
        }
        let from = self.from.min(other.from);
        let end = self.end().max(other.end());
        let len = usize::try_from((end - from) / self.step_seconds).unwrap_or(0);
        if len as u64 > 2 * WINDOW_SECONDS {
            // The clock of the other replica is far off: its points do not belong to this time.
            return;
        }
        let own_offset = ((self.from - from) / self.step_seconds) as usize;
        let other_offset = ((other.from - from) / self.step_seconds) as usize;
        for figure in other.points.keys() {
            self.points.entry(figure.clone()).or_default();
        }
        for (figure, points) in &mut self.points {
            let mut merged = vec![None; len];
            for (place, point) in merged[own_offset..].iter_mut().zip(points.iter()) {
                *place = *point;
            }
            for (place, point) in merged[other_offset..]
                .iter_mut()
                .zip(other.points.get(figure).into_iter().flatten())
            {
                *place = match (*place, *point) {
                    (Some(one), Some(two)) if combine_of(figure) == Combine::Shared => Some(f64::max(one, two)),
                    (Some(one), Some(two)) => Some(one + two),
                    (one, two) => one.or(two),
                };
            }
            *points = merged;
        }
        self.from = from;
    }

    /// The moment one step after the last point.
    fn end(&self) -> u64 {
        let len = self.points.values().map(Vec::len).max().unwrap_or(0);
        self.from + len as u64 * self.step_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(from: u64, points: &[(&str, &[f64])]) -> Series {
        let points = points.iter().map(|(figure, points)| {
            let points = points.iter().map(|point| Some(*point)).collect();
            ((*figure).to_owned(), points)
        });
        Series {
            step_seconds: 10,
            from,
            points: points.collect(),
        }
    }

    #[test]
    fn points_of_replicas_are_aligned_by_time() {
        let mut one = series(
            100,
            &[("messages_accepted", &[1.0, 2.0]), ("sessions_active", &[5.0, 5.0])],
        );
        let other = series(
            110,
            &[("messages_accepted", &[10.0, 20.0]), ("sessions_active", &[4.0, 6.0])],
        );
        one.merge(&other);
        assert_eq!(one.from, 100);
        assert_eq!(one.points["messages_accepted"], [Some(1.0), Some(12.0), Some(20.0)]);
        assert_eq!(one.points["sessions_active"], [Some(5.0), Some(5.0), Some(6.0)]);
    }

    #[test]
    fn a_series_of_another_time_or_step_changes_nothing() {
        let before = series(1_000_000, &[("connections", &[1.0])]);
        let mut merged = before.clone();
        merged.merge(&series(10, &[("connections", &[7.0])]));
        merged.merge(&Series {
            step_seconds: 20,
            ..before.clone()
        });
        merged.merge(&Series::default());
        assert_eq!(merged, before);
    }
}
