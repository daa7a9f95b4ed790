use std::sync::Arc;

use actors::{
    clock::now,
    storage::{
        Storage,
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
