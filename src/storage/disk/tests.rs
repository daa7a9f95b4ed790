use std::sync::Arc;

use actors::{
    clock::now,
    model::{Capabilities, Draft, Headers, MessageIds, Owner, ProjectId, SessionId, SessionRecord, To},
    storage::{
        Acknowledge, Append, Audience, Retention, Seat, Storage,
        conformance::{CASES, TIMED_CASES, run},
    },
};

use super::*;

/// A folder that is gone with its test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("mcp-broker-disk-{}", uuid::Uuid::new_v4())))
    }

    fn open(&self) -> io::Result<DiskStorage> {
        open(&self.0, DiskSettings::default(), now())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[actix_rt::test]
async fn a_folder_keeps_every_promise() {
    let place = Place::new();
    let storage: Arc<dyn Storage> = Arc::new(place.open().unwrap());
    run(CASES, || Arc::clone(&storage)).await;
    run(TIMED_CASES, || Arc::clone(&storage)).await;
}

#[test]
fn a_folder_is_for_one_process() {
    let place = Place::new();
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
fn a_folder_whose_making_was_cut_short_is_made_again() {
    let place = Place::new();
    fs::create_dir_all(place.0.join("records")).unwrap();
    fs::write(place.0.join("records/0.jnl"), [0; 64]).unwrap();
    place.open().unwrap();
}

#[test]
fn nobody_else_on_the_machine_reads_the_folder() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.open().unwrap();
    let mode = fs::metadata(&place.0).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

#[test]
fn what_cannot_be_a_folder_is_named() {
    let place = Place::new();
    fs::write(&place.0, "a file").unwrap();
    let error = place.open().unwrap_err().to_string();
    assert!(error.contains(&place.0.display().to_string()), "{error}");
    fs::remove_file(&place.0).unwrap();
}

#[actix_rt::test]
async fn a_folder_through_which_much_passes_stays_small() {
    let place = Place::new();
    let settings = DiskSettings {
        retention: Retention {
            receipts_len_max: 1000,
            ..Retention::default()
        },
        ..DiskSettings::default()
    };
    let storage = open(&place.0, settings, now()).unwrap();
    let (project, ids) = (ProjectId::default_project(), MessageIds::default());
    let store = storage.open(&project);
    let agent = agent();
    store.put_session(agent.clone(), Seat::default()).await.unwrap();
    let payload = format!("\"{}\"", "x".repeat(16_000));
    let mut most = 0;
    for _ in 0..60 {
        let batch = (0..500).map(|_| {
            let draft = Draft::new(
                &project,
                &agent,
                To::One,
                ("chat", "1.0.0"),
                &payload,
                &Headers::default(),
            );
            Append {
                message: Arc::new(draft.seal(ids.next(now()), Some(agent.id), now(), false)),
                audience: Audience::One(agent.id),
                queue_capacity: 1000,
                idempotency_key: None,
                roster: None,
            }
        });
        store.append(batch.collect(), now()).await.unwrap();
        let leased = store.lease(agent.id, None, 500, usize::MAX, now()).await.unwrap();
        let leased = leased.deliveries.iter().map(|delivery| delivery.message.id).collect();
        store
            .acknowledge(agent.id, Acknowledge::Ids(leased), now())
            .await
            .unwrap();
        most = most.max(used_bytes(&place.0));
    }
    assert!(most < 320 << 20, "{most} bytes, of 480 MB that passed through");
    drop(storage);
    open(&place.0, settings, now()).unwrap();
}

/// What a folder takes up on its disk.
fn used_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let each = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => used_bytes(&entry.path()),
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
    }
}
