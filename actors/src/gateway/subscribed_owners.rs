//! The subscriptions of callers, separate for each owner of instances: what an instance reports is for the callers of its owner
//! alone.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use crate::locked::Locked;

use super::{subscribed::SubscribedResources, subscribed_tasks::SubscribedTasks};

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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

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
}
