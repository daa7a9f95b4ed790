//! What a lane has seen of the data set of its project, so that the functions notice when the data set has gone back
//! (`scripts/timeline.lua`), and what follows from that.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use actors::{
    model::{AuditEntry, AuditOutcome, ProjectId},
    storage::{StoreEpoch, StoreError},
};
use deadpool_redis::redis::{Cmd, Value};

use super::{connect, error::Failure, pipeline::Pipeline, reply::into_bytes, system};

/// How long `/health` shows that Redis came back with older data.
const LOSS_SHOWN_FOR: Duration = Duration::from_mins(10);
/// Losses that are noticed within this time are told in one line of the log.
const LOSS_LOG_DELAY: Duration = Duration::from_secs(1);
/// Projects that such a line names.
const NAMED_MAX: usize = 10;

/// A position on a timeline, as the functions tell it: `EPOCH TIMELINE POSITION`. An epoch is `NUMBER-TOKEN`, and the token of
/// the epoch begins with the id of the replica whose batch began it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Witness {
    /// `EPOCH TIMELINE`; empty while nothing is known.
    tokens: String,
    position: u64,
}

/// What a lane learns from a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observation {
    /// The data set is the one that was known, or the first.
    Same,
    /// It has gone back.
    Lost,
    /// The reply is older than what is known.
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

    pub fn of(told: Value) -> Result<Self, Failure> {
        let text = into_bytes(told).ok().and_then(|text| String::from_utf8(text).ok());
        let witness = text.as_deref().and_then(Self::parse);
        witness.ok_or_else(|| Failure::Unexpected("Redis did not say which data set it has".to_owned()))
    }

    /// Takes over what a later batch has seen.
    pub fn observe(&mut self, told: Self) -> Observation {
        if self.tokens.is_empty() || self.epoch() == told.epoch() {
            // Of two batches that are under way at once the later is answered later, on one connection.
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

    /// Whether this replica has noticed the loss with which the epoch began.
    pub fn is_begun_by(&self, replica: &str) -> bool {
        let token = self.epoch().split_once('-').map(|(_, token)| token);
        token.is_some_and(|token| token.starts_with(replica))
    }

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

/// The losses that this process has noticed.
#[derive(Debug, Default)]
pub(super) struct DataLosses {
    count: AtomicU64,
    log: Mutex<LossLog>,
}

#[derive(Debug, Default)]
struct LossLog {
    /// Since the last line of the log.
    unlogged: HashSet<ProjectId>,
    last: Option<(Instant, usize)>,
}

impl DataLosses {
    pub fn epoch(&self) -> StoreEpoch {
        StoreEpoch(self.count.load(Ordering::Acquire))
    }

    /// The epoch that begins with one more.
    pub fn begin_epoch(&self) -> StoreEpoch {
        StoreEpoch(self.count.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// True for the first of those that are told together.
    pub fn record(&self, project: &ProjectId) -> bool {
        let mut told = self.lock();
        let is_first = told.unlogged.is_empty();
        told.unlogged.insert(project.clone());
        told.last = Some((Instant::now(), told.unlogged.len()));
        is_first
    }

    /// What the log says.
    pub fn take_unlogged(&self) -> (usize, String) {
        let mut names: Vec<_> = std::mem::take(&mut self.lock().unlogged).into_iter().collect();
        names.sort_unstable();
        let shown: Vec<_> = names.iter().take(NAMED_MAX).map(ProjectId::as_str).collect();
        let more = if names.len() > shown.len() { ", ..." } else { "" };
        (names.len(), format!("{}{more}", shown.join(", ")))
    }

    /// What `/health` says.
    pub fn recent(&self) -> Option<String> {
        let (at, projects) = self.lock().last?;
        let ago = at.elapsed();
        (ago < LOSS_SHOWN_FOR).then(|| {
            let seconds = ago.as_secs();
            format!(
                "Redis came back with older data {seconds} s ago; projects that were opened again from it: {projects}"
            )
        })
    }

    fn lock(&self) -> MutexGuard<'_, LossLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pipeline {
    pub(super) fn learn(self: &Arc<Self>, witness: Witness) {
        let is_first_to_notice = witness.is_begun_by(&self.client.replica.to_string());
        let void = {
            let mut queue = self.queue();
            if queue.witness.observe(witness) != Observation::Lost {
                return;
            }
            queue.reset(self.client.losses.begin_epoch())
        };
        self.local_messages.clear();
        for waiting in void {
            waiting.reply_to.send(Err(StoreError::RolledBack));
        }
        self.tell_of_loss(is_first_to_notice);
    }

    /// Every replica says so in its log, and the first to notice in the audit.
    fn tell_of_loss(&self, is_first_to_notice: bool) {
        let client = Arc::clone(&self.client);
        if client.losses.record(&self.project) {
            let client = Arc::clone(&client);
            self.client.thread.spawn(async move {
                tokio::time::sleep(LOSS_LOG_DELAY).await;
                let (projects, names) = client.losses.take_unlogged();
                tracing::warn!(
                    projects,
                    names,
                    "Redis came back with older data: these projects are opened again from what it has, and their clients have to register again"
                );
            });
        }
        if is_first_to_notice {
            let system = Arc::clone(&client);
            self.client.thread.spawn(async move {
                // What says of which version the layout is may be lost as well.
                let put = system
                    .send_one(connect::put_schema_version(), connect::SCHEMA_KEY)
                    .await;
                if let Err(error) = put {
                    tracing::warn!(%error, "the version of the layout of keys is not written until a broker starts");
                }
            });
            let now = actors::clock::now();
            let entry = AuditEntry {
                id: uuid::Uuid::now_v7(),
                at_ms: now.unix_ms,
                actor: "broker".to_owned(),
                address: None,
                project: Some(self.project.clone()),
                action: "storage.went_back".to_owned(),
                target: None,
                outcome: AuditOutcome::Done,
                code: None,
            };
            self.client.thread.spawn(async move {
                if let Err(error) = system::append_audit(client, entry).await {
                    tracing::warn!(%error, "an entry of the audit is only in the log");
                }
            });
        }
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
