//! Records: tables of texts that are changed by compare and set.

use std::sync::Arc;

use super::{
    super::{ADDED_BACKENDS_MAX, BACKEND_LISTS_BYTES_MAX, Before, RecordPut, Storage, Table},
    world::{World, done},
};

const ABSENT: Before = Before::Absent {
    len_max: ADDED_BACKENDS_MAX,
};

fn text(text: &str) -> Before {
    Before::Text(Arc::from(text))
}

fn differs(stored: Option<&str>) -> RecordPut {
    RecordPut::Differs(stored.map(Arc::from))
}

async fn puts(world: &World, table: Table, key: &str, before: Before, after: Option<&str>) -> RecordPut {
    done(world.store.put_if(table, key.into(), before, after.map(Arc::from))).await
}

/// The records of a table, as another handle of the store sees them.
async fn records(storage: &dyn Storage, world: &World, table: Table) -> Vec<(String, String)> {
    let records = done(storage.open(&world.project).list(table, Vec::new())).await;
    let records = records.into_iter();
    records
        .map(|(key, text)| (String::from_utf8_lossy(&key).into_owned(), text.to_string()))
        .collect()
}

fn record(key: &str, text: &str) -> (String, String) {
    (key.to_owned(), text.to_owned())
}

pub async fn a_record_is_changed_only_by_who_knows_it(storage: Arc<dyn Storage>) {
    for table in Table::ALL {
        let world = World::new(&*storage).await;
        let other = World::new(&*storage).await;
        let put = async |key, before, after| puts(&world, table, key, before, after).await;
        assert_eq!(put("docs", text("{1}"), Some("{2}")).await, differs(None));
        assert_eq!(put("docs", text("{1}"), None).await, differs(None));
        assert_eq!(put("docs", ABSENT, Some("{1}")).await, RecordPut::Stored);
        assert_eq!(put("docs", ABSENT, Some("{2}")).await, differs(Some("{1}")));
        assert_eq!(put("docs", text("{0}"), None).await, differs(Some("{1}")));
        let large = "\u{e4}".repeat(table.text_bytes_max().min(BACKEND_LISTS_BYTES_MAX) / 2);
        assert_eq!(put("a", ABSENT, Some(&large)).await, RecordPut::Stored);
        assert_eq!(put("docs", text("{1}"), Some("{2}")).await, RecordPut::Stored);
        let stored = [record("a", &large), record("docs", "{2}")];
        assert!(
            records(&*storage, &world, table).await == stored,
            "{table:?}: sorted by key"
        );
        assert_eq!(records(&*storage, &other, table).await, [], "another project");
        assert_eq!(put("a", text(&large), None).await, RecordPut::Stored);
        assert_eq!(records(&*storage, &world, table).await, [record("docs", "{2}")]);
        done(storage.clear_project(world.project.clone())).await;
        assert_eq!(records(&*storage, &world, table).await, []);
    }
}

pub async fn a_record_is_replaced_and_removed_unseen(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let table = Table::BackendLists;
    let get = async |key: &str| done(world.store.get(table, key.into())).await;
    for after in [None, Some("[]"), Some("[1]"), None, None, Some("[2]")] {
        assert_eq!(puts(&world, table, "docs", Before::Any, after).await, RecordPut::Stored);
        assert_eq!(get("docs").await.as_deref(), after);
    }
    assert_eq!(get("github").await, None);
    done(world.store.remove(table, "docs".into(), Before::Any)).await;
    assert_eq!(get("docs").await, None);
}

pub async fn records_are_listed_by_the_beginning_of_their_keys(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let keys: [&[u8]; 5] = [b"a", b"a/1", b"a/2", b"a0", b"\xff\x00\n"];
    for (at, key) in keys.iter().enumerate().rev() {
        let put = world
            .store
            .put_if(Table::Targets, key.to_vec(), ABSENT, Some(at.to_string().into()));
        assert_eq!(done(put).await, RecordPut::Stored);
    }
    for (prefix, found) in [
        (&b""[..], 0..5),
        (b"a", 0..4),
        (b"a/", 1..3),
        (b"b", 5..5),
        (b"\xff\x00", 4..5),
    ] {
        let listed = done(world.store.list(Table::Targets, prefix.to_vec())).await;
        let expected = found.map(|at| (keys[at].to_vec(), Arc::from(at.to_string())));
        assert_eq!(listed, expected.collect::<Vec<_>>());
        let listed: Vec<_> = listed.into_iter().map(|(key, _)| key).collect();
        assert_eq!(done(world.store.keys(Table::Targets, prefix.to_vec())).await, listed);
    }
}

pub async fn the_records_of_a_table_are_bounded(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let put = async |key: &str, before, after| puts(&world, Table::AddedBackends, key, before, after).await;
    for number in 0..ADDED_BACKENDS_MAX {
        let added = put(&format!("b{number}"), ABSENT, Some("{}")).await;
        assert_eq!(added, RecordPut::Stored, "{number}");
    }
    assert_eq!(put("more", ABSENT, Some("{}")).await, RecordPut::Full);
    assert_eq!(put("b0", text("{}"), Some("{1}")).await, RecordPut::Stored);
    assert_eq!(put("b0", text("{1}"), None).await, RecordPut::Stored);
    assert_eq!(put("more", ABSENT, Some("{}")).await, RecordPut::Stored);
    assert_eq!(
        records(&*storage, &world, Table::AddedBackends).await.len(),
        ADDED_BACKENDS_MAX
    );
    let too_long = "x".repeat(BACKEND_LISTS_BYTES_MAX + 1);
    let put = puts(&world, Table::BackendLists, "docs", Before::Any, Some(&too_long)).await;
    assert_eq!(put, RecordPut::Full);
}
