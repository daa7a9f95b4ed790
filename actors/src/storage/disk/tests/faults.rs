//! Disk failures: what fails to be written is refused, and the storage recovers.

use std::time::Duration;

use futures_util::FutureExt;

use super::{SimulatedDisk, World, block_on, opened, restarted};
use crate::{
    model::{DeadLetterReason, Headers, MessageId},
    storage::{Append, Appended, Storage, StorageHealth, StoreError, conformance::world::depth, disk::DiskStorage},
};

/// Polls until the writer thread has made `is_so` true.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..4000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never came to be: {what}");
}

pub async fn recovers(storage: &DiskStorage) {
    until("the disk is well", || storage.health() == StorageHealth::Healthy).await;
}

fn gone() -> StoreError {
    StoreError::Unreachable("the disk is gone".to_owned())
}

fn a_message(world: &World) -> Append {
    world.direct(world.bob, &Headers::default())
}

async fn tries_to_send(world: &World) -> Result<Vec<Appended>, StoreError> {
    world.store.append(vec![a_message(world)], world.now).await
}

#[test]
fn a_message_that_cannot_be_written_is_refused_and_not_kept() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let world = World::new(&storage).await;
        let sent = world.sends(world.bob).await;
        let full = StoreError::Full("no space left on device".to_owned());
        disk.fails_with(full.clone());
        assert_eq!(tries_to_send(&world).await, Err(full.clone()));
        assert_eq!(tries_to_send(&world).await, Err(full.clone()), "and the next, at once");
        assert_eq!(storage.health(), StorageHealth::Unavailable(full.to_string()));

        disk.recovers();
        recovers(&storage).await;
        assert_eq!(world.depth(world.bob).await, depth(1, 0));
        let next = world.sends(world.bob).await;
        assert_eq!(world.leases(world.bob, 9).await, [sent, next]);
    });
}

#[test]
fn reads_work_while_writes_fail() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let world = World::new(&storage).await;
        let dead = world.sends_dead_letter(world.bob).await;
        let sent = world.sends(world.bob).await;
        disk.fails_with(gone());
        tries_to_send(&world).await.expect_err("it cannot be written");

        assert_eq!(world.sessions().await.len(), 3);
        assert_eq!(world.statuses(sent).await.len(), 1);
        assert_eq!(world.dead().await, [(dead, world.bob, DeadLetterReason::DeliveryLimit)]);
        until("the refused message is gone", || {
            let depth = world.depth(world.bob).now_or_never();
            depth.is_some_and(|depth| depth.waiting == 1)
        })
        .await;
    });
}

#[test]
fn all_operations_of_a_failed_group_are_refused() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let world = World::new(&storage).await;
        let pause = disk.pause_commits();
        let mut first = world.store.append(vec![a_message(&world)], world.now);
        assert!(first.as_mut().now_or_never().is_none());
        pause.wait_for_commit();
        let mut second = world.store.append(vec![a_message(&world)], world.now);
        assert!(second.as_mut().now_or_never().is_none());
        disk.fails_with(gone());
        drop(pause);
        assert_eq!(first.await, Err(gone()));
        assert_eq!(second.await, Err(gone()));

        disk.recovers();
        recovers(&storage).await;
        assert_eq!(world.depth(world.bob).await, depth(0, 0));
    });
}

#[test]
fn a_message_leased_before_a_failure_can_be_acknowledged_after_it() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let sent = world.sends_many(world.bob, 2).await;
        let claim = crate::storage::Claim::generate();
        world.claims(world.bob, claim).await;
        world.leases(world.bob, 2).await;
        disk.fails_with(gone());
        let which = crate::storage::Acknowledge::Ids(sent.clone());
        let refused = world.store.acknowledge(world.bob, which, world.now).await;
        assert_eq!(refused.map(|done| done.acknowledged), Err(gone()));
        disk.recovers();
        recovers(&storage).await;

        assert_eq!(world.acknowledges(world.bob, &sent[..1]).await.acknowledged, 1);
        let leased = world
            .store
            .lease(world.bob, Some(claim), 9, usize::MAX, world.now)
            .await;
        let leased = leased.expect("it is written");
        assert!(!leased.superseded, "the claim is good pause");
        assert_eq!((leased.deliveries.len(), leased.deliveries[0].count), (1, 2));
        let _storage = restarted(&disk, &mut world);
        assert_eq!(world.leases_counted(world.bob, 9).await, [(sent[1], 3)]);
    });
}

#[test]
fn a_refused_message_that_was_written_becomes_visible_everywhere() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        disk.fails_after_writing_with(gone());
        tries_to_send(&world).await.expect_err("the commit reported a failure");
        disk.recovers();
        recovers(&storage).await;
        let here = world.depth(world.bob).await;
        let _storage = restarted(&disk, &mut world);
        assert_eq!((here, world.depth(world.bob).await), (depth(1, 0), depth(1, 0)));
    });
}

#[test]
fn a_message_that_expires_during_a_failure_is_dead_lettered_once() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let sent = world.sends_for(world.bob, 10).await;
        disk.fails_with(gone());
        tries_to_send(&world).await.expect_err("it cannot be written");
        world.now.unix_ms += 11_000;
        world.now.mono_ms += 11_000;
        let expired = [(world.bob, crate::model::DeliveryStatus::Expired)];
        assert_eq!(world.statuses(sent).await, expired, "a read has noticed it");
        disk.recovers();
        recovers(&storage).await;

        assert_eq!(world.statuses(sent).await, expired);
        world.sends(world.carol).await;
        let _storage = restarted(&disk, &mut world);
        assert_eq!(world.dead().await, [(sent, world.bob, DeadLetterReason::Expired)]);
        assert_eq!(world.depth(world.bob).await, depth(0, 0));
    });
}

#[test]
fn a_nearly_full_disk_refuses_new_messages_and_delivers_old_ones() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let world = World::new(&storage).await;
        let sent = world.sends(world.bob).await;
        disk.has_space(31 << 20, 64 << 20);
        until("it is noticed", || storage.health() != StorageHealth::Healthy).await;

        let why = "less than 32 MiB are free on the disk";
        assert_eq!(tries_to_send(&world).await, Err(StoreError::Full(why.to_owned())));
        let told = format!("nothing new is accepted: {why}");
        assert_eq!(storage.health(), StorageHealth::Degraded(told));
        assert_eq!(world.leases(world.bob, 9).await, [sent]);
        assert_eq!(world.acknowledges(world.bob, &[sent]).await.acknowledged, 1);
        until("what was removed gives room", || disk.reclaims() > 0).await;

        disk.has_space(33 << 20, 64 << 20);
        recovers(&storage).await;
        world.sends(world.bob).await;
    });
}

#[test]
fn pending_operations_are_written_when_the_storage_closes() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let pause = disk.pause_commits();
        let mut append = world.store.append(vec![a_message(&world)], world.now);
        assert!(append.as_mut().now_or_never().is_none());
        let closing = std::thread::spawn(move || drop(storage));
        drop(pause);
        closing.join().expect("it ends");
        append.await.expect("it is written");
        assert!(matches!(tries_to_send(&world).await, Err(StoreError::Unreachable(_))));
        let _storage = restarted(&disk, &mut world);
        assert_eq!(world.depth(world.bob).await, depth(1, 0));
    });
}

#[test]
fn a_project_that_cannot_be_cleared_keeps_its_data() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let sent = world.sends(world.bob).await;
        disk.fails_with(gone());
        assert_eq!(storage.clear_project(world.project.clone()).await, Err(gone()));
        disk.recovers();
        recovers(&storage).await;
        world.store = storage.open(&world.project);
        assert_eq!(world.leases(world.bob, 9).await, [sent] as [MessageId; 1]);
    });
}
