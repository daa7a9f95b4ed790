//! Up to which frame a project knows here what was done anywhere. Pure.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};

/// The serial of the last frame up to which everything is known here; None while that has to be found out.
pub(super) type Known = Arc<watch::Sender<Option<u64>>>;

/// The looks at the store: one at a time, and then one more for all who asked meanwhile, since what they miss may be
/// newer than what was looked at.
#[derive(Default)]
pub(super) struct Looks {
    /// Who waits for the one that is under way.
    under_way: Option<Vec<oneshot::Sender<()>>>,
    next: Option<Vec<oneshot::Sender<()>>>,
    /// The last one failed, and whoever heard that takes another later.
    is_due: bool,
    /// The newest frame of which everything has followed since the look began.
    heard: u64,
}

/// What is to be done after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    Look,
    LookLater,
}

impl Looks {
    /// Whether a look is to be taken now. Else the next begins when the one that is under way has ended. `done` is told
    /// when all is known, and let go of when it cannot be.
    pub(super) fn begin(&mut self, done: Option<oneshot::Sender<()>>, known: &Known) -> bool {
        let is_first = self.under_way.is_none();
        let asking = if is_first { &mut self.under_way } else { &mut self.next };
        asking.get_or_insert_default().extend(done);
        if is_first {
            self.heard = 0;
            known.send_replace(None);
        }
        is_first
    }

    /// Everything has followed from a frame.
    pub(super) fn heard(&mut self, serial: u64, known: &Known) {
        self.heard = self.heard.max(serial);
        known.send_if_modified(|known| {
            let is_newer = known.is_some_and(|known| known < serial);
            if is_newer {
                *known = Some(serial);
            }
            is_newer
        });
    }

    /// A look is over; `looked` is the serial of the store before it, or None if it failed.
    pub(super) fn end(&mut self, looked: Option<u64>, known: &Known) -> Next {
        let asked = self.under_way.take().unwrap_or_default();
        if looked.is_some() {
            for done in asked {
                let _ = done.send(());
            }
        }
        self.under_way = self.next.take();
        match looked {
            _ if self.under_way.is_some() => {
                self.heard = 0;
                Next::Look
            }
            Some(serial) => {
                self.is_due = false;
                // A store that has lost its count begins it anew: what was heard before the look says nothing.
                known.send_replace(Some(serial.max(self.heard)));
                Next::Nothing
            }
            None if std::mem::replace(&mut self.is_due, true) => Next::Nothing,
            None => Next::LookLater,
        }
    }

    /// Whether a look that was to be taken later still is.
    pub(super) fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due) && self.under_way.is_none()
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
        let (mut looks, known) = (Looks::default(), Known::default());
        looks.heard(7, &known);
        assert_eq!(*known.borrow(), None);
        assert!(looks.begin(None, &known));
        looks.heard(9, &known);
        assert_eq!(*known.borrow(), None);
        assert_eq!(looks.end(Some(8), &known), Next::Nothing);
        assert_eq!(*known.borrow(), Some(9));
        looks.heard(10, &known);
        looks.heard(10, &known);
        assert_eq!(*known.borrow(), Some(10));
    }

    #[test]
    fn who_asks_while_a_look_is_under_way_waits_for_the_next() {
        let (mut looks, known) = (Looks::default(), Known::default());
        let ((one, mut first), (two, mut second), (three, mut third)) = (asks(), asks(), asks());
        assert!(looks.begin(one, &known));
        assert!(!looks.begin(two, &known));
        assert!(!looks.begin(three, &known));
        assert_eq!(looks.end(Some(5), &known), Next::Look);
        assert!(first.try_recv().is_ok() && second.try_recv().is_err());
        assert_eq!(*known.borrow(), None);
        assert_eq!(looks.end(Some(6), &known), Next::Nothing);
        assert!(second.try_recv().is_ok() && third.try_recv().is_ok());
        assert_eq!(*known.borrow(), Some(6));
    }

    #[test]
    fn a_look_that_failed_leaves_nothing_known_and_is_taken_again_once() {
        let (mut looks, known) = (Looks::default(), Known::default());
        let (one, mut first) = asks();
        looks.begin(one, &known);
        assert_eq!(looks.end(None, &known), Next::LookLater);
        assert_eq!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        looks.heard(3, &known);
        assert_eq!(*known.borrow(), None);
        looks.begin(None, &known);
        assert_eq!(looks.end(None, &known), Next::Nothing, "it is waited for already");
        assert!(looks.take_due());
        assert!(!looks.take_due());
    }

    #[test]
    fn a_look_that_was_to_be_taken_later_is_not_when_another_succeeded() {
        let (mut looks, known) = (Looks::default(), Known::default());
        looks.begin(None, &known);
        looks.end(None, &known);
        looks.begin(None, &known);
        assert_eq!(looks.end(Some(2), &known), Next::Nothing);
        assert!(!looks.take_due());
    }

    #[test]
    fn a_store_that_has_lost_its_count_is_believed() {
        let (mut looks, known) = (Looks::default(), Known::default());
        looks.begin(None, &known);
        looks.heard(900, &known);
        looks.end(Some(900), &known);
        looks.begin(None, &known);
        looks.end(Some(2), &known);
        assert_eq!(*known.borrow(), Some(2));
    }
}
