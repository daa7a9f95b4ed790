//! Questions and yaps on a disk whose process is killed and started again, next to a memory store that never stops.

use super::{DiskSettings, DiskStorage, SimulatedDisk, block_on};
use crate::{
    clock::now,
    model::QuestionId,
    storage::{
        Storage,
        conformance::{desk_histories::DeskHistory, small_budgets},
    },
};

fn open(disk: &SimulatedDisk) -> DiskStorage {
    let settings = DiskSettings {
        retention: small_budgets(),
        ..DiskSettings::default()
    };
    DiskStorage::open(disk.clone(), settings, now()).expect("the disk can be opened")
}

#[test]
fn questions_and_yaps_survive_restarts() {
    block_on(async {
        for seed in 0..40 {
            let mut disk = SimulatedDisk::default();
            let mut storage = open(&disk);
            let mut history = DeskHistory::begin(&storage, seed).await;
            for _ in 0..8 {
                for _ in 0..10 {
                    history.step().await;
                }
                // A release does not wait for the disk; this operation does, and is written behind it.
                let unknown = history.world.store.remove_question(QuestionId::generate());
                assert_eq!(unknown.await, Ok(false));
                disk = disk.snapshot();
                let restarted = open(&disk);
                history.world.store = restarted.open(&history.world.project);
                storage = restarted;
                history.compare().await;
            }
            drop(storage);
        }
    });
}
