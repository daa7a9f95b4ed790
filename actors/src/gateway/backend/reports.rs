//! What an instance reports to the actor of its backend. A mailbox takes every report, so that no end of an instance is lost.
//! Its lists, which may have megabytes, wait there once: newer ones take their place.

use std::sync::Arc;

use crate::{
    gateway::launch::{InstanceEvent, ReadLists, Report},
    locked::Locked,
};

/// What an instance has reported.
pub(in crate::gateway) struct Reported {
    /// The number of the instance.
    pub instance: u64,
    /// `None` where `lists` have what is reported.
    event: Option<InstanceEvent>,
    lists: WaitingLists,
}

/// The last lists of an instance, until the actor takes them.
type WaitingLists = Arc<Locked<Option<ReadLists>>>;

impl Reported {
    /// What the instance has reported.
    pub fn into_event(self) -> Option<InstanceEvent> {
        self.event
            .or_else(|| self.lists.lock().take().map(InstanceEvent::Lists))
    }
}

/// The way of an instance to report.
pub(in crate::gateway) fn reporter(instance: u64, send: impl Fn(Reported) + Send + Sync + 'static) -> Report {
    let waiting = WaitingLists::default();
    Arc::new(move |event| {
        let event = match event {
            InstanceEvent::Lists(lists) => {
                if waiting.lock().replace(lists).is_some() {
                    return;
                }
                None
            }
            event => Some(event),
        };
        send(Reported {
            instance,
            event,
            lists: Arc::clone(&waiting),
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_lists_that_wait_only_the_last_are_kept() {
        let sent = Arc::<Locked<Vec<Reported>>>::default();
        let mailbox = Arc::clone(&sent);
        let report = reporter(7, move |reported| mailbox.lock().push(reported));
        let lists = |problem: &str| {
            InstanceEvent::Lists(ReadLists {
                lists: crate::gateway::BackendLists::default(),
                are_complete: true,
                problems: vec![problem.to_owned()],
            })
        };
        let taken = || {
            let events = std::mem::take(&mut *sent.lock()).into_iter().map(Reported::into_event);
            events.map(|event| format!("{event:?}")).collect::<Vec<_>>()
        };
        report(lists("one"));
        report(InstanceEvent::Running { pid: 1 });
        report(lists("two"));
        let events = taken();
        assert_eq!(events.len(), 2);
        assert!(events[0].contains("two") && events[1].contains("Running"));
        report(lists("three"));
        assert!(taken()[0].contains("three"));
    }
}
