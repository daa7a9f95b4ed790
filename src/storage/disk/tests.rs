use std::{collections::HashSet, process::Command, sync::Arc};

use actors::{
    clock::now,
    model::{Addressing, Capabilities, Draft, Headers, MessageIds, Owner, ProjectId, SessionId, SessionRecord},
    storage::{
        Acknowledge, Append, Audience, PutSession, Retention, Storage, StorageHealth,
        conformance::{CASES, TIMED_CASES, run},
    },
};

use super::*;

/// A folder that is gone with its test.
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
    let place = TempFolder::new();
    let storage: Arc<dyn Storage> = Arc::new(place.open().unwrap());
    run(CASES, || Arc::clone(&storage)).await;
    run(TIMED_CASES, || Arc::clone(&storage)).await;
}

#[test]
fn a_second_process_cannot_open_the_folder() {
    let place = TempFolder::new();
    let first = place.open().unwrap();
    let error = place.open().unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("data_dir {}: another process has it", place.0.display())),
        "{error}"
    );
    drop(first);
    place.open().unwrap();
}

#[test]
fn a_half_created_database_is_created_again() {
    let place = TempFolder::new();
    fs::create_dir_all(place.0.join("records")).unwrap();
    fs::write(place.0.join("records/0.jnl"), [0; 64]).unwrap();
    place.open().unwrap();
}

#[test]
fn the_folder_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let place = TempFolder::new();
    place.open().unwrap();
    let mode = fs::metadata(&place.0).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

#[test]
fn the_error_names_a_path_that_cannot_be_a_folder() {
    let place = TempFolder::new();
    fs::write(&place.0, "a file").unwrap();
    let error = place.open().unwrap_err().to_string();
    assert!(error.contains(&place.0.display().to_string()), "{error}");
    fs::remove_file(&place.0).unwrap();
}

#[actix_rt::test]
async fn a_folder_with_much_traffic_stays_small() {
    let place = TempFolder::new();
    let settings = DiskSettings {
        retention: Retention {
            receipts_len_max: 1000,
            ..Retention::default()
        },
        ..DiskSettings::default()
    };
    let storage = open(&place.0, settings, now()).unwrap();
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
        most = most.max(folder_bytes(&place.0));
    }
    assert!(most < 320 << 20, "{most} bytes, of 480 MB that passed through");
    drop(storage);
    open(&place.0, settings, now()).unwrap();
}

/// Messages of 16 KB to oneself.
fn messages_to_oneself(agent: &SessionRecord, ids: &MessageIds, len: usize) -> Vec<Append> {
    let (project, payload) = (ProjectId::default_project(), format!("\"{}\"", "x".repeat(16_000)));
    let each = (0..len).map(|_| {
        let draft = Draft::new(
            &project,
            agent,
            Addressing::Direct,
            ("chat", "1.0.0"),
            &payload,
            &Headers::default(),
        );
        Append {
            message: Arc::new(draft.seal(ids.next(now()), Some(agent.id), now(), false)),
            audience: Audience::One(agent.id),
            queue_capacity: 100_000,
            idempotency_key: None,
            roster_version: None,
        }
    });
    each.collect()
}

/// A small disk in memory, where this may be mounted.
struct SmallDisk(TempFolder);

impl SmallDisk {
    fn mounted(size: &str) -> Option<Self> {
        let place = TempFolder::new();
        fs::create_dir_all(&place.0).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        let is_mounted = mount.arg(&place.0).output().is_ok_and(|done| done.status.success());
        is_mounted.then_some(Self(place))
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
        eprintln!("nothing may be mounted here: the same with errors that are made up is in the crate `actors`");
        return;
    };
    let ballast = disk.0.0.join("ballast");
    fs::write(&ballast, vec![1; 40 << 20]).unwrap();
    let settings = DiskSettings {
        reserve_bytes: 0,
        // The disk is to be full before any budget is.
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
        "reads go on"
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

/// What a folder takes up on its disk.
fn folder_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let each = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        // What is gone meanwhile takes up nothing.
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    each.sum()
}

fn agent() -> SessionRecord {
    SessionRecord {
        id: SessionId::generate(),
        name: None,
        capabilities: Capabilities::default(),
        metadata: serde_json::Map::new(),
        connected_at_ms: 1,
        owner: Owner::anonymous(),
        holder: actors::model::Holder::default(),
    }
}
