//! The samples of the last hour: one for each step of the whole broker and of each project that is shown by name.
//!
//! A project takes 360 samples of 12 numbers of 4 bytes: about 17 KiB. With 50 projects all take less than 1 MiB.

use std::collections::{HashMap, VecDeque};

use actors::{metrics::MessageCounts, model::ProjectId, project::ProjectFigures};
use rest::{
    series::{Combine, FIGURES, STEP_SECONDS, Series, WINDOW_SECONDS},
    stats::ProcessStats,
};

/// Figures that no project has.
const OF_PROCESS: [&str; 2] = ["cpu_seconds", "resident_bytes"];

const SAMPLES_MAX: usize = (WINDOW_SECONDS / STEP_SECONDS) as usize;

/// The figures of one moment in the order of [`FIGURES`]. Counters are totals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point([f64; FIGURES.len()]);

#[allow(clippy::cast_precision_loss, reason = "counts fit into 52 bits")]
impl Point {
    /// The counters of messages.
    pub fn of_counts(counts: &MessageCounts) -> Self {
        let mut point = Self::default();
        let counters = [
            counts.received,
            counts.accepted,
            counts.refused,
            counts.delivered,
            counts.acknowledged,
            counts.dead_lettered.total(),
        ];
        for (place, count) in point.0.iter_mut().zip(counters) {
            *place = count as f64;
        }
        point
    }

    /// Adds the figures of a project.
    pub fn add_figures(&mut self, figures: &ProjectFigures, connections: usize) {
        let [.., active, waiting, longest, live, _, _] = &mut self.0;
        *active += figures.active as f64;
        *waiting += figures.waiting as f64;
        *longest = longest.max(figures.longest as f64);
        *live += connections as f64;
    }

    /// Adds what the process uses.
    pub fn add_process(&mut self, process: &ProcessStats) {
        let [.., cpu, resident] = &mut self.0;
        (*cpu, *resident) = (process.cpu_seconds, process.resident_bytes as f64);
    }
}

/// The samples of one project, or of the broker.
#[derive(Debug, Default)]
struct Samples {
    /// Oldest first, one for each step; not a number where the sampler was late.
    points: VecDeque<[f32; FIGURES.len()]>,
    /// The step of the last point.
    last_step: u64,
    /// The totals at the last point.
    totals: Point,
}

impl Samples {
    /// Adds a point. `since_zero` says that the counters were zero at the beginning of its step, if it is the first.
    fn push(&mut self, step: u64, point: Point, since_zero: bool) {
        let is_first = self.points.is_empty();
        if !is_first && step <= self.last_step {
            // The wall clock went back: a little, or to another time, where the points begin again.
            if self.last_step - step > SAMPLES_MAX as u64 {
                *self = Self::default();
                self.push(step, point, false);
            }
            return;
        }
        let missed = if is_first { 0 } else { step - self.last_step - 1 };
        for _ in 0..missed.min(SAMPLES_MAX as u64) {
            self.push_values([f32::NAN; FIGURES.len()]);
        }
        let mut values = [0.0; FIGURES.len()];
        for (at, (_, combine)) in FIGURES.iter().enumerate() {
            let value = match combine {
                Combine::Count if is_first && !since_zero => f64::NAN,
                // The totals are zero before the first point.
                Combine::Count => (point.0[at] - self.totals.0[at]).max(0.0),
                Combine::Own | Combine::Shared => point.0[at],
            };
            values[at] = value as f32;
        }
        self.push_values(values);
        (self.last_step, self.totals) = (step, point);
    }

    fn push_values(&mut self, values: [f32; FIGURES.len()]) {
        if self.points.len() == SAMPLES_MAX {
            self.points.pop_front();
        }
        self.points.push_back(values);
    }

    /// The points of the last steps, `group` of them in one.
    fn series(&self, steps: usize, group: usize) -> Series {
        let group = group.clamp(1, SAMPLES_MAX);
        let len = self.points.len() as u64;
        let end = self.last_step + 1;
        // Groups begin at multiples of their length, so that those of all replicas coincide.
        let first = (end - len).max(end.saturating_sub(steps as u64));
        let first_group = first / group as u64;
        let groups = usize::try_from(end.div_ceil(group as u64) - first_group).unwrap_or(0);
        let mut series = Series {
            step_seconds: group as u64 * STEP_SECONDS,
            from: (first_group + 1) * group as u64 * STEP_SECONDS,
            ..Series::default()
        };
        for (at, (figure, combine)) in FIGURES.iter().enumerate() {
            let mut points = vec![None; groups];
            for (step, values) in (end - len..end).zip(&self.points).filter(|(step, _)| *step >= first) {
                let value = f64::from(values[at]);
                if value.is_nan() {
                    continue;
                }
                let place: &mut Option<f64> = &mut points[(step / group as u64 - first_group) as usize];
                *place = Some(match (*place, combine) {
                    (None, _) => value,
                    (Some(before), Combine::Count) => before + value,
                    (Some(before), Combine::Own | Combine::Shared) => before.max(value),
                });
            }
            series.points.insert((*figure).to_owned(), points);
        }
        series
    }
}

/// The samples of the broker and of the projects that are shown by name.
#[derive(Debug, Default)]
pub struct History {
    total: Samples,
    projects: HashMap<ProjectId, Samples>,
    /// There was a sample: the counters of the first one began with the process.
    has_begun: bool,
}

impl History {
    /// Adds a sample at this time of the wall clock. Projects without a point are forgotten.
    pub fn push(&mut self, unix_seconds: u64, total: Point, projects: Vec<(ProjectId, Point)>) {
        let step = unix_seconds / STEP_SECONDS;
        let since_zero = !std::mem::replace(&mut self.has_begun, true);
        self.total.push(step, total, since_zero);
        let mut before = std::mem::take(&mut self.projects);
        for (id, point) in projects {
            let mut samples = before.remove(&id).unwrap_or_default();
            samples.push(step, point, since_zero);
            self.projects.insert(id, samples);
        }
    }

    /// The series of a project, or (None) of the broker; empty for a project that is not shown by name.
    pub fn series(&self, project: Option<&ProjectId>, window_seconds: u64, step_seconds: u64) -> Series {
        let samples = match project {
            None => Some(&self.total),
            Some(id) => self.projects.get(id),
        };
        let steps = window_seconds.min(WINDOW_SECONDS).div_ceil(STEP_SECONDS) as usize;
        let group = step_seconds.min(WINDOW_SECONDS).div_ceil(STEP_SECONDS) as usize;
        match samples {
            Some(samples) if !samples.points.is_empty() => {
                let mut series = samples.series(steps, group);
                if project.is_some() {
                    series.points.retain(|figure, _| !OF_PROCESS.contains(&figure.as_str()));
                }
                series
            }
            _ => Series {
                step_seconds: group.max(1) as u64 * STEP_SECONDS,
                ..Series::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(accepted: u64, active: usize) -> Point {
        let mut point = Point::of_counts(&MessageCounts {
            accepted,
            ..MessageCounts::default()
        });
        point.add_figures(
            &ProjectFigures {
                active,
                ..ProjectFigures::default()
            },
            0,
        );
        point
    }

    #[test]
    fn counters_are_shown_as_what_a_step_added_and_gauges_as_they_are() {
        let mut history = History::default();
        for (seconds, accepted, active) in [(100, 5, 1), (110, 7, 2), (130, 9, 3)] {
            history.push(seconds, point(accepted, active), Vec::new());
        }
        let series = history.series(None, 3600, 10);
        assert_eq!((series.from, series.step_seconds), (110, 10));
        let accepted = [Some(5.0), Some(2.0), None, Some(2.0)];
        assert_eq!(
            series.points["messages_accepted"], accepted,
            "the first since the start"
        );
        assert_eq!(
            series.points["sessions_active"],
            [Some(1.0), Some(2.0), None, Some(3.0)]
        );
        let coarse = history.series(None, 3600, 20);
        assert_eq!((coarse.from, coarse.step_seconds), (120, 20));
        assert_eq!(coarse.points["messages_accepted"], [Some(7.0), Some(2.0)]);
        assert_eq!(coarse.points["sessions_active"], [Some(2.0), Some(3.0)]);
        let later = ProjectId::parse("later").unwrap();
        history.push(140, point(9, 3), vec![(later.clone(), point(4, 0))]);
        let series = history.series(Some(&later), 3600, 10);
        assert_eq!(series.points["messages_accepted"], [None], "it may have counted before");
        let last = history.series(None, 10, 10);
        assert_eq!((last.from, last.points["sessions_active"].len()), (150, 1));
    }

    #[test]
    fn an_hour_is_kept_and_a_project_without_points_is_forgotten() {
        let (mut history, id) = (History::default(), ProjectId::parse("team").unwrap());
        for step in 0..1000 {
            history.push(step * STEP_SECONDS, point(step, 0), vec![(id.clone(), point(step, 0))]);
        }
        assert_eq!(
            history.series(Some(&id), 7200, 10).points["connections"].len(),
            SAMPLES_MAX
        );
        history.push(1000 * STEP_SECONDS, point(1000, 0), Vec::new());
        assert!(history.series(Some(&id), 3600, 10).points.is_empty());
        assert_eq!(history.series(None, 3600, 10).points["connections"].len(), SAMPLES_MAX);
    }

    #[test]
    fn a_clock_that_jumps_back_and_forth_adds_bounded_points() {
        let mut history = History::default();
        for seconds in [1000, 500, 1010, u64::MAX / 2, 2000] {
            history.push(seconds, point(0, 0), Vec::new());
        }
        assert!(history.total.points.len() <= SAMPLES_MAX);
        assert_eq!(history.series(None, 3600, 3600).points["connections"].len(), 1);
    }
}
