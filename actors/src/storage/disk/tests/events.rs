//! The event log on the disk: what was read is still there after a restart, at the same position.

use std::time::Duration;

use futures_util::FutureExt;

use super::{super::records::kind, SimulatedDisk, World, block_on, faults::recovers, opened, restarted};
use crate::{
    model::{Headers, MessageId, ProjectEvent},
    storage::{
        EventPage, EventQuery, EventStart, LoggedEvent, Retention, Storage, StoreError,
        disk::{DiskSettings, DiskStorage},
    },
};

impl World {
    async fn all_events(&self) -> Vec<LoggedEvent> {
        self.events_from(EventStart::Oldest).await.events
    }

    async fn events_from(&self, from: EventStart) -> EventPage {
        let mut whole = EventPage::default();
        let mut query = EventQuery {
            from,
            ..EventQuery::WHOLE_LOG
        };
        loop {
            let page = self.store.events(query).await.expect("the log can be read");
            whole.gap |= page.gap;
            whole.events.extend(page.events);
            match page.next {
                Some(next) if page.more => query.from = EventStart::After(next),
                _ => return whole,
            }
        }
    }

    /// Sends messages that bob gets and acknowledges.
    async fn exchanges(&self, count: usize) {
        for _ in 0..count {
            let id = self.sends(self.bob).await;
            assert_eq!(self.leases(self.bob, 1).await, [id]);
            self.acknowledges(self.bob, &[id]).await;
        }
    }
}

fn accepted(events: &[LoggedEvent]) -> Vec<MessageId> {
    let accepted = events.iter().filter_map(|logged| match &logged.event {
        ProjectEvent::Accepted(accepted) => Some(accepted.message),
        _ => None,
    });
    accepted.collect()
}

fn opened_with(disk: &SimulatedDisk, world: &World, retention: Retention) -> DiskStorage {
    let settings = DiskSettings {
        retention,
        ..DiskSettings::default()
    };
    DiskStorage::open(disk.clone(), settings, world.now).expect("the disk can be opened")
}

#[test]
fn a_follower_goes_on_after_a_restart() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        // More than one block.
        world.exchanges(700).await;
        let before = world.all_events().await;
        assert_eq!(before.len(), 3 * 700);
        assert!(before.last().is_some_and(|last| last.position.block > 1));

        let _storage = restarted(&disk, &mut world);
        assert_eq!(world.all_events().await, before);
        let from = EventStart::After(before[2_000].position);
        assert_eq!(world.events_from(from).await.events, before[2_001..]);
        let sent = world.sends(world.bob).await;
        let from = EventStart::After(before[2_099].position);
        let page = world.events_from(from).await;
        assert_eq!((accepted(&page.events), page.gap), (vec![sent], false));
        let sequence = world.all_events().await;
        assert!(sequence.is_sorted_by(|a, b| a.position < b.position));
    });
}

#[test]
fn an_event_is_shown_only_when_it_is_on_the_disk() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let world = World::new(&storage).await;
        let pause = disk.pause_commits();
        let append = world.direct(world.bob, &Headers::default());
        let mut append = world.store.append(vec![append], world.now);
        assert!(append.as_mut().now_or_never().is_none());
        pause.wait_for_commit();
        let mut events = world.store.events(EventQuery::WHOLE_LOG);
        assert!(events.as_mut().now_or_never().is_none(), "a restart could take it back");
        drop(pause);
        append.await.expect("it is written");
        assert_eq!(events.await.expect("it is read").events.len(), 1);
    });
}

#[test]
fn events_that_never_reached_the_disk_leave_no_hole() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let world = World::new(&storage).await;
        world.exchanges(2).await;
        let before = world.all_events().await;
        disk.fails_with(StoreError::Unreachable("the disk is gone".to_owned()));
        let append = world.direct(world.bob, &Headers::default());
        world
            .store
            .append(vec![append], world.now)
            .await
            .expect_err("the disk is gone");
        world
            .store
            .events(EventQuery::WHOLE_LOG)
            .await
            .expect_err("nothing that is true can be said");
        disk.recovers();
        recovers(&storage).await;
        let sent = world.sends(world.bob).await;
        let page = world.events_from(EventStart::After(before[5].position)).await;
        assert_eq!((accepted(&page.events), page.gap), (vec![sent], false));
        assert_eq!(world.all_events().await[..6], before);
    });
}

#[test]
fn trimmed_events_leave_the_disk() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let mut world = World::new(&opened(&disk)).await;
        let retention = Retention {
            events_bytes_max: 200_000,
            ..Retention::default()
        };
        let storage = opened_with(&disk, &world, retention);
        world.store = storage.open(&world.project);
        let bytes = || disk.values_of(kind::EVENTS).iter().map(Vec::len).sum::<usize>();
        world.exchanges(1_000).await;
        let first = bytes();
        world.exchanges(1_000).await;
        for bytes in [first, bytes()] {
            // The block that is written comes on top.
            assert!((100_000..280_000).contains(&bytes), "{bytes}");
        }
        // Smaller bounds after a restart.
        drop(storage);
        let retention = Retention {
            events_bytes_max: 0,
            ..retention
        };
        let storage = opened_with(&disk, &world, retention);
        world.store = storage.open(&world.project);
        world.sends(world.bob).await;
        assert_eq!(accepted(&world.all_events().await).len(), 1);
        drop(storage);
        assert!(bytes() < 1_000, "{}", bytes());
    });
}

#[test]
fn old_events_leave_the_disk_while_the_project_is_idle() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        world.exchanges(10).await;
        world.pass(Duration::from_hours(24) + Duration::from_secs(1));
        world.store.sweep(world.now).await.expect("it is written");
        assert_eq!(disk.values_of(kind::EVENTS), [[0; 0]; 0]);
        assert_eq!(world.all_events().await, []);
    });
}

#[test]
fn no_byte_of_a_payload_is_in_the_log_on_the_disk() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let mut world = World::new(&opened(&disk)).await;
        for history_payloads in [false, true] {
            let retention = Retention {
                history_payloads,
                ..Retention::default()
            };
            let storage = opened_with(&disk, &world, retention);
            world.store = storage.open(&world.project);
            world.sends_text(world.bob, "canary-7f3a").await;
            let has_canary = |value: &Vec<u8>| value.windows(11).any(|window| window == b"canary-7f3a");
            let found = disk.values_of(kind::EVENTS).iter().any(has_canary);
            assert_eq!(found, history_payloads);
        }
    });
}

#[test]
fn a_part_that_is_missing_is_a_gap_in_the_log() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let world = World::new(&storage).await;
        world.exchanges(700).await;
        disk.remove_first(kind::EVENTS);
        let page = world.events_from(EventStart::Oldest).await;
        assert!(page.gap);
        assert!(page.events.iter().all(|logged| logged.position.block > 1));
    });
}
