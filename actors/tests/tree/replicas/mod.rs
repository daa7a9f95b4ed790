//! Several replicas over one store: every replica gives the same answers.

mod messages;
mod resync;
mod sessions;

use std::{sync::Arc, time::Duration};

use actors::{project::ProjectSettings, storage::conformance::SHARED_CASES};

use crate::{
    replicated_memory::{ReplicaConnection, ReplicatedMemory},
    world::{ActorThread, CHAT, World, run, settings, within_deadline},
};

/// Two replicas that share a store, with the connection of each to it.
pub struct ReplicaPair {
    pub here: World,
    pub there: World,
    here_connection: Arc<ReplicaConnection>,
    there_connection: Arc<ReplicaConnection>,
}

impl ReplicaPair {
    pub async fn new(settings: ProjectSettings) -> Self {
        let cluster = Arc::<ReplicatedMemory>::default();
        let (here_connection, there_connection) = (cluster.connect_replica(), cluster.connect_replica());
        let storage = |connection: &Arc<ReplicaConnection>| connection.storage();
        let here = World::on_storage(storage(&here_connection) as _, settings.clone(), ActorThread::Test).await;
        let there = World::on_shared_storage(storage(&there_connection) as _, settings, ActorThread::Test).await;
        Self {
            here,
            there,
            here_connection,
            there_connection,
        }
    }

    /// The first replica no longer reaches the store.
    pub fn cut_here(&self) {
        self.here_connection.cut();
    }

    /// The frames of the second replica wait, or come again.
    pub fn hold_frames_there(&self, held: bool) {
        self.there_connection.frames_held.send_replace(held);
    }

    /// The second replica loses one of this many frames; 0: none.
    pub fn lose_frames_there(&self, one_in: usize) {
        self.there_connection.frame_filter.lose_one_in(one_in);
    }
}

#[test]
fn the_test_double_passes_the_conformance_suite_of_shared_stores() {
    for (name, case) in SHARED_CASES {
        run(move || async move {
            println!("{name}");
            let cluster = Arc::<ReplicatedMemory>::default();
            case(cluster.connect_replica().storage()).await;
        });
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    within_deadline(what, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

pub async fn await_session(of: &World, name: &str) {
    until("the session is known", || of.project.resolve(name).known().is_ok()).await;
}

#[test]
fn a_project_created_at_one_replica_is_open_at_the_other() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let acme = here
            .other_project("acme", actors::model::ProjectConfig::default())
            .await;
        let there = within_deadline("it is opened there", async {
            loop {
                match there.broker.project(acme.project.id()).await {
                    Ok(project) => return there.with_project(project),
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        })
        .await;
        there.project.wait_until_current().await.unwrap();
        assert!(there.project.protocol(CHAT, "1.0.0").is_ok());
        here.broker.delete_project(acme.project.id()).await.unwrap();
        within_deadline("it is closed there", async {
            while there.broker.project(acme.project.id()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    });
}
