//! The kept lists of backends.

use std::sync::Arc;

use super::{
    super::{BACKEND_LISTS_BYTES_MAX, Storage},
    world::{World, done},
};
use crate::model::BackendName;

fn named(name: &str) -> BackendName {
    BackendName::parse(name).expect("a valid name")
}

async fn keeps(world: &World, name: &str, lists: Option<&str>) {
    done(world.store.keep_backend_lists(named(name), lists.map(Arc::from))).await;
}

/// The lists of two backends, as another handle of the store sees them.
async fn kept(storage: &dyn Storage, world: &World) -> [Option<Arc<str>>; 2] {
    let store = storage.open(&world.project);
    [
        done(store.backend_lists(named("docs"))).await,
        done(store.backend_lists(named("github"))).await,
    ]
}

pub async fn the_latest_lists_of_each_backend_are_kept(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let other = World::new(&*storage).await;
    assert_eq!(kept(&*storage, &world).await, [None, None]);
    let large = "\u{e4}".repeat(BACKEND_LISTS_BYTES_MAX / 2);
    keeps(&world, "docs", Some("[]")).await;
    keeps(&world, "github", Some(&large)).await;
    keeps(&world, "docs", Some(r#"{"tools":[1]}"#)).await;
    let docs = Some(Arc::from(r#"{"tools":[1]}"#));
    assert!(kept(&*storage, &world).await == [docs, Some(Arc::from(large))]);
    assert_eq!(kept(&*storage, &other).await, [None, None], "another project");
}

pub async fn lists_are_forgotten_with_their_backend_and_with_the_project(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let docs = Some(Arc::from("[1]"));
    for name in ["docs", "github", "gone"] {
        keeps(&world, name, Some("[1]")).await;
    }
    keeps(&world, "github", None).await;
    assert_eq!(kept(&*storage, &world).await, [docs.clone(), None]);
    keeps(&world, "github", Some("[2]")).await;
    done(world.store.retain_backend_lists(vec![named("docs"), named("new")])).await;
    assert_eq!(kept(&*storage, &world).await, [docs, None]);
    assert_eq!(done(world.store.backend_lists(named("gone"))).await, None);
    done(world.store.retain_backend_lists(Vec::new())).await;
    assert_eq!(kept(&*storage, &world).await, [None, None]);
    keeps(&world, "docs", Some("[3]")).await;
    done(storage.clear_project(world.project.clone())).await;
    assert_eq!(kept(&*storage, &world).await, [None, None]);
}
