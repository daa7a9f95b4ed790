//! Random operations while the disk fails and is well again: what was accepted is there, what was refused is not.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use proptest::{collection::vec, prelude::*};

use super::{super::*, SimulatedDisk, World, block_on, faults::recovers, opened, restarted};
use crate::{
    model::{Headers, MessageId, SessionId},
    storage::{Acknowledge, StoreError},
};

#[derive(Clone, Debug)]
enum Step {
    /// So many at once.
    Send(usize),
    Lease(usize),
    /// So many of what is in hand.
    Acknowledge(usize),
    Fail,
    Recover,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..5_usize).prop_map(Step::Send),
        5 => (1..8_usize).prop_map(Step::Lease),
        5 => (1..8_usize).prop_map(Step::Acknowledge),
        2 => Just(Step::Fail),
        2 => Just(Step::Recover),
        1 => Just(Step::Restart),
    ];
    vec(step, 1..60)
}

struct Outages {
    platter: SimulatedDisk,
    storage: DiskStorage,
    world: World,
    /// Accepted, and not acknowledged.
    due: BTreeSet<MessageId>,
    in_hand: Vec<MessageId>,
}

impl Outages {
    async fn new() -> Self {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let world = World::new(&storage).await;
        Self {
            platter,
            storage,
            world,
            due: BTreeSet::new(),
            in_hand: Vec::new(),
        }
    }

    fn bob(&self) -> SessionId {
        self.world.bob
    }

    async fn step(&mut self, step: Step) {
        let (store, bob, now) = (Arc::clone(&self.world.store), self.bob(), self.world.now);
        match step {
            Step::Send(len) => {
                let letters: Vec<_> = (0..len).map(|_| self.world.direct(bob, &Headers::default())).collect();
                let ids: Vec<_> = letters.iter().map(|letter| letter.message.id).collect();
                let appends = letters.into_iter().map(|letter| store.append(vec![letter], now));
                for (id, answer) in ids.into_iter().zip(join_all(appends).await) {
                    match answer.as_deref() {
                        Ok([crate::storage::Appended::Accepted { refused, .. }]) if refused.is_empty() => {
                            self.due.insert(id);
                        }
                        // The queue is full, or nothing can be written.
                        _ => {}
                    }
                }
            }
            Step::Lease(limit) => {
                if let Ok(leased) = store.lease(bob, None, limit, usize::MAX, now).await {
                    for id in leased.deliveries.iter().map(|delivery| delivery.message.id) {
                        // What was in hand when the disk failed comes again.
                        if !self.in_hand.contains(&id) {
                            self.in_hand.push(id);
                        }
                    }
                }
            }
            Step::Acknowledge(len) => {
                let len = len.min(self.in_hand.len());
                let ids = self.in_hand[..len].to_vec();
                if let Ok(done) = store.acknowledge(bob, Acknowledge::Ids(ids.clone()), now).await {
                    assert_eq!(done.acknowledged, len);
                    self.in_hand.drain(..len);
                    self.due.retain(|id| !ids.contains(id));
                }
            }
            Step::Fail => self
                .platter
                .fails_with(StoreError::Unreachable("the disk is gone".to_owned())),
            Step::Recover => self.recover().await,
            Step::Restart => {
                self.platter = self.platter.snapshot();
                self.platter.recovers();
                self.storage = opened(&self.platter);
                self.world.store = self.storage.open(&self.world.project);
            }
        }
    }

    async fn recover(&self) {
        self.platter.recovers();
        recovers(&self.storage).await;
    }

    async fn end(mut self) {
        self.recover().await;
        let platter = self.platter.clone();
        let _storage = restarted(&platter, &mut self.world);
        let waiting = self.world.leases(self.bob(), usize::MAX).await;
        assert_eq!(waiting.len(), self.due.len(), "each once");
        assert_eq!(BTreeSet::from_iter(waiting), self.due);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn what_was_accepted_is_there_whatever_the_disk_does(steps in steps()) {
        block_on(async {
            let mut outages = Outages::new().await;
            for step in steps {
                outages.step(step).await;
            }
            outages.end().await;
        });
    }
}
