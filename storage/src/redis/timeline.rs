//! What this replica has seen of the data set of each project. The functions compare it and find out when Redis came
//! back with older data (`scripts/timeline.lua`); this file counts such losses, `pipeline/losses.rs` reports them.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use actors::{locked::Locked, model::ProjectId, storage::StoreEpoch};
use deadpool_redis::redis::{Cmd, Value};

use super::{error::Failure, reply::into_bytes};

/// How long `/health` shows a loss.
const LOSS_SHOWN_FOR: Duration = Duration::from_mins(10);
/// Most projects that a line of the log names.
const NAMED_MAX: usize = 10;

/// A position on a timeline, as the functions return it: `EPOCH TIMELINE POSITION`. An epoch is `NUMBER-TOKEN`; the
/// token begins with the id of the replica whose batch began the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Witness {
    /// `EPOCH TIMELINE`; empty while nothing is known.
    tokens: String,
    position: u64,
}

/// What a reply says about the data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observation {
    /// It is the known one, or the first.
    Same,
    /// It has gone back.
    Lost,
    /// The reply is older than what is known already.
    Stale,
}

impl Witness {
    fn parse(text: &str) -> Option<Self> {
        let (tokens, position) = text.rsplit_once(' ')?;
        let (epoch, _) = tokens.split_once(' ')?;
        epoch_number(epoch)?;
        Some(Self {
            tokens: tokens.to_owned(),
            position: position.parse().ok()?,
        })
    }

    /// # Errors
    /// `Unexpected` when the reply has no witness.
    pub fn of(told: Value) -> Result<Self, Failure> {
        let text = into_bytes(told).ok().and_then(|text| String::from_utf8(text).ok());
        let witness = text.as_deref().and_then(Self::parse);
        witness.ok_or_else(|| Failure::Unexpected("Redis did not say which data set it has".to_owned()))
    }

    /// Takes over what a batch has seen.
    pub fn observe(&mut self, told: Self) -> Observation {
        if self.tokens.is_empty() || self.epoch() == told.epoch() {
            // Replies of one connection come in the order of their batches.
            if self.tokens != told.tokens || self.position < told.position {
                *self = told;
            }
            return Observation::Same;
        }
        if epoch_number(told.epoch()) <= epoch_number(self.epoch()) {
            return Observation::Stale;
        }
        *self = told;
        Observation::Lost
    }

    /// Whether a batch of this replica began the epoch: it was the first to notice the loss.
    pub fn is_begun_by(&self, replica: &str) -> bool {
        let token = self.epoch().split_once('-').map(|(_, token)| token);
        token.is_some_and(|token| token.starts_with(replica))
    }

    /// Adds the witness to the arguments of a call.
    pub fn write(&self, command: &mut Cmd) {
        command.arg(&self.tokens).arg(self.position);
    }

    fn epoch(&self) -> &str {
        self.tokens.split_once(' ').map_or("", |(epoch, _)| epoch)
    }
}

fn epoch_number(epoch: &str) -> Option<u64> {
    epoch.split_once('-')?.0.parse().ok()
}

/// The losses of data that this process has noticed.
#[derive(Debug, Default)]
pub(super) struct DataLosses {
    count: AtomicU64,
    log: Locked<LossLog>,
}

#[derive(Debug, Default)]
struct LossLog {
    /// Projects since the last line of the log.
    unlogged: HashSet<ProjectId>,
    last: Option<(Instant, usize)>,
}

impl DataLosses {
    /// The current epoch of the store.
    pub fn epoch(&self) -> StoreEpoch {
        StoreEpoch(self.count.load(Ordering::Acquire))
    }

    /// Begins the epoch after one more loss.
    pub fn begin_epoch(&self) -> StoreEpoch {
        StoreEpoch(self.count.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Notes the loss of a project. True for the first since the last line of the log.
    pub fn record(&self, project: &ProjectId) -> bool {
        let mut told = self.log.lock();
        let is_first = told.unlogged.is_empty();
        told.unlogged.insert(project.clone());
        told.last = Some((Instant::now(), told.unlogged.len()));
        is_first
    }

    /// The number of projects that have not been logged yet, and their names.
    pub fn take_unlogged(&self) -> (usize, String) {
        let mut names: Vec<_> = std::mem::take(&mut self.log.lock().unlogged).into_iter().collect();
        names.sort_unstable();
        let shown: Vec<_> = names.iter().take(NAMED_MAX).map(ProjectId::as_str).collect();
        let more = if names.len() > shown.len() { ", ..." } else { "" };
        (names.len(), format!("{}{more}", shown.join(", ")))
    }

    /// The text for `/health`; None when no loss is recent.
    pub fn recent(&self) -> Option<String> {
        let (at, projects) = self.log.lock().last?;
        let ago = at.elapsed();
        (ago < LOSS_SHOWN_FOR).then(|| {
            let seconds = ago.as_secs();
            format!(
                "Redis came back with older data {seconds} s ago; projects that were opened again from it: {projects}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(text: &str) -> Witness {
        Witness::parse(text).unwrap()
    }

    #[test]
    fn an_epoch_with_a_higher_number_is_a_loss() {
        let mut known = Witness::default();
        assert_eq!(known.observe(witness("3-a.1 a.1 7")), Observation::Same);
        assert_eq!(known.observe(witness("3-a.1 b.9 8")), Observation::Same);
        assert_eq!(known.observe(witness("4-b.2 b.2 2")), Observation::Lost);
        assert_eq!(known, witness("4-b.2 b.2 2"));
    }

    #[test]
    fn a_late_reply_changes_nothing() {
        let mut known = witness("4-b.2 b.2 2");
        for late in ["3-a.1 a.1 900", "4-c.2 c.2 900"] {
            assert_eq!(known.observe(witness(late)), Observation::Stale);
        }
        assert_eq!(known.observe(witness("4-b.2 b.2 1")), Observation::Same);
        assert_eq!(known, witness("4-b.2 b.2 2"));
    }

    #[test]
    fn a_malformed_witness_is_refused() {
        for text in ["", "1-a", "1-a b", "1-a b c", "a b 1", "x-a b 1"] {
            assert_eq!(Witness::parse(text), None, "{text}");
        }
        assert!(witness("1-a.7 b.1 0").is_begun_by("a") && !witness("1-a.7 b.1 0").is_begun_by("b"));
    }

    #[test]
    fn losses_at_the_same_time_are_logged_in_one_line() {
        let losses = DataLosses::default();
        let projects: Vec<_> = (0..12)
            .map(|at| ProjectId::parse(&format!("p{at:02}")).unwrap())
            .collect();
        let first: Vec<_> = projects.iter().map(|project| losses.record(project)).collect();
        assert_eq!(first.iter().filter(|is_first| **is_first).count(), 1);
        let (len, names) = losses.take_unlogged();
        assert_eq!(len, 12);
        assert!(names.starts_with("p00, p01") && names.ends_with("p09, ..."), "{names}");
        assert!(losses.recent().unwrap().ends_with(": 12"));
        assert!(losses.record(&projects[0]));
    }
}
