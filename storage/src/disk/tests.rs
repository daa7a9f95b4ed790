//! The disk storage on a real folder: the conformance suite, the lock, its size, a full disk.

use std::{collections::HashSet, process::Command, sync::Arc};

use actors::{
    clock::now,
    model::{Addressing, Headers, MessageIds, NewMessage, Owner, ProjectId, SessionId, SessionRecord, WakePreference},
    storage::{
        Acknowledge, Append, Audience, PutSession, Retention, Storage, StorageHealth,
        conformance::{CASES, EVENT_CASES, TIMED_CASES, run},
    },
};

use super::*;

/// A folder that is deleted at the end of its test.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("mcp-broker-disk-{}", uuid::Uuid::new_v4())))
    }

    fn open(&self) -> io::Result<DiskStorage> {
        open(&self.0, DiskSettings::default(), now())
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[actix_rt::test]
async fn the_disk_storage_passes_the_conformance_suite() {
    let folder = TempFolder::new();
    let storage: Arc<dyn Storage> = Arc::new(folder.open().unwrap());
    run(CASES, || Arc::clone(&storage)).await;
    run(TIMED_CASES, || Arc::clone(&storage)).await;
    run(EVENT_CASES, || Arc::clone(&storage)).await;
}

#[test]
fn a_second_process_cannot_open_the_folder() {
    let folder = TempFolder::new();
    let first = folder.open().unwrap();
    let error = folder.open().unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("data_dir {}: another process uses it", folder.0.display())),
        "{error}"
    );
    drop(first);
    folder.open().unwrap();
}

#[test]
fn a_half_created_database_is_created_again() {
    let folder = TempFolder::new();
    fs::create_dir_all(folder.0.join("records")).unwrap();
    fs::write(folder.0.join("records/0.jnl"), [0; 64]).unwrap();
    folder.open().unwrap();
}

#[test]
fn a_folder_whose_creation_found_the_disk_full_is_created_again() {
    let folder = TempFolder::new();
    fs::create_dir_all(folder.0.join("records")).unwrap();
    for name in ["records/0.jnl", "records/lock", "records/version"] {
        fs::write(folder.0.join(name), "").unwrap();
    }
    folder.open().unwrap();
}

#[test]
fn the_folder_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempFolder::new();
    folder.open().unwrap();
    let mode = fs::metadata(&folder.0).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

#[test]
fn the_error_names_a_path_that_cannot_be_a_folder() {
    let folder = TempFolder::new();
    fs::write(&folder.0, "a file").unwrap();
    let error = folder.open().unwrap_err().to_string();
    assert!(error.contains(&folder.0.display().to_string()), "{error}");
    fs::remove_file(&folder.0).unwrap();
}

#[actix_rt::test]
async fn a_folder_with_much_traffic_stays_small() {
    let folder = TempFolder::new();
    let settings = DiskSettings {
        retention: Retention {
            receipts_len_max: 1000,
            ..Retention::default()
        },
        ..DiskSettings::default()
    };
    let storage = open(&folder.0, settings, now()).unwrap();
    let (store, ids) = (storage.open(&ProjectId::default_project()), MessageIds::default());
    let agent = agent();
    store.put_session(agent.clone(), PutSession::default()).await.unwrap();
    let mut most = 0;
    for _ in 0..60 {
        store
            .append(messages_to_oneself(&agent, &ids, 500), now())
            .await
            .unwrap();
        let leased = store.lease(agent.id, None, 500, usize::MAX, now()).await.unwrap();
        let leased = leased.deliveries.iter().map(|delivery| delivery.message.id).collect();
        store
            .acknowledge(agent.id, Acknowledge::Ids(leased), now())
            .await
            .unwrap();
        most = most.max(folder_bytes(&folder.0));
    }
    assert!(most < 320 << 20, "{most} bytes, of 480 MB that passed through");
    drop(storage);
    open(&folder.0, settings, now()).unwrap();
}

/// Messages of 16 KB to oneself.
fn messages_to_oneself(agent: &SessionRecord, ids: &MessageIds, len: usize) -> Vec<Append> {
    let (project, payload) = (ProjectId::default_project(), format!("\"{}\"", "x".repeat(16_000)));
    let each = (0..len).map(|_| {
        let draft = NewMessage::new(
            &project,
            agent,
            Addressing::Direct,
            ("chat", "1.0.0"),
            &payload,
            &Headers::default(),
        );
        Append {
            message: draft.seal(ids.next(now()), Some(agent.id), now(), false),
            audience: Audience::One(agent.id),
            queue_capacity: 100_000,
            idempotency_key: None,
            roster_version: None,
        }
    });
    each.collect()
}

/// A small disk in memory, where the test may mount one.
struct SmallDisk(TempFolder);

impl SmallDisk {
    fn mounted(size: &str) -> Option<Self> {
        let folder = TempFolder::new();
        fs::create_dir_all(&folder.0).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        let is_mounted = mount.arg(&folder.0).output().is_ok_and(|done| done.status.success());
        is_mounted.then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0.0).status();
    }
}

#[actix_rt::test]
async fn a_full_disk_loses_nothing_and_recovers_when_space_is_freed() {
    let Some(disk) = SmallDisk::mounted("100m") else {
        eprintln!("nothing may be mounted here: the crate `actors` tests the same with injected errors");
        return;
    };
    let ballast = disk.0.0.join("ballast");
    fs::write(&ballast, vec![1; 40 << 20]).unwrap();
    let settings = DiskSettings {
        reserve_bytes: 0,
        // The disk is full before any budget is.
        retention: Retention {
            queue_bytes_max: usize::MAX,
            waiting_bytes_max: usize::MAX,
            messages_bytes_max: usize::MAX,
            ..Retention::default()
        },
    };
    let storage = open(&disk.0.0.join("data"), settings, now()).unwrap();
    let (store, ids) = (storage.open(&ProjectId::default_project()), MessageIds::default());
    let agent = agent();
    store.put_session(agent.clone(), PutSession::default()).await.unwrap();
    let mut accepted = Vec::new();
    let refusal = loop {
        let letters = messages_to_oneself(&agent, &ids, 50);
        let sent: Vec<_> = letters.iter().map(|letter| letter.message.id).collect();
        match store.append(letters, now()).await {
            Ok(_) => accepted.extend(sent),
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refusal, StoreError::Full(_)), "{refusal}");
    assert!(matches!(storage.health(), StorageHealth::Unavailable(_)));
    assert!(
        store.depth(agent.id).await.unwrap().waiting >= accepted.len(),
        "reads work"
    );

    fs::remove_file(&ballast).unwrap();
    while storage.health() != StorageHealth::Healthy {
        actix_rt::time::sleep(Duration::from_millis(20)).await;
    }
    store.append(messages_to_oneself(&agent, &ids, 1), now()).await.unwrap();
    drop((store, storage));
    let storage = open(&disk.0.0.join("data"), settings, now()).unwrap();
    let store = storage.open(&ProjectId::default_project());
    let leased = store
        .lease(agent.id, None, usize::MAX, usize::MAX, now())
        .await
        .unwrap();
    let leased: HashSet<_> = leased.deliveries.iter().map(|delivery| delivery.message.id).collect();
    assert!(accepted.iter().all(|id| leased.contains(id)));
}

/// The bytes that a folder takes up on its disk.
fn folder_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let each = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        // A file that was deleted meanwhile takes up nothing.
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    each.sum()
}

fn agent() -> SessionRecord {
    SessionRecord {
        id: SessionId::generate(),
        name: None,
        capabilities: Arc::default(),
        metadata: serde_json::Map::new(),
        aliases: Vec::new(),
        connected_at_ms: 1,
        owner: Owner::anonymous(),
        holder: actors::model::Holder::default(),
        wake: WakePreference::default(),
    }
}
