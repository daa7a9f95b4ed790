use std::time::Duration;

use futures_util::{FutureExt, future::join_all};

use super::{super::*, SimulatedDisk, World, block_on, opened, restarted};
use crate::{
    clock::now,
    model::{AuditOutcome, DeadLetterReason, NewProject, ProjectConfig},
    storage::{Retention, conformance::world::depth, receipts::ReceiptKey},
};

#[test]
fn what_was_delivered_and_not_acknowledged_comes_again_and_counts_it() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let mut world = World::new(&storage).await;
        let sent = world.sends_many(world.bob, 3).await;
        assert_eq!(world.leases(world.bob, 2).await, sent[..2]);
        world.acknowledges(world.bob, &sent[..1]).await;

        let _storage = restarted(&platter, &mut world);
        assert_eq!(world.depth(world.bob).await, depth(2, 0));
        assert_eq!(world.leases_counted(world.bob, 9).await, [(sent[1], 2), (sent[2], 1)]);
    });
}

#[test]
fn who_was_handed_a_message_before_a_restart_can_acknowledge_it_after() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let mut world = World::new(&storage).await;
        let sent = world.sends(world.bob).await;
        world.leases(world.bob, 1).await;

        let _storage = restarted(&platter, &mut world);
        assert_eq!(world.acknowledges(world.bob, &[sent]).await.acknowledged, 1);
        assert_eq!(world.depth(world.bob).await, depth(0, 0));
    });
}

#[test]
fn nobody_is_told_of_what_is_not_on_the_disk_yet() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let mut world = World::new(&storage).await;
        let still = platter.pause_commits();
        let append = world.direct(world.bob, &crate::model::Headers::default());
        let mut append = world.store.append(vec![append], world.now);
        assert!(append.as_mut().now_or_never().is_none());
        still.wait_for_commit();
        let mut lease = world.store.lease(world.bob, None, 1, usize::MAX, world.now);
        assert!(
            lease.as_mut().now_or_never().is_none(),
            "it saw what may be gone tomorrow"
        );

        let before = world.store.clone();
        let other = restarted(&platter, &mut world);
        assert_eq!(world.depth(world.bob).await, depth(0, 0), "killed before");
        drop(other);
        world.store = before;
        drop(still);
        append.await.expect("it is written now");
        assert_eq!(lease.await.expect("that too").deliveries.len(), 1);

        let _storage = restarted(&platter, &mut world);
        assert_eq!(world.depth(world.bob).await, depth(1, 0), "killed after");
    });
}

#[test]
fn all_who_come_while_a_group_is_written_share_the_next() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let world = World::new(&storage).await;
        let still = platter.pause_commits();
        let send = || {
            let append = world.direct(world.bob, &crate::model::Headers::default());
            let mut append = world.store.append(vec![append], world.now);
            assert!(append.as_mut().now_or_never().is_none());
            append
        };
        let first = send();
        still.wait_for_commit();
        let before = platter.commits();
        let others: Vec<_> = (0..50).map(|_| send()).collect();
        drop(still);
        first.await.expect("it is written");
        for answer in join_all(others).await {
            answer.expect("it is written");
        }
        assert_eq!(platter.commits() - before, 2);
    });
}

#[test]
fn time_to_live_goes_on_while_nobody_is_there() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let mut world = World::new(&storage).await;
        let (short, long) = (
            world.sends_for(world.bob, 60).await,
            world.sends_for(world.bob, 120).await,
        );

        // Another process has a monotonic clock of its own.
        world.now = Now {
            unix_ms: world.now.unix_ms + 61_000,
            mono_ms: 7,
        };
        let _storage = restarted(&platter, &mut world);
        assert_eq!(world.leases(world.bob, 9).await, [long]);
        assert_eq!(world.dead().await, [(short, world.bob, DeadLetterReason::Expired)]);
        world.pass(Duration::from_secs(60));
        world.releases_all(world.bob).await;
        assert_eq!(world.depth(world.bob).await, depth(0, 0));
    });
}

#[test]
fn projects_and_the_audit_are_there_after_a_restart() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let id = ProjectId::parse("p-1").expect("an id");
        let wanted = NewProject {
            id: id.clone(),
            name: "One".to_owned(),
            description: None,
            tags: ["a".to_owned()].into(),
            config: ProjectConfig::default(),
        };
        let record = Arc::new(ProjectRecord::new(wanted, 1).expect("a good project"));
        assert!(storage.put_project(Arc::clone(&record)).await.expect("it is written"));
        let entry = AuditEntry {
            id: uuid::Uuid::now_v7(),
            at_ms: 1,
            actor: "admin".to_owned(),
            address: None,
            project: Some(id.clone()),
            action: "project.create".to_owned(),
            target: None,
            outcome: AuditOutcome::Done,
            code: None,
        };
        storage.append_audit(entry.clone()).await.expect("it is written");

        let storage = opened(&platter.snapshot());
        assert_eq!(storage.project(id).await.expect("read"), Some(record));
        let everything = AuditQuery {
            limit: 9,
            ..AuditQuery::default()
        };
        let audit = storage.audit(everything).await.expect("read");
        assert_eq!(audit.iter().map(|kept| kept.id).collect::<Vec<_>>(), [entry.id]);
    });
}

#[test]
fn what_a_later_version_wrote_is_refused() {
    let platter = SimulatedDisk::default();
    drop(opened(&platter));
    platter.put(
        records::key(SYSTEM_SPACE, kind::VERSION).0,
        (VERSION + 1).to_be_bytes().to_vec(),
    );
    let error = DiskStorage::open(platter, DiskSettings::default(), now()).expect_err("nobody knows what it means");
    let told = format!(
        "the data are of version {}, and this broker reads up to {VERSION}",
        VERSION + 1
    );
    assert!(error.to_string().contains(&told), "{error}");
}

#[test]
fn what_cannot_be_read_is_refused_and_not_guessed_at() {
    block_on(async {
        let platter = SimulatedDisk::default();
        World::new(&opened(&platter)).await;
        let at = ReceiptKey {
            receipt: 0,
            recipient_index: 0,
        };
        let place = records::receipt_key(SYSTEM_SPACE + 1, kind::QUEUED, at);
        platter.put(place, vec![1, 2, 3]);
        let error = DiskStorage::open(platter, DiskSettings::default(), now()).expect_err("it is too short");
        assert!(error.to_string().contains("a record cannot be read"), "{error}");
    });
}

#[test]
fn what_is_done_with_leaves_the_disk() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let settings = DiskSettings {
            retention: Retention {
                receipts_len_max: 10,
                dead_letters_len_max: 5,
                ..Retention::default()
            },
            ..DiskSettings::default()
        };
        let storage = DiskStorage::open(platter.clone(), settings, now()).expect("it can be read");
        let world = World::new(&storage).await;
        let empty = platter.len();
        for _ in 0..20 {
            world.sends_dead_letter(world.carol).await;
            world.append(world.broadcast(&[world.bob, world.carol])).await;
            world.sends_many(world.bob, 5).await;
            for session in [world.bob, world.carol] {
                let leased = world.leases(session, 99).await;
                world.acknowledges(session, &leased).await;
            }
        }
        assert_eq!(world.depth(world.bob).await, depth(0, 0));
        // Receipts and dead letters, as many as may be kept.
        assert_eq!(platter.len(), empty + 10 + 5);
    });
}

#[test]
fn a_project_that_is_cleared_leaves_nothing_on_the_disk() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let empty = platter.len();
        let world = World::new(&storage).await;
        world.sends_many(world.bob, 5).await;
        world.append(world.broadcast(&[world.bob, world.carol])).await;
        storage
            .clear_project(world.project.clone())
            .await
            .expect("it is written");
        drop(world);
        // What is to be cleared away is cleared away before the end, or at the next start.
        drop(storage);
        assert_eq!(platter.len(), empty);
    });
}

#[test]
fn clearing_away_goes_on_after_a_restart() {
    block_on(async {
        let platter = SimulatedDisk::default();
        let storage = opened(&platter);
        let empty = platter.len();
        let world = World::new(&storage).await;
        world.sends_many(world.bob, 5).await;
        // As if the process had been killed between forgetting the project and clearing it away.
        let cut = platter.snapshot();
        cut.remove(&records::space_key(&world.project));
        drop(opened(&cut));
        assert_eq!(cut.len(), empty);
    });
}
