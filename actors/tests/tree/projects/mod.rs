//! Projects of a broker: creation, deletion, limits, keys and the audit, with concurrent writers to the store, a failing store
//! and a panicking broker actor.

mod audit;
mod changes;
mod creation;
mod deletion;
mod keys;
mod limits;
mod panics;

use std::{collections::BTreeSet, sync::Arc};

use actix_rt::Arbiter;
use actors::{
    broker::{Broker, BrokerHandle, Principal},
    clock::now,
    model::{ConfigChanges, IssuedKey, KeyId, NewKey, ProjectChanges, ProjectConfig, ProjectId, ProjectRecord, Scope},
    storage::Storage,
};

use crate::world::{World, broker_settings, new_project, project_id, settings, within_deadline};

/// Starts a broker on the thread of the test.
fn start_broker(storage: &Arc<impl Storage>) -> BrokerHandle {
    let arbiters = vec![Arbiter::current()];
    Broker::start(broker_settings(settings()), Arc::clone(storage) as _, arbiters, || {
        panic!("given up")
    })
}

fn default_project() -> ProjectId {
    ProjectId::default_project()
}

fn other_project_id() -> ProjectId {
    project_id("there")
}

/// Creates [`other_project_id`], and returns its first key.
async fn create_other_project(broker: &BrokerHandle) -> IssuedKey {
    let project = new_project("there", ProjectConfig::default());
    let (_, key) = broker.create_project(project).await.unwrap();
    key
}

fn rename_to(name: &str) -> ProjectChanges {
    ProjectChanges {
        name: Some(name.to_owned()),
        ..ProjectChanges::default()
    }
}

fn config_change(config: ConfigChanges) -> ProjectChanges {
    ProjectChanges {
        config,
        ..ProjectChanges::default()
    }
}

fn member_key() -> NewKey {
    NewKey {
        label: None,
        scope: Scope::Member,
        human: None,
        tools: None,
        expires_at_ms: None,
    }
}

fn principal(broker: &BrokerHandle, made: &IssuedKey) -> Arc<Principal> {
    broker.keyring().find(&made.key.digest()).expect("the key is known")
}

fn is_valid(broker: &BrokerHandle, made: &IssuedKey) -> bool {
    principal(broker, made).status.is_valid(now().unix_ms)
}

fn key_ids(record: &ProjectRecord) -> BTreeSet<KeyId> {
    record.keys.iter().map(|key| key.id.clone()).collect()
}

/// Polls a condition, and yields to the actors, until it holds.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    within_deadline(what, async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Applies changes to the project of this world.
async fn change(world: &World, changes: ProjectChanges) {
    let changed = world.broker.change_project(world.project.id(), changes);
    changed.await.unwrap();
}
