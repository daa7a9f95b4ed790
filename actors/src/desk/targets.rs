//! Tells the targets of the configuration what becomes of questions.
//!
//! The event log of the project is the queue. The store records each change of a question in the operation that makes it,
//! and keeps for each target how far the log has been sent to it. So a target gets every event it wants at least once and
//! in order, also after a restart of the broker, as long as the log keeps the event.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{Presence, changes::QuestionChanges};
use crate::{
    clock::{Now, millis, now},
    metrics::METRICS,
    model::{EventKind, EventKinds, ProjectEvent},
    storage::{Before, Direction, EventPosition, EventQuery, EventStart, LoggedEvent, RecordPut, StoreError, Table},
    targets::{News, SEND_TIME_MAX, Sending, Target},
};

/// How long a replica may send to a target before another one takes over, unless it renews this.
const CLAIM_TTL: Duration = Duration::from_secs(30);
/// How long a target waits when the store fails.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// The longest sleep before a deadline: the wall clock may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(300);
/// Pauses after the first, the second, … failure in a row; the last one is repeated.
const RETRY_PAUSES: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(3_600),
];
/// Cursors that a project keeps, of targets of earlier configurations too.
const CURSORS_MAX: usize = 1_000;
/// Events that are looked at at once, and their bytes.
const SCAN_MAX: usize = 5_000;
const SCAN_BYTES_MAX: usize = 256 * 1024;

/// How far the events of a project have been sent to a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TargetCursor {
    /// The last event that was sent, or that the target does not want; None before the target was first seen.
    position: Option<EventPosition>,
    /// How often the next event could not be sent.
    failures: u32,
    /// When it is tried again, in milliseconds since the Unix epoch; 0 for at once.
    retry_at_ms: u64,
}

impl TargetCursor {
    /// Reads the record of a target; a new target has none.
    fn read(record: Option<&str>) -> Result<Self, StoreError> {
        let cursor = record.map_or_else(|| Ok(Self::default()), serde_json::from_str);
        cursor.map_err(|error| StoreError::Unreachable(format!("the cursor of a webhook cannot be read: {error}")))
    }
}

fn key_of(target: &dyn Target) -> Vec<u8> {
    target.id().as_bytes().to_vec()
}

/// What to do after the events that could be sent.
enum Next {
    /// Wait for the next change.
    Change,
    /// Look again at this time, in milliseconds since the Unix epoch.
    At(u64),
    /// More events wait.
    More,
}

impl QuestionChanges {
    /// Sends events to a target until the project ends.
    pub(super) async fn keep_target(&self, target: Arc<dyn Target>) {
        let mut changes = self.shared().watch_all();
        while !self.shared().is_closed() {
            changes.mark_unchanged();
            let next = match self.send_to(&*target).await {
                Ok(Next::More) => continue,
                Ok(Next::Change) => None,
                Ok(Next::At(at_ms)) => {
                    let pause = Duration::from_millis(at_ms.saturating_sub(now().unix_ms));
                    Some(pause.clamp(Duration::from_millis(1), SLEEP_MAX))
                }
                Err(error) => {
                    tracing::warn!(webhook = target.name(), %error, "events cannot be read from the store; retrying");
                    tokio::time::sleep(STORE_RETRY).await;
                    continue;
                }
            };
            match next {
                Some(pause) => drop(timeout(pause, changes.changed()).await),
                None => drop(changes.changed().await),
            }
        }
    }

    /// Sends the waiting events, up to the first one that cannot be sent now.
    async fn send_to(&self, target: &dyn Target) -> Result<Next, StoreError> {
        let store = self.store();
        let begun = now();
        if !self.claim(target).await? {
            return Ok(Next::At(begun.unix_ms + millis(CLAIM_TTL)));
        }
        let mut record = store.get(Table::Targets, key_of(target)).await?;
        let mut cursor = TargetCursor::read(record.as_deref())?;
        if cursor.retry_at_ms > begun.unix_ms {
            return Ok(Next::At(cursor.retry_at_ms));
        }
        let from = cursor.position.map_or(EventStart::Newest, EventStart::After);
        let page = store
            .events(EventQuery {
                from,
                direction: Direction::Forward,
                kinds: EventKinds::of(&[EventKind::Question]),
                scan_max: SCAN_MAX,
                bytes_max: SCAN_BYTES_MAX,
            })
            .await?;
        if page.gap && cursor.position.is_some() {
            tracing::warn!(
                webhook = target.name(),
                "the event log no longer has all events that had to be sent; continuing with the oldest"
            );
        }
        let stored = cursor;
        for event in &page.events {
            let next_position = Some(event.position);
            match self.send_event(target, event).await? {
                None => cursor.position = next_position,
                Some(Sending::Done) => {
                    cursor = TargetCursor {
                        position: next_position,
                        ..TargetCursor::default()
                    };
                    if !self.keep(target, cursor, &mut record).await? {
                        return Ok(Next::At(now().unix_ms + millis(CLAIM_TTL)));
                    }
                }
                Some(Sending::NotBefore(at_ms)) => return Ok(Next::At(at_ms)),
                Some(Sending::Failed(reason)) => return self.failed(target, cursor, &mut record, &reason).await,
            }
        }
        cursor.position = page.next.or(cursor.position);
        if cursor.position != stored.position && !self.keep(target, cursor, &mut record).await? {
            return Ok(Next::At(now().unix_ms + millis(CLAIM_TTL)));
        }
        Ok(if page.more { Next::More } else { Next::Change })
    }

    /// Has this replica send to the target for [`CLAIM_TTL`] from now on. False while another replica sends to it.
    async fn claim(&self, target: &dyn Target) -> Result<bool, StoreError> {
        let store = self.store();
        let thing = format!("@target:{}", target.id());
        let claim = store.claim(thing.into(), store.own_holder(), CLAIM_TTL, "".into(), now());
        Ok(claim.await?.is_some())
    }

    /// Stores a new cursor of the target in place of this record. False, and nothing is stored, if another replica sends to
    /// the target now.
    async fn keep(
        &self,
        target: &dyn Target,
        cursor: TargetCursor,
        record: &mut Option<Arc<str>>,
    ) -> Result<bool, StoreError> {
        if !self.claim(target).await? {
            return Ok(false);
        }
        let absent = || Before::Absent { len_max: CURSORS_MAX };
        let before = record.take().map_or_else(absent, Before::Text);
        *record = serde_json::to_string(&cursor).ok().map(Arc::from);
        let store = self.store();
        let put = |before| store.put_if(Table::Targets, key_of(target), before, record.clone());
        let mut kept = put(before).await?;
        if kept == RecordPut::Full {
            // Cursors of targets that the configuration no longer has.
            let targets = &self.shared().settings.targets;
            let is_kept = |key: &[u8]| targets.iter().any(|target| target.id().as_bytes() == key);
            store.retain(Table::Targets, is_kept).await?;
            kept = put(absent()).await?;
        }
        Ok(kept == RecordPut::Stored)
    }

    /// Sends one event. None: there is nothing to send.
    async fn send_event(&self, target: &dyn Target, event: &LoggedEvent) -> Result<Option<Sending>, StoreError> {
        let ProjectEvent::Question { question, change, .. } = event.event else {
            return Ok(None);
        };
        if !target.wants(change) {
            return Ok(None);
        }
        let store = self.store();
        let record = store.questions(vec![question]).await?.pop().flatten();
        let content = store.question_content(question).await?;
        // A question that was removed or forgotten has nothing to show.
        let (Some(question), Some(content)) = (record, content) else {
            return Ok(None);
        };
        let news = News {
            id: format!("{}_{}", self.project(), event.position),
            project: self.project().clone(),
            at_ms: event.at_ms,
            change,
            question,
            content,
            present: self.summary().await?.humans(Presence::Present),
        };
        let sending = timeout(SEND_TIME_MAX, target.send(news));
        let late = || Sending::Failed("it took too long".to_owned());
        Ok(Some(sending.await.unwrap_or_else(|_| late())))
    }

    /// Has the event tried again later.
    async fn failed(
        &self,
        target: &dyn Target,
        cursor: TargetCursor,
        record: &mut Option<Arc<str>>,
        reason: &str,
    ) -> Result<Next, StoreError> {
        METRICS.webhook_failures.increment();
        let failures = cursor.failures.saturating_add(1);
        let pause = retry_pause(failures, uuid::Uuid::new_v4().as_bytes()[0]);
        if failures == 1 {
            tracing::warn!(
                webhook = target.name(),
                reason,
                "an event could not be sent; it is tried again"
            );
        } else {
            tracing::debug!(webhook = target.name(), reason, "an event still cannot be sent");
        }
        let cursor = TargetCursor {
            failures,
            retry_at_ms: retry_at(now(), pause),
            ..cursor
        };
        if self.keep(target, cursor, record).await? {
            return Ok(Next::At(cursor.retry_at_ms));
        }
        Ok(Next::At(now().unix_ms + millis(CLAIM_TTL)))
    }
}

fn retry_at(now: Now, pause: Duration) -> u64 {
    now.unix_ms.saturating_add(millis(pause))
}

/// The pause after so many failures in a row, and up to a tenth more: `random` spreads targets that failed together.
fn retry_pause(failures: u32, random: u8) -> Duration {
    let at = (failures.max(1) as usize).min(RETRY_PAUSES.len()) - 1;
    let pause = RETRY_PAUSES[at];
    pause + pause * u32::from(random) / (10 * u32::from(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_the_last_one_is_repeated() {
        let pauses = [1, 2, 3, 4, 5, 6, u32::MAX].map(|failures| retry_pause(failures, 0).as_secs());
        assert_eq!(pauses, [5, 30, 120, 600, 3_600, 3_600, 3_600]);
        assert_eq!(retry_pause(1, u8::MAX), Duration::from_millis(5_500));
    }
}
