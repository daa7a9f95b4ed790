//! Tests of the disk storage over a simulated disk.

mod desk;
mod differential;
mod events;
mod faults;
mod outages;
mod properties;
mod queries;
mod restarts;
mod simulated_disk;

use std::{future::Future, sync::Arc};

use self::simulated_disk::SimulatedDisk;
use super::{DiskSettings, DiskStorage};
use crate::{
    clock::now,
    storage::{
        Storage,
        conformance::{BUDGET_CASES, CASES, EVENT_CASES, TIMED_CASES, run, small_budgets, world::World},
    },
};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}

fn opened(disk: &SimulatedDisk) -> DiskStorage {
    DiskStorage::open(disk.clone(), DiskSettings::default(), now()).expect("the disk can be opened")
}

/// Opens a copy of the disk as another process would, and points `world` at it.
fn restarted(disk: &SimulatedDisk, world: &mut World) -> DiskStorage {
    let storage =
        DiskStorage::open(disk.snapshot(), DiskSettings::default(), world.now).expect("the disk can be opened");
    world.store = storage.open(&world.project);
    storage
}

#[test]
fn the_disk_storage_passes_the_conformance_suite_on_a_simulated_disk() {
    let storage: Arc<dyn Storage> = Arc::new(opened(&SimulatedDisk::default()));
    block_on(run(CASES, || Arc::clone(&storage)));
    block_on(run(EVENT_CASES, || Arc::clone(&storage)));
}

#[test]
fn the_disk_storage_passes_the_budget_cases() {
    let settings = DiskSettings {
        retention: small_budgets(),
        ..DiskSettings::default()
    };
    let storage: Arc<dyn Storage> =
        Arc::new(DiskStorage::open(SimulatedDisk::default(), settings, now()).expect("the disk can be opened"));
    block_on(run(BUDGET_CASES, || Arc::clone(&storage)));
}

#[test]
fn the_disk_storage_passes_the_timed_cases() {
    let storage: Arc<dyn Storage> = Arc::new(opened(&SimulatedDisk::default()));
    block_on(run(TIMED_CASES, || Arc::clone(&storage)));
}

#[test]
fn the_disk_storage_passes_the_conformance_suite_reopened_for_each_case() {
    let disk = SimulatedDisk::default();
    block_on(run(CASES, || Arc::new(opened(&disk))));
}
