//! Restarts: what was answered is still there, and nothing else.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use semver::Version;

use super::{
    super::{
        codec::RecordReader,
        records::{self, SYSTEM_SPACE, VERSION, VERSION_WITHOUT_LENSES, key, kind, kind_of, read_key},
    },
    SimulatedDisk, World, block_on, opened, restarted,
};
use crate::{
    clock::{Now, now},
    model::{
        AuditEntry, AuditOutcome, AuditQuery, DeadLetterReason, DeliveryStatus, NewProject, Outcome, OutcomeKind,
        ProjectConfig, ProjectId, ProjectRecord, Transformed,
    },
    storage::{
        Acknowledge, Before, RecordPut, Release, Retention, Storage, Table, Unreported,
        conformance::world::{depth, done},
        disk::{DiskSettings, DiskStorage},
        state::journal::ReceiptKey,
    },
};

#[test]
fn an_unacknowledged_message_is_delivered_again_with_its_count() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let sent = world.sends_many(world.bob, 3).await;
        assert_eq!(world.leases(world.bob, 2).await, sent[..2]);
        world.acknowledges(world.bob, &sent[..1]).await;

        let _storage = restarted(&disk, &mut world);
        assert_eq!(world.depth(world.bob).await, depth(2, 0));
        assert_eq!(world.leases_counted(world.bob, 9).await, [(sent[1], 2), (sent[2], 1)]);
    });
}

#[test]
fn a_lease_that_does_not_count_leaves_nothing_on_the_disk() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let sent = world.sends_many(world.bob, 3).await;
        world.leases(world.bob, 3).await;
        let released = world
            .releases(world.bob, Release::Undelivered(sent[..2].to_vec()))
            .await;
        assert_eq!((released.returned, released.depth), (2, depth(2, 1)));

        let _storage = restarted(&disk, &mut world);
        assert_eq!(world.acknowledges(world.bob, &sent).await.unknown, sent[..2]);
        assert_eq!(world.leases_counted(world.bob, 9).await, [(sent[0], 1), (sent[1], 1)]);
    });
}

#[test]
fn a_message_delivered_before_a_restart_can_be_acknowledged_after_it() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let sent = world.sends(world.bob).await;
        world.leases(world.bob, 1).await;

        let _storage = restarted(&disk, &mut world);
        assert_eq!(world.acknowledges(world.bob, &[sent]).await.acknowledged, 1);
        assert_eq!(world.depth(world.bob).await, depth(0, 0));
    });
}

#[test]
fn what_lenses_did_is_kept_over_a_restart() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let sent = world.sends_many(world.bob, 3).await;
        world.leases(world.bob, 3).await;
        let (from, to) = (Version::new(1, 0, 0), Version::new(2, 0, 0));
        let transformed = Transformed::new(from, to, vec!["/a".to_owned()], Vec::new(), false);
        let transformed = Arc::new(transformed);
        let notes = sent[..2].iter().map(|&id| (id, Arc::clone(&transformed))).collect();
        done(world.store.note_transformed(world.bob, notes)).await;
        // With an outcome, which is kept in the same record; the second one is acknowledged after the restart.
        let outcome = Outcome::new(OutcomeKind::Done, "Tidy");
        let which = Acknowledge::Concluded(vec![sent[0]], Arc::clone(&outcome));
        done(world.store.acknowledge(world.bob, which, world.now)).await;

        let _storage = restarted(&disk, &mut world);
        world.acknowledges(world.bob, &sent[1..]).await;
        let forms = [
            (Some(outcome), Some(Arc::clone(&transformed))),
            (None, Some(transformed)),
            (None, None),
        ];
        for (id, form) in sent.into_iter().zip(forms) {
            let status = done(world.store.message_status(id, world.now)).await;
            let row = status.and_then(|mut rows| rows.pop());
            let row = row.map(|row| (row.status, (row.outcome, row.transformed)));
            assert_eq!(row, Some((DeliveryStatus::Acknowledged, form)));
        }
    });
}

#[test]
fn an_operation_is_answered_only_when_its_changes_are_on_the_disk() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let pause = disk.pause_commits();
        let append = world.direct(world.bob, &crate::model::Headers::default());
        let mut append = world.store.append(vec![append], world.now);
        assert!(append.as_mut().now_or_never().is_none());
        pause.wait_for_commit();
        let mut lease = world.store.lease(world.bob, None, 1, usize::MAX, world.now);
        assert!(
            lease.as_mut().now_or_never().is_none(),
            "it saw what may be gone tomorrow"
        );

        let before = world.store.clone();
        let other = restarted(&disk, &mut world);
        assert_eq!(world.depth(world.bob).await, depth(0, 0), "killed before");
        drop(other);
        world.store = before;
        drop(pause);
        append.await.expect("it is written now");
        assert_eq!(lease.await.expect("that too").deliveries.len(), 1);

        let _storage = restarted(&disk, &mut world);
        assert_eq!(world.depth(world.bob).await, depth(1, 0), "killed after");
    });
}

#[test]
fn operations_that_arrive_during_a_commit_share_the_next_group() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let world = World::new(&storage).await;
        let pause = disk.pause_commits();
        let send = || {
            let append = world.direct(world.bob, &crate::model::Headers::default());
            let mut append = world.store.append(vec![append], world.now);
            assert!(append.as_mut().now_or_never().is_none());
            append
        };
        let first = send();
        pause.wait_for_commit();
        let before = disk.commits();
        let others: Vec<_> = (0..50).map(|_| send()).collect();
        drop(pause);
        first.await.expect("it is written");
        for answer in join_all(others).await {
            answer.expect("it is written");
        }
        assert_eq!(disk.commits() - before, 2);
    });
}

#[test]
fn time_to_live_passes_while_the_broker_is_down() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let (short, long) = (
            world.sends_for(world.bob, 60).await,
            world.sends_for(world.bob, 120).await,
        );

        // Another process has another monotonic clock.
        world.now = Now {
            unix_ms: world.now.unix_ms + 61_000,
            mono_ms: 7,
        };
        let _storage = restarted(&disk, &mut world);
        assert_eq!(world.leases(world.bob, 9).await, [long]);
        assert_eq!(world.dead().await, [(short, world.bob, DeadLetterReason::Expired)]);
        world.pass(Duration::from_secs(60));
        world.releases_all(world.bob).await;
        assert_eq!(world.depth(world.bob).await, depth(0, 0));
    });
}

#[test]
fn projects_and_the_audit_log_survive_a_restart() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
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

        let storage = opened(&disk.snapshot());
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
fn a_disk_of_a_later_version_is_refused() {
    let disk = SimulatedDisk::default();
    drop(opened(&disk));
    disk.put(key(SYSTEM_SPACE, kind::VERSION).0, (VERSION + 1).to_be_bytes().to_vec());
    let error = DiskStorage::open(disk, DiskSettings::default(), now()).expect_err("a later layout version");
    let told = format!(
        "the data have version {}, and this broker reads versions up to {VERSION}",
        VERSION + 1
    );
    assert!(error.to_string().contains(&told), "{error}");
}

#[test]
fn a_disk_of_an_earlier_version_gets_the_version_of_this_one() {
    let disk = SimulatedDisk::default();
    drop(opened(&disk));
    let version = || disk.values_of(kind::VERSION);
    let current = VERSION_WITHOUT_LENSES;
    assert_eq!(version(), [current.to_be_bytes()]);
    disk.put(key(SYSTEM_SPACE, kind::VERSION).0, (current - 1).to_be_bytes().to_vec());
    drop(opened(&disk));
    assert_eq!(version(), [current.to_be_bytes()]);
}

#[test]
fn earlier_versions_refuse_a_disk_from_the_first_lens_on() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let version = || disk.values_of(kind::VERSION);
        let put = async |world: &World, text: Option<&str>| {
            let text = text.map(Arc::from);
            let put = world
                .store
                .put_if(Table::Lenses, "chat 1.0.0 2.0.0".into(), Before::Any, text);
            assert_eq!(done(put).await, RecordPut::Stored);
        };
        put(&world, None).await;
        let before = Before::Text("{}".into());
        let refused = world
            .store
            .put_if(Table::Lenses, "chat 1.0.0 2.0.0".into(), before, Some("{}".into()));
        assert_eq!(done(refused).await, RecordPut::Differs(None));
        assert_eq!(version(), [VERSION_WITHOUT_LENSES.to_be_bytes()]);
        put(&world, Some("{}")).await;
        assert_eq!(version(), [VERSION.to_be_bytes()]);
        let _storage = reopened(&disk, storage, &mut world);
        put(&world, None).await;
        assert_eq!(version(), [VERSION.to_be_bytes()], "for good");
    });
}

#[test]
fn a_damaged_record_is_refused() {
    block_on(async {
        let disk = SimulatedDisk::default();
        World::new(&opened(&disk)).await;
        let at = ReceiptKey {
            receipt: 0,
            recipient_index: 0,
        };
        let place = records::receipt_key(SYSTEM_SPACE + 1, kind::QUEUED, at);
        disk.put(place, vec![1, 2, 3]);
        let error = DiskStorage::open(disk, DiskSettings::default(), now()).expect_err("it is too short");
        assert!(error.to_string().contains("a record cannot be read"), "{error}");
    });
}

/// Opens the same disk again, and points `world` at it.
fn reopened(disk: &SimulatedDisk, before: DiskStorage, world: &mut World) -> DiskStorage {
    drop(before);
    let storage = opened(disk);
    world.store = storage.open(&world.project);
    storage
}

#[test]
fn dead_letters_are_reported_under_the_same_number_after_a_restart() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let first = world.sends_dead_letter(world.bob).await;
        let storage = reopened(&disk, storage, &mut world);
        let claimed = done(world.store.unreported()).await;
        let second = world.sends_dead_letter(world.bob).await;
        let storage = reopened(&disk, storage, &mut world);
        let again = done(world.store.unreported()).await;
        let ids = |unreported: &Unreported| -> Vec<_> {
            let dead_letters = unreported.dead_letters.iter();
            dead_letters.map(|dead| dead.message.id).collect()
        };
        assert_eq!((again.until, ids(&again)), (claimed.until, vec![first]));
        done(world.store.mark_reported(again.until.expect("a number"))).await;
        let _storage = reopened(&disk, storage, &mut world);
        let next = done(world.store.unreported()).await;
        assert_eq!(ids(&next), [second], "what was reported is not reported again");
        assert!(next.until > again.until);
    });
}

/// The data of a version that reported none.
#[test]
fn dead_letters_of_an_earlier_version_are_not_reported() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        world.sends_dead_letter(world.bob).await;
        disk.remove_first(kind::REPORT_PROGRESS);
        let _storage = reopened(&disk, storage, &mut world);
        assert_eq!(done(world.store.unreported()).await.until, None);
        world.sends_dead_letter(world.bob).await;
        let next = done(world.store.unreported()).await;
        assert_eq!(next.dead_letters.len(), 1);
    });
}

#[test]
fn records_survive_a_restart_until_they_are_removed() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let put = async |world: &World, table, key: &str, text: Option<&str>| {
            let text = text.map(Arc::from);
            let put = world.store.put_if(table, key.into(), Before::Any, text);
            assert_eq!(done(put).await, RecordPut::Stored);
        };
        for table in Table::ALL {
            put(&world, table, "docs", Some("{1}")).await;
            put(&world, table, "gone", Some("{2}")).await;
        }
        let storage = reopened(&disk, storage, &mut world);
        for table in Table::ALL {
            let stored = done(world.store.list(table, Vec::new())).await;
            assert_eq!(stored, [("docs".into(), "{1}".into()), ("gone".into(), "{2}".into())]);
            put(&world, table, "gone", None).await;
        }
        let _storage = reopened(&disk, storage, &mut world);
        for table in Table::ALL {
            let stored = done(world.store.list(table, Vec::new())).await;
            assert_eq!(stored, [("docs".into(), "{1}".into())]);
            assert_eq!(disk.values_of(kind_of(table)), [b"{1}"]);
        }
    });
}

/// Records of the layouts 1 to 5 as they are on a disk.
#[test]
fn records_of_earlier_versions_are_read() {
    let space: u8 = 7;
    for (table, kind, of) in [
        (Table::AddedBackends, 29, &b"docs"[..]),
        (Table::BackendLists, 28, b"docs"),
        (Table::Targets, 27, &[0xff; 16]),
    ] {
        let expected = [&[0, 0, 0, space, kind][..], of].concat();
        assert_eq!(key(space.into(), kind_of(table)).rest(of).0, expected, "{table:?}");
    }
    let of_protocol = key(space.into(), 11).text("chat").rest(b"1.10.0").0;
    let mut reader = RecordReader(&of_protocol[5..]);
    assert_eq!(read_key(Table::Protocols, &mut reader), Ok(b"chat 1.10.0".to_vec()));
}

#[test]
fn finished_messages_leave_the_disk() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let settings = DiskSettings {
            retention: Retention {
                receipts_len_max: 10,
                dead_letters_len_max: 5,
                history_window: Duration::ZERO,
                ..Retention::default()
            },
            ..DiskSettings::default()
        };
        let storage = DiskStorage::open(disk.clone(), settings, now()).expect("the disk can be opened");
        let world = World::new(&storage).await;
        let empty = disk.len();
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
        // Receipts and dead letters at their limits, and how far these are reported.
        assert_eq!(disk.len(), empty + 10 + 5 + 1);
    });
}

#[test]
fn a_cleared_project_leaves_no_records_on_the_disk() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let empty = disk.len();
        let world = World::new(&storage).await;
        world.sends_many(world.bob, 5).await;
        world.append(world.broadcast(&[world.bob, world.carol])).await;
        storage
            .clear_project(world.project.clone())
            .await
            .expect("it is written");
        drop(world);
        // Purging ends before the storage closes, or after the next start.
        drop(storage);
        assert_eq!(disk.len(), empty);
    });
}

#[test]
fn purging_continues_after_a_restart() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let empty = disk.len();
        let world = World::new(&storage).await;
        world.sends_many(world.bob, 5).await;
        // As if the process had been killed between removing the project and purging its records.
        let cut = disk.snapshot();
        cut.remove(&records::space_key(&world.project));
        drop(opened(&cut));
        assert_eq!(cut.len(), empty);
    });
}
