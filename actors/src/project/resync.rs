//! Up to which frame a project knows here what was done anywhere. Pure.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};

/// The serial of the last frame up to which everything is known here; None while that has to be found out.
pub(super) type KnownSeq = Arc<watch::Sender<Option<u64>>>;

/// The looks at the store: one at a time, and then one more for all who asked meanwhile, since what they miss may be
/// newer than what was looked at.
#[derive(Default)]
pub(super) struct Resync {
    /// Who waits for the one that is under way.
    in_progress: Option<Vec<oneshot::Sender<()>>>,
    queued: Option<Vec<oneshot::Sender<()>>>,
    /// The last one failed, and whoever heard that takes another later.
    retry_scheduled: bool,
    /// The newest frame of which everything has followed since the look began.
    applied_seq: u64,
}

/// What is to be done after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    Nothing,
    Resync,
    RetryLater,
}

impl Resync {
    /// Whether a look is to be taken now. Else the next begins when the one that is under way has ended. `done` is told
    /// when all is known, and let go of when it cannot be.
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

    /// Everything has followed from a frame.
    pub(super) fn frame_applied(&mut self, serial: u64, known: &KnownSeq) {
        self.applied_seq = self.applied_seq.max(serial);
        known.send_if_modified(|known| {
            let is_newer = known.is_some_and(|known| known < serial);
            if is_newer {
                *known = Some(serial);
            }
            is_newer
        });
    }

    /// A look is over; `looked` is the serial of the store before it, or None if it failed.
    pub(super) fn finish(&mut self, looked: Option<u64>, known: &KnownSeq) -> NextStep {
        let asked = self.in_progress.take().unwrap_or_default();
        if looked.is_some() {
            for done in asked {
                let _ = done.send(());
            }
        }
        self.in_progress = self.queued.take();
        match looked {
            _ if self.in_progress.is_some() => {
                self.applied_seq = 0;
                NextStep::Resync
            }
            Some(serial) => {
                self.retry_scheduled = false;
                // A store that has lost its count begins it anew: what was heard before the look says nothing.
                known.send_replace(Some(serial.max(self.applied_seq)));
                NextStep::Nothing
            }
            None if std::mem::replace(&mut self.retry_scheduled, true) => NextStep::Nothing,
            None => NextStep::RetryLater,
        }
    }

    /// Whether a look that was to be taken later still is.
    pub(super) fn take_retry(&mut self) -> bool {
        std::mem::take(&mut self.retry_scheduled) && self.in_progress.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks() -> (Option<oneshot::Sender<()>>, oneshot::Receiver<()>) {
        let (done, looked) = oneshot::channel();
        (Some(done), looked)
    }

    #[test]
    fn nothing_is_known_before_the_first_look_has_ended() {
        let (mut looks, known) = (Resync::default(), KnownSeq::default());
        looks.frame_applied(7, &known);
        assert_eq!(*known.borrow(), None);
        assert!(looks.begin(None, &known));
        looks.frame_applied(9, &known);
        assert_eq!(*known.borrow(), None);
        assert_eq!(looks.finish(Some(8), &known), NextStep::Nothing);
        assert_eq!(*known.borrow(), Some(9));
        looks.frame_applied(10, &known);
        looks.frame_applied(10, &known);
        assert_eq!(*known.borrow(), Some(10));
    }

    #[test]
    fn who_asks_while_a_look_is_under_way_waits_for_the_next() {
        let (mut looks, known) = (Resync::default(), KnownSeq::default());
        let ((one, mut first), (two, mut second), (three, mut third)) = (asks(), asks(), asks());
        assert!(looks.begin(one, &known));
        assert!(!looks.begin(two, &known));
        assert!(!looks.begin(three, &known));
        assert_eq!(looks.finish(Some(5), &known), NextStep::Resync);
        assert!(first.try_recv().is_ok() && second.try_recv().is_err());
        assert_eq!(*known.borrow(), None);
        assert_eq!(looks.finish(Some(6), &known), NextStep::Nothing);
        assert!(second.try_recv().is_ok() && third.try_recv().is_ok());
        assert_eq!(*known.borrow(), Some(6));
    }

    #[test]
    fn a_look_that_failed_leaves_nothing_known_and_is_taken_again_once() {
        let (mut looks, known) = (Resync::default(), KnownSeq::default());
        let (one, mut first) = asks();
        looks.begin(one, &known);
        assert_eq!(looks.finish(None, &known), NextStep::RetryLater);
        assert_eq!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        looks.frame_applied(3, &known);
        assert_eq!(*known.borrow(), None);
        looks.begin(None, &known);
        assert_eq!(
            looks.finish(None, &known),
            NextStep::Nothing,
            "it is waited for already"
        );
        assert!(looks.take_retry());
        assert!(!looks.take_retry());
    }

    #[test]
    fn a_look_that_was_to_be_taken_later_is_not_when_another_succeeded() {
        let (mut looks, known) = (Resync::default(), KnownSeq::default());
        looks.begin(None, &known);
        looks.finish(None, &known);
        looks.begin(None, &known);
        assert_eq!(looks.finish(Some(2), &known), NextStep::Nothing);
        assert!(!looks.take_retry());
    }

    #[test]
    fn a_store_that_has_lost_its_count_is_believed() {
        let (mut looks, known) = (Resync::default(), KnownSeq::default());
        looks.begin(None, &known);
        looks.frame_applied(900, &known);
        looks.finish(Some(900), &known);
        looks.begin(None, &known);
        looks.finish(Some(2), &known);
        assert_eq!(*known.borrow(), Some(2));
    }
}
