mod differential;
mod faults;
mod outages;
mod properties;
mod restarts;
mod simulated_disk;

use std::future::Future;

use self::simulated_disk::SimulatedDisk;
use super::*;
use crate::{
    clock::now,
    storage::conformance::{BUDGET_CASES, CASES, TIMED_CASES, run, small_budgets, world::World},
};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}

fn opened(platter: &SimulatedDisk) -> DiskStorage {
    DiskStorage::open(platter.clone(), DiskSettings::default(), now()).expect("it can be read")
}

/// A world goes on with what another process reads from the disk.
fn restarted(platter: &SimulatedDisk, world: &mut World) -> DiskStorage {
    let storage = DiskStorage::open(platter.snapshot(), DiskSettings::default(), world.now).expect("it can be read");
    world.store = storage.open(&world.project);
    storage
}

#[test]
fn the_disk_keeps_every_promise() {
    let storage: Arc<dyn Storage> = Arc::new(opened(&SimulatedDisk::default()));
    block_on(run(CASES, || Arc::clone(&storage)));
}

#[test]
fn the_disk_keeps_no_more_than_its_budgets() {
    let settings = DiskSettings {
        retention: small_budgets(),
        ..DiskSettings::default()
    };
    let storage: Arc<dyn Storage> =
        Arc::new(DiskStorage::open(SimulatedDisk::default(), settings, now()).expect("it can be read"));
    block_on(run(BUDGET_CASES, || Arc::clone(&storage)));
}

#[test]
fn the_disk_takes_the_time_from_its_callers() {
    let storage: Arc<dyn Storage> = Arc::new(opened(&SimulatedDisk::default()));
    block_on(run(TIMED_CASES, || Arc::clone(&storage)));
}

#[test]
fn each_promise_is_kept_by_a_disk_that_was_just_opened() {
    let platter = SimulatedDisk::default();
    block_on(run(CASES, || Arc::new(opened(&platter))));
}
