//! Random operations with disk failures between them: accepted messages are kept, refused ones are not.

use std::{collections::BTreeSet, sync::Arc};

use futures_util::future::join_all;
use proptest::{collection::vec, prelude::*};

use super::{SimulatedDisk, World, block_on, faults::recovers, opened, restarted};
use crate::{
    model::{Headers, MessageId, SessionId},
    storage::{Acknowledge, Storage, StoreError, disk::DiskStorage},
};

#[derive(Clone, Debug)]
enum Step {
    /// Sends this many messages at once.
    Send(usize),
    Lease(usize),
    /// Acknowledges this many of the leased messages.
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
    disk: SimulatedDisk,
    storage: DiskStorage,
    world: World,
    /// Messages that were accepted and not acknowledged.
    due: BTreeSet<MessageId>,
    leased: Vec<MessageId>,
}

impl Outages {
    async fn new() -> Self {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let world = World::new(&storage).await;
        Self {
            disk,
            storage,
            world,
            due: BTreeSet::new(),
            leased: Vec::new(),
        }
    }

    fn bob(&self) -> SessionId {
        self.world.bob
    }

    async fn step(&mut self, step: Step) {
        let (store, bob, now) = (Arc::clone(&self.world.store), self.bob(), self.world.now);
        match step {
            Step::Send(len) => {
                let appends: Vec<_> = (0..len).map(|_| self.world.direct(bob, &Headers::default())).collect();
                let ids: Vec<_> = appends.iter().map(|append| append.message.id).collect();
                let appends = appends.into_iter().map(|append| store.append(vec![append], now));
                for (id, answer) in ids.into_iter().zip(join_all(appends).await) {
                    match answer.as_deref() {
                        Ok([crate::storage::Appended::Accepted { refused, .. }]) if refused.is_empty() => {
                            self.due.insert(id);
                        }
                        // The queue is full, or the disk fails.
                        _ => {}
                    }
                }
            }
            Step::Lease(limit) => {
                if let Ok(leased) = store.lease(bob, None, limit, usize::MAX, now).await {
                    for id in leased.deliveries.iter().map(|delivery| delivery.message.id) {
                        // A message that was leased when the disk failed is delivered again.
                        if !self.leased.contains(&id) {
                            self.leased.push(id);
                        }
                    }
                }
            }
            Step::Acknowledge(len) => {
                let len = len.min(self.leased.len());
                let ids = self.leased[..len].to_vec();
                if let Ok(done) = store.acknowledge(bob, Acknowledge::Ids(ids.clone()), now).await {
                    assert_eq!(done.acknowledged, len);
                    self.leased.drain(..len);
                    self.due.retain(|id| !ids.contains(id));
                }
            }
            Step::Fail => self
                .disk
                .fails_with(StoreError::Unreachable("the disk is gone".to_owned())),
            Step::Recover => self.recover().await,
            Step::Restart => {
                self.disk = self.disk.snapshot();
                self.disk.recovers();
                self.storage = opened(&self.disk);
                self.world.store = self.storage.open(&self.world.project);
            }
        }
    }

    async fn recover(&self) {
        self.disk.recovers();
        recovers(&self.storage).await;
    }

    async fn end(mut self) {
        self.recover().await;
        let disk = self.disk.clone();
        let _storage = restarted(&disk, &mut self.world);
        let waiting = self.world.leases(self.bob(), usize::MAX).await;
        assert_eq!(waiting.len(), self.due.len(), "each once");
        assert_eq!(BTreeSet::from_iter(waiting), self.due);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn accepted_messages_survive_disk_failures(steps in steps()) {
        block_on(async {
            let mut outages = Outages::new().await;
            for step in steps {
                outages.step(step).await;
            }
            outages.end().await;
        });
    }
}
