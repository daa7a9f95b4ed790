use std::time::Duration;

use futures_util::FutureExt;

use super::{super::*, SimulatedDisk, World, block_on, opened, restarted};
use crate::{
    model::{DeadLetterReason, Headers, MessageId},
    storage::{Append, Appended, conformance::world::depth},
};

/// Waits for what the writer does by itself.
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
fn what_could_not_be_written_is_refused_and_is_not_there() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let world = World::new(&storage).await;
        let sent = world.sends(world.bob).await;
        let full = StoreError::Full("no space left on device".to_owned());
        platter.fails_with(full.clone());
        assert_eq!(tries_to_send(&world).await, Err(full.clone()));
        assert_eq!(tries_to_send(&world).await, Err(full.clone()), "and the next, at once");
        assert_eq!(storage.health(), StorageHealth::Unavailable(full.to_string()));

        platter.recovers();
        recovers(&storage).await;
        assert_eq!(world.depth(world.bob).await, depth(1, 0));
        let next = world.sends(world.bob).await;
        assert_eq!(world.leases(world.bob, 9).await, [sent, next]);
    });
}

#[test]
fn reads_go_on_while_nothing_can_be_written() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let world = World::new(&storage).await;
        let dead = world.sends_dead_letter(world.bob).await;
        let sent = world.sends(world.bob).await;
        platter.fails_with(gone());
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
fn all_who_waited_for_a_group_are_refused_with_it() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let world = World::new(&storage).await;
        let still = platter.pause_commits();
        let mut first = world.store.append(vec![a_message(&world)], world.now);
        assert!(first.as_mut().now_or_never().is_none());
        still.wait_for_commit();
        let mut second = world.store.append(vec![a_message(&world)], world.now);
        assert!(second.as_mut().now_or_never().is_none());
        platter.fails_with(gone());
        drop(still);
        assert_eq!(first.await, Err(gone()));
        assert_eq!(second.await, Err(gone()));

        platter.recovers();
        recovers(&storage).await;
        assert_eq!(world.depth(world.bob).await, depth(0, 0));
    });
}

#[test]
fn who_had_a_message_in_hand_when_the_disk_failed_can_acknowledge_it_after() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let mut world = World::new(&storage).await;
        let sent = world.sends_many(world.bob, 2).await;
        let claim = crate::storage::Claim::generate();
        world.claims(world.bob, claim).await;
        world.leases(world.bob, 2).await;
        platter.fails_with(gone());
        let which = crate::storage::Acknowledge::Ids(sent.clone());
        let refused = world.store.acknowledge(world.bob, which, world.now).await;
        assert_eq!(refused.map(|done| done.acknowledged), Err(gone()));
        platter.recovers();
        recovers(&storage).await;

        assert_eq!(world.acknowledges(world.bob, &sent[..1]).await.acknowledged, 1);
        let leased = world
            .store
            .lease(world.bob, Some(claim), 9, usize::MAX, world.now)
            .await;
        let leased = leased.expect("it is written");
        assert!(!leased.superseded, "the claim is good still");
        assert_eq!((leased.deliveries.len(), leased.deliveries[0].count), (1, 2));
        let _storage = restarted(&platter, &mut world);
        assert_eq!(world.leases_counted(world.bob, 9).await, [(sent[1], 3)]);
    });
}

#[test]
fn what_was_refused_and_written_nevertheless_is_seen_by_all() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let mut world = World::new(&storage).await;
        platter.fails_after_writing_with(gone());
        tries_to_send(&world)
            .await
            .expect_err("nobody knows that it was written");
        platter.recovers();
        recovers(&storage).await;
        let here = world.depth(world.bob).await;
        let _storage = restarted(&platter, &mut world);
        assert_eq!((here, world.depth(world.bob).await), (depth(1, 0), depth(1, 0)));
    });
}

#[test]
fn what_expires_while_nothing_can_be_written_is_dead_once() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let mut world = World::new(&storage).await;
        let sent = world.sends_for(world.bob, 10).await;
        platter.fails_with(gone());
        tries_to_send(&world).await.expect_err("it cannot be written");
        world.now.unix_ms += 11_000;
        world.now.mono_ms += 11_000;
        let expired = [(world.bob, crate::model::DeliveryStatus::Expired)];
        assert_eq!(world.statuses(sent).await, expired, "a read has noticed it");
        platter.recovers();
        recovers(&storage).await;

        assert_eq!(world.statuses(sent).await, expired);
        world.sends(world.carol).await;
        let _storage = restarted(&platter, &mut world);
        assert_eq!(world.dead().await, [(sent, world.bob, DeadLetterReason::Expired)]);
        assert_eq!(world.depth(world.bob).await, depth(0, 0));
    });
}

#[test]
fn a_disk_that_is_nearly_full_takes_nothing_new_and_gives_out_what_it_has() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let world = World::new(&storage).await;
        let sent = world.sends(world.bob).await;
        platter.has_space(31 << 20, 64 << 20);
        until("it is noticed", || storage.health() != StorageHealth::Healthy).await;

        let why = "less than 32 MiB are free on the disk";
        assert_eq!(tries_to_send(&world).await, Err(StoreError::Full(why.to_owned())));
        let told = format!("nothing new is accepted: {why}");
        assert_eq!(storage.health(), StorageHealth::Degraded(told));
        assert_eq!(world.leases(world.bob, 9).await, [sent]);
        assert_eq!(world.acknowledges(world.bob, &[sent]).await.acknowledged, 1);
        until("what was removed gives room", || platter.reclaims() > 0).await;

        platter.has_space(33 << 20, 64 << 20);
        recovers(&storage).await;
        world.sends(world.bob).await;
    });
}

#[test]
fn what_was_begun_is_written_when_the_storage_is_closed() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let mut world = World::new(&storage).await;
        let still = platter.pause_commits();
        let mut append = world.store.append(vec![a_message(&world)], world.now);
        assert!(append.as_mut().now_or_never().is_none());
        let closing = std::thread::spawn(move || drop(storage));
        drop(still);
        closing.join().expect("it ends");
        append.await.expect("it is written");
        assert!(matches!(tries_to_send(&world).await, Err(StoreError::Unreachable(_))));
        let _storage = restarted(&platter, &mut world);
        assert_eq!(world.depth(world.bob).await, depth(1, 0));
    });
}

#[test]
fn a_project_that_could_not_be_cleared_goes_on() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let mut world = World::new(&storage).await;
        let sent = world.sends(world.bob).await;
        platter.fails_with(gone());
        assert_eq!(storage.clear_project(world.project.clone()).await, Err(gone()));
        platter.recovers();
        recovers(&storage).await;
        world.store = storage.open(&world.project);
        assert_eq!(world.leases(world.bob, 9).await, [sent] as [MessageId; 1]);
    });
}
