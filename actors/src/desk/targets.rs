//! Tells the targets of the configuration what becomes of questions.
//!
//! The event log of the project is the queue. The store records each change of a question in the operation that makes it,
//! and keeps for each target how far the log has been sent to it. So a target gets every event it wants at least once and
//! in order, also after a restart of the broker, as long as the log keeps the event.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{Presence, actor::Work};
use crate::{
    clock::{Now, millis, now},
    metrics::METRICS,
    model::{EventKind, EventKinds, ProjectEvent},
    storage::{Direction, EventQuery, EventStart, LoggedEvent, StoreError, TargetCursor},
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
/// Events that are looked at at once, and their bytes.
const SCAN_MAX: usize = 5_000;
const SCAN_BYTES_MAX: usize = 256 * 1024;

/// What to do after the events that could be sent.
enum Next {
    /// Wait for the next change.
    Change,
    /// Look again at this time, in milliseconds since the Unix epoch.
    At(u64),
    /// More events wait.
    More,
}

impl Work {
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
        let store = self.changes().store();
        let begun = now();
        let Some(mut cursor) = store.claim_target(target.id(), CLAIM_TTL).await? else {
            return Ok(Next::At(begun.unix_ms + millis(CLAIM_TTL)));
        };
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
                    if !store.move_target(target.id(), cursor, CLAIM_TTL).await? {
                        return Ok(Next::At(now().unix_ms + millis(CLAIM_TTL)));
                    }
                }
                Some(Sending::NotBefore(at_ms)) => return Ok(Next::At(at_ms)),
                Some(Sending::Failed(reason)) => return self.failed(target, cursor, &reason).await,
            }
        }
        cursor.position = page.next.or(cursor.position);
        if cursor.position != stored.position {
            store.move_target(target.id(), cursor, CLAIM_TTL).await?;
        }
        Ok(if page.more { Next::More } else { Next::Change })
    }

    /// Sends one event. None: there is nothing to send.
    async fn send_event(&self, target: &dyn Target, event: &LoggedEvent) -> Result<Option<Sending>, StoreError> {
        let ProjectEvent::Question { question, change, .. } = event.event else {
            return Ok(None);
        };
        if !target.wants(change) {
            return Ok(None);
        }
        let store = self.changes().store();
        let record = store.questions(vec![question]).await?.pop().flatten();
        let content = store.question_content(question).await?;
        // A question that was removed or forgotten has nothing to show.
        let (Some(question), Some(content)) = (record, content) else {
            return Ok(None);
        };
        let news = News {
            id: format!("{}_{}", self.changes().project(), event.position),
            project: self.changes().project().clone(),
            at_ms: event.at_ms,
            change,
            question,
            content,
            present: self.changes().summary().await?.humans(Presence::Present),
        };
        let sending = timeout(SEND_TIME_MAX, target.send(news));
        let late = || Sending::Failed("it took too long".to_owned());
        Ok(Some(sending.await.unwrap_or_else(|_| late())))
    }

    /// Has the event tried again later.
    async fn failed(&self, target: &dyn Target, cursor: TargetCursor, reason: &str) -> Result<Next, StoreError> {
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
        let store = self.changes().store();
        if store.move_target(target.id(), cursor, CLAIM_TTL).await? {
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
