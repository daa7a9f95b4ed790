//! The tasks of a backend that callers subscribe to. Each process is asked once for all of its own: another
//! process may use the same ids. The last notification of each is kept as long as it has subscribers, because not all of
//! them can take it at once.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use tokio::sync::watch;

use super::room::{Held, Room};
use crate::json::{self, scan};
use crate::locked::Locked;

/// Subscriptions to tasks of one backend.
const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Bytes of the last notifications of the subscribed tasks of one backend. A notification that does not fit is dropped.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The state of a task: the params of a notification without the id and `_meta`, as JSON.
pub type TaskState = Arc<str>;

/// The number of the process that has a task, and the id that it gives the task.
type TaskOfProcess = (u64, String);

/// The subscribed tasks of one backend, or those of one owner of instances.
#[derive(Debug)]
pub struct SubscribedTasks {
    of: Locked<HashMap<TaskOfProcess, SubscribedTask>>,
    /// How often the set of tasks has changed.
    revision: watch::Sender<u64>,
    bounds: Arc<Bounds>,
}

/// What the subscriptions to all tasks of one backend have together.
#[derive(Debug)]
struct Bounds {
    subscriptions: Arc<Room>,
    kept_bytes: Arc<Room>,
}

#[derive(Debug)]
struct SubscribedTask {
    subscribers: usize,
    state: watch::Sender<Option<TaskState>>,
    /// The bytes of the state.
    kept: Held,
}

/// The subscription of one caller to one task, until it is dropped.
#[derive(Debug)]
pub struct TaskSubscription {
    tasks: Arc<SubscribedTasks>,
    task: TaskOfProcess,
    state: watch::Receiver<Option<TaskState>>,
    _place: Held,
}

impl Default for SubscribedTasks {
    fn default() -> Self {
        Self::within(Arc::new(Bounds {
            subscriptions: Room::new(SUBSCRIPTIONS_MAX),
            kept_bytes: Room::new(KEPT_BYTES_MAX),
        }))
    }
}

impl SubscribedTasks {
    fn within(bounds: Arc<Bounds>) -> Self {
        Self {
            of: Locked::default(),
            revision: watch::Sender::default(),
            bounds,
        }
    }

    /// Others of the same backend, without any yet.
    pub(super) fn beside(&self) -> Self {
        Self::within(Arc::clone(&self.bounds))
    }

    fn revise(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Subscribes to a task of a process by the id that the process gives it. `None` if there are too many subscriptions.
    pub fn subscribe(self: &Arc<Self>, process: u64, id: &str) -> Option<TaskSubscription> {
        let place = self.bounds.subscriptions.hold(1)?;
        let task = (process, id.to_owned());
        let mut of = self.of.lock();
        let subscribed = of.entry(task.clone()).or_insert_with(|| SubscribedTask {
            subscribers: 0,
            state: watch::Sender::default(),
            kept: self.bounds.kept_bytes.holder(),
        });
        subscribed.subscribers += 1;
        let (is_first, mut state) = (subscribed.subscribers == 1, subscribed.state.subscribe());
        drop(of);
        if is_first {
            self.revise();
        } else if state.borrow().is_some() {
            // The backend does not tell it again.
            state.mark_changed();
        }
        Some(TaskSubscription {
            tasks: Arc::clone(self),
            task,
            state,
            _place: place,
        })
    }

    /// The ids of the subscribed tasks of a process.
    pub fn ids(&self, process: u64) -> BTreeSet<String> {
        let of = self.of.lock();
        let own = of.keys().filter(|(other, _)| *other == process);
        own.map(|(_, id)| id.clone()).collect()
    }

    /// Changes of the set of subscribed tasks.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
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
        if !subscribed.kept.set(text.len()) {
            return Err("a task that is too long");
        }
        subscribed.state.send_if_modified(|state| {
            let is_another = state.as_ref() != Some(&text);
            *state = Some(text);
            is_another
        });
        Ok(())
    }
}

impl TaskSubscription {
    /// Waits until the state is another one than the last that was taken.
    pub async fn changed(&mut self) {
        // The sender lives as long as this subscription.
        let _ = self.state.changed().await;
    }

    /// Takes the last state that the backend has reported, if there is one.
    pub fn state(&mut self) -> Option<TaskState> {
        self.state.borrow_and_update().clone()
    }
}

impl Drop for TaskSubscription {
    fn drop(&mut self) {
        let mut of = self.tasks.of.lock();
        let Some(subscribed) = of.get_mut(&self.task) else {
            return;
        };
        subscribed.subscribers -= 1;
        if subscribed.subscribers == 0 {
            of.remove(&self.task);
            drop(of);
            self.tasks.revise();
        }
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
