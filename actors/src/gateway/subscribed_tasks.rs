//! The tasks of a backend that callers subscribe to. Each process is asked once for all of its own: another
//! process may use the same ids. The last notification of each is kept as long as it has subscribers, because not all of
//! them can take it at once.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    room::Room,
    subscribed::{Bounds, Subscription, Subscriptions},
};
use crate::json::{self, scan};

/// Subscriptions to tasks of one backend.
const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Bytes of the last notifications of the subscribed tasks of one backend. A notification that does not fit is dropped.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The state of a task: the params of a notification without the id and `_meta`, as JSON.
pub type TaskState = Arc<str>;

/// The number of the process that has a task, and the id that it gives the task.
pub type TaskOfProcess = (u64, String);

/// The subscribed tasks, and the last state of each.
pub type SubscribedTasks = Subscriptions<TaskOfProcess, Option<TaskState>>;

/// The subscription of one caller to one task, until it is dropped.
pub type TaskSubscription = Subscription<TaskOfProcess, Option<TaskState>>;

impl Default for SubscribedTasks {
    fn default() -> Self {
        Self::within(Bounds {
            subscriptions: Room::new(SUBSCRIPTIONS_MAX),
            things: Room::new(KEPT_BYTES_MAX),
        })
    }
}

impl SubscribedTasks {
    /// Subscribes to a task of a process by the id that the process gives it. `None` if there are too many subscriptions.
    pub fn subscribe(self: &Arc<Self>, process: u64, id: &str) -> Option<TaskSubscription> {
        let mut subscription = self.add((process, id.to_owned()), 0)?;
        if subscription.last.borrow().is_some() {
            // The backend does not tell it again.
            subscription.last.mark_changed();
        }
        Some(subscription)
    }

    /// The ids of the subscribed tasks of a process.
    pub fn ids(&self, process: u64) -> BTreeSet<String> {
        let of = self.of.lock();
        let own = of.keys().filter(|(other, _)| *other == process);
        own.map(|(_, id)| id.clone()).collect()
    }

    /// A process has reported the state of a task: the params of its notification. The same state is reported once, because the
    /// backend repeats it in each new subscription.
    ///
    /// # Errors
    /// It reaches no caller: why.
    pub fn note_state(&self, process: u64, params: &str) -> Result<(), &'static str> {
        let members = scan::check(params).and_then(|()| json::members(params));
        let members = members.map_err(|_| "a task that is no JSON")?;
        let id = members.iter().find(|(key, _)| key == "taskId");
        let id = id.and_then(|(_, id)| scan::string(id)).ok_or("a task without an id")?;
        let mut of = self.of.lock();
        let subscribed = of.get_mut(&(process, id.into_owned()));
        let subscribed = subscribed.ok_or("a task without subscribers")?;
        let mut text = Vec::with_capacity(params.len());
        let others = members.iter().filter(|(key, _)| key != "taskId" && key != "_meta");
        json::write_object(&mut text, others.map(|(key, value)| (&**key, *value)));
        let text: TaskState = String::from_utf8(text).map_err(|_| "a task that is no JSON")?.into();
        if !subscribed.held.set(text.len()) {
            return Err("a task that is too long");
        }
        subscribed.last.send_if_modified(|state| {
            let is_another = state.as_ref() != Some(&text);
            *state = Some(text);
            is_another
        });
        Ok(())
    }
}

impl TaskSubscription {
    /// Takes the last state that the backend has reported, if there is one.
    pub fn state(&mut self) -> Option<TaskState> {
        self.last.borrow_and_update().clone()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn told(subscription: &mut TaskSubscription) -> Option<TaskState> {
        subscription.changed().now_or_never()?;
        subscription.state()
    }

    #[test]
    fn a_state_is_told_once_to_each_subscriber_of_its_task() {
        let tasks = Arc::<SubscribedTasks>::default();
        let mut revisions = tasks.revisions();
        let mut first = tasks.subscribe(1, "a").unwrap();
        let mut other = tasks.subscribe(1, "b").unwrap();
        assert!(revisions.has_changed().unwrap());
        revisions.mark_unchanged();
        let working =
            r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7},"taskId":"a","status":"working","n":1.0}"#;
        tasks.note_state(1, working).unwrap();
        assert_eq!(told(&mut first).as_deref(), Some(r#"{"status":"working","n":1.0}"#));
        tasks.note_state(1, &working.replace(":7}", ":8}")).unwrap();
        assert_eq!(told(&mut first), None, "the backend repeats it");
        assert_eq!(told(&mut other), None);

        let mut second = tasks.subscribe(1, "a").unwrap();
        assert!(!revisions.has_changed().unwrap(), "the backend is asked once");
        assert!(told(&mut second).is_some());
        drop((first, second));
        assert!(revisions.has_changed().unwrap());
        assert_eq!(tasks.note_state(1, working), Err("a task without subscribers"));
        assert_eq!(tasks.ids(1).into_iter().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_process_that_uses_the_same_ids_tells_nothing_of_tasks_of_another_one() {
        let tasks = Arc::<SubscribedTasks>::default();
        let mut of_ended = tasks.subscribe(1, "a").unwrap();
        tasks.note_state(1, r#"{"taskId":"a","result":"private"}"#).unwrap();
        let mut of_next = tasks.subscribe(2, "a").unwrap();
        assert!(told(&mut of_ended).is_some());
        assert_eq!(told(&mut of_next), None);
        tasks.note_state(2, r#"{"taskId":"a"}"#).unwrap();
        assert_eq!((told(&mut of_ended), told(&mut of_next).as_deref()), (None, Some("{}")));
        assert_eq!((tasks.ids(2).len(), tasks.ids(3).len()), (1, 0));
    }

    #[test]
    fn what_is_no_state_of_a_task_is_refused() {
        let tasks = Arc::<SubscribedTasks>::default();
        let _subscription = tasks.subscribe(1, "a").unwrap();
        for wrong in [
            "[]",
            "{}",
            r#"{"taskId":7}"#,
            r#"{"taskId":"a","n":[}"#,
            r#"{"taskId":"b"}"#,
        ] {
            assert!(tasks.note_state(1, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn subscriptions_and_their_bytes_are_bounded() {
        let tasks = Arc::<SubscribedTasks>::default();
        let state = |id: &str, len: usize| format!(r#"{{"taskId":"{id}","x":"{}"}}"#, "x".repeat(len));
        let mut all: Vec<_> = (0..SUBSCRIPTIONS_MAX)
            .map(|at| tasks.subscribe(1, &(at % 10).to_string()).unwrap())
            .collect();
        assert!(tasks.subscribe(1, "more").is_none());
        tasks.note_state(1, &state("1", KEPT_BYTES_MAX / 2)).unwrap();
        assert!(tasks.note_state(1, &state("2", KEPT_BYTES_MAX / 2)).is_err());
        tasks.note_state(1, &state("1", 1)).unwrap();
        tasks.note_state(1, &state("2", KEPT_BYTES_MAX / 2)).unwrap();
        all.clear();
        let _subscription = tasks.subscribe(1, "1").unwrap();
        tasks.note_state(1, &state("1", KEPT_BYTES_MAX - 100)).unwrap();
        assert_eq!(tasks.of.lock().len(), 1);
    }
}
