//! The tables of added backends.

use std::sync::Arc;

use super::{
    super::{ADDED_BACKENDS_MAX, BACKEND_TABLE_BYTES_MAX, Storage, TableChange},
    world::{World, done},
};
use crate::model::BackendName;

fn named(name: &str) -> BackendName {
    BackendName::parse(name).expect("a valid name")
}

async fn changes(world: &World, name: &str, before: Option<&str>, table: Option<&str>) -> TableChange {
    let (before, table) = (before.map(Arc::from), table.map(Arc::from));
    done(world.store.change_added_backend(named(name), before, table)).await
}

fn differs(table: Option<&str>) -> TableChange {
    TableChange::Differs(table.map(Arc::from))
}

/// The tables as another handle of the store sees them.
async fn tables(storage: &dyn Storage, world: &World) -> Vec<(String, String)> {
    let tables = done(storage.open(&world.project).added_backends()).await;
    let tables = tables.into_iter();
    tables
        .map(|(name, table)| (name.to_string(), table.to_string()))
        .collect()
}

fn table(name: &str, table: &str) -> (String, String) {
    (name.to_owned(), table.to_owned())
}

pub async fn the_table_of_a_backend_is_changed_only_by_who_knows_it(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let other = World::new(&*storage).await;
    assert_eq!(changes(&world, "docs", Some("{1}"), Some("{2}")).await, differs(None));
    assert_eq!(changes(&world, "docs", Some("{1}"), None).await, differs(None));
    assert_eq!(changes(&world, "docs", None, Some("{1}")).await, TableChange::Stored);
    assert_eq!(changes(&world, "docs", None, Some("{2}")).await, differs(Some("{1}")));
    assert_eq!(changes(&world, "docs", Some("{0}"), None).await, differs(Some("{1}")));
    let large = "\u{e4}".repeat(BACKEND_TABLE_BYTES_MAX / 2);
    assert_eq!(changes(&world, "a", None, Some(&large)).await, TableChange::Stored);
    assert_eq!(
        changes(&world, "docs", Some("{1}"), Some("{2}")).await,
        TableChange::Stored
    );
    let stored = [table("a", &large), table("docs", "{2}")];
    assert!(tables(&*storage, &world).await == stored, "sorted by name");
    assert_eq!(tables(&*storage, &other).await, [], "another project");
    assert_eq!(changes(&world, "a", Some(&large), None).await, TableChange::Stored);
    assert_eq!(tables(&*storage, &world).await, [table("docs", "{2}")]);
    done(storage.clear_project(world.project.clone())).await;
    assert_eq!(tables(&*storage, &world).await, []);
}

pub async fn the_added_backends_of_a_project_are_bounded(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    for number in 0..ADDED_BACKENDS_MAX {
        let added = changes(&world, &format!("b{number}"), None, Some("{}")).await;
        assert_eq!(added, TableChange::Stored, "{number}");
    }
    assert_eq!(changes(&world, "more", None, Some("{}")).await, TableChange::Full);
    assert_eq!(
        changes(&world, "b0", Some("{}"), Some("{1}")).await,
        TableChange::Stored
    );
    assert_eq!(changes(&world, "b0", Some("{1}"), None).await, TableChange::Stored);
    assert_eq!(changes(&world, "more", None, Some("{}")).await, TableChange::Stored);
    assert_eq!(tables(&*storage, &world).await.len(), ADDED_BACKENDS_MAX);
}
