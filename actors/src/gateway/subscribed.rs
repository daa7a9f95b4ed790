//! The resources of a backend that callers subscribe to. An instance is asked once for each resource, however
//! many callers want it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use crate::locked::Locked;

use tokio::sync::watch;

use super::room::{Held, Room};

/// Subscribed resources of one backend.
const RESOURCES_MAX: usize = 1_000;

/// The subscribed resources of one backend, or those of one owner of instances.
#[derive(Debug)]
pub struct SubscribedResources {
    of: Locked<HashMap<String, SubscribedResource>>,
    /// How often the set of resources has changed.
    revision: watch::Sender<u64>,
    /// Resources of the backend.
    room: Arc<Room>,
}

#[derive(Debug)]
struct SubscribedResource {
    _place: Held,
    subscribers: usize,
    /// How often the resource has changed.
    changes: watch::Sender<u64>,
}

/// The subscription of one caller to one resource, until it is dropped.
#[derive(Debug)]
pub struct ResourceSubscription {
    resources: Arc<SubscribedResources>,
    uri: String,
    changes: watch::Receiver<u64>,
}

impl Default for SubscribedResources {
    fn default() -> Self {
        Self::within(Room::new(RESOURCES_MAX))
    }
}

impl SubscribedResources {
    fn within(room: Arc<Room>) -> Self {
        Self {
            of: Locked::default(),
            revision: watch::Sender::default(),
            room,
        }
    }

    /// Others of the same backend, without any yet.
    pub(super) fn beside(&self) -> Self {
        Self::within(Arc::clone(&self.room))
    }

    fn revise(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Subscribes to a resource by the URI that the backend gives it. `None` if too many are subscribed to.
    pub fn subscribe(self: &Arc<Self>, uri: &str) -> Option<ResourceSubscription> {
        let mut of = self.of.lock();
        if !of.contains_key(uri) {
            let new = SubscribedResource {
                _place: self.room.hold(1)?,
                subscribers: 0,
                changes: watch::Sender::default(),
            };
            of.insert(uri.to_owned(), new);
        }
        let subscribed = of.get_mut(uri)?;
        subscribed.subscribers += 1;
        let (is_first, changes) = (subscribed.subscribers == 1, subscribed.changes.subscribe());
        drop(of);
        if is_first {
            self.revise();
        }
        Some(ResourceSubscription {
            resources: Arc::clone(self),
            uri: uri.to_owned(),
            changes,
        })
    }

    /// The URIs of the subscribed resources.
    pub fn uris(&self) -> BTreeSet<String> {
        self.of.lock().keys().cloned().collect()
    }

    /// Changes of the set of subscribed resources.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The backend has reported a change of this resource, which may be a part of a subscribed one
    /// (2025-11-25, server/resources, Subscriptions).
    pub fn note_change(&self, uri: &str) {
        for (subscribed, entry) in self.of.lock().iter() {
            let rest = uri.strip_prefix(subscribed.as_str());
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || subscribed.ends_with('/')) {
                entry.changes.send_modify(|count| *count += 1);
            }
        }
    }

    /// All resources may have changed while the backend was not heard.
    pub fn note_all(&self) {
        for entry in self.of.lock().values() {
            entry.changes.send_modify(|count| *count += 1);
        }
    }
}

impl ResourceSubscription {
    /// Waits for the next change. Several changes may be reported as one.
    pub async fn changed(&mut self) {
        // The sender lives as long as this subscription.
        let _ = self.changes.changed().await;
    }
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        let mut of = self.resources.of.lock();
        let Some(subscribed) = of.get_mut(&self.uri) else {
            return;
        };
        subscribed.subscribers -= 1;
        if subscribed.subscribers == 0 {
            of.remove(&self.uri);
            drop(of);
            self.resources.revise();
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
