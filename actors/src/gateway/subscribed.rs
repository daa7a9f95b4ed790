//! What callers subscribe to at a backend. An instance is asked once for each resource and task, however many callers want it.

use std::{
    collections::{BTreeSet, HashMap, hash_map},
    hash::Hash,
    sync::Arc,
};

use crate::locked::Locked;

use tokio::sync::watch;

use super::room::{Held, Room};

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
}
