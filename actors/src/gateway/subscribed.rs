//! What callers subscribe to at a backend: resources and tasks. An instance is asked once for each, however many callers want it, and
//! what it reports is for the callers of its owner alone.

use std::{
    collections::{BTreeSet, HashMap, hash_map},
    hash::Hash,
    sync::{Arc, Weak},
};

use tokio::sync::watch;

use super::room::{Held, Room};
use crate::{
    json::{self, scan},
    locked::Locked,
};

/// Subscribed resources of one backend.
const RESOURCES_MAX: usize = 1_000;

/// The subscriptions to things of one kind, of one backend or of one owner of instances.
#[derive(Debug)]
pub struct Subscriptions<K: Eq + Hash, V> {
    pub(super) of: Locked<HashMap<K, Entry<V>>>,
    /// How often the set of things has changed.
    revision: watch::Sender<u64>,
    bounds: Bounds,
}

/// What the subscriptions to all things of one kind of a backend have together.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub subscriptions: Arc<Room>,
    /// What the things themselves hold.
    pub things: Arc<Room>,
}

/// A thing that has subscribers.
#[derive(Debug)]
pub(super) struct Entry<V> {
    subscribers: usize,
    /// What is known of it.
    pub last: watch::Sender<V>,
    pub held: Held,
}

/// The subscription of one caller to one thing, until it is dropped.
#[derive(Debug)]
pub struct Subscription<K: Eq + Hash, V> {
    all: Arc<Subscriptions<K, V>>,
    key: K,
    pub(super) last: watch::Receiver<V>,
    _place: Held,
}

impl<K: Clone + Eq + Hash, V: Default> Subscriptions<K, V> {
    pub(super) fn within(bounds: Bounds) -> Self {
        Self {
            of: Locked::default(),
            revision: watch::Sender::default(),
            bounds,
        }
    }

    /// Others of the same backend, without any yet.
    pub(super) fn beside(&self) -> Self {
        Self::within(self.bounds.clone())
    }

    /// Subscribes to a thing, which holds so much from its first subscription on. `None` if there is no room for that.
    pub(super) fn add(self: &Arc<Self>, key: K, amount: usize) -> Option<Subscription<K, V>> {
        let place = self.bounds.subscriptions.hold(1)?;
        let mut of = self.of.lock();
        let subscribed = match of.entry(key.clone()) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(new) => new.insert(Entry {
                subscribers: 0,
                last: watch::Sender::default(),
                held: self.bounds.things.hold(amount)?,
            }),
        };
        subscribed.subscribers += 1;
        let (is_first, last) = (subscribed.subscribers == 1, subscribed.last.subscribe());
        drop(of);
        if is_first {
            self.revise();
        }
        Some(Subscription {
            all: Arc::clone(self),
            key,
            last,
            _place: place,
        })
    }
}

impl<K: Eq + Hash, V> Subscriptions<K, V> {
    fn revise(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Changes of the set of things.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }
}

impl<K: Eq + Hash, V> Subscription<K, V> {
    /// Waits for the next change. Several changes may be reported as one.
    pub async fn changed(&mut self) {
        // The sender lives as long as this subscription.
        let _ = self.last.changed().await;
    }
}

impl<K: Eq + Hash, V> Drop for Subscription<K, V> {
    fn drop(&mut self) {
        let mut of = self.all.of.lock();
        let Some(subscribed) = of.get_mut(&self.key) else {
            return;
        };
        subscribed.subscribers -= 1;
        if subscribed.subscribers == 0 {
            of.remove(&self.key);
            drop(of);
            self.all.revise();
        }
    }
}

/// The subscribed resources, by the URIs that the backend gives them, and how often each has changed.
pub type SubscribedResources = Subscriptions<String, u64>;

impl Default for SubscribedResources {
    fn default() -> Self {
        Self::within(Bounds {
            subscriptions: Room::new(usize::MAX),
            things: Room::new(RESOURCES_MAX),
        })
    }
}

impl SubscribedResources {
    /// Subscribes to a resource by the URI that the backend gives it. `None` if too many are subscribed to.
    pub fn subscribe(self: &Arc<Self>, uri: &str) -> Option<Subscription<String, u64>> {
        self.add(uri.to_owned(), 1)
    }

    /// The URIs of the subscribed resources.
    pub fn uris(&self) -> BTreeSet<String> {
        self.of.lock().keys().cloned().collect()
    }

    /// The backend has reported a change of this resource, which may be a part of a subscribed one
    /// (2025-11-25, server/resources, Subscriptions).
    pub fn note_change(&self, uri: &str) {
        for (subscribed, entry) in self.of.lock().iter() {
            let rest = uri.strip_prefix(subscribed.as_str());
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || subscribed.ends_with('/')) {
                entry.last.send_modify(|count| *count += 1);
            }
        }
    }

    /// All resources may have changed while the backend was not heard.
    pub fn note_all(&self) {
        for entry in self.of.lock().values() {
            entry.last.send_modify(|count| *count += 1);
        }
    }
}

/// The resources and tasks that the callers of one owner subscribe to, or all callers of the main instance.
#[derive(Clone, Debug, Default)]
pub struct Subscribed {
    pub resources: Arc<SubscribedResources>,
    pub tasks: Arc<SubscribedTasks>,
}

/// The subscriptions to one backend. Those of an owner are kept as long as it has a subscription or an instance.
#[derive(Debug, Default)]
pub struct SubscribedOwners {
    main: Subscribed,
    owners: Locked<HashMap<Arc<str>, OfOwner>>,
}

#[derive(Debug, Default)]
struct OfOwner {
    resources: Weak<SubscribedResources>,
    tasks: Weak<SubscribedTasks>,
}

impl SubscribedOwners {
    /// The subscriptions of the callers of this owner; without an owner those at the main instance.
    pub fn of(&self, owner: Option<&Arc<str>>) -> Subscribed {
        let Some(owner) = owner else {
            return self.main.clone();
        };
        let mut owners = self.owners.lock();
        if !owners.contains_key(owner) {
            owners.retain(|_, known| known.resources.strong_count() + known.tasks.strong_count() > 0);
        }
        let known = owners.entry(Arc::clone(owner)).or_default();
        let (resources, tasks) = (known.resources.upgrade(), known.tasks.upgrade());
        let subscribed = Subscribed {
            resources: resources.unwrap_or_else(|| Arc::new(self.main.resources.beside())),
            tasks: tasks.unwrap_or_else(|| Arc::new(self.main.tasks.beside())),
        };
        *known = OfOwner {
            resources: Arc::downgrade(&subscribed.resources),
            tasks: Arc::downgrade(&subscribed.tasks),
        };
        subscribed
    }
}

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

    #[test]
    fn a_backend_is_asked_once_for_a_resource_that_many_want() {
        let resources = Arc::<SubscribedResources>::default();
        let mut revisions = resources.revisions();
        let (first, second) = (
            resources.subscribe("a:/x").unwrap(),
            resources.subscribe("a:/x").unwrap(),
        );
        assert!(revisions.has_changed().unwrap());
        revisions.mark_unchanged();
        drop(first);
        assert!(!revisions.has_changed().unwrap());
        assert_eq!(resources.uris().len(), 1);
        drop(second);
        assert!(revisions.has_changed().unwrap());
        assert!(resources.uris().is_empty());
    }

    #[test]
    fn a_change_is_told_to_those_who_want_the_resource_or_what_it_is_a_part_of() {
        let resources = Arc::<SubscribedResources>::default();
        let mut told = ["a:/x", "a:/x/y", "a:/xy", "a:/"].map(|uri| resources.subscribe(uri).unwrap());
        resources.note_change("a:/x/y");
        resources.note_change("a:/x/y");
        let is_told = told
            .each_mut()
            .map(|subscription| subscription.changed().now_or_never().is_some());
        assert_eq!(is_told, [true, true, false, true]);
        assert!(
            told[1].changed().now_or_never().is_none(),
            "two changes are told as one"
        );
        resources.note_all();
        assert!(told[2].changed().now_or_never().is_some());
    }

    #[test]
    fn the_number_of_resources_is_bounded() {
        let resources = Arc::<SubscribedResources>::default();
        let all: Vec<_> = (0..RESOURCES_MAX)
            .map(|at| resources.subscribe(&at.to_string()).unwrap())
            .collect();
        assert!(resources.subscribe("more").is_none());
        assert!(
            resources.subscribe("7").is_some(),
            "the backend was asked for it already"
        );
        drop(all);
    }

    #[test]
    fn what_an_instance_tells_reaches_its_owner_alone() {
        let subscribed = SubscribedOwners::default();
        let (first, second) = (Arc::from("a"), Arc::from("b"));
        let owners = [None, Some(&first), Some(&second)];
        let mut resources = owners.map(|owner| subscribed.of(owner).resources.subscribe("a:/x").unwrap());
        let mut tasks = owners.map(|owner| subscribed.of(owner).tasks.subscribe(7, "1").unwrap());
        let of_first = subscribed.of(Some(&first));
        of_first.resources.note_change("a:/x");
        of_first.tasks.note_state(7, r#"{"taskId":"1"}"#).unwrap();
        let told = resources.each_mut().map(|one| one.changed().now_or_never().is_some());
        assert_eq!(told, [false, true, false]);
        let told = tasks.each_mut().map(|one| one.changed().now_or_never().is_some());
        assert_eq!(told, [false, true, false]);
    }

    #[test]
    fn an_owner_without_subscriptions_and_instances_is_forgotten() {
        let subscribed = SubscribedOwners::default();
        for at in 0..3 {
            subscribed.of(Some(&Arc::from(format!("{at}"))));
        }
        let kept = subscribed.of(Some(&Arc::from("kept")));
        let task = kept.tasks.subscribe(7, "1").unwrap();
        drop(kept);
        let _instance = subscribed.of(Some(&Arc::from("last")));
        assert_eq!(subscribed.owners.lock().len(), 2);
        drop(task);
    }

    #[test]
    fn owners_share_the_bounds_of_their_backend() {
        let subscribed = SubscribedOwners::default();
        let (first, second) = (Arc::from("a"), Arc::from("b"));
        let (first, second) = (subscribed.of(Some(&first)), subscribed.of(Some(&second)));
        let all: Vec<_> = (0..1_000)
            .map_while(|at| first.resources.subscribe(&at.to_string()))
            .collect();
        assert_eq!(all.len(), 1_000);
        assert!(second.resources.subscribe("more").is_none());
        drop(all);
        assert!(second.resources.subscribe("more").is_some());
        let all: Vec<_> = (0..1_000)
            .map_while(|at| first.tasks.subscribe(7, &at.to_string()))
            .collect();
        assert_eq!(all.len(), 1_000);
        assert!(second.tasks.subscribe(7, "more").is_none());
    }

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
