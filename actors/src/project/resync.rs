//! Tracks up to which frame this replica's view of a project is complete, and queues resyncs: reads of the whole
//! store after missed frames. Pure.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};

/// The sequence number of the frame up to which the view is complete; None during a resync.
pub(super) type KnownSeq = Arc<watch::Sender<Option<u64>>>;

/// The resyncs of a project: one at a time, and one more for all requests that arrive meanwhile, because they may be
/// about changes after its reads.
#[derive(Default)]
pub(super) struct Resync {
    /// Requests that the running resync answers.
    in_progress: Option<Vec<oneshot::Sender<()>>>,
    queued: Option<Vec<oneshot::Sender<()>>>,
    /// The last resync failed, and a retry is scheduled.
    retry_scheduled: bool,
    /// The newest frame whose effects are complete since the resync began.
    applied_seq: u64,
}

/// What to do after a resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    Nothing,
    Resync,
    RetryLater,
}

impl Resync {
    /// Requests a resync. True: start one now; otherwise the next one starts when the running one ends. `done` gets a
    /// message when the view is complete, and is dropped when the resync fails.
    pub(super) fn begin(&mut self, done: Option<oneshot::Sender<()>>, known: &KnownSeq) -> bool {
        let is_first = self.in_progress.is_none();
        let asking = if is_first {
            &mut self.in_progress
        } else {
            &mut self.queued
        };
        asking.get_or_insert_default().extend(done);
        if is_first {
            self.applied_seq = 0;
            known.send_replace(None);
        }
        is_first
    }

    /// The effects of a frame are complete.
    pub(super) fn frame_applied(&mut self, seq: u64, known: &KnownSeq) {
        self.applied_seq = self.applied_seq.max(seq);
        known.send_if_modified(|known| {
            let is_newer = known.is_some_and(|known| known < seq);
            if is_newer {
                *known = Some(seq);
            }
            is_newer
        });
    }

    /// A resync has ended. `resynced_to` is the sequence number of the store before its reads, or None if it failed.
    pub(super) fn finish(&mut self, resynced_to: Option<u64>, known: &KnownSeq) -> NextStep {
        let waiting = self.in_progress.take().unwrap_or_default();
        if resynced_to.is_some() {
            for done in waiting {
                let _ = done.send(());
            }
        }
        self.in_progress = self.queued.take();
        match resynced_to {
            _ if self.in_progress.is_some() => {
                self.applied_seq = 0;
                NextStep::Resync
            }
            Some(seq) => {
                self.retry_scheduled = false;
                // A store that lost its counter starts again at 0: frames from before the resync are no measure.
                known.send_replace(Some(seq.max(self.applied_seq)));
                NextStep::Nothing
            }
            None if std::mem::replace(&mut self.retry_scheduled, true) => NextStep::Nothing,
            None => NextStep::RetryLater,
        }
    }

    /// Whether a scheduled retry is still needed.
    pub(super) fn take_retry(&mut self) -> bool {
        std::mem::take(&mut self.retry_scheduled) && self.in_progress.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks() -> (Option<oneshot::Sender<()>>, oneshot::Receiver<()>) {
        let (done, resynced_to) = oneshot::channel();
        (Some(done), resynced_to)
    }

    #[test]
    fn the_view_is_incomplete_before_the_first_resync_ends() {
        let (mut resync, known) = (Resync::default(), KnownSeq::default());
        resync.frame_applied(7, &known);
        assert_eq!(*known.borrow(), None);
        assert!(resync.begin(None, &known));
        resync.frame_applied(9, &known);
        assert_eq!(*known.borrow(), None);
        assert_eq!(resync.finish(Some(8), &known), NextStep::Nothing);
        assert_eq!(*known.borrow(), Some(9));
        resync.frame_applied(10, &known);
        resync.frame_applied(10, &known);
        assert_eq!(*known.borrow(), Some(10));
    }

    #[test]
    fn a_request_during_a_resync_waits_for_the_next_one() {
        let (mut resync, known) = (Resync::default(), KnownSeq::default());
        let ((one, mut first), (two, mut second), (three, mut third)) = (asks(), asks(), asks());
        assert!(resync.begin(one, &known));
        assert!(!resync.begin(two, &known));
        assert!(!resync.begin(three, &known));
        assert_eq!(resync.finish(Some(5), &known), NextStep::Resync);
        assert!(first.try_recv().is_ok() && second.try_recv().is_err());
        assert_eq!(*known.borrow(), None);
        assert_eq!(resync.finish(Some(6), &known), NextStep::Nothing);
        assert!(second.try_recv().is_ok() && third.try_recv().is_ok());
        assert_eq!(*known.borrow(), Some(6));
    }

    #[test]
    fn a_failed_resync_leaves_the_view_incomplete_and_is_retried_once() {
        let (mut resync, known) = (Resync::default(), KnownSeq::default());
        let (one, mut first) = asks();
        resync.begin(one, &known);
        assert_eq!(resync.finish(None, &known), NextStep::RetryLater);
        assert_eq!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        resync.frame_applied(3, &known);
        assert_eq!(*known.borrow(), None);
        resync.begin(None, &known);
        assert_eq!(
            resync.finish(None, &known),
            NextStep::Nothing,
            "a retry is scheduled already"
        );
        assert!(resync.take_retry());
        assert!(!resync.take_retry());
    }

    #[test]
    fn a_scheduled_retry_is_dropped_after_a_successful_resync() {
        let (mut resync, known) = (Resync::default(), KnownSeq::default());
        resync.begin(None, &known);
        resync.finish(None, &known);
        resync.begin(None, &known);
        assert_eq!(resync.finish(Some(2), &known), NextStep::Nothing);
        assert!(!resync.take_retry());
    }

    #[test]
    fn a_store_that_lost_its_counter_is_believed() {
        let (mut resync, known) = (Resync::default(), KnownSeq::default());
        resync.begin(None, &known);
        resync.frame_applied(900, &known);
        resync.finish(Some(900), &known);
        resync.begin(None, &known);
        resync.finish(Some(2), &known);
        assert_eq!(*known.borrow(), Some(2));
    }
}
